/*
 * web - a checkpoint that lies on a web server.
 *
 * An address that ends in "/" is a folder.  Servers have no common way to list one, so its index
 * names the shards (model.safetensors.index.json or pytorch_model.bin.index.json), and the other
 * usual files of a checkpoint are requested by name.
 */
#ifndef CKPT_LIBCKPT_REMOTE_WEB_H
#define CKPT_LIBCKPT_REMOTE_WEB_H

#include "libckpt/remote/tree.h"

/* The folder at url, which ends in "/".  CKPT_ENOTFOUND when none of those files is there. */
int web_open(struct tree **out, const char *url, struct ckpt_err *err);
/* Add the files of an index to t; CKPT_EFORMAT when it is not one. */
int web_read_index(struct tree *t, const json_t *index, struct ckpt_err *err);

#endif
