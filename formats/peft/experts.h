/*
 * peft/experts - adapters of parameters that hold all experts of a layer (target_parameters).
 *
 * The parameter is [experts, out, in], or [experts, in, out] in some families; on disk it has
 * that form, or is one matrix per expert and part.  For expert e of E and rank r, A has rows e r
 * + k and B columns k E + e:
 *
 *   <module>.lora_A.weight [E r, in], .lora_B.weight [out, r E]       the last parameter
 *   <module>.base_layer.lora_A.weight ...                             the one before it
 *
 * Source: peft 0.21 tuners/lora/layer.py ParamWrapper; names on disk as transformers 5 converts
 * them, conversion_mapping.py.
 */
#ifndef CKPT_FORMATS_PEFT_EXPERTS_H
#define CKPT_FORMATS_PEFT_EXPERTS_H

#include "formats/peft/updates.h"

/*
 * Add the updates of factor `a`, a tensor whose name ends in .lora_A.weight; *took: it belongs to
 * a parameter and not to a module.
 */
int peft_take_experts(bool *took, struct peft_updates *m, size_t a);
/*
 * Add the copies in tensor i, if it is a whole such parameter (modules_to_save) and the base has
 * one matrix per expert and part.
 */
int peft_take_stack(bool *took, struct peft_updates *m, size_t i);

#endif
