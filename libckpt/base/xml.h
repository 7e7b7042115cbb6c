/*
 * xml - find elements by name in what servers answer (S3, WebDAV): a reader of flat answers, not a
 * parser of documents.
 *
 * An element's content ends at the first end tag of its name, so that an element does not hold
 * another of the same name.  Attributes are skipped, and so is the prefix of a namespace before a
 * name.  Comments and CDATA are not known: what is not found counts as absent.
 */
#ifndef CKPT_LIBCKPT_BASE_XML_H
#define CKPT_LIBCKPT_BASE_XML_H

#include <stdbool.h>
#include <stddef.h>

/* A part of a text that is not changed meanwhile. */
struct xml {
    const char *at, *end;
};

/* The whole of a text that ends with NUL. */
struct xml xml_of(const char *text);
/* Find the next <name> of *in: its content, and *in moves behind it.  False when there is none, or
 * it has no end. */
bool xml_next(struct xml *element, struct xml *in, const char *name);
/* The text of the first <name>, its entities decoded.  False when it is absent, does not fit, or
 * has an unknown entity; out is "" then. */
bool xml_text(char *out, size_t size, struct xml in, const char *name);
/* The same for a whole number of at most 18 digits. */
bool xml_number(unsigned long long *out, struct xml in, const char *name);

#endif
