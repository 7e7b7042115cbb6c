/*
 * memory_log - a device's memory by time, sampled beside the run, in the columns of nvidia-smi's
 * CSV (formats/logs/nvidia_smi.h).
 *
 * Of a GPU all processes' use counts, as in nvidia-smi; of the CPU this process's resident
 * memory.  A run that is resumed goes on in the same file.
 */
#ifndef CKPT_TRAINER_TELL_MEMORY_LOG_H
#define CKPT_TRAINER_TELL_MEMORY_LOG_H

#include "trainer/ops/ops.h"

struct memory_log;

/* MiB. */
struct memory_figures {
    double  peak, mean, least;
    int64_t n;                          /* samples; 0: none of the others counts */
};

/* memory.csv in dir, memory-N.csv of ranks after the first, as each has a device of its own: a
 * line now, one every so many seconds from now on, and one at the end. */
int memory_log_open(struct memory_log **out, const char *dir, int rank, const struct device *dev,
                    double seconds, struct ckpt_err *err);
/* Refuse what that would refuse of the first rank's file as it is now, and create nothing. */
int memory_log_ready(const char *dir, struct ckpt_err *err);
/* What was sampled until now; NULL: nothing. */
struct memory_figures memory_log_figures(struct memory_log *m);
/* A failure to write or to sample is a warning in the log. */
void memory_log_close(struct memory_log *m);

#endif
