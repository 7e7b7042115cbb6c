/*
 * records/card - what a data set's README.md says of its configurations.
 *
 *   ---
 *   configs:
 *   - config_name: main
 *     default: true
 *     data_dir: data
 *     data_files: PATTERN | [PATTERN, ...] | [{split: NAME, path: PATTERN | [PATTERN, ...]}, ...]
 *   ---
 *
 * Patterns are relative to the folder, below data_dir where there is one; "*" stays inside a name,
 * "**" does not.  Files of no split are of train.
 * Source: datasets 5.2 utils/metadata.py (MetadataConfigs), data_files.py (sanitize_patterns).
 */
#ifndef CKPT_FORMATS_RECORDS_CARD_H
#define CKPT_FORMATS_RECORDS_CARD_H

#include "libckpt/file.h"

struct card_files {
    const char *split, *pattern;
};

struct card_config {
    const char        *name, *data_dir;     /* data_dir: "" for none, without a "/" after it */
    bool               is_default;
    struct card_files *files;               /* [n]; none: the files of data_dir by their names */
    size_t             n;
};

/* The configurations in arena; none where README.md is not there or does not tell of any. */
int card_read(struct card_config **out, size_t *n, struct ckpt_dir *dir,
              struct ckpt_arena *arena, struct ckpt_err *err);
/* The same of the text of such a file, which is NUL-terminated; name is for messages. */
int card_parse(struct card_config **out, size_t *n, const char *text, size_t len,
               const char *name, struct ckpt_arena *arena, struct ckpt_err *err);
/* The one of this name; with NULL the only one, the one that is marked, or that is called
 * "default".  CKPT_ENOTFOUND and CKPT_EUSAGE name those there are.  path is for messages. */
int card_pick(const struct card_config **out, const struct card_config *all, size_t n,
              const char *name, const char *path, struct ckpt_err *err);

/* Whether a path, as "data/train-0.parquet", is one of a pattern's: "*" and "?" and "[a-z]" inside
 * a name, "**" over names.  Names that begin with "." are meant only where the pattern says so. */
bool card_matches(const char *pattern, const char *path);

#endif
