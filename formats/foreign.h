/*
 * foreign - weight formats that are recognised but not read.
 *
 * One table of evidence, name and converter, consulted when no format bids, so that all tools
 * give the same message.
 */
#ifndef CKPT_FORMATS_FOREIGN_H
#define CKPT_FORMATS_FOREIGN_H

#include "libckpt/format.h"

/* Set err to the format's name, CKPT_EUNSUPPORTED and a hint.  False: none of these formats. */
bool foreign_tell(const struct ckpt_place *place, struct ckpt_err *err);

#endif
