/*
 * attributes - what the .gitattributes files of a tree say of its paths, as git on a clone reads
 * them.
 *
 * A deeper file wins over one above it, in one file the last line that says something of an
 * attribute.  "-name" is false, "!name" takes back what was said, "name" is true, "name=value" a
 * value; "[attr]name" in the file at the root is a macro.  Only the tree counts: what a host's own
 * configuration adds is not known to who publishes.
 *
 * Source: gitattributes(5) and attr.c of git 2.39, with its limits: a line has less than 2048
 * bytes, a pattern that begins with "!" is none.
 */
#ifndef CKPT_LIBCKPT_REMOTE_GIT_ATTRIBUTES_H
#define CKPT_LIBCKPT_REMOTE_GIT_ATTRIBUTES_H

#include <stddef.h>

#include "libckpt/base/buf.h"

#define ATTRIBUTES_LINE_MAX 2048u       /* git passes over longer lines */

struct attributes;

enum attribute_state {
    ATTRIBUTE_UNSAID,           /* no line says anything */
    ATTRIBUTE_TAKEN_BACK,       /* the last that does has "!name" */
    ATTRIBUTE_FALSE,
    ATTRIBUTE_TRUE,
    ATTRIBUTE_VALUE
};

int attributes_new(struct attributes **out, struct ckpt_err *err);
void attributes_free(struct attributes *a);
/* The .gitattributes file of folder: "" for the root, else "a/b".  Once a folder. */
int attributes_add(struct attributes *a, const char *folder, const char *text, size_t len,
                   struct ckpt_err *err);
/* Of one path; *value is set for ATTRIBUTE_VALUE, and lives as long as a. */
int attributes_of(enum attribute_state *state, const char **value, struct attributes *a,
                  const char *path, const char *name, struct ckpt_err *err);

/* The pattern that matches path alone, appended to out. */
void attributes_pattern(struct ckpt_buf *out, const char *path);

#endif
