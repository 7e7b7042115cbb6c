/* The tests of generation with the models on a GPU: the same tokens. */
#define GOLDEN_DEVICE "cuda"
#include "tests/unit/model/test_generation.c"
