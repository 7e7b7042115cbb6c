/* test_optim - see emulate.h. */
#include "tests/emulate/emulate.h"

#include "tests/gpu/test_optim.c"
