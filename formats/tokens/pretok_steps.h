/*
 * pretok_steps - what the steps of a pre-tokenizer do to a piece: shared by the room that reads
 * them from tokenizer.json and the room that runs them.
 */
#ifndef CKPT_FORMATS_TOKENS_PRETOK_STEPS_H
#define CKPT_FORMATS_TOKENS_PRETOK_STEPS_H

#include "formats/tokens/edit.h"
#include "formats/tokens/pretok.h"
#include "formats/tokens/unicode/regex.h"
#include "formats/tokens/unicode/scan.h"

#define PRETOK_MAX_STEPS 16 /* the longest sequence seen has six; bounds the nesting of calls */

enum behaviour { REMOVED, ISOLATED, MERGED_PREVIOUS, MERGED_NEXT, CONTIGUOUS };
enum metaspace { META_ALWAYS, META_FIRST, META_NEVER };

struct pretok_step {
    enum {
        STEP_SCAN,          /* a hand-written pattern, behaviour Isolated */
        STEP_REGEX,
        STEP_CLASS,         /* characters of a class */
        STEP_WORDS,         /* \w+|[^\w\s]+, the rest removed */
        STEP_SCRIPTS,
        STEP_FIXED,         /* so many characters */
        STEP_PREFIX,        /* a space in front, where there is none */
        STEP_METASPACE,     /* spaces by a mark, and one in front */
        STEP_BYTES          /* bytes spelt as characters */
    } kind;
    scan_fn        *scan;
    struct regex   *regex;
    enum behaviour  behaviour;
    bool            invert;
    bool          (*is)(uint32_t cp);   /* STEP_CLASS; NULL: equal to mark */
    uint32_t        mark;               /* STEP_CLASS, STEP_METASPACE */
    enum metaspace  scheme;
    size_t          length;             /* STEP_FIXED */
};

struct pretok {
    struct pretok_step step[PRETOK_MAX_STEPS];
    size_t             n_step;
    bool               lone_bytelevel;  /* the pre-tokenizer is one ByteLevel alone */
};

struct pretok_run {
    struct regex_run *regex[PRETOK_MAX_STEPS];
    struct edit_buf   buf[PRETOK_MAX_STEPS];
};

/* prepend_scheme of a Metaspace, splitter or decoder. */
int pretok_metaspace_scheme(const json_t *json, enum metaspace *out, struct ckpt_err *err);

#endif
