/*
 * nvml - memory, load, clock and power of a GPU, from NVIDIA's management library.
 *
 * The library comes with the driver and is opened at run time.  Names and numbers are those of
 * its header nvml.h (CUDA 13).  A chip may be sampled by one thread at a time.
 */
#ifndef CKPT_TRAINER_NVML_H
#define CKPT_TRAINER_NVML_H

#include <stdint.h>

#include "libckpt/fail.h"

struct nvml;

/* Reasons for a reduced clock, bits of nvml_now.held. */
enum nvml_held {
    NVML_POWER_CAP = 0x04, NVML_HW_SLOWDOWN = 0x08, NVML_HEAT = 0x20, NVML_HW_HEAT = 0x40,
    NVML_POWER_BRAKE = 0x80,
};

struct nvml_now {
    uint64_t used, total;       /* bytes of memory, of all processes */
    unsigned load;              /* percent of the time in which a kernel runs */
    double   mhz, watt;
    uint64_t held;
};

/* bus: as CUDA names a GPU ("0000:1b:00.0"); NULL or "": the first GPU.  CKPT_EDEVICE when there
 * is no library or no such chip. */
int nvml_open(struct nvml **out, const char *bus, struct ckpt_err *err);
void nvml_close(struct nvml *n);
/* The chip's index, as nvidia-smi shows it; and its name. */
unsigned nvml_index(const struct nvml *n);
const char *nvml_name(const struct nvml *n);
int nvml_sample(struct nvml *n, struct nvml_now *out, struct ckpt_err *err);

#endif
