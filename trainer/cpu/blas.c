/*
 * blas - OpenBLAS made ready: one thread a call, and kernels of this processor.
 *
 * OpenBLAS as distributions ship it (0.3.21 of Debian 12 among them) takes Intel's family 6 from
 * model 176 on, Raptor Lake and Emerald Rapids among them, for a Prescott: its get_coretype()
 * (driver/others/dynamic.c) falls through from that family to the next.  SSE3 kernels are then a
 * fifth as fast as those of the processor.  A build for several processors chooses once more when
 * its own start is run again with the choice in the environment; a choice of the user's stands.
 */
#include "trainer/cpu/blas.h"

#include <cblas.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/platform/x86.h>

#define CHOICE "OPENBLAS_CORETYPE"

static bool older(const char *core)
{
    static const char *const cores[] = {"Prescott", "Core2", "Penryn", "Nehalem", "Sandybridge"};

    for (size_t i = 0; i < sizeof cores / sizeof cores[0]; i++)
        if (strcmp(core, cores[i]) == 0)
            return true;
    return false;
}

const char *blas_core(const char *found)
{
    if (!older(found) || !CPU_FEATURE_ACTIVE(AVX2) || !CPU_FEATURE_ACTIVE(FMA))
        return NULL;
    return CPU_FEATURE_ACTIVE(AVX512F) && CPU_FEATURE_ACTIVE(AVX512VL) &&
                   CPU_FEATURE_ACTIVE(AVX512DQ) && CPU_FEATURE_ACTIVE(AVX512BW)
               ? "SkylakeX" : "Haswell";
}

/* dlsym gives a pointer to data; POSIX has it hold a function all the same. */
static bool call(const char *name, bool really)
{
    void *at = dlsym(RTLD_DEFAULT, name);
    void (*function)(void);

    if (at && really) {
        memcpy(&function, &at, sizeof function);
        function();
    }
    return at != NULL;
}

bool blas_choose(const char *core)
{
    static const char quit[] = "gotoblas_dynamic_quit", init[] = "gotoblas_dynamic_init";

    if (!call(quit, false) || !call(init, false) || setenv(CHOICE, core, 1))
        return false;
    call(quit, true);
    call(init, true);
    unsetenv(CHOICE);
    return true;
}

static void choose(void)
{
    const char *core = getenv(CHOICE) ? NULL : blas_core(openblas_get_corename());

    if (core)
        blas_choose(core);
}

void blas_open(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, choose);
    openblas_set_num_threads(1);
}
