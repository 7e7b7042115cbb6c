/* gpu_watch - see gpu_watch.h.  Names and numbers are nvml.h's (CUDA 13). */
#include "tests/perf/gpu_watch.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { CLOCK_SM = 1 };

struct memory {
    unsigned long long total, unused, used;
};

static const struct {
    unsigned long long bit;
    const char        *name;
} reasons[WATCH_REASONS] = {
    {0x04, "power-cap"}, {0x08, "hw-slowdown"}, {0x20, "heat"}, {0x40, "hw-heat"},
    {0x80, "power-brake"},
};

static void *watch(void *ctx)
{
    struct gpu_watch *w = ctx;
    int (*clock)(void *, int, unsigned *) = dlsym(w->library, "nvmlDeviceGetClockInfo");
    int (*power)(void *, unsigned *) = dlsym(w->library, "nvmlDeviceGetPowerUsage");
    int (*memory)(void *, struct memory *) = dlsym(w->library, "nvmlDeviceGetMemoryInfo");
    int (*held)(void *, unsigned long long *) =
        dlsym(w->library, "nvmlDeviceGetCurrentClocksThrottleReasons");
    const struct timespec pause = {.tv_nsec = 50000000};

    if (!held)
        held = dlsym(w->library, "nvmlDeviceGetCurrentClocksEventReasons");
    while (clock && power && held && memory && !atomic_load(&w->stop)) {
        unsigned mhz = 0, milliwatt = 0;
        unsigned long long why = 0;
        struct memory m = {0};

        if (clock(w->chip, CLOCK_SM, &mhz) || power(w->chip, &milliwatt) || held(w->chip, &why) ||
            memory(w->chip, &m))
            break;
        w->n++;
        w->mhz += mhz;
        w->watt += 1e-3 * milliwatt;
        w->used = (double)m.used > w->used ? (double)m.used : w->used;
        for (int i = 0; i < WATCH_REASONS; i++)
            w->held[i] += (why & reasons[i].bit) != 0;
        nanosleep(&pause, NULL);
    }
    return NULL;
}

void gpu_watch_start(struct gpu_watch *w)
{
    int (*init)(void), (*by_index)(unsigned, void **);

    memset(w, 0, sizeof *w);
    w->library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!w->library)
        w->library = dlopen("/usr/local/nvidia/lib64/libnvidia-ml.so.1", RTLD_NOW);
    if (!w->library)
        return;
    init = dlsym(w->library, "nvmlInit_v2");
    by_index = dlsym(w->library, "nvmlDeviceGetHandleByIndex_v2");
    if (init && by_index && init() == 0 && by_index(0, &w->chip) == 0)
        w->runs = pthread_create(&w->thread, NULL, watch, w) == 0;
}

void gpu_watch_stop(struct gpu_watch *w)
{
    int (*shutdown)(void);

    if (w->runs) {
        atomic_store(&w->stop, true);
        pthread_join(w->thread, NULL);
        w->mhz /= w->n ? (double)w->n : 1;
        w->watt /= w->n ? (double)w->n : 1;
    }
    if (!w->library)
        return;
    shutdown = dlsym(w->library, "nvmlShutdown");
    if (shutdown)
        shutdown();
    dlclose(w->library);
}

const char *gpu_watch_text(const struct gpu_watch *w, char text[256])
{
    int at;

    text[0] = '\0';
    if (!w->n)
        return text;
    at = snprintf(text, 256, "mhz=%.0f watt=%.0f used_gib=%.2f", w->mhz, w->watt,
                  w->used / (1 << 30));
    for (int i = 0; i < WATCH_REASONS && at < 200; i++)
        if (w->held[i])
            at += snprintf(text + at, (size_t)(256 - at), " held=%s:%.0f%%", reasons[i].name,
                           100.0 * (double)w->held[i] / (double)w->n);
    return text;
}
