/*
 * device - a backend in use: the head of every backend's device, and opening one by name.
 */
#ifndef CKPT_TRAINER_OPS_DEVICE_H
#define CKPT_TRAINER_OPS_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libckpt/dtype.h"
#include "libckpt/err.h"

struct ops;

/*
 * Products of the blocks' projections with factors of 8 bits, each with one scale per tensor:
 * HYBRID rounds weights and what is multiplied by them to e4m3, gradients of outputs to e5m2; E4M3
 * rounds all to e4m3.  (The words are Transformer Engine's.)
 */
enum device_fp8 { DEVICE_FP8_OFF, DEVICE_FP8_HYBRID, DEVICE_FP8_E4M3 };

/* The head of every device; a backend puts its own fields after it. */
struct device {
    const struct ops *ops;
    struct ckpt_err   err;          /* err.code != 0: broken, with the name of the op */
    int               threads;      /* CPU: threads of this rank; of a GPU those that read and draw
                                       weights on the host */
    int64_t           grain;        /* CPU: multiply-adds below which one thread does an op */
    enum ckpt_dtype   act, weight, grad;    /* see the top */
    bool              discrete;     /* its memory is not the host's */
    bool              by_row;       /* CPU, f32: a row's products have the same bits whatever other
                                       rows are multiplied with it (generation) */
    bool              untimed;      /* which algorithms are fast here is not known: as products are
                                       first met they are timed, which takes seconds */
    bool              varies;       /* GPU: products have other numbers of rows in each pass
                                       (generation, evaluation): what is fast is timed
                                       briefly, and taken for similar numbers too */
    enum device_fp8   fp8;          /* projections may round their factors to 8 bits */
    /* Memory for weights in 8 bits: the caller's, or NULL: they are made at each use.  Who lends
     * it keeps all weights where they are and raises a count after each change: `stepped` where
     * an optimizer changed what is trained, `loaded` where anything may be new. */
    void             *fp8_cache;
    uint64_t          fp8_cache_bytes, stepped, loaded;
    char              label[64];    /* GPU: what it is, for a person */
    char             bus[32];       /* GPU: where it is, as NVML knows it */
    void             *work;         /* workspace: the caller's memory, set before operations */
    uint64_t          work_bytes;
    uint64_t          held;         /* GPU: bytes that alloc has given and free not taken */
    uint64_t          context;      /* GPU: bytes that its driver holds for this process */
    struct profile   *profile;      /* profile.h, or NULL */
    /* The caller's, once set never cleared: work that is under way ends soon, unfinished, and
     * device_error says so.  NULL: nothing stops it. */
    const volatile int *stop;
    uint64_t          n_alloc;      /* calls of alloc so far: a step must not raise it */
};

/* Open the CPU device with so many threads (0: by CPUs). */
int device_open_cpu(struct device **out, int threads, struct ckpt_err *err);

struct device_opts {
    const char     *name;           /* "cpu", "cuda", "cuda:N"; NULL or "auto": a GPU when there is
                                       one and its plug-in, else the CPU */
    int             threads;        /* of this rank on the CPU, 0: by CPUs */
    enum ckpt_dtype weights;        /* F32, BF16, F16: the device's weight type, a GPU's act too */
    uint64_t        memory_limit;   /* bytes of a GPU's memory, 0: all */
    bool            tf32;           /* of a GPU: f32 products may round their factors to tf32 */
    enum device_fp8 fp8;            /* of a GPU, with weights of bf16 */
};

/* Open a device by name (device_open.c).  CKPT_ECONFIG for an unknown name, CKPT_EDEVICE when it
 * is asked for by name and cannot be used. */
int device_open(struct device **out, const struct device_opts *opts, struct ckpt_err *err);
/* How many GPUs "auto" could choose from. */
int device_gpu_count(void);
struct comm;
/* Give the ranks' communicator one over buffers of the device (comm_on_device), or, where it was
 * split, each of its parts instead; nothing to do on the CPU.  Collective, once all ranks have
 * opened theirs. */
int device_join(struct device *dev, struct comm *host, struct ckpt_err *err);
struct simulate_net;
/* Likewise one that simulates the others (comm/simulate.h), where host is a plan for many ranks.
 * CKPT_ECONFIG on the CPU. */
int device_simulate(struct device *dev, struct comm *host, const struct simulate_net *net,
                    struct ckpt_err *err);
void device_close(struct device *dev);
/* As ops->alloc and ops->pin, with the reason in err when it is NULL. */
void *device_alloc(struct device *dev, size_t bytes, struct ckpt_err *err);
void *device_pin(struct device *dev, size_t bytes, struct ckpt_err *err);
/* Whether `stop` is set: what is computed from now on is of no use. */
static inline bool device_stopped(const struct device *dev) { return dev->stop && *dev->stop; }
/* 0, or the sticky failure copied to err, or CKPT_ESTOPPED; waits for nothing. */
int device_error(const struct device *dev, struct ckpt_err *err);
/* The same after everything that was queued. */
int device_sync(struct device *dev, struct ckpt_err *err);

#endif
