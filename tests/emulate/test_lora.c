/* test_lora - see emulate.h: projections with LoRA, whose product is one of its own; then the same with LoRA
 * in the product of the matrix. */
#include "tests/emulate/emulate.h"

#include "tests/gpu/test_lora.c"

AGAIN(in_one_product) { setenv("EMULATE_PRODUCTS", "joined", 1); }
