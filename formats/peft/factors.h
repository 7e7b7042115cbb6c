/*
 * peft/factors - the tensors of an extracted adapter: factors of differences, computed when they
 * are read, and copies.  A few pairs of factors stay in memory for neighbouring ranges.
 */
#ifndef CKPT_FORMATS_PEFT_FACTORS_H
#define CKPT_FORMATS_PEFT_FACTORS_H

#include <jansson.h>

#include "libckpt/source.h"

struct peft_factors;

/* Borrows both until peft_factors_source. */
int peft_factors_new(struct peft_factors **out, struct ckpt_source *base,
                     struct ckpt_source *full, struct ckpt_err *err);
void peft_factors_free(struct peft_factors *f);     /* NULL accepted */
/* The rank used for a matrix: at most its number of rows and of columns. */
int64_t peft_factors_rank(const struct ckpt_tensor *w, int64_t rank);
/* Add <name>.lora_A.weight and .lora_B.weight of full's tensor minus base's; transposed: both
 * are [in, out]. */
int peft_factors_add(struct peft_factors *f, const char *name, size_t full, size_t base,
                     int64_t rank, bool transposed, struct ckpt_err *err);
/* Add full's tensor under that name. */
int peft_factors_copy(struct peft_factors *f, const char *name, size_t full,
                      struct ckpt_err *err);
/* Takes f, its sources and info, on failure too. */
int peft_factors_source(struct ckpt_source **out, struct peft_factors *f, json_t *info,
                        struct ckpt_err *err);

#endif
