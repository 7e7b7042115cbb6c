/* test_moments - see emulate.h. */
#include "tests/emulate/emulate.h"

#include "tests/gpu/test_moments.c"
