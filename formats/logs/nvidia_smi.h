/*
 * nvidia_smi - the CSV that nvidia-smi --query-gpu=... --format=csv -l writes: what a GPU's memory,
 * load and clock were, by time; ckpt-train writes the same (trainer/run/memory_log.h).
 *
 *   timestamp, index, name, memory.used [MiB], utilization.gpu [%]
 *   2026/11/21 17:30:00.123, 0, NVIDIA H200, 1234 MiB, 53 %
 *
 * Fields lie between ", "; a number may have its unit after it (nounits: none), "[N/A]" is none.
 * A series is a column of one GPU, named "INDEX/column"; its steps count that GPU's lines from 0.
 * Times are read as UTC: the file names no zone.  A last line without an end is torn and left out.
 * Source: nvidia-smi 580, --help-query-gpu and its output.
 */
#ifndef CKPT_FORMATS_LOGS_NVIDIA_SMI_H
#define CKPT_FORMATS_LOGS_NVIDIA_SMI_H

#include "formats/logs/run_log.h"

bool nvidia_smi_is(const unsigned char *head, size_t len);
/* Fills a fresh log.  CKPT_EFORMAT names the line that has other fields than the first. */
int nvidia_smi_read(struct run_log *log, struct ckpt_file *file, struct ckpt_err *err);

#endif
