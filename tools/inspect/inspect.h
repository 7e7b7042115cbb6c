/*
 * inspect - report on a path: recognise, describe, measure, compare.
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

struct page_curves;

struct inspect_want {
    struct opt_list glob;               /* tensors to show; empty: all */
    const char     *tensor;             /* show values of this tensor */
    const char     *tag;
    const char     *html;               /* page to write instead of printing */
    bool            overwrite;          /* replace an existing page */
    struct page_curves *curves;         /* of that page; NULL without html */
    bool            optimizer, stats, digest, verify, tree, plot;
    bool            diff, compare;      /* compare several paths */
    bool            best;               /* a run means its best checkpoint */
    bool            together;           /* the paths are folders of one checkpoint */
    const char *const *part;            /* with together: the folders after the first */
    size_t          n_part;
    int64_t         rows;               /* of each end of data; -1: not said */
    bool            scan, rng, args, state;     /* instead of the list of tensors */
    bool            verify_signature;   /* with one of the following two */
    const char     *public_key, *certificate_root;
    const char     *signature;          /* file with it; NULL: model.sig of the path */
    bool            ignore_unsigned;    /* files that it does not cover are no difference */
};

/* Print everything that was asked about one path. */
int inspect_path(const struct inspect_want *w, struct cli *cli, const char *path,
                 struct ckpt_err *err);
/* --diff and --compare: print n paths together.  CKPT_ENO when --diff finds a difference. */
int inspect_together(const struct inspect_want *w, struct cli *cli, const char *const *path,
                     size_t n, struct ckpt_err *err);

/* Write the output to stdout, or into the page of w->html; takes o. */
int inspect_finish(struct out *o, const struct inspect_want *w, struct ckpt_err *err);
/* Write the page of w->html: a JSON document and w->curves.  CKPT_ECREATE when it exists and
 * w->overwrite is false. */
int inspect_html(const struct inspect_want *w, const struct ckpt_buf *json, struct ckpt_err *err);

/* The functions below print into o. */

/* One plot for the curves of all runs, or with json rows: losses by step, memory.csv by time.
 * *any says whether a run has one. */
int inspect_overlay(struct out *o, const char *const *path, size_t n, bool follow, bool json,
                    bool *any, struct ckpt_err *err);

/* As ckpt_open, with quantised weights dequantised. */
int inspect_open_values(struct ckpt_source **out, const char *path,
                        const struct ckpt_open_opts *opts, struct ckpt_err *err);
/* Dequantise the quantised weights of *src and add a row that says so; if `tensor` (or NULL) is
 * given and is not one of them, *src stays as it was.  Takes *src: NULL on failure. */
int inspect_see_values(struct out *o, struct ckpt_source **src, const char *tensor,
                       struct ckpt_err *err);
/* Facts, totals and the table of tensors. */
int inspect_source(struct out *o, const struct inspect_want *w, struct ckpt_source *src,
                   int jobs, struct ckpt_err *err);
/* One tensor: first values and statistics. */
int inspect_tensor(struct out *o, struct ckpt_source *src, const char *name,
                   struct ckpt_err *err);
/* *differ says whether a difference was found. */
int inspect_diff(struct out *o, const struct inspect_want *w, struct ckpt_source *a,
                 struct ckpt_source *b, int jobs, bool *differ, struct ckpt_err *err);
/*
 * A torch file as the tree it holds, random states decoded, or with arguments as the fields of a
 * training_args.bin; only damage is an error.  Takes file.
 */
int inspect_tree(struct out *o, struct ckpt_file *file, bool arguments, struct ckpt_err *err);
/* Whether it is a torch file without tensors that is safe to show as values. */
bool inspect_is_values(struct ckpt_file *file);
/* Whether it is any torch file that can be shown. */
bool inspect_is_torch(struct ckpt_file *file);
/* A checkpoint as the tree of modules in its tensors' names, indented for people. */
int inspect_modules(struct out *o, const struct inspect_want *w, struct ckpt_source *src,
                    bool indent, struct ckpt_err *err);
/* Random states: lines for people, prefixed by file (NULL: none); *out gets them for programs.
 * search: look for seeds that are not stored, which takes some 20 ms. */
struct torch_archive;
bool inspect_is_rng(const struct torch_archive *a);
int inspect_rng(struct out *o, const char *file, const struct torch_archive *a, bool search,
                json_t **out, struct ckpt_err *err);
