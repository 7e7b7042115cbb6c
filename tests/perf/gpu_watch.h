/*
 * gpu_watch - clock, power and what holds the clock back, sampled while something runs.
 * Without NVIDIA's library there are no samples.
 */
#ifndef CKPT_TESTS_PERF_GPU_WATCH_H
#define CKPT_TESTS_PERF_GPU_WATCH_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "trainer/nvml.h"

enum { WATCH_REASONS = 5 };

struct gpu_watch {
    pthread_t    thread;
    atomic_bool  stop;
    bool         runs;
    struct nvml *nvml;
    int64_t      n;                     /* samples */
    double       mhz, watt;             /* sums, then means */
    int64_t      held[WATCH_REASONS];   /* samples in which that held the clock back */
    double       used;                  /* bytes of the chip's memory in use, at most */
};

/* bus: as nvml_open. */
void gpu_watch_start(struct gpu_watch *w, const char *bus);
void gpu_watch_stop(struct gpu_watch *w);
/* "mhz=... watt=... used_gib=... held=power-cap:93%" or "". */
const char *gpu_watch_text(const struct gpu_watch *w, char text[256]);

#endif
