/*
 * packed - an output directory that becomes one archive, or a stream: built aside as the
 * directory it is, then packed whole.  The room it takes meanwhile is that of both.
 */
#ifndef CKPT_TOOLS_MERGE_PACKED_H
#define CKPT_TOOLS_MERGE_PACKED_H

#include "libckpt/ckpt.h"

struct merge_packed;

/* True when format, which is written as a directory, goes into an archive of that name. */
bool merge_is_packed(const char *output, const char *format);
/*
 * Start: *path is where the directory is to be written.  Beside output, or below spool for a
 * stream; what a killed run left there goes first.  flags: enum ckpt_commit_flags, of output.
 */
int merge_packed_begin(struct merge_packed **out, const char **path, const char *output,
                       const char *spool, unsigned flags, struct ckpt_err *err);
/* The directory is written: pack it and give the output its name.  Takes packed. */
int merge_packed_commit(struct merge_packed *packed, const volatile int *stop,
                        struct ckpt_err *err);
/* Leave nothing.  Takes packed; NULL accepted. */
void merge_packed_abort(struct merge_packed *packed);

#endif
