/*
 * push/remake - files that are published otherwise than they lie in the source, so that what is
 * published is whole by itself.
 */
#ifndef CKPT_TOOLS_PUSH_REMAKE_H
#define CKPT_TOOLS_PUSH_REMAKE_H

#include "tools/push/plan.h"

/* An adapter that names its base by a folder of this machine names it by owner/name on the Hub, or
 * by that folder's name alone: the rest says nothing to others, but who works here. */
int push_rename_bases(struct push_plan *p, bool follow, struct ckpt_err *err);
/* Manifests have the digests of files that were made in place of the source's. */
int push_remanifest(struct push_plan *p, bool follow, struct ckpt_err *err);

#endif
