/* gpu_watch - see gpu_watch.h. */
#include "tests/perf/gpu_watch.h"
#include "libckpt/err.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static const struct {
    uint64_t    bit;
    const char *name;
} reasons[WATCH_REASONS] = {
    {NVML_POWER_CAP, "power-cap"}, {NVML_HW_SLOWDOWN, "hw-slowdown"}, {NVML_HEAT, "heat"},
    {NVML_HW_HEAT, "hw-heat"}, {NVML_POWER_BRAKE, "power-brake"},
};

static void *watch(void *ctx)
{
    const struct timespec pause = {.tv_nsec = 50000000};
    struct gpu_watch *w = ctx;
    struct ckpt_err err = {0};
    struct nvml_now now;

    while (!atomic_load(&w->stop) && nvml_sample(w->nvml, &now, &err) == 0) {
        w->n++;
        w->mhz += now.mhz;
        w->watt += now.watt;
        w->used = (double)now.used > w->used ? (double)now.used : w->used;
        for (int i = 0; i < WATCH_REASONS; i++)
            w->held[i] += (now.held & reasons[i].bit) != 0;
        nanosleep(&pause, NULL);
    }
    return NULL;
}

void gpu_watch_start(struct gpu_watch *w, const char *bus)
{
    struct ckpt_err err = {0};

    memset(w, 0, sizeof *w);
    if (nvml_open(&w->nvml, bus, &err) == 0)
        w->runs = pthread_create(&w->thread, NULL, watch, w) == 0;
}

void gpu_watch_stop(struct gpu_watch *w)
{
    if (w->runs) {
        atomic_store(&w->stop, true);
        pthread_join(w->thread, NULL);
        w->mhz /= w->n ? (double)w->n : 1;
        w->watt /= w->n ? (double)w->n : 1;
    }
    nvml_close(w->nvml);
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
