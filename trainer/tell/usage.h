/*
 * run/usage - what this process takes of the machine: memory, processor time, and its GPU's load.
 */
#ifndef CKPT_TRAINER_TELL_USAGE_H
#define CKPT_TRAINER_TELL_USAGE_H

#include "trainer/nvml.h"
#include "trainer/ops/ops.h"

struct usage {
    struct nvml *chip;                  /* NULL: the CPU */
    double       at, busy;              /* of the last sample: time, seconds of processor time */
    double       peak;                  /* MiB that usage_memory saw of a GPU */
};

struct usage_now {
    double resident, host;              /* MiB: of this process, of the host's memory in all */
    double cpu;                         /* percent of one CPU since the last sample */
    struct nvml_now gpu;                /* zeros without one */
};

/* Never fails: a GPU that cannot be asked is left out. */
void usage_open(struct usage *u, const struct device *dev);
void usage_sample(struct usage *u, struct usage_now *now);
/* Resident memory of this process, MiB; 0 where /proc has none. */
double usage_resident(void);
/* Of the device: the GPU's, of all processes, or resident memory.  MiB. */
double usage_memory(struct usage *u);
/* The most of that so far: of the CPU at any moment, of a GPU as often as usage_memory looked. */
double usage_peak(struct usage *u);
void usage_close(struct usage *u);

#endif
