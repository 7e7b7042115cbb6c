/*
 * blas - prepare OpenBLAS: one thread a call, kernels for this processor; threads wait little.
 *
 * OpenBLAS as distributions ship it (0.3.21 of Debian 12 among them) mistakes Intel's family 6
 * from model 176 on, Raptor Lake and Emerald Rapids among them, for a Prescott: its
 * get_coretype() (driver/others/dynamic.c) falls through from that family to the next.  SSE3
 * kernels are then a fifth as fast as those of the processor.  A build for several processors
 * chooses again when its initialisation is repeated with the choice in the environment; a choice
 * made by the user is kept.
 */
#include "trainer/cpu/blas.h"

#include <cblas.h>
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/platform/x86.h>
#include <sys/resource.h>
#include <unistd.h>

#include "libckpt/mem.h"

#define CHOICE "OPENBLAS_CORETYPE"

/* How often a thread of libgomp looks for work before it sleeps.  Its own 300,000 are 10 ms and
 * more: where others want the cores too, a thread that waits uses up the time of the one it waits
 * for, and continuations of a small model took 10 times as long.  1,000 are some 30 us, longer
 * than what most steps leave to one thread, so nothing is lost where the cores are free. */
#define SPINS      "GOMP_SPINCOUNT"
#define SPINS_MOST "1000"

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
    return CPU_FEATURE_ACTIVE(AVX512F) && __builtin_cpu_supports("avx512vl") &&
                   CPU_FEATURE_ACTIVE(AVX512DQ) && CPU_FEATURE_ACTIVE(AVX512BW)
               ? "SkylakeX" : "Haswell";
}

/* dlsym returns a pointer to data; POSIX guarantees that it can hold a function. */
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

/* -- memory ----------------------------------------------------------------------------------- */

/* The buffer that each thread in a product takes: BUFFER_SIZE in OpenBLAS' common_x86_64.h,
 * which its interface does not expose, plus what it adds for alignment. */
#define BUFFER   (((size_t)128 << 20) + 65536)
#define OWN_MOST 64                 /* buffers tested at once; OpenBLAS has room for at least 128 */

/* Where the address space is limited. */
static bool limit_threads(void)
{
    static const char name[] = "OPENBLAS_NUM_THREADS";
    const char *now = getenv(name);
    struct rlimit space;

    if ((now && strcmp(now, "1") == 0) || getrlimit(RLIMIT_AS, &space) ||
        space.rlim_cur == RLIM_INFINITY)
        return false;
    return setenv(name, "1", 1) == 0;
}

/* Where several threads may run, and the user has not said how they wait. */
static bool limit_spins(void)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    if (getenv("OMP_WAIT_POLICY") || sched_getaffinity(0, sizeof set, &set) || CPU_COUNT(&set) < 2)
        return false;
    return !getenv(SPINS) && setenv(SPINS, SPINS_MOST, 0) == 0;
}

void blas_begin(char **argv)
{
    bool threads = limit_threads(), spins = limit_spins();
    char self[4096];
    ssize_t n;

    if (!threads && !spins)
        return;
    n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0)
        return;
    self[n] = '\0';
    execv(self, argv);                  /* returns only on failure: continue without it */
}

/* Whether the system can give n buffers; they are released again. */
static bool room_for(int n)
{
    void **at = ckpt_alloc((size_t)n, sizeof *at);
    int k = 0;

    for (; at && k < n; k++) {
        at[k] = mmap(NULL, BUFFER, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at[k] == MAP_FAILED)
            break;
    }
    for (int i = 0; i < k; i++)
        munmap(at[i], BUFFER);
    ckpt_free(at);
    return k == n;
}

/* OpenBLAS keeps its buffers: make it allocate as many as will be used, now. */
static void take_buffers(int n)
{
    void *take = dlsym(RTLD_DEFAULT, "blas_memory_alloc");
    void *give = dlsym(RTLD_DEFAULT, "blas_memory_free");
    void *(*memory_alloc)(int);
    void (*memory_free)(void *);
    void *at[OWN_MOST];

    if (!take || !give)
        return;
    memcpy(&memory_alloc, &take, sizeof take);
    memcpy(&memory_free, &give, sizeof give);
    n = n < OWN_MOST ? n : OWN_MOST;
    for (int i = 0; i < n; i++)
        at[i] = memory_alloc(0);
    for (int i = 0; i < n; i++)
        memory_free(at[i]);
}

int blas_open(int threads, struct ckpt_err *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static int taken;                   /* number of buffers allocated */
    int rc = 0;

    pthread_mutex_lock(&lock);
    if (threads > taken && !room_for(threads - taken)) {
        rc = ckpt_fail(err, CKPT_ENOMEM, "out of memory: %d thread%s take%s %zu MiB for matrix "
                       "products", threads, threads > 1 ? "s" : "", threads > 1 ? "" : "s",
                       (size_t)threads * (BUFFER >> 20));
        if (threads > 1)
            ckpt_err_hint(err, "fewer threads: `threads 1`");
    } else if (threads > taken) {
        take_buffers(threads);
        taken = threads;
    }
    pthread_mutex_unlock(&lock);
    if (rc)
        return rc;
    pthread_once(&once, choose);
    openblas_set_num_threads(1);
    return 0;
}
