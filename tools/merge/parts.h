/*
 * parts - shared by the files of ckpt-merge; merge.h is the interface.
 *
 * rules (options -> rules of views) -> views (source and its views) -> plan | write -> verify
 */
#ifndef CKPT_TOOLS_MERGE_PARTS_H
#define CKPT_TOOLS_MERGE_PARTS_H

#include "libckpt/format.h"
#include "libckpt/view.h"
#include "tools/merge/merge.h"
#include "tools/merge/provenance.h"

#define MERGE_MAX_RULES 64

/* Rules of views, in the order of their options. */
struct merge_rules {
    size_t                  n_cast, n_rename;
    struct ckpt_cast_rule   cast[MERGE_MAX_RULES];
    bool                    packs[MERGE_MAX_RULES];     /* q8_0, blocks that only a GGUF file
                                                           holds: the rule is to F32 */
    struct ckpt_rename_rule rename[MERGE_MAX_RULES];
};

/* "GLOB=dtype", or "dtype" for everything, of --dtype, and "FROM=TO" of --rename.  Texts are
 * allocated in a. */
int merge_rules_of(struct merge_rules *r, struct ckpt_arena *a, const struct merge_want *w,
                   struct ckpt_err *err);
/* *src becomes f32 where --dtype casts narrower values: what is computed of them is then rounded
 * once, to what is wanted.  Takes *src, on failure too. */
int merge_widen(struct ckpt_source **src, const struct merge_rules *r, struct ckpt_err *err);

/* "0.7,0.3": exactly n numbers. */
int merge_weights(double *weight, const char *text, size_t n, struct ckpt_err *err);

/* Open a checkpoint, of a format or whatever it is (NULL), and enter it into p by its role. */
int merge_open_one(struct ckpt_source **src, const char *format, const char *role,
                   const char *path, const struct ckpt_open_opts *opts, struct provenance *p,
                   struct ckpt_err *err);
/* Of w's excludes, those that begin with "base_model." go to exclude_adapter.  Lists are
 * allocated in a. */
int merge_split_excludes(struct merge_want *w, struct ckpt_arena *a, struct ckpt_err *err);
/* The WEIGHT of "DIR:WEIGHT", or NULL for "DIR" alone. */
const char *merge_adapter_weight(const char *item);
/*
 * Fold into one base w's adapters, and the job's input when it is an adapter and w names its
 * base.  Takes *src, on failure too.
 */
int merge_fold(struct ckpt_source **src, const struct merge_want *w, const struct merge_job *job,
               const struct merge_rules *r, bool follow, struct provenance *p,
               struct ckpt_err *err);
/*
 * CKPT_ENOTFOUND when an item of l matches no tensor's name: a glob, or the FROM of "FROM=TO"
 * when prefix; for "GLOB=dtype" of no floating tensor's.  An option without effect would be a
 * mistake that nobody notices.
 */
enum merge_pattern { MERGE_GLOB, MERGE_GLOB_DTYPE, MERGE_PREFIX };
int merge_must_match(const struct ckpt_source *src, enum merge_pattern kind,
                     const struct opt_list *l, const char *option, struct ckpt_err *err);

/*
 * Take tensors that *src lacks from w's base, with a note for each.  CKPT_EMISMATCH when the base
 * is another model's.
 */
int merge_fill(struct ckpt_source **src, const struct merge_want *w, bool follow,
               struct provenance *p, struct ckpt_err *err);
/* *src becomes the adapter of its difference to w's base.  Takes *src, on failure too. */
int merge_extract(struct ckpt_source **src, const struct merge_want *w, bool follow,
                  struct provenance *p, struct ckpt_err *err);
/*
 * The job's source with every view the options ask for; every checkpoint that is opened is
 * recorded in p.  origin is the one input below all views, NULL where there are several. format
 * is the one to be written: a GGUF file has views of its own.
 */
int merge_open(struct ckpt_source **src, const struct ckpt_source **origin,
               const struct merge_want *w, const struct merge_job *job, const char *format,
               bool follow, struct provenance *p, struct ckpt_err *err);

/*
 * CKPT_EUNSUPPORTED when src, written as a model's directory, would hold an adapter's tensors; a
 * warning when it has no config.json, or comes from a single file of tensors.  origin may be
 * NULL.
 */
int merge_check_result(const struct ckpt_source *src, const struct ckpt_source *origin,
                       const struct merge_job *job, const char *format, struct ckpt_err *err);

/* Whether optimizer states are among the tensors. */
bool merge_has_states(const struct ckpt_source *src);
/* Whether it is of an optimizer's state beside the weights of a training program's file. */
bool merge_is_optimizer(const struct ckpt_tensor *t);
/*
 * With --optimizer keep: *run becomes the directory whose states are copied as files, where the
 * input has them in a file.  CKPT_EUNSUPPORTED when the output cannot hold the input's states; a
 * warning when there are none.  origin may be NULL.
 */
int merge_keep_states(struct ckpt_dir **run, const struct ckpt_source *src,
                      const struct ckpt_source *origin, const struct merge_want *w,
                      const struct merge_job *job, const char *format, struct ckpt_err *err);

/* Print the planned output as rows on stdout. */
int merge_plan(const struct ckpt_source *src, const struct cli *cli, const char *format,
               const struct merge_job *job, struct ckpt_err *err);

/* Open output again and compare every element with src, by several workers.  CKPT_EIO "digest";
 * CKPT_ESTOPPED after a signal, the output stays then. */
int merge_verify(struct ckpt_source *src, const char *output, bool optimizer,
                 const struct cli *cli, struct ckpt_err *err);

#endif
