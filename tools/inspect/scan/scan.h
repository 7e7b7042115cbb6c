/*
 * scan - what loading a file, or a folder's files, could do; see inspect_scan.
 *
 * Every file is judged by what it is, not by its name, and what is packed in it as a file of its
 * own; its path then has a "!" for each container.  What cannot be judged is told as such, never
 * passed over: a file without a finding is one that was understood to its end.
 * A name only makes a verdict worse: what is called a checkpoint and is none is damaged.
 */
#ifndef CKPT_TOOLS_INSPECT_SCAN_SCAN_H
#define CKPT_TOOLS_INSPECT_SCAN_SCAN_H

#include <jansson.h>

#include "libckpt/file.h"
#include "libckpt/io/path.h"
#include "tools/out.h"

enum verdict {
    SCAN_CLEAN,         /* a name that checkpoints have */
    SCAN_NOTE,          /* told, and not counted as a finding */
    SCAN_SUSPICIOUS,    /* a loader may run what is not here, or code that is */
    SCAN_UNJUDGED,      /* not understood: no word about it */
    SCAN_DAMAGED,
    SCAN_DANGEROUS,
    SCAN_VERDICTS
};

struct scan {
    struct out *o;              /* NULL: findings are only counted, the first dangerous one kept */
    const char *spool;          /* where packed files are unpacked */
    int64_t     files, members, pickles;
    int64_t     count[SCAN_VERDICTS];
    uint64_t    read, unpacked; /* bytes of files, and out of what they pack, so far */
    char        worst[600];     /* the first dangerous finding */
};

/* A file, or bytes of one, to be judged. */
struct subject {
    struct ckpt_file *file;     /* borrowed */
    const char       *path;     /* "a.tar.gz!inner/m.bin" */
    int               depth;    /* containers around it */
    bool              rest;     /* bytes that no format has a place for */
};

#define SCAN_NOWHERE (-1)       /* at, when it is no place in a pickle */

/* A finding.  what: the name, file or key; use: "called", "named" or ""; reason: why. */
void scan_put(struct scan *s, const char *path, const char *what, int64_t at, const char *use,
              enum verdict verdict, const char *reason);
/* What a reader refused, in its words; CKPT_ENOMEM is handed on, all else is a finding and 0. */
int scan_refused(struct scan *s, const char *path, struct ckpt_err *err);
/* The strict reader of torch files, zip or legacy, on one whose names are told already. */
int scan_strictly(struct scan *s, const struct subject *f, struct ckpt_err *err);
/* Whatever it is.  All that follow return 0, or CKPT_ENOMEM. */
int scan_subject(struct scan *s, const struct subject *f, struct ckpt_err *err);
/* A part of a subject as one of its own, called name; bytes of its file from offset on. */
int scan_part(struct scan *s, const struct subject *f, const char *name, uint64_t offset,
              uint64_t size, bool rest, struct ckpt_err *err);
/* A file made of a subject's bytes, which is closed; name NULL: it has the subject's path. */
int scan_made(struct scan *s, const struct subject *f, const char *name, struct ckpt_file *file,
              struct ckpt_err *err);

/* The last component of a path, within the last container. */
const char *scan_base(const char *path);

/* -- containers: archives.c -- */
int scan_zip(struct scan *s, const struct subject *f, struct ckpt_err *err);
int scan_tar(struct scan *s, const struct subject *f, struct ckpt_err *err);
int scan_packed(struct scan *s, const struct subject *f, struct ckpt_err *err);     /* gzip, ... */
int scan_zlib(struct scan *s, const struct subject *f, struct ckpt_err *err);

/* -- pickles.c -- */
/* One after another from the start of a file that is known to be, or called, a pickle. */
int scan_pickles(struct scan *s, const struct subject *f, struct ckpt_err *err);
/* True for a file that pickle.load would run something of, or load whole, though it has no mark:
 * protocols 0 and 1. */
bool scan_is_pickle(const struct subject *f, bool text);
/* Pickles anywhere in a file that is understood in no other way. */
int scan_hidden(struct scan *s, const struct subject *f, struct ckpt_err *err);
/* The verdict on a name, and its reason. */
enum verdict scan_judge(const char *module, const char *name, const char **reason);

/* -- texts.c, json.c: what is read, not run, unless it asks for code -- */
int scan_text(struct scan *s, const struct subject *f, struct ckpt_err *err);
void scan_template(struct scan *s, const char *path, const char *what, const char *text, size_t n);
/* A name with dots that a configuration has made. */
void scan_target(struct scan *s, const char *path, const char *key, const char *target);
void scan_json(struct scan *s, const char *path, const json_t *json);

/* -- models.c: formats with numbers -- */
int scan_safetensors(struct scan *s, const struct subject *f, struct ckpt_err *err);
int scan_gguf(struct scan *s, const struct subject *f, struct ckpt_err *err);
int scan_npy(struct scan *s, const struct subject *f, struct ckpt_err *err);
int scan_hdf5(struct scan *s, const struct subject *f, struct ckpt_err *err);
int scan_arrow(struct scan *s, const struct subject *f, struct ckpt_err *err);
int scan_words(struct scan *s, const struct subject *f, struct ckpt_err *err);  /* sentencepiece */

#endif
