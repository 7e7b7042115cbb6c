/*
 * fault_plugin - replaces libckpt_cuda.so and lets one operation fail.
 *
 * FAULT=NAME:N    the N-th call of that operation fails: alloc finds no memory, norm_fwd touches an
 *                 address that is not its own, sync fails
 * FAULT=late:     every allocation after the first norm fails
 * REAL=PATH       the true plug-in, whose device is wrapped; without it the CPU device is wrapped,
 *                 and a failure marks it as a GPU would be
 * FAULT_VERSION, FAULT_COUNT (macros): the version and the number of GPUs that the plug-in reports.
 * FAULT_DISCRETE (macro): the CPU device passes for one with memory of its own.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "trainer/clock.h"
#include "trainer/cuda/plugin.h"

#ifndef FAULT_VERSION
#define FAULT_VERSION CUDA_PLUGIN_VERSION
#endif
#ifndef FAULT_COUNT
#define FAULT_COUNT 1
#endif
#ifndef FAULT_DISCRETE
#define FAULT_DISCRETE false
#endif

static struct ops row;
static const struct ops *inner;
static bool real;
static char kind[32];
static long left;
static bool began;

static bool now(const char *op) { return strcmp(kind, op) == 0 && --left == 0; }

static void mark(struct device *dev, const char *op)
{
    if (dev->err.code == 0) {
        dev->err.code = CKPT_EDEVICE;
        snprintf(dev->err.text, sizeof dev->err.text, "GPU 0, %s: it was made to fail", op);
    }
}

static void *fault_alloc(struct device *dev, size_t bytes)
{
    if (!now("alloc") && !(began && strcmp(kind, "late") == 0))
        return inner->alloc(dev, bytes);
    return inner->alloc(dev, (size_t)1 << 46);
}

static void fault_norm(struct device *dev, const struct op_rownorm *a)
{
    struct op_rownorm bad = *a;

    began = true;
    if (now("norm_fwd")) {
        if (real)
            bad.x = (const void *)(uintptr_t)4096;
        else
            mark(dev, "norm_fwd");
    }
    inner->norm_fwd(dev, &bad);
}

static void fault_sync(struct device *dev)
{
    if (now("sync"))
        mark(dev, "earlier work");
    inner->sync(dev);
}

static int wrapped(struct device **out, int index, const struct device_opts *opts,
                   struct ckpt_err *err)
{
    const char *fault = getenv("FAULT"), *path = getenv("REAL"), *colon;
    int rc;

    if (path) {
        void *so = dlopen(path, RTLD_NOW);
        const struct cuda_plugin *p = so ? dlsym(so, "cuda_plugin") : NULL;

        if (!p) {
            fprintf(stderr, "fault_plugin: %s\n", dlerror());
            abort();
        }
        real = true;
        rc = p->open(out, index, opts, err);
    } else {
        rc = device_open_cpu(out, 1, err);
        if (rc == 0)
            (*out)->weight = opts->weights;
    }
    if (rc)
        return rc;
    (*out)->discrete = (*out)->discrete || FAULT_DISCRETE;
    colon = fault ? strchr(fault, ':') : NULL;
    if (colon) {
        snprintf(kind, sizeof kind, "%.*s", (int)(colon - fault), fault);
        left = strtol(colon + 1, NULL, 10);
    }
    inner = (*out)->ops;
    row = *inner;
    row.alloc = fault_alloc;
    row.norm_fwd = fault_norm;
    row.sync = fault_sync;
    (*out)->ops = &row;
    return 0;
}

static int count(void) { return FAULT_COUNT; }

static void bus(int index, char *to, int size)
{
    (void)index;
    if (size > 0)
        to[0] = '\0';
}

static double sim_began;

static void sim_begin(struct device *dev)
{
    (void)dev;
    sim_began = clock_now();
}

static void sim_repeat(struct device *dev, void *dst, const void *src, size_t bytes, int64_t times)
{
    (void)dev;
    for (int64_t i = 0; i < times; i++)
        memmove((char *)dst + (size_t)i * bytes, src, bytes);
}

static void sim_end(struct device *dev, double seconds)
{
    double rest = sim_began + seconds - clock_now();
    struct timespec t = {.tv_sec = (time_t)rest, .tv_nsec = (long)(1e9 * (rest - (time_t)rest))};

    (void)dev;
    if (rest > 0)
        nanosleep(&t, NULL);
}

static const struct simulate_device sim = {sim_begin, sim_repeat, sim_end};

__attribute__((visibility("default"))) const struct cuda_plugin cuda_plugin = {
    .version = FAULT_VERSION, .open = wrapped, .count = count, .bus = bus, .simulate = &sim};
