/* nvml - see nvml.h. */
#include "trainer/nvml.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>

#include "libckpt/mem.h"

enum { CLOCK_SM = 1 };

/* nvmlMemory_t, nvmlUtilization_t */
struct memory {
    unsigned long long total, unused, used;
};
/* nvmlMemory_v2_t: used excludes memory that the driver reserves on an idle chip, as in
 * nvidia-smi. */
struct memory_v2 {
    unsigned version;
    unsigned long long total, reserved, unused, used;
};
#define MEMORY_V2 ((unsigned)sizeof(struct memory_v2) | 2u << 24)
struct utilization {
    unsigned gpu, memory;
};

/* The library's functions in use; each returns 0 on success. */
struct calls {
    int (*init)(void);
    int (*shutdown)(void);
    int (*by_index)(unsigned, void **);
    int (*by_bus)(const char *, void **);
    int (*index)(void *, unsigned *);
    int (*name)(void *, char *, unsigned);
    int (*memory)(void *, struct memory *);
    int (*memory_v2)(void *, struct memory_v2 *);
    int (*load)(void *, struct utilization *);
    int (*clock)(void *, int, unsigned *);
    int (*power)(void *, unsigned *);
    int (*held)(void *, unsigned long long *);
};

static const struct {
    const char *name;
    size_t      at;
    bool        must;                   /* the others are optional */
} names[] = {
    {"nvmlInit_v2", offsetof(struct calls, init), true},
    {"nvmlShutdown", offsetof(struct calls, shutdown), true},
    {"nvmlDeviceGetHandleByIndex_v2", offsetof(struct calls, by_index), true},
    {"nvmlDeviceGetHandleByPciBusId_v2", offsetof(struct calls, by_bus), true},
    {"nvmlDeviceGetIndex", offsetof(struct calls, index), true},
    {"nvmlDeviceGetName", offsetof(struct calls, name), true},
    {"nvmlDeviceGetMemoryInfo", offsetof(struct calls, memory), true},
    {"nvmlDeviceGetMemoryInfo_v2", offsetof(struct calls, memory_v2), false},
    {"nvmlDeviceGetUtilizationRates", offsetof(struct calls, load), false},
    {"nvmlDeviceGetClockInfo", offsetof(struct calls, clock), false},
    {"nvmlDeviceGetPowerUsage", offsetof(struct calls, power), false},
    {"nvmlDeviceGetCurrentClocksThrottleReasons", offsetof(struct calls, held), false},
};

struct nvml {
    void        *library, *chip;
    struct calls call;
    bool         ready;                 /* nvmlInit was called */
    unsigned     index;
    char         name[96];
};

static int bad(struct ckpt_err *err, const char *what, int code)
{
    return ckpt_fail(err, CKPT_EDEVICE, "NVML, %s: error %d", what, code);
}

static int load(struct nvml *n, struct ckpt_err *err)
{
    n->library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!n->library)
        n->library = dlopen("/usr/local/nvidia/lib64/libnvidia-ml.so.1", RTLD_NOW);
    if (!n->library)
        return ckpt_fail(err, CKPT_EDEVICE, "libnvidia-ml.so.1 of the driver is not found");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        void *f = dlsym(n->library, names[i].name);

        if (!f && names[i].must)
            return ckpt_fail(err, CKPT_EDEVICE, "libnvidia-ml.so.1 has no %s", names[i].name);
        *(void **)((unsigned char *)&n->call + names[i].at) = f;
    }
    return 0;
}

int nvml_open(struct nvml **out, const char *bus, struct ckpt_err *err)
{
    struct nvml *n = ckpt_alloc(1, sizeof *n);
    int rc;

    *out = NULL;
    if (!n)
        return ckpt_nomem(err, sizeof *n);
    rc = load(n, err);
    if (rc)
        goto fail;
    rc = n->call.init();
    if (rc) {
        rc = bad(err, "init", rc);
        goto fail;
    }
    n->ready = true;
    rc = bus && *bus ? n->call.by_bus(bus, &n->chip) : n->call.by_index(0, &n->chip);
    if (rc || (rc = n->call.index(n->chip, &n->index)) != 0 ||
        (rc = n->call.name(n->chip, n->name, sizeof n->name)) != 0) {
        rc = bad(err, bus && *bus ? bus : "GPU 0", rc);
        goto fail;
    }
    *out = n;
    return 0;
fail:
    nvml_close(n);
    return rc;
}

void nvml_close(struct nvml *n)
{
    if (!n)
        return;
    if (n->ready)
        n->call.shutdown();
    if (n->library)
        dlclose(n->library);
    ckpt_free(n);
}

unsigned nvml_index(const struct nvml *n) { return n->index; }
const char *nvml_name(const struct nvml *n) { return n->name; }

int nvml_sample(struct nvml *n, struct nvml_now *out, struct ckpt_err *err)
{
    struct utilization u = {0, 0};
    unsigned long long held = 0;
    unsigned mhz = 0, milliwatt = 0;
    struct memory m = {0, 0, 0};
    struct memory_v2 now = {.version = MEMORY_V2};
    int rc = n->call.memory(n->chip, &m);

    if (rc)
        return bad(err, "memory", rc);
    if (n->call.memory_v2 && n->call.memory_v2(n->chip, &now) == 0)
        m.used = now.used;
    if (n->call.load)                   /* not all chips report these four */
        n->call.load(n->chip, &u);
    if (n->call.clock)
        n->call.clock(n->chip, CLOCK_SM, &mhz);
    if (n->call.power)
        n->call.power(n->chip, &milliwatt);
    if (n->call.held)
        n->call.held(n->chip, &held);
    *out = (struct nvml_now){.used = m.used, .total = m.total, .load = u.gpu, .mhz = mhz,
                             .watt = 1e-3 * milliwatt, .held = held};
    return 0;
}
