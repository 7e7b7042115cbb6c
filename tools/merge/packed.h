/*
 * packed - an output directory that becomes one archive, or a stream: built aside as a directory,
 * then packed as a whole.  Meanwhile it takes the disk space of both.
 */
#ifndef CKPT_TOOLS_MERGE_PACKED_H
#define CKPT_TOOLS_MERGE_PACKED_H

#include "libckpt/ckpt.h"

struct merge_packed;

/* Whether format is written as one file. */
bool merge_is_file(const char *format);
/* Whether format, which is written as a directory, goes into an archive of that name. */
bool merge_is_packed(const char *output, const char *format);
/*
 * Start: *path is the directory to write.  It is beside output, or below spool for a stream;
 * leftovers of killed runs there are removed first.  flags: enum ckpt_commit_flags, of output.
 */
int merge_packed_begin(struct merge_packed **out, const char **path, const char *output,
                       const char *spool, unsigned flags, struct ckpt_err *err);
/* Refuse what that would refuse as things are now, and create nothing.  path: where the directory
 * would be written. */
int merge_packed_ready(char path[4352], const char *output, const char *spool, unsigned flags,
                       struct ckpt_err *err);
/* The directory is complete: pack it and give the output its name.  Takes packed. */
int merge_packed_commit(struct merge_packed *packed, const volatile int *stop,
                        struct ckpt_err *err);
/* Remove everything.  Takes packed; NULL accepted. */
void merge_packed_abort(struct merge_packed *packed);

#endif
