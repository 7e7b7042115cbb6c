/* blas - prepare OpenBLAS for the device's threads. */
#ifndef CKPT_TRAINER_CPU_BLAS_H
#define CKPT_TRAINER_CPU_BLAS_H

#include <stdbool.h>

#include "libckpt/fail.h"

/*
 * Call first in main.  Start the program again with what libraries read as they are loaded:
 * threads that wait sleep soon, unless OMP_WAIT_POLICY or GOMP_SPINCOUNT says how they wait; and
 * where the address space is limited, OpenBLAS's own threads are disabled: they are not used here,
 * and each tries forever to get a buffer of 128 MiB, even while the process exits.
 */
void blas_begin(char **argv);
/*
 * Before the first product: allocate buffers for that many threads, and choose kernels.
 * CKPT_ENOMEM when the system refuses the buffers, for which OpenBLAS itself would ask again
 * without end.
 */
int blas_open(int threads, struct ckpt_err *err);

/* The kernels to choose where OpenBLAS detected those of `found`; NULL: keep its choice. */
const char *blas_core(const char *found);
/* Switch kernels while no product runs; false: this build of OpenBLAS has one set of kernels. */
bool blas_choose(const char *core);

#endif
