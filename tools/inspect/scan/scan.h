/*
 * scan - what loading a file, or a folder's files, could execute; see inspect_scan.
 *
 * Every file is judged by its content, not by its name, and so is every file packed in it; a
 * packed file's path has a "!" for each container around it.  A file that cannot be judged is
 * reported as such, never passed over: no finding means that the file was understood to its end.
 * A name can only make a verdict worse: a file named like a checkpoint that is not one counts as
 * damaged.
 */
#ifndef CKPT_TOOLS_INSPECT_SCAN_SCAN_H
#define CKPT_TOOLS_INSPECT_SCAN_SCAN_H

#include <jansson.h>

#include "libckpt/base/map.h"
#include "libckpt/file.h"
#include "libckpt/io/path.h"
#include "libckpt/mem.h"
#include "tools/out.h"

enum verdict {
    SCAN_CLEAN,         /* a name that is usual in checkpoints */
    SCAN_NOTE,          /* reported, but not counted as a finding */
    SCAN_SUSPICIOUS,    /* a loader may run code that is here, or that is elsewhere */
    SCAN_UNJUDGED,      /* not understood: nothing can be said about it */
    SCAN_DAMAGED,
    SCAN_DANGEROUS,
    SCAN_VERDICTS
};

struct scan {
    struct ckpt_map  *seen;     /* device and inode of each folder, which live in ids; NULL: not
                                   of a folder */
    struct ckpt_arena ids;
    struct out *o;              /* NULL: findings are only counted, and the first dangerous one
                                   is stored */
    const char *spool;          /* where packed files are unpacked */
    int64_t     files, members, pickles;
    int64_t     count[SCAN_VERDICTS];
    uint64_t    read, unpacked; /* bytes read of files and unpacked from containers so far */
    uint64_t    steps;          /* opcodes followed in searches for hidden pickles */
    char        worst[600];     /* the first dangerous finding */
};

/* A file, or bytes of one, to be judged. */
struct subject {
    struct ckpt_file *file;     /* borrowed */
    const char       *path;     /* "a.tar.gz!inner/m.bin" */
    int               depth;    /* containers around it */
    bool              rest;     /* only search these bytes: no format accounts for them */
};

#define SCAN_NOWHERE (-1)       /* value of `at` when the finding is not at a place in a pickle */

/* Report a finding.  what: the name, file or key; use: "called", "named" or ""; reason: why. */
void scan_put(struct scan *s, const char *path, const char *what, int64_t at, const char *use,
              enum verdict verdict, const char *reason);
/* Report that a reader refused a file, with its message; only CKPT_ENOMEM is returned,
 * everything else is a finding and 0. */
int scan_refused(struct scan *s, const char *path, struct ckpt_err *err);
/* Read a torch file, zip or legacy, with the strict reader; its names are reported already. */
int scan_strictly(struct scan *s, const struct subject *f, struct ckpt_err *err);
/* Judge a subject of any kind.  This and the following return 0, or CKPT_ENOMEM. */
int scan_subject(struct scan *s, const struct subject *f, struct ckpt_err *err);
/* Judge a part of a subject, called name: bytes of its file from offset on. */
int scan_part(struct scan *s, const struct subject *f, const char *name, uint64_t offset,
              uint64_t size, bool rest, struct ckpt_err *err);
/* Judge a file made from a subject's bytes, which is closed; name NULL: it has the subject's
 * path. */
int scan_made(struct scan *s, const struct subject *f, const char *name, struct ckpt_file *file,
              struct ckpt_err *err);

/* A single file under that path, without output: CKPT_EREFUSED "refused-global" names the first
 * dangerous finding. */
int scan_refuse(struct ckpt_file *file, const char *path, const char *spool, struct ckpt_err *err);

/* The last component of a path, within the last container. */
const char *scan_base(const char *path);

/* -- containers: archives.c -- */
int scan_zip(struct scan *s, const struct subject *f, struct ckpt_err *err);
int scan_tar(struct scan *s, const struct subject *f, struct ckpt_err *err);
int scan_packed(struct scan *s, const struct subject *f, struct ckpt_err *err);     /* gzip, ... */
int scan_zlib(struct scan *s, const struct subject *f, struct ckpt_err *err);

/* -- pickles.c -- */
/* Pickles one after another from the start of a file that is, or is named like, a pickle. */
int scan_pickles(struct scan *s, const struct subject *f, struct ckpt_err *err);
/* Whether pickle.load would execute something in the file, or load it completely, though it has
 * no magic: protocols 0 and 1. */
bool scan_is_pickle(const struct subject *f, bool text);
/* Search a file of unknown format for pickles anywhere in it. */
int scan_hidden(struct scan *s, const struct subject *f, struct ckpt_err *err);
/* The verdict on a name, and its reason. */
enum verdict scan_judge(const char *module, const char *name, const char **reason);

/* -- texts.c, json.c: what is read, not run, unless it asks for code -- */
int scan_text(struct scan *s, const struct subject *f, struct ckpt_err *err);
void scan_template(struct scan *s, const char *path, const char *what, const char *text, size_t n);
/* Judge a dotted name that a configuration instantiates. */
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
