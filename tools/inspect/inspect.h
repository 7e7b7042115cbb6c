/*
 * inspect - what there is to tell about a path: recognised, described, measured, compared.
 */
#ifndef CKPT_TOOLS_INSPECT_INSPECT_H
#define CKPT_TOOLS_INSPECT_INSPECT_H

#include "libckpt/base/buf.h"
#include "libckpt/ckpt.h"
#include "libckpt/io/path.h"
#include "tools/cli.h"
#include "tools/opt/opt.h"
#include "tools/inspect/stats.h"
#include "tools/out.h"

struct inspect_want {
    struct opt_list glob;               /* tensors to show; none: all */
    const char     *tensor;             /* one tensor's values */
    const char     *tag;
    const char     *html;               /* page to write instead of printing */
    bool            overwrite;          /* also when it exists */
    bool            optimizer, stats, digest, verify, tree, plot;
    bool            diff, compare;      /* of several paths */
    bool            together;           /* the paths are folders of one checkpoint */
    const char *const *part;            /* those behind the first, then */
    size_t          n_part;
    bool            scan, rng, args, state;     /* instead of the list of tensors */
};

/* Everything that was asked about one path, printed. */
int inspect_path(const struct inspect_want *w, struct cli *cli, const char *path,
                 struct ckpt_err *err);
/* --diff and --compare: n paths together, printed.  CKPT_ENO when --diff finds a difference. */
int inspect_together(const struct inspect_want *w, struct cli *cli, const char *const *path,
                     size_t n, struct ckpt_err *err);

/* What was told goes to stdout, or into the page of w->html; takes o. */
int inspect_finish(struct out *o, const struct inspect_want *w, struct ckpt_err *err);
/* The page of w->html around a JSON document.  CKPT_ECREATE when it exists and w->overwrite is
 * not told. */
int inspect_html(const struct inspect_want *w, const struct ckpt_buf *json, struct ckpt_err *err);

/* The rooms below print into o. */

/* The curves of runs in one plot each, or with json as rows: losses by step, memory.csv by time.
 * *any says whether a run has one. */
int inspect_overlay(struct out *o, const char *const *path, size_t n, bool follow, bool json,
                    bool *any, struct ckpt_err *err);

/* ckpt_open, with quantised weights as their values. */
int inspect_open_values(struct ckpt_source **out, const char *path,
                        const struct ckpt_open_opts *opts, struct ckpt_err *err);
/* *src with quantised weights as their values, and a row that says so; where `tensor` (or NULL) is
 * asked for and is none of them, as it is.  Takes *src: NULL on failure, or as it was. */
int inspect_see_values(struct out *o, struct ckpt_source **src, const char *tensor,
                       struct ckpt_err *err);
/* Facts, totals and the table of tensors. */
int inspect_source(struct out *o, const struct inspect_want *w, struct ckpt_source *src,
                   int jobs, struct ckpt_err *err);
/* One tensor: first values and statistics. */
int inspect_tensor(struct out *o, struct ckpt_source *src, const char *name,
                   struct ckpt_err *err);
/* *differ says whether anything did. */
int inspect_diff(struct out *o, const struct inspect_want *w, struct ckpt_source *a,
                 struct ckpt_source *b, int jobs, bool *differ, struct ckpt_err *err);
/*
 * A torch file as the tree it holds, random states decoded, or with arguments as the fields of a
 * training_args.bin; nothing is refused but damage.  Takes file.
 */
int inspect_tree(struct out *o, struct ckpt_file *file, bool arguments, struct ckpt_err *err);
/* A torch file without weights, which loading would not refuse: shown as values. */
bool inspect_is_values(struct ckpt_file *file);
/* Any torch file that can be looked at. */
bool inspect_is_torch(struct ckpt_file *file);
/* A checkpoint as the modules that its tensors' names spell, indented for people. */
int inspect_modules(struct out *o, const struct inspect_want *w, struct ckpt_source *src,
                    bool indent, struct ckpt_err *err);
/* Random states: lines for people, file (NULL: none) in front; *out gets them for programs.
 * search: seeds that are not kept are looked for, which takes some 20 ms. */
struct torch_archive;
bool inspect_is_rng(const struct torch_archive *a);
int inspect_rng(struct out *o, const char *file, const struct torch_archive *a, bool search,
                json_t **out, struct ckpt_err *err);
/* --rng, --args, --state of a directory, or of the one file. */
int inspect_aspects(struct out *o, const struct inspect_want *w, const struct cli *cli,
                    const char *path, struct ckpt_err *err);
/*
 * Groups, and norms of every parameter's moments: those of src, or of the optimizer.pt that path
 * is or has.
 */