/* --rng, --args, --state of a directory, or of a single file. */
int inspect_aspects(struct out *o, const struct inspect_want *w, const struct cli *cli,
                    const char *path, struct ckpt_err *err);
/*
 * Parameter groups, and norms of every parameter's moments: of src, or of the optimizer.pt that
 * path is or has.
 */
int inspect_optimizer(struct out *o, struct ckpt_source *src, const struct inspect_want *w,
                      const struct cli *cli, const char *path, struct ckpt_err *err);
/* What loading the files of a path could execute.  CKPT_EREFUSED when something is dangerous,
 * CKPT_EFORMAT when damaged, CKPT_EUNSUPPORTED when it cannot be judged, CKPT_ENO when only
 * suspicious; o is complete in each case. */
int inspect_scan(struct out *o, const struct cli *cli, const char *path, struct ckpt_err *err);
/* The same without output: CKPT_EREFUSED names the first dangerous finding. */
int inspect_scan_quietly(const struct cli *cli, const char *path, struct ckpt_err *err);
/* Whether a folder's files are those that the owner of a key signed.  CKPT_EREFUSED when the
 * signature is another's or wrong, CKPT_EMISMATCH when files differ, CKPT_ENO when only its
 * certificate has expired; o is complete in each case. */
int inspect_signature(struct out *o, const struct inspect_want *w, const struct cli *cli,
                      const char *path, struct ckpt_err *err);
/*
 * For a page, of the run in a folder: curves of its losses, of its devices and of whatever else it
 * logged, and its results, arguments, manifest, checkpoints and samples.  best: path of the best
 * checkpoint, or NULL.
 */
int inspect_gather_run(struct out *o, struct page_curves *curves, struct ckpt_dir *dir,
                       const char *best, struct ckpt_err *err);
/* The same with the run's progress and files, for a folder without weights; 1 when it is no run. */
int inspect_gather_dir(struct out *o, const struct inspect_want *w, struct ckpt_dir *dir,
                       struct ckpt_err *err);
/* The curves alone, under the name of the run (NULL: it is the only one), and the devices, which
 * are put into hardware. */
int inspect_gather_curves(json_t *hardware, struct page_curves *curves, const char *run,
                          struct ckpt_dir *dir, struct ckpt_err *err);
/* Of rows with a step, as in metrics.jsonl and log_history. */
int inspect_gather_rows(struct page_curves *curves, const char *run, const json_t *rows,
                        struct ckpt_err *err);
/* Of the tags of a log that w's globs select. */
struct run_log;
int inspect_gather_log(struct page_curves *curves, const char *run, const struct inspect_want *w,
                       const struct run_log *log, struct ckpt_err *err);
/* n of a folder checkpoint-<n>, or of Ray's checkpoint_<n>, which counts saves; else -1. */
int64_t inspect_saved_number(const struct ckpt_entry *e);
/* Path in dir of its trainer_state.json, or of its newest checkpoint's; "" when there is none. */
#define INSPECT_STATE_NAME 400
int inspect_newest_state(char name[INSPECT_STATE_NAME], struct ckpt_dir *dir,
                         struct ckpt_err *err);
/* Of n runs, each a curve in every chart; and the settings that are not the same in all: fields of
 * training_args.bin and of config.json. */
int inspect_gather_runs(struct out *o, struct page_curves *curves, const char *const *path,
                        size_t n, bool follow, struct ckpt_err *err);
/* The fields of a training_args.bin by name, NULL when it has none; takes the file. */
int inspect_arguments(json_t **out, struct ckpt_file *file, struct ckpt_err *err);
/* They as a table. */
void inspect_arguments_put(struct out *o, const json_t *fields);
/* trainer_state.json: progress and best metric; plot draws the losses, for people only. */
int inspect_trainer_state(struct out *o, const json_t *state, bool plot, bool json);
/* The last rows of its log, as many as a page shows. */
void inspect_run_log(struct out *o, const json_t *state);
/* The path of its best checkpoint, or NULL. */
const char *inspect_best_checkpoint(const json_t *state);
/* The same in short, for a directory. */
void inspect_run_summary(struct out *o, const json_t *state, bool plot);
/* Whether a file is shown as something other than a list of tensors. */
bool inspect_shown_as_values(const struct inspect_want *w, const struct cli *cli,
                             const char *path);
