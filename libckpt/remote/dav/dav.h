/*
 * dav - a folder of a WebDAV server.
 *
 *   dav://host/path     http, for this host (another: see CKPT_INSECURE_HTTP in ckpt-remote(7))
 *   davs://host/path    https; webdav+http:// and webdav+https:// are the same two
 *
 *   PROPFIND {path}/    Depth: 1: a <response> with <href>, <getcontentlength>, <getetag> and
 *                       <getlastmodified> for each file and folder; folders have <collection/>
 *   GET      {path}     the bytes
 *
 * Folders are listed one by one: many servers refuse to list all below one at once.  Source: RFC
 * 4918; RFC 4331 (quota).
 */
#ifndef CKPT_LIBCKPT_REMOTE_DAV_DAV_H
#define CKPT_LIBCKPT_REMOTE_DAV_DAV_H

#include "libckpt/remote/http.h"
#include "libckpt/remote/tree.h"

struct dav {
    char             name[1024];        /* of the folder, for messages: "davs://host/path" */
    char             base[2048];        /* its address, "/" at its end */
    char             line[4096];        /* that authenticates a request, or "" */
    struct http_auth auth;
};

/* What a server says of one file or folder. */
struct dav_entry {
    char     path[4096];                /* below the folder of the request, unescaped; "": itself */
    bool     is_folder;
    uint64_t size;                      /* FIELD_NONE: not told */
    uint64_t free;                      /* bytes that may be added, or FIELD_NONE */
    char     tag[FIELD_BYTES];          /* ETag as it stands, or "" */
    char     modified[FIELD_BYTES];     /* or "" */
};

struct dav_call {
    const char             *name;       /* for messages */
    const char             *method;
    const char             *path;       /* below the folder; "": the folder itself */
    const char             *headers;    /* lines, each ended by '\n'; or NULL */
    const struct http_body *body;
};

/* Whether an address is one of WebDAV. */
bool dav_is_address(const char *address);
/* Find out what address names, and what authenticates requests to it.  CKPT_EREFUSED for http to
 * another host. */
int dav_open_place(struct dav *d, const char *address, struct ckpt_err *err);
void dav_close_place(struct dav *d);
const struct http_auth *dav_auth(const struct dav *d);
int dav_address(char url[HTTP_URL], const struct dav *d, const char *path, struct ckpt_err *err);
/* A request; text (ckpt_free), or NULL, gets the answer's body. */
int dav_ask(char **text, const struct dav *d, const struct dav_call *c, struct http_answer *a,
            struct ckpt_err *err);
/* What the server says of one path; CKPT_ENOTFOUND when there is nothing. */
int dav_look(struct dav_entry *e, const struct dav *d, const char *path, struct ckpt_err *err);
/* Call found for all files and folders below path ("" or "folder/"), their paths below d. */
int dav_list(const struct dav *d, const char *path,
             int (*found)(void *ctx, const struct dav_entry *e, struct ckpt_err *err), void *ctx,
             struct ckpt_err *err);
/* Read one answer: base is the path of the request's address.  CKPT_EPROTOCOL when it is none. */
int dav_read_page(const char *text, const char *base, const char *name,
                  int (*found)(void *ctx, const struct dav_entry *e, struct ckpt_err *err),
                  void *ctx, struct ckpt_err *err);

/* As a source: gives a tree or an object, depending on the address. */
int dav_open(struct tree **tree, struct range **object, const char *address,
             struct ckpt_err *err);

#endif
