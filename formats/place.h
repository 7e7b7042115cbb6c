/*
 * place - a path or an open file, prepared for bidders and openers.
 */
#ifndef CKPT_FORMATS_PLACE_H
#define CKPT_FORMATS_PLACE_H

#include "libckpt/format.h"

#define CKPT_HEAD_BYTES 512

/* The input of bidders and openers.  Borrowed by both. */
struct ckpt_place {
    const char              *path;      /* as the user gave it */
    struct ckpt_dir         *dir;       /* set when it is a directory */
    const struct ckpt_entry *entry;     /* its entries, sorted by name */
    size_t                   n_entry;
    struct ckpt_file        *file;      /* set when it is a file; see `took` */
    unsigned char            head[CKPT_HEAD_BYTES];
    size_t                   head_len;
    bool                     packed;    /* dir is the content of an archive */
    bool                     took;      /* set by an opener that took ownership of dir or file */
};

/*
 * Open path, and opts->part with it; a directory's entries are in arena.  "-" is standard input.
 * A compressed file is unpacked; a tar or zip file becomes the directory inside, except for
 * torch's own archives, which stay files.
 */
int place_open(struct ckpt_place *p, const char *path, const struct ckpt_open_opts *opts,
               struct ckpt_arena *arena, struct ckpt_err *err);
/* Enter the only file or folder of an archive, if there is just one; *entered says whether. */
int place_enter(struct ckpt_place *p, struct ckpt_arena *arena, bool *entered,
                struct ckpt_err *err);
/* The place of an open file.  Takes file, on failure too. */
int place_of_file(struct ckpt_place *p, struct ckpt_file *file, struct ckpt_err *err);
/* Close dir and file, unless an opener took ownership. */
void place_close(struct ckpt_place *p);
/* Whether a directory has an entry of that name that is a regular file. */
bool place_has(const struct ckpt_place *p, const char *name);
/* Whether some regular file of a directory matches the glob. */
bool place_has_like(const struct ckpt_place *p, const char *glob);
/* Whether it contains files of an unfinished download. */
bool place_is_partial(const struct ckpt_place *p);
/* Whether name matches one of n globs. */
bool place_name_like(const char *name, const char *const *glob, size_t n);
/* Whether a file is a web page, in letters of any case, with nothing but space before its tag. */
bool place_is_html(const struct ckpt_place *p);

#endif
