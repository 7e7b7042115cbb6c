/*
 * dcp/values - the Python values of a distributed checkpoint: steps, hyper-parameters, notes.
 */
#ifndef CKPT_FORMATS_DCP_VALUES_H
#define CKPT_FORMATS_DCP_VALUES_H

#include <jansson.h>

#include "formats/dcp/files.h"

#define DCP_MAX_VALUES 16384u       /* values beyond this are only counted, in "values_left_out" */

/*
 * Add facts to info:
 *   "param_groups"  the optimizer's groups, a list of {hyper-parameter: value, "params":
 *                   [names]}; flattened ones are grouped by equal values.  With optimizer only.
 *   "values"        {path: value} outside the optimizer
 *   "step"          when there is a number called so, or global_step, iteration
 *   "values_left_out"  the number of further values
 * Each value is an archive of its own, opened strictly: a name that is in no table is refused.
 */
int dcp_values_tell(json_t *info, struct dcp_files *files, const struct dcp_meta *m,
                    bool optimizer, struct ckpt_err *err);

#endif
