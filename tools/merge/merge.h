/*
 * merge - convert one checkpoint into another: the views between source and sink, in order.
 *
 * source -> adapter (LoRA) -> filter -> rename -> tied names dropped -> extracted -> cast -> sink
 */
#ifndef CKPT_TOOLS_MERGE_MERGE_H
#define CKPT_TOOLS_MERGE_MERGE_H

#include "libckpt/ckpt.h"
#include "tools/cli.h"
#include "tools/opt/opt.h"

/* Options of ckpt-merge. */
struct merge_want {
    const char     *output;             /* a path, "-" for stdout, or NULL: beside the input */
    const char     *to;                 /* "hf", "safetensors", "torch", "dcp", "deepspeed",
                                           "gguf", "peft" */
    struct opt_list dtype;              /* "bf16" or "GLOB=bf16" */
    uint64_t        max_shard_size;
    struct opt_list adapter;            /* adapters to fold into the input */
    const char     *base;               /* base of an input that is an adapter, and of extract */
    int64_t         extract;            /* rank of the adapter to extract from the input's
                                           difference to the base, or 0 */
    const char     *tag;
    struct opt_list include, exclude;
    struct opt_list exclude_adapter;    /* those of exclude that name an adapter's tensors */
    struct opt_list rename;             /* "from=to" prefixes */
    const char     *optimizer;          /* "keep", "drop"; NULL: as the output needs it */
    const char     *tied;               /* "keep", "drop" */
    const char     *weights;            /* of the mean: "0.7,0.3"; NULL: equal */
    const char     *provenance;         /* "xxh128", "sha256", "names", "none" */
    int64_t         world, stage;       /* of a DeepSpeed output; 0: as in the input */
    bool            merge;              /* fold an input that is an adapter into its base */
    bool            shards;             /* an adapter's shards stay shards */
    bool            best;               /* a run means its best checkpoint */
    bool            together;           /* the inputs are folders of one checkpoint */
    bool            average, verify, dry_run, overwrite;
    bool            checksums;          /* verify those of the inputs */
    struct opt_list given;              /* options given, from opt_parse */
};

/* One output and its inputs. */
struct merge_job {
    const char *const *input;   /* several: averaged, or together one checkpoint */
    size_t             n;
    const char        *output;  /* a directory, or a file when it ends in .safetensors, .pt or
                                   .bin, an archive as pack.h has them; "-" is stdout */
    const char        *first;   /* of a dry run: what would be made before the output, the first
                                   part of its folder that is missing; NULL: its folder is there */
};

/* Do one job.  With dry_run print the plan to stdout instead, or refuse what the job would refuse
 * before it writes. */
int merge_run(const struct merge_want *want, struct cli *cli, const struct merge_job *job,
              struct ckpt_err *err);

/* After "exists already" of an output of merge_run: what --overwrite does.  Returns err's code. */
int merge_hint_overwrite(bool file, struct ckpt_err *err);

#endif
