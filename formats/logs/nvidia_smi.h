/*
 * nvidia_smi - the CSV that nvidia-smi --query-gpu=... --format=csv -l writes: a GPU's memory,
 * load and clock over time; ckpt-train writes the same (trainer/tell/memory_log.h).
 *
 *   timestamp, index, name, memory.used [MiB], utilization.gpu [%]
 *   2026/11/21 17:30:00.123, 0, NVIDIA H200, 1234 MiB, 53 %
 *
 * Fields are separated by ", "; a number may be followed by its unit (nounits: none), "[N/A]"
 * means no value.  A series is a column of one GPU, named "INDEX/column"; its steps count that
 * GPU's lines from 0.  Times are read as UTC: the file names no zone.  An incomplete last line is
 * dropped.  Source: nvidia-smi 580, --help-query-gpu and its output.
 */
#ifndef CKPT_FORMATS_LOGS_NVIDIA_SMI_H
#define CKPT_FORMATS_LOGS_NVIDIA_SMI_H

#include "formats/logs/run_log.h"

bool nvidia_smi_is(const unsigned char *head, size_t len);
/* Fill a fresh log.  CKPT_EFORMAT names a line whose fields differ from the first's. */
int nvidia_smi_read(struct run_log *log, struct ckpt_file *file, struct ckpt_err *err);

#endif
