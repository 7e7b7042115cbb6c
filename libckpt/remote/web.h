/*
 * web - a checkpoint that lies on a web server.
 *
 * An address that ends in "/" is a folder.  Servers do not list those in a way that programs can
 * read, so it is known by its index: model.safetensors.index.json or pytorch_model.bin.index.json
 * names the shards, and the other files that checkpoints have are asked for by name.
 */
#ifndef CKPT_LIBCKPT_REMOTE_WEB_H
#define CKPT_LIBCKPT_REMOTE_WEB_H

#include "libckpt/remote/tree.h"

/* The folder at url, which ends in "/".  CKPT_ENOTFOUND when none of those files is there. */
int web_open(struct tree **out, const char *url, struct ckpt_err *err);
/* The files that an index maps tensors to, put into t; CKPT_EFORMAT when it is none. */
int web_read_index(struct tree *t, const json_t *index, struct ckpt_err *err);

#endif
