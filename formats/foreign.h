/*
 * foreign - files and folders that hold weights, or could, and that are not read: by name.
 *
 * One table of evidence, name and what converts it, asked where no format bids, so that all tools
 * say the same.
 */
#ifndef CKPT_FORMATS_FOREIGN_H
#define CKPT_FORMATS_FOREIGN_H

#include "libckpt/format.h"

/* Fill err with what place is, CKPT_EUNSUPPORTED, and a hint.  False when it is none of these. */
bool foreign_tell(const struct ckpt_place *place, struct ckpt_err *err);

#endif
