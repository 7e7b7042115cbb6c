/* plugin - see plugin.h. */
#include "trainer/plugin.h"

#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

void *plugin_open(const char *name, char *why, size_t why_size)
{
    static const char *const below[] = {"", "../", "../lib/ckpt/"};
    char exe[3072], path[4096];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    void *so = NULL;

    while (n > 0 && exe[n - 1] != '/')
        n--;
    snprintf(why, why_size, "%s: not found beside the program or in ../lib/ckpt", name);
    for (size_t i = 0; n > 0 && i < sizeof below / sizeof below[0] && !so; i++) {
        snprintf(path, sizeof path, "%.*s%s%s", (int)n, exe, below[i], name);
        if (access(path, R_OK) != 0)
            continue;
        so = dlopen(path, RTLD_NOW | RTLD_GLOBAL);  /* Open MPI's own modules need GLOBAL */
        if (!so)
            snprintf(why, why_size, "%s", dlerror());
    }
    return so;
}
