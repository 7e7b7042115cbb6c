/*
 * foreign - formats of weights that are recognised and not read.
 *
 * One table of evidence, name and converter, asked when no format bids, so that all tools say the
 * same.
 */
#ifndef CKPT_FORMATS_FOREIGN_H
#define CKPT_FORMATS_FOREIGN_H

#include "libckpt/format.h"

/* Fill err with the format's name, CKPT_EUNSUPPORTED and a hint.  False: none of these. */
bool foreign_tell(const struct ckpt_place *place, struct ckpt_err *err);

#endif
