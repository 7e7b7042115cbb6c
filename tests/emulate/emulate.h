/*
 * emulate - tests of tests/gpu, run where the GPU's kernels are emulated (cuda_runtime.h): of shapes
 * that SMALL leaves.
 */
#ifndef CKPT_TESTS_EMULATE_EMULATE_H
#define CKPT_TESTS_EMULATE_EMULATE_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The plug-in lies beside the folder of this program. */
__attribute__((constructor)) static void emulate_plugin(void)
{
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 64);

    for (int k = 0; n > 0 && k < 2; k++) {
        path[n] = '\0';
        n = strrchr(path, '/') - path;
    }
    if (n <= 0)
        abort();
    memcpy(path + n, "/emulate", sizeof "/emulate");
    setenv("CKPT_PLUGIN_PATH", path, 1);
    setenv("CKPT_CUDA_PATH", path, 1);
    setenv("SMALL", "2", 1);
    setenv("EMULATE_PRODUCTS", "plain", 1);     /* products.cc */
    memcpy(path + strlen(path), "/libcuda.so.1", sizeof "/libcuda.so.1");
    dlopen(path, RTLD_NOW | RTLD_GLOBAL);       /* found by its name from now on */
}

#endif
