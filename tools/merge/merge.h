/*
 * merge - one checkpoint into another: which views lie between source and sink, in what order.
 *
 * source -> adapter (LoRA) -> filter -> rename -> tied names dropped -> extracted -> cast -> sink
 */
#ifndef CKPT_TOOLS_MERGE_MERGE_H
#define CKPT_TOOLS_MERGE_MERGE_H

#include "libckpt/ckpt.h"
#include "tools/cli.h"
#include "tools/opt/opt.h"

/* What ckpt-merge is told. */
struct merge_want {
    const char     *output;             /* a path, "-" for stdout, or NULL: beside the input */
    const char     *to;                 /* "hf", "safetensors", "torch", "dcp", "deepspeed",
                                           "gguf", "peft" */
    struct opt_list dtype;              /* "bf16" or "GLOB=bf16" */
    uint64_t        max_shard_size;
    struct opt_list adapter;            /* adapters to fold into the input */
    const char     *base;               /* for an input that is an adapter, and for extract */
    int64_t         extract;            /* rank of an adapter of what the input changed, or 0 */
    const char     *tag;
    struct opt_list include, exclude;
    struct opt_list exclude_adapter;    /* those of exclude that name an adapter's tensors */
    struct opt_list rename;             /* "from=to" prefixes */
    const char     *optimizer;          /* "keep", "drop"; NULL: as the output needs it */
    const char     *tied;               /* "keep", "drop" */
    const char     *weights;            /* of the mean: "0.7,0.3"; NULL: all alike */
    const char     *provenance;         /* "xxh128", "sha256", "names", "none" */
    int64_t         world, stage;       /* of a DeepSpeed output; 0: as the input has it */
    bool            merge;              /* fold an input that is an adapter into its base */
    bool            shards;             /* an adapter's shards stay shards */
    bool            together;           /* the inputs are folders of one checkpoint */
    bool            average, verify, dry_run, overwrite;
    bool            checksums;          /* those of the inputs are proved */
    struct opt_list given;              /* as opt_parse fills it */
};

/* One output and what it is made of. */
struct merge_job {
    const char *const *input;   /* several: their mean is made, or they are one together */
    size_t             n;
    const char        *output;  /* a directory, or a file when it ends in .safetensors, .pt or
                                   .bin, an archive as pack.h has them; "-" is stdout */
};

/* Do one job.  With dry_run prints the plan to stdout instead. */
int merge_run(const struct merge_want *want, struct cli *cli, const struct merge_job *job,
              struct ckpt_err *err);

#endif
