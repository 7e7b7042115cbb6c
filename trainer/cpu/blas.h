/* blas - OpenBLAS made ready for the device's threads. */
#ifndef CKPT_TRAINER_CPU_BLAS_H
#define CKPT_TRAINER_CPU_BLAS_H

#include <stdbool.h>

#include "libckpt/fail.h"

/*
 * First thing in main.  Where the address space is limited, start the program once more with
 * OpenBLAS told to have no threads of its own: they are started as the library is loaded, nothing
 * here uses them, and each tries for ever to get a buffer of 128 MiB, also while the process ends.
 */
void blas_begin(char **argv);
/*
 * Before the first product: buffers for so many threads at a time, and the kernels.  CKPT_ENOMEM
 * when the system refuses the buffers, which OpenBLAS itself would ask for without an end.
 */
int blas_open(int threads, struct ckpt_err *err);

/* The kernels to choose where OpenBLAS found those of `found`; NULL: it knows better. */
const char *blas_core(const char *found);
/* Chooses kernels while no product runs; false: this build of OpenBLAS has one kind. */
bool blas_choose(const char *core);

#endif
