/* blas - OpenBLAS made ready for the device's threads. */
#ifndef CKPT_CPU_BLAS_H
#define CKPT_CPU_BLAS_H

#include <stdbool.h>

/* Once, before the first product. */
void blas_open(void);

/* The kernels to choose where OpenBLAS found those of `found`; NULL: it knows better. */
const char *blas_core(const char *found);
/* Chooses kernels while no product runs; false: this build of OpenBLAS has one kind. */
bool blas_choose(const char *core);

#endif
