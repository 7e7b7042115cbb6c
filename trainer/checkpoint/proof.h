/*
 * proof - verify a checkpoint against its manifest, as far as a resumed run reads it.
 *
 * Two steps, each file hashed once.  Before the load: sizes of all files, and digests of those
 * read first (configuration, state of the run).  During the load: digests of weights and
 * optimizer, computed by threads of every rank while the load reads the same bytes.
 *
 * Files that a resumed run does not read (training_args.bin, cards, licences) may be absent or
 * edited: a published checkpoint lacks some of them.
 */
#ifndef CKPT_TRAINER_CHECKPOINT_PROOF_H
#define CKPT_TRAINER_CHECKPOINT_PROOF_H

#include <jansson.h>
#include <stdbool.h>

#include "libckpt/fail.h"

struct proof;

/*
 * Sizes and early digests of the checkpoint at path.  speak: name absent files that are not
 * needed in a note.  CKPT_ENOTFOUND, reason "unproved": it has no manifest.  CKPT_EFORMAT: it is
 * damaged; the sentence names the file.
 */
int proof_first(const char *path, bool speak, struct ckpt_err *err);
/*
 * Begin to verify weights and optimizer: this rank's share of the files, by size.  manifest is
 * borrowed until proof_end.
 */
int proof_begin(struct proof **out, const char *path, const json_t *manifest, int rank,
                int world_size, struct ckpt_err *err);
/* Wait, and return the error of the first file that differs.  Takes p; NULL accepted. */
int proof_end(struct proof *p, struct ckpt_err *err);

#endif
