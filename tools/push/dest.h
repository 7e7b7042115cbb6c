/*
 * dest - the kinds of destinations: one row each, found by the form of the address.
 *
 * An address that has no row's form is refused, never taken for a folder's name.
 */
#ifndef CKPT_TOOLS_PUSH_DEST_H
#define CKPT_TOOLS_PUSH_DEST_H

#include "tools/push/send.h"

/* Options of ckpt-push that only some destinations have. */
enum dest_takes {
    DEST_BRANCH  = 1 << 0,
    DEST_MESSAGE = 1 << 1,
    DEST_AUTHOR  = 1 << 2,
    DEST_CREATE  = 1 << 3,
    DEST_DELETE  = 1 << 4,
    DEST_PRIVATE = 1 << 5,
    DEST_PR      = 1 << 6,
    DEST_TAG     = 1 << 7,
    DEST_VERIFY  = 1 << 8,
    DEST_REPLACE = 1 << 9       /* of --hub-strategy checkpoint: a folder's old files go */
};

struct dest {
    const struct dest_kind *kind;
    const char             *address;    /* as it was given */
    const char             *place;      /* without a scheme that names only the kind */
};

struct dest_kind {
    const char *name;           /* with its article, for messages: "a folder" */
    const char *scheme;         /* "hf://"; NULL: a path on this host */
    bool        whole;          /* place includes the scheme */
    bool        is_public;      /* others read it: folders of this machine mean nothing there */
    unsigned    takes;          /* enum dest_takes */
    /* Whether an address is one, or a path on this host.  NULL for kinds with a scheme. */
    bool (*is_address)(const char *address);
    bool (*is_path)(const char *path);
    /* See dest_check, dest_send. */
    int (*check)(const struct dest *d, const struct send_want *w, struct ckpt_err *err);
    int (*send)(char *url, size_t size, const struct dest *d, struct push_plan *p,
                const struct send_want *w, const struct cli *cli, struct ckpt_err *err);
};

/* CKPT_EUSAGE names the forms of addresses.  Keeps address. */
int dest_find(struct dest *d, const char *address, struct ckpt_err *err);
/* Check a destination before there is anything to publish: CKPT_EUSAGE for options that it does
 * not have, or the error of opening it. */
int dest_check(const struct dest *d, const struct send_want *w, struct ckpt_err *err);
/* Publish.  url (of size bytes) gets the address to hand on: the folder, or <address>@<commit>. */
int dest_send(char *url, size_t size, const struct dest *d, struct push_plan *p,
              const struct send_want *w, const struct cli *cli, struct ckpt_err *err);

#endif