int inspect_optimizer(struct out *o, struct ckpt_source *src, const struct inspect_want *w,
                      const struct cli *cli, const char *path, struct ckpt_err *err);
/* What loading the files of a path could do.  CKPT_EREFUSED when something is dangerous,
 * CKPT_EFORMAT when damaged, CKPT_EUNSUPPORTED when not to be judged, CKPT_ENO when only
 * suspicious; o is whole all the same. */
int inspect_scan(struct out *o, const struct cli *cli, const char *path, struct ckpt_err *err);
/* The same untold: CKPT_EREFUSED names the first that is dangerous. */
int inspect_scan_quietly(const struct cli *cli, const char *path, struct ckpt_err *err);
/* trainer_state.json: how far, how good; plot draws the losses, for people only. */
int inspect_trainer_state(struct out *o, const json_t *state, bool plot, bool json);
/* Every row of its log. */
void inspect_run_log(struct out *o, const json_t *state);
/* The same in short, for a directory. */
void inspect_run_summary(struct out *o, const json_t *state, bool plot);
/* A file that is looked at as something other than a list of tensors. */
bool inspect_shown_as_values(const struct inspect_want *w, const struct cli *cli,
                             const char *path);
/* Everything is there and reads: a manifest's digests, or checksums and every tensor. */
int inspect_verify(struct out *o, const struct inspect_want *w, const struct cli *cli,
                   const char *path, struct ckpt_err *err);
/* The option that asks for tensors, or NULL. */
const char *inspect_tensors_asked(const struct inspect_want *w);
/* A file that is a log, or of rows: one of the three below; 1 when path is none. */
int inspect_data(struct out *o, const struct inspect_want *w, const struct cli *cli,
                 const char *path, struct ckpt_err *err);
/* A folder that is no checkpoint, as a log or rows; 1 when it is neither. */
int inspect_data_dir(struct out *o, const struct inspect_want *w, const struct cli *cli,
                     const char *path, struct ckpt_err *err);
/* What a run logged. */
struct run_log;
int inspect_log(struct out *o, const struct inspect_want *w, bool json,
                const struct run_log *log, struct ckpt_err *err);
/* Files of its sets that a directory lacks, and shards that no index names: told in o.
 * CKPT_EFORMAT "missing" when one is missing; o is whole all the same. */
int inspect_whole(struct out *o, const struct cli *cli, const char *path, struct ckpt_err *err);
/* A hint to err: the newest older checkpoint beside path that verifies. */
void inspect_name_older(const struct inspect_want *w, const struct cli *cli, const char *path,
                        struct ckpt_err *err);
/* A parquet file: columns, row groups, first rows.  The file stays yours. */
int inspect_parquet(struct out *o, const struct inspect_want *w, bool json,
                    struct ckpt_file *file, struct ckpt_err *err);
/* JSON lines or text: fields, first rows, numbers by step. */
int inspect_rows(struct out *o, const struct inspect_want *w, bool json, const char *path,
                 struct ckpt_err *err);
/* One row of the table of first rows: its only column, and the text of an object as a cell. */
extern const struct out_column inspect_row_column[];
void inspect_row(struct out *o, struct ckpt_buf *row);
/* A directory that a run left: its parts. */
int inspect_run(struct out *o, struct ckpt_dir *dir, struct ckpt_err *err);

enum { INSPECT_STATS = 1 << 0, INSPECT_DIGEST = 1 << 1 };

#define MEASURE_BINS 16

/* Measures of one tensor. */
struct tensor_measure {
    bool         numbers;               /* its dtype has an order, and statistics were wanted */
    struct stats s;
    /* Of at most 65,536 values, evenly spread: equal bins from low to high, four deviations
     * about the mean at most; what lies beyond is in the outermost.  low == high: none. */
    double       hist_low, hist_high;
    uint32_t     hist[MEASURE_BINS];
    char         sha256[CKPT_SHA256_HEX];   /* of its bytes in row-major order, in every format
                                               the same; "" when not wanted, or of a sub-byte
                                               dtype */
};

/* Read tensors index[0..n) (NULL: 0..n) to their ends, in constant memory on jobs threads, and
 * measure them into m[0..n) (NULL: only read). */
int inspect_measure(struct tensor_measure *m, struct ckpt_source *src, const size_t *index,
                    size_t n, unsigned what, int jobs, struct ckpt_err *err);
/* A histogram as a line of blocks; an empty bin is a blank. */
char *inspect_measure_spark(char dst[MEASURE_BINS * 3 + 1], const struct tensor_measure *m);
/* The same as JSON: {"low", "high", "counts"}. */
char *inspect_measure_histogram(char dst[512], const struct tensor_measure *m);
/* Whether a name is wanted. */
bool inspect_wants(const struct inspect_want *w, const char *name);

#endif
