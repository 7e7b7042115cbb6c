/*
 * api - what every public header tells the compiler: C names in C++ too, and checked formats.
 */
#ifndef CKPT_LIBCKPT_API_H
#define CKPT_LIBCKPT_API_H

#ifdef __cplusplus
#define CKPT_BEGIN_C extern "C" {
#define CKPT_END_C   }
#else
#define CKPT_BEGIN_C
#define CKPT_END_C
#endif

/* The arguments from number a on are those of the printf format that is argument f. */
#if defined(__GNUC__)
#define CKPT_PRINTF(f, a) __attribute__((format(printf, f, a)))
#else
#define CKPT_PRINTF(f, a)
#endif

#endif
