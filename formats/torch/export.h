/*
 * torch/export - weights of a program that torch.export saved (.pt2).
 *
 * A zip file as torch.save's, of other members:
 *   archive_format                          "pt2"
 *   data/weights/NAME_weights_config.json   {"config": {parameter: {"path_name": "weight_0",
 *       "is_param": true, "use_pickle": false, "tensor_meta": {"dtype": 7, "sizes": [{"as_int":
 *       3}], "strides": [{"as_int": 1}], "storage_offset": {"as_int": 0}, ...}}}}
 *   data/weights/weight_0                   a storage's bytes, little-endian
 *   data/constants/NAME_constants_config.json, data/constants/tensor_0   tensors that are no
 *       state, in the same way
 * What use_pickle marks (tensors of other classes) is listed and not read.  AOTInductor's packages
 * have the same container around compiled code.
 * Source: torch 2.15 torch/export/pt2_archive/_package.py, torch/_export/serde/schema.py.
 */
#ifndef CKPT_FORMATS_TORCH_EXPORT_H
#define CKPT_FORMATS_TORCH_EXPORT_H

#include "formats/container/zip.h"
#include "libckpt/tensor.h"

/* Whether an archive is torch.export's or AOTInductor's. */
bool torch_export_is(const struct zip *z);
/* Append its weights and constants to list; fragments borrow z->file. */
int torch_export_list(struct ckpt_tensors *list, const struct zip *z, struct ckpt_err *err);

#endif
