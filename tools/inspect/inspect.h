/*
 * inspect - what there is to tell about a path: recognised, described, measured, compared.
 */
#ifndef CKPT_INSPECT_H
#define CKPT_INSPECT_H

#include "libckpt/ckpt.h"
#include "tools/cli.h"
#include "tools/opt.h"
#include "tools/out.h"

struct inspect_want {
    struct opt_list glob;               /* tensors to show; none: all */
    const char     *tensor;             /* one tensor's values */
    const char     *compare;            /* another checkpoint */
    const char     *tag;
    bool            optimizer, stats, digest, verify, tree, curve;
};

/* Everything that was asked about one path, printed.  CKPT_ENO when --compare finds a
 * difference. */
int inspect_path(const struct inspect_want *w, struct cli *cli, const char *path,
                 struct ckpt_err *err);

/* The rooms below print into o. */

/* Facts, totals and the table of tensors. */
int inspect_source(struct out *o, const struct inspect_want *w, struct ckpt_source *src,
                   struct ckpt_err *err);
/* One tensor: first values and statistics. */
int inspect_tensor(struct out *o, struct ckpt_source *src, const char *name,
                   struct ckpt_err *err);
/* *differ says whether anything did. */
int inspect_compare(struct out *o, struct ckpt_source *a, struct ckpt_source *b, bool *differ,
                    struct ckpt_err *err);
/* A torch file as the tree it holds, random states decoded; nothing is refused but damage. */
int inspect_tree(struct out *o, struct ckpt_file *file, struct ckpt_err *err);
/* trainer_state.json: how far, how good; curve draws the losses, for people only. */
int inspect_trainer_state(struct out *o, const json_t *state, bool curve, bool json);
/* The same in short, for a directory. */
void inspect_run_summary(struct out *o, const json_t *state, bool curve);
/* A file that is looked at as something other than a list of tensors, by its name. */
bool inspect_shown_as_values(const struct inspect_want *w, const char *path);
/* Everything is there and reads: a manifest's digests, or checksums and every tensor. */
int inspect_verify(struct out *o, const struct inspect_want *w, const struct cli *cli,
                   const char *path, struct ckpt_err *err);
/* A directory that a run left: its parts. */
int inspect_run(struct out *o, struct ckpt_dir *dir, struct ckpt_err *err);

/* Statistics of one tensor, read in pieces. */
struct tensor_stats {
    double  min, max, mean, std;
    int64_t n_nan, n_inf, n;            /* n counts finite values */
};
int tensor_stats(struct tensor_stats *s, struct ckpt_source *src, size_t i, struct ckpt_err *err);
/* SHA-256 of a tensor's bytes in row-major order: equal across formats. */
int tensor_digest(char hex[CKPT_SHA256_HEX], struct ckpt_source *src, size_t i,
                  struct ckpt_err *err);
/* Whether a name is wanted. */
bool inspect_wants(const struct inspect_want *w, const char *name);

#endif
