/*
 * format - options of opening and creating, and the row that a checkpoint format fills in.
 *
 * Recognition is by bidding: from names and the first bytes every row says how sure it is that
 * the format is its own, and the highest bidder opens the path.  If that fails, no other row is
 * tried.
 */
#ifndef CKPT_LIBCKPT_FORMAT_H
#define CKPT_LIBCKPT_FORMAT_H

#include "libckpt/api.h"
#include "libckpt/sink.h"
#include "libckpt/source.h"

CKPT_BEGIN_C

#define CKPT_RECORD_FILE "ckpt_provenance.json"     /* opts->record in a directory */
#define CKPT_RECORD_KEY  "ckpt.provenance"          /* and among a file's metadata */

/*
 * All zero: the weights of the checkpoint at path, following no symbolic link.  size, in all
 * option structs: the struct's sizeof, or 0, which stands for version 0.1.
 */
struct ckpt_open_opts {
    size_t      size;
    const char *tag;            /* DeepSpeed: which folder; NULL: what `latest` says */
    const char *base;           /* PEFT and partial checkpoints: the base model's path */
    bool        optimizer;      /* list optimizer state too */
    bool        shards;         /* adapters: list the shards, under their names in the files */
    bool        follow;         /* follow symbolic links */
    bool        prove;          /* verify the checksums that archives store, as bytes are read */
    const char *spool;          /* directory to unpack in, NULL: /var/tmp */
    const char *const *part;    /* [n_part] further folders with files of the same checkpoint */
    size_t      n_part;
};

/* All zero: a complete new plain output at path. */
struct ckpt_create_opts {
    size_t                 size;             /* see struct ckpt_open_opts */
    uint64_t               max_shard_bytes;  /* 0: the format's default */
    const json_t          *metadata;         /* string -> string, or NULL */
    const struct ckpt_extra *extra;          /* side files to copy along */
    size_t                 n_extra;
    const json_t          *info;             /* facts the format may keep (steps, config) */
    const char            *record;           /* provenance, as JSON text, or NULL; its length is
                                                final, its bytes may change until the sink ends */
    unsigned               flags;            /* enum ckpt_commit_flags */
    int                    stream_fd;        /* > 0: write there instead of path; 0: no stream */
    const struct ckpt_source *origin;        /* the source below all views, for a format that
                                                takes more than tensors from it; or NULL */
    struct ckpt_dir       *run;              /* copy the optimizer and run state of this directory
                                                along, unchanged; or NULL */
    int                    zero_stage, world_size;   /* DeepSpeed; 0: as in origin */
};

struct ckpt_place;              /* a path, opened and listed for bidders and openers */

struct ckpt_format {
    const char *name;           /* "safetensors", "hf", "torch", "deepspeed", "peft" */
    const char *title;          /* "Hugging Face model directory" */
    int (*bid)(const struct ckpt_place *place);          /* 0 none .. 100 certain */
    int (*open)(struct ckpt_source **out, struct ckpt_place *place,
                const struct ckpt_open_opts *opts, struct ckpt_err *err);
    /* NULL where the format is read only */
    int (*create)(struct ckpt_sink **out, const char *path, const struct ckpt_tensors *tensors,
                  const struct ckpt_create_opts *opts, struct ckpt_err *err);
};

CKPT_END_C

#endif
