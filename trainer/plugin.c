/* plugin - see plugin.h. */
#include "trainer/plugin.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Opening a library executes it: one that others may write is refused.  Its owner may be the
 * system, this user, or the program's owner. */
static bool trusted(const char *path, uid_t owner, char *why, size_t why_size)
{
    struct stat st;

    if (stat(path, &st) == 0 && !(st.st_mode & S_IWOTH) &&
        (st.st_uid == 0 || st.st_uid == geteuid() || st.st_uid == owner))
        return true;
    snprintf(why, why_size, "%s: not opened: %s", path,
             st.st_mode & S_IWOTH ? "everybody may write to it" : "it is another user's");
    return false;
}

/* 1: opened; 0: absent; -1: present, but refused or broken, with the reason in why. */
static int try(void **so, const char *folder, const char *name, uid_t owner, char *why,
               size_t why_size)
{
    char path[4200];

    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path ||
        access(path, F_OK) != 0)
        return 0;
    if (!trusted(folder, owner, why, why_size) || !trusted(path, owner, why, why_size))
        return -1;
    *so = dlopen(path, RTLD_NOW | RTLD_GLOBAL);     /* Open MPI's own modules need GLOBAL */
    if (!*so)
        snprintf(why, why_size, "%s", dlerror());
    return *so ? 1 : -1;
}

void *plugin_open(const char *name, char *why, size_t why_size)
{
    const char *asked = secure_getenv("CKPT_PLUGIN_PATH");
    char exe[3072], folder[3100];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    struct stat program = {.st_uid = geteuid()};
    void *so = NULL;
    int found = 0;

    snprintf(why, why_size, "%s: not found beside the program or in its lib/ckpt", name);
    if (asked && *asked != '/') {
        snprintf(why, why_size, "CKPT_PLUGIN_PATH: %s is no absolute path", asked);
        return NULL;
    }
    if (asked)
        found = try(&so, asked, name, geteuid(), why, why_size);
    if (found || n <= 0)
        return so;
    exe[n] = '\0';
    stat(exe, &program);
    *strrchr(exe, '/') = '\0';          /* /proc/self/exe is absolute */
    found = try(&so, exe, name, program.st_uid, why, why_size);
    n = (ssize_t)strlen(exe);
    if (found == 0 && n >= 4 && strcmp(exe + n - 4, "/bin") == 0) {
        snprintf(folder, sizeof folder, "%.*s/lib/ckpt", (int)n - 4, exe);
        try(&so, folder, name, program.st_uid, why, why_size);
    }
    return so;
}
