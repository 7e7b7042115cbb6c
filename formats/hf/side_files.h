/*
 * side_files - what belongs to a model beside its weights: config, tokenizer, templates, cards.
 *
 * By name, never by content.  State of a run (trainer_state.json, MANIFEST.json, optimizer,
 * random states) and indexes of other files are not part of the model.
 */
#ifndef CKPT_FORMATS_HF_SIDE_FILES_H
#define CKPT_FORMATS_HF_SIDE_FILES_H

#include "libckpt/commit.h"
#include "libckpt/source.h"

struct side_files {
    struct ckpt_extra *item;            /* names lie in the arena it was opened with */
    size_t             n, cap;
};

/* True for a name that goes along with a model. */
bool side_file_name(const char *name);
/* Open all of dir's side files of at most 256 MiB. */
int side_files_open(struct side_files *s, struct ckpt_dir *dir, struct ckpt_arena *arena,
                    struct ckpt_err *err);
void side_files_close(struct side_files *s);
/* Copy one into a directory that is being written. */
int side_file_put(struct ckpt_outdir *dir, const struct ckpt_extra *e, struct ckpt_err *err);
/* A source's side file as JSON, of so many bytes at most; NULL when it has none. */
int side_file_read(json_t **out, const struct ckpt_source *src, const char *name, uint64_t limit,
                   struct ckpt_err *err);
/* *src with value as that side file, or without the file (value NULL).  Takes info, the new facts;
 * NULL: they stay.  *src is closed and NULL after a failure. */
int side_file_replace(struct ckpt_source **src, const char *name, const json_t *value,
                      json_t *info, struct ckpt_err *err);
/*
 * Copy what goes with a run and not with a model: trainer_state.json, scheduler.pt,
 * training_args.bin, random states of the ranks below world, an adapter's own files.
 */
int side_files_put_run(struct ckpt_outdir *out, struct ckpt_dir *from, int world,
                       struct ckpt_err *err);
/* The name of the file that HF Trainer or accelerate keep an optimizer in, or NULL. */
const char *side_files_optimizer(struct ckpt_dir *dir);
/*
 * Copy what a run goes on from, whatever its weights are: the optimizer's file, schedule, loss
 * scale, random states, places in the data, state and arguments of the run.
 */
int side_files_put_states(struct ckpt_outdir *out, struct ckpt_dir *from, struct ckpt_err *err);

#endif
