/* fault - see fault.h. */
#include "libckpt/base/fault.h"

#ifdef CKPT_FAULTS

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const kind_name[CKPT_FAULT_KINDS] = {"alloc", "read",   "write",
                                                        "sync",  "rename", "open"};
static atomic_ulong left[CKPT_FAULT_KINDS];     /* 0: not armed; 1: the next one fails */
static atomic_bool struck, kills;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void read_environment(void)
{
    const char *e = getenv("CKPT_FAULT");
    char kind[16], action[16] = "";
    unsigned long n;

    if (!e || sscanf(e, "%15[a-z]:%lu:%15s", kind, &n, action) < 2)
        return;
    for (int k = 0; k < CKPT_FAULT_KINDS; k++)
        if (strcmp(kind, kind_name[k]) == 0)
            atomic_store(&left[k], n);
    atomic_store(&kills, strcmp(action, "kill") == 0);
}

bool ckpt_fault(enum ckpt_fault kind)
{
    unsigned long n;

    pthread_once(&once, read_environment);
    n = atomic_load(&left[kind]);
    do {
        if (n == 0)
            return false;
    } while (!atomic_compare_exchange_weak(&left[kind], &n, n - 1));
    if (n != 1)
        return false;
    atomic_store(&struck, true);
    if (atomic_load(&kills))
        kill(getpid(), SIGKILL);
    return true;
}

void ckpt_fault_arm(enum ckpt_fault kind, unsigned long n)
{
    pthread_once(&once, read_environment);
    atomic_store(&struck, false);
    atomic_store(&left[kind], n);
}

bool ckpt_fault_struck(void) { return atomic_load(&struck); }

#else
typedef int ckpt_fault_compiled_out;
#endif
