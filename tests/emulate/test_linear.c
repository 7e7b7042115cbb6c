/* test_linear - see emulate.h: projections, with passes after their products; then the same with all that
 * epilogues can do in them. */
#include "tests/emulate/emulate.h"

#include "tests/gpu/test_linear.c"

AGAIN(epilogues) { setenv("EMULATE_PRODUCTS", "joined", 1); }
