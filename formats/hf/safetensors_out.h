/*
 * safetensors_out - write one file: the header first, with final offsets.
 *
 * Tensors are sorted by dtype, widest first, then by name, as the reference writer sorts them;
 * the header is padded with blanks to a multiple of 8.  The same list gives the same bytes.
 */
#ifndef CKPT_FORMATS_HF_SAFETENSORS_OUT_H
#define CKPT_FORMATS_HF_SAFETENSORS_OUT_H

#include "libckpt/format.h"

/* The row's create: a file at path, or a stream (opts->stream_fd > 0). */
int safetensors_create(struct ckpt_sink **out, const char *path,
                       const struct ckpt_tensors *tensors, const struct ckpt_create_opts *opts,
                       struct ckpt_err *err);

/* CKPT_EUNSUPPORTED where the format has no such dtype or name: before a file is created. */
int safetensors_check(const struct ckpt_tensors *list, struct ckpt_err *err);

/* A file being written, for writers of several files at once. */
struct safetensors_file;

/*
 * Lay out tensors pick[0..n_pick) of a checked list and write the header.  Takes out.  metadata:
 * text to text, or NULL; "format": "pt" is added, and record, if there is one, as
 * "ckpt.provenance": rewritten at commit when its bytes have changed.
 */
int safetensors_begin(struct safetensors_file **f, struct ckpt_out *out,
                      const struct ckpt_tensors *list, const size_t *pick, size_t n_pick,
                      const json_t *metadata, const char *record, struct ckpt_err *err);
/* Offset in the file of tensor pick[k]'s data. */
uint64_t safetensors_offset(const struct safetensors_file *f, size_t k);
struct ckpt_out *safetensors_out_file(const struct safetensors_file *f);
/* Both take f. */
int safetensors_commit(struct safetensors_file *f, struct ckpt_err *err);
void safetensors_abort(struct safetensors_file *f);

#endif
