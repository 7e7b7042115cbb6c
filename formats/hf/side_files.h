/*
 * side_files - files that belong to a model besides its weights: config, tokenizer, templates,
 * cards.
 *
 * Recognised by name, never by content.  State of a run (trainer_state.json, MANIFEST.json,
 * optimizer, random states) and indexes of other files are not part of the model.
 */
#ifndef CKPT_FORMATS_HF_SIDE_FILES_H
#define CKPT_FORMATS_HF_SIDE_FILES_H

#include "libckpt/commit.h"
#include "libckpt/source.h"

struct side_files {
    struct ckpt_extra *item;            /* names are in the arena passed to open */
    size_t             n, cap;
};

/* Whether a file of that name belongs to a model. */
bool side_file_name(const char *name);
/* Open all of dir's side files of at most 256 MiB. */
int side_files_open(struct side_files *s, struct ckpt_dir *dir, struct ckpt_arena *arena,
                    struct ckpt_err *err);
void side_files_close(struct side_files *s);
/* Copy one into a directory being written. */
int side_file_put(struct ckpt_outdir *dir, const struct ckpt_extra *e, struct ckpt_err *err);
/* A source's side file as JSON, of at most that many bytes; NULL when it has none. */
int side_file_read(json_t **out, const struct ckpt_source *src, const char *name, uint64_t limit,
                   struct ckpt_err *err);
/* Replace that side file of *src by value, or remove it (value NULL).  Takes info, the new
 * facts; NULL: unchanged.  *src is closed and NULL after a failure. */
int side_file_replace(struct ckpt_source **src, const char *name, const json_t *value,
                      json_t *info, struct ckpt_err *err);
/*
 * Copy files that belong to a run and not to a model: trainer_state.json, scheduler.pt,
 * training_args.bin, random states of the ranks below world, an adapter's own files.
 */
int side_files_put_run(struct ckpt_outdir *out, struct ckpt_dir *from, int world,
                       struct ckpt_err *err);
/* The name of the file in which HF Trainer or accelerate store an optimizer, or NULL. */
const char *side_files_optimizer(struct ckpt_dir *dir);
/*
 * Copy everything that a run resumes from except its weights: the optimizer's file, schedule,
 * loss scale, random states, positions in the data, state and arguments of the run.
 */
int side_files_put_states(struct ckpt_outdir *out, struct ckpt_dir *from, struct ckpt_err *err);

#endif
