/*
 * attributes - the attributes that a tree's .gitattributes files give to its paths, as git reads
 * them in a clone.
 *
 * A deeper file wins over one above it; within a file the last line that mentions the attribute
 * wins.  "-name" is false, "!name" makes it unspecified, "name" is true, "name=value" a value;
 * "[attr]name" in the file at the root is a macro.  Only the tree counts: a publisher cannot know
 * the configuration of other hosts.
 *
 * Source: gitattributes(5) and attr.c of git 2.39, with its limits: a line has less than 2048
 * bytes, a pattern that begins with "!" is invalid.
 */
#ifndef CKPT_LIBCKPT_REMOTE_GIT_ATTRIBUTES_H
#define CKPT_LIBCKPT_REMOTE_GIT_ATTRIBUTES_H

#include <stddef.h>

#include "libckpt/base/buf.h"

#define ATTRIBUTES_LINE_MAX 2048u       /* git ignores longer lines */

struct attributes;

enum attribute_state {
    ATTRIBUTE_UNSAID,           /* no line mentions it */
    ATTRIBUTE_TAKEN_BACK,       /* the last line that mentions it has "!name" */
    ATTRIBUTE_FALSE,
    ATTRIBUTE_TRUE,
    ATTRIBUTE_VALUE
};

int attributes_new(struct attributes **out, struct ckpt_err *err);
void attributes_free(struct attributes *a);
/* Add the .gitattributes file of folder: "" for the root, else "a/b".  At most once per folder. */
int attributes_add(struct attributes *a, const char *folder, const char *text, size_t len,
                   struct ckpt_err *err);
/* The attribute of one path; *value is set for ATTRIBUTE_VALUE, and lives as long as a. */
int attributes_of(enum attribute_state *state, const char **value, struct attributes *a,
                  const char *path, const char *name, struct ckpt_err *err);

/* The pattern that matches path alone, appended to out. */
void attributes_pattern(struct ckpt_buf *out, const char *path);

#endif
