/*
 * mem - the only caller of malloc; checked size arithmetic and arenas.
 *
 * Sizes that come from a file go through ckpt_add/ckpt_mul before they reach an allocation.
 * Builds with -DCKPT_FAULTS can make the n-th request fail (see fault.h).
 */
#ifndef CKPT_LIBCKPT_MEM_H
#define CKPT_LIBCKPT_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libckpt/api.h"
#include "libckpt/fail.h"

CKPT_BEGIN_C

/* *out = a + b, a * b.  False on overflow, when *out is untouched. */
static inline bool ckpt_add(uint64_t *out, uint64_t a, uint64_t b)
{
    uint64_t sum;

    if (__builtin_add_overflow(a, b, &sum))
        return false;
    *out = sum;
    return true;
}

static inline bool ckpt_mul(uint64_t *out, uint64_t a, uint64_t b)
{
    uint64_t product;

    if (__builtin_mul_overflow(a, b, &product))
        return false;
    *out = product;
    return true;
}

/*
 * For a large local buffer that is written before it is read: skip -ftrivial-auto-var-init, which
 * would zero it at every call.
 */
#if defined(__has_attribute)
#if __has_attribute(uninitialized)
#define CKPT_UNSET __attribute__((uninitialized))
#endif
#endif
#ifndef CKPT_UNSET
#define CKPT_UNSET
#endif

/* n elements of size bytes, zeroed; NULL when refused or when the product overflows. */
void *ckpt_alloc(size_t n, size_t size);
/* As ckpt_alloc without zeroing, for buffers that kernels or reads fill: aligned to 64 bytes, or
 * to a page from CKPT_LARGE bytes on. */
#define CKPT_LARGE ((size_t)1 << 20)
void *ckpt_alloc_buffer(size_t bytes);
/* A large buffer of pages of its own, zeroed, that go back to the system with it, where malloc
 * would keep them for the next one; NULL when refused. */
void *mem_map(size_t bytes);
void mem_unmap(void *p, size_t bytes);  /* NULL is accepted */
/* Grow an array to n elements; NULL when refused, and the old block is unchanged. */
void *ckpt_grow(void *old, size_t n, size_t size);
int ckpt_grow_double(void *array, size_t *cap, size_t size, struct ckpt_err *err);
/*
 * Make space for one more element in an array that has n of *cap elements of size bytes; the
 * capacity doubles.  array is the address of the pointer to it.  The only failure is CKPT_ENOMEM,
 * with the array unchanged.
 */
static inline int ckpt_reserve(void *array, size_t n, size_t *cap, size_t size,
                               struct ckpt_err *err)
{
    return n < *cap ? 0 : ckpt_grow_double(array, cap, size, err);
}
/* Make space for n elements in each of several arrays that grow together.  The only failure is
 * CKPT_ENOMEM, with *cap and the elements unchanged. */
struct ckpt_array { void *array; size_t size; };
int ckpt_reserve_all(const struct ckpt_array *all, size_t n_all, size_t *cap, size_t n,
                     struct ckpt_err *err);
/* Frees memory of any call above but mem_map; NULL is accepted. */
void ckpt_free(void *p);
char *ckpt_strdup(const char *s);
/* Fill err with CKPT_ENOMEM and the size that was asked for. */
int ckpt_nomem(struct ckpt_err *err, size_t bytes);

/*
 * An arena: memory that is freed together.  A zeroed struct is a valid empty arena. All requests
 * are aligned to 16 bytes and zeroed.  One thread at a time.
 */
struct ckpt_arena {
    struct ckpt_arena_block *head;
    uint64_t used;             /* bytes handed out */
    uint64_t limit;            /* refuse beyond this many bytes; 0: no limit */
};

void *ckpt_arena_alloc(struct ckpt_arena *a, size_t n, size_t size);   /* NULL when refused */
/* As ckpt_reserve, for an array in an arena: the smaller array stays there until release. */
int ckpt_arena_reserve(struct ckpt_arena *a, void *array, size_t n, size_t *cap, size_t size,
                       struct ckpt_err *err);
char *ckpt_arena_strndup(struct ckpt_arena *a, const char *s, size_t len);
char *ckpt_arena_printf(struct ckpt_arena *a, const char *fmt, ...) CKPT_PRINTF(2, 3);
void ckpt_arena_release(struct ckpt_arena *a);

CKPT_END_C

#endif
