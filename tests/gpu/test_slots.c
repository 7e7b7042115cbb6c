/* The tests of continuous batching with the models on a GPU: the same tokens, log-probabilities near. */
#define GOLDEN_DEVICE "cuda"
#define SLOTS_NEAR 1e-3f
#include "tests/unit/model/test_slots.c"