/* Verify that everything is present and readable: a manifest's digests, or checksums and every
 * tensor. */
int inspect_verify(struct out *o, const struct inspect_want *w, const struct cli *cli,
                   const char *path, struct ckpt_err *err);
/* The given option that concerns tensors, or NULL. */
const char *inspect_tensors_asked(const struct inspect_want *w);
/* A file that is a log or holds rows: one of the three below; returns 1 when path is neither. */
int inspect_data(struct out *o, const struct inspect_want *w, const struct cli *cli,
                 const char *path, struct ckpt_err *err);
/* A folder that is no checkpoint, as a log or rows; returns 1 when it is neither. */
int inspect_data_dir(struct out *o, const struct inspect_want *w, const struct cli *cli,
                     const char *path, struct ckpt_err *err);
/* What a run logged. */
int inspect_log(struct out *o, const struct inspect_want *w, bool json,
                const struct run_log *log, struct ckpt_err *err);
/* Report files that a directory's sets lack, and shards that no index names, in o. CKPT_EFORMAT
 * "missing" when one is missing; o is complete all the same. */
int inspect_whole(struct out *o, const struct cli *cli, const char *path, struct ckpt_err *err);
/* Add a hint to err: the newest older checkpoint beside path that verifies. */
void inspect_name_older(const struct inspect_want *w, const struct cli *cli, const char *path,
                        struct ckpt_err *err);
/* A parquet file: columns, metadata, row groups, first and last rows.  The file stays yours. */
int inspect_parquet(struct out *o, const struct inspect_want *w, bool json,
                    struct ckpt_file *file, struct ckpt_err *err);
/* JSON lines or text: fields, first and last rows, numbers by step. */
int inspect_rows(struct out *o, const struct inspect_want *w, bool json, const char *path,
                 struct ckpt_err *err);
/* The rows that are shown of so many: [0, first) and [from, rows), each once. */
struct inspect_ends { int64_t first, from; };
struct inspect_ends inspect_ends(const struct inspect_want *w, int64_t rows);
/* Begin the table "first_rows" or "last_rows"; a row of it, the text of an object; under both
 * tables the shape as pandas has it, for people. */
void inspect_ends_begin(struct out *o, const char *key);
void inspect_row(struct out *o, int64_t index, struct ckpt_buf *row);
void inspect_ends_shape(struct out *o, int64_t rows, int64_t columns);
/* What a file's writer said beside its schema, such as datasets' features: text by key. */
void inspect_metadata(struct out *o, bool json, const json_t *metadata);
/* A run's directory: its parts. */
int inspect_run(struct out *o, struct ckpt_dir *dir, struct ckpt_err *err);

enum { INSPECT_STATS = 1 << 0, INSPECT_DIGEST = 1 << 1 };

#define MEASURE_BINS 16

/* Measures of one tensor. */
struct tensor_measure {
    bool         numbers;               /* its dtype is ordered, and statistics were requested */
    struct stats s;
    /* Of at most 65,536 evenly spaced values: equal bins from low to high, at most four standard
     * deviations about the mean; values beyond are counted in the outermost bins.  low == high:
     * none. */
    double       hist_low, hist_high;
    uint32_t     hist[MEASURE_BINS];
    char         sha256[CKPT_SHA256_HEX];   /* of its bytes in row-major order, the same in every
                                               format; "" when not requested, or for a sub-byte
                                               dtype */
};

/* Read tensors index[0..n) (NULL: 0..n) completely, in constant memory on jobs threads, and
 * measure them into m[0..n) (NULL: only read). */
int inspect_measure(struct tensor_measure *m, struct ckpt_source *src, const size_t *index,
                    size_t n, unsigned what, int jobs, struct ckpt_err *err);
/* A histogram as a line of block characters; an empty bin is a blank. */
char *inspect_measure_spark(char dst[MEASURE_BINS * 3 + 1], const struct tensor_measure *m);
/* The same as JSON: {"low", "high", "counts"}. */
char *inspect_measure_histogram(char dst[512], const struct tensor_measure *m);
/* Whether the globs of w select the name. */
bool inspect_wants(const struct inspect_want *w, const char *name);
/* CKPT_ENOTFOUND when a --glob is given and n names of a checkpoint with some are wanted: none. */
int inspect_wanted(const struct inspect_want *w, size_t n, size_t count, struct ckpt_err *err);

#endif
