/*
 * device_open - open the device that a run computes on; the only file that knows all devices.
 *
 * The CUDA backend is a plug-in.  cuBLASLt, which it needs, may be where the dynamic linker does
 * not search: it is then loaded by path first, from where NVIDIA's installers, distributions and
 * pip put it, so that the plug-in finds it by its name.
 */
#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libckpt/log.h"
#include "libckpt/mem.h"
#include "trainer/comm/simulate.h"
#include "trainer/cuda/plugin.h"
#include "trainer/nvml.h"
#include "trainer/ops/ops.h"
#include "trainer/plugin.h"

/* Patterns of folders; the library is taken from the first that has it.  ~: $HOME. */
static const char *const folders[] = {
    "/usr/local/cuda/lib64", "/usr/local/cuda-1[0-9].[0-9]*/lib64",
    "/usr/lib/x86_64-linux-gnu", "/opt/cuda/lib64",
    "/usr/lib/python3*/*-packages/nvidia/*/lib", "/usr/local/lib/python3*/*-packages/nvidia/*/lib",
    "~/.local/lib/python3*/site-packages/nvidia/*/lib",
};

static const char library[] = "libcublasLt.so.13", driver[] = "libcuda.so.1";
static const char nccl[] = "libnccl.so.2";      /* needed for several ranks only */

static bool load_from(const char *pattern, const char *name)
{
    char path[1024];
    glob_t found;
    bool ok = false;

    snprintf(path, sizeof path, "%s/%s", pattern, name);
    if (glob(path, 0, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc && !ok; i++)
            ok = dlopen(found.gl_pathv[i], RTLD_NOW | RTLD_GLOBAL) != NULL;
        globfree(&found);
    }
    return ok;
}

static bool load(const char *name)
{
    const char *home = getenv("HOME"), *venv = getenv("VIRTUAL_ENV");
    const char *own = getenv("CKPT_CUDA_PATH");
    char pattern[900];

    if (own && load_from(own, name))
        return true;
    if (dlopen(name, RTLD_NOW | RTLD_GLOBAL))
        return true;
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        bool below_home = folders[i][0] == '~';

        snprintf(pattern, sizeof pattern, "%s%s", below_home && home ? home : "",
                 folders[i] + below_home);
        if (load_from(pattern, name))
            return true;
    }
    if (!venv)
        return false;
    snprintf(pattern, sizeof pattern, "%s/lib/python3*/site-packages/nvidia/*/lib", venv);
    return load_from(pattern, name);
}

static int no_cuda(struct ckpt_err *err, const char *why)
{
    return ckpt_fail(err, CKPT_EDEVICE, "CUDA cannot be used: %s", why);
}

/* Open the plug-in, if the driver, its libraries and the plug-in are present in the right
 * versions. */
static int open_cuda(const struct cuda_plugin **out, struct ckpt_err *err)
{
    const struct cuda_plugin *p;
    char why[512];
    void *so;

    if (!dlopen(driver, RTLD_NOW | RTLD_GLOBAL) && !load_from("/usr/local/nvidia/lib64", driver))
        return no_cuda(err, "there is no NVIDIA driver (libcuda.so.1)");
    if (!load(library)) {
        ckpt_fail(err, CKPT_EDEVICE, "CUDA cannot be used: %s is not found", library);
        return ckpt_err_hint(err, "install it, or name its folder in CKPT_CUDA_PATH");
    }
    so = plugin_open("libckpt_cuda.so", why, sizeof why);
    if (!so)
        return no_cuda(err, why);
    p = dlsym(so, "cuda_plugin");
    if (!p || p->version != CUDA_PLUGIN_VERSION)
        return no_cuda(err, "libckpt_cuda.so is of another version than this program");
    *out = p;
    return 0;
}

/* "cuda" or "cuda:N" to N. */
static int gpu_index(int *index, const char *name, struct ckpt_err *err)
{
    char *end;
    long n = 0;

    if (name[4] == ':') {
        n = strtol(name + 5, &end, 10);
        if (name[5] < '0' || name[5] > '9' || *end || n > INT_MAX)
            return ckpt_fail(err, CKPT_ECONFIG, "device %s: wanted cuda:N, N a number from 0",
                             name);
    }
    *index = (int)n;
    return 0;
}

/* A limit covers everything that the driver holds for this process.  The plug-in sees the memory
 * of all processes, NVML how much opening the device adds. */
static int open_gpu(struct device **out, const struct cuda_plugin *plugin, int index,
                    const struct device_opts *opts, struct ckpt_err *err)
{
    const uint64_t least = (uint64_t)64 << 20;      /* less: another process freed some meanwhile */
    struct nvml_now before = {.used = 0}, after = {.used = 0};
    struct ckpt_err unknown = {0};
    struct nvml *chip = NULL;
    char bus[32] = "";
    bool known = false;
    int rc;

    if (opts->memory_limit) {
        plugin->bus(index, bus, sizeof bus);
        known = *bus && nvml_open(&chip, bus, &unknown) == 0 &&
                nvml_sample(chip, &before, &unknown) == 0;
    }
    rc = plugin->open(out, index, opts, err);
    if (rc == 0 && known && nvml_sample(chip, &after, &unknown) == 0 &&
        after.used > before.used + least &&
        after.used - before.used < (*out)->context)
        (*out)->context = after.used - before.used;
    nvml_close(chip);
    if (rc == 0)
        (*out)->threads = opts->threads ? opts->threads : omp_get_max_threads();
    return rc;
}

static int open_cpu(struct device **out, const struct device_opts *opts, struct ckpt_err *err)
{
    int rc;

    if (opts->fp8 || opts->tf32)
        return ckpt_fail(err, CKPT_ECONFIG, "`%s` needs a GPU, the device is the CPU",
                         opts->fp8 ? "fp8" : "tf32");
    rc = device_open_cpu(out, opts->threads, err);
    if (rc == 0)
        (*out)->weight = opts->weights;
    return rc;
}

int device_open(struct device **out, const struct device_opts *opts, struct ckpt_err *err)
{
    const char *name = opts->name ? opts->name : "auto";
    bool any = strcmp(name, "auto") == 0;
    const struct cuda_plugin *plugin;
    int index = 0;
    int rc;

    *out = NULL;
    if (strcmp(name, "cpu") == 0)
        return open_cpu(out, opts, err);
    if (!any && (strncmp(name, "cuda", 4) != 0 || (name[4] && name[4] != ':')))
        return ckpt_fail(err, CKPT_ECONFIG, "device %s: wanted auto, cpu, cuda or cuda:N", name);
    if (!any && (rc = gpu_index(&index, name, err)) != 0)
        return rc;
    rc = open_cuda(&plugin, err);
    if (rc == 0 && (!any || plugin->count() > 0))
        return open_gpu(out, plugin, index, opts, err);
    if (!any)
        return rc;
    /* Mention a plug-in that fails if there is a driver; without a driver it is not expected. */
    if (rc && dlopen(driver, RTLD_NOW | RTLD_NOLOAD))
        ckpt_log(CKPT_LOG_NOTE, "%s: continuing on the CPU", err->text);
    ckpt_err_clear(err);
    return open_cpu(out, opts, err);
}

int device_gpu_count(void)
{
    const struct cuda_plugin *plugin;
    struct ckpt_err unused = {0};

    return open_cuda(&plugin, &unused) == 0 ? plugin->count() : 0;
}

/* Check that all ranks compute on GPUs, or all on CPUs; collective. */
static int check_kinds(const struct device *dev, struct comm *host, struct ckpt_err *err)
{
    int64_t least[2] = {dev->discrete, -(int64_t)dev->discrete};
    int rc;

    comm_all_reduce(host, least, 2, CKPT_I64, COMM_MIN);
    if ((rc = comm_error(host, err)) != 0 || least[0] == -least[1])
        return rc;
    return ckpt_fail(err, CKPT_ECONFIG, "rank %d computes on %s, others do not", host->rank,
                     dev->discrete ? "a GPU" : "the CPU");
}

/* Rank 0 creates the id by which NCCL's ranks meet; collective among the hosts. */
static int share_id(const struct cuda_plugin *plugin, void *id, struct comm *host,
                    struct ckpt_err *err)
{
    int rc = host->rank == 0 ? plugin->comm_id(id, err) : 0;

    if ((rc = comm_agree(host, rc, err)) != 0)
        return rc;
    comm_broadcast(host, id, CUDA_PLUGIN_ID, CKPT_U8, 0);
    return comm_error(host, err);
}

/* What the environment asks of NCCL: a variable of another job explains a slow one. */
static void note_environment(void)
{
    char line[1000] = "";
    size_t used = 0;

    for (char **v = environ; *v && used < sizeof line - 1; v++)
        if (strncmp(*v, "NCCL_", 5) == 0)
            used += (size_t)snprintf(line + used, sizeof line - used, " %s", *v);
    if (used)
        ckpt_log(CKPT_LOG_NOTE, "NCCL's environment:%s", line);
}

/* NCCL between the ranks of a communicator. */
static int connect_nccl(struct device *dev, const struct cuda_plugin *plugin, struct comm *host,
                        const void *id, struct ckpt_err *err)
{
    struct comm *c = ckpt_alloc(1, plugin->comm_size());
    int rc;

    if (!c)
        return ckpt_nomem(err, plugin->comm_size());
    c->rank = host->rank;
    c->world_size = host->world_size;
    c->local_rank = host->local_rank;
    c->global_rank = host->global_rank;
    c->stride = host->stride;
    rc = plugin->comm_connect(c, dev, id, err);
    if (rc)
        ckpt_free(c);
    else
        host->device = c;
    return rc;
}

int device_join(struct device *dev, struct comm *host, struct ckpt_err *err)
{
    const struct cuda_plugin *plugin;
    int rc;

    if (host->world_size == 1 || host->planned)
        return 0;
    if ((rc = check_kinds(dev, host, err)) != 0 || !dev->discrete)
        return rc;
    if ((rc = open_cuda(&plugin, err)) != 0)
        return rc;
    if (host->rank == 0)
        note_environment();
    load(nccl);                         /* the plug-in opens it by its name */
    for (struct comm *c = host->parts ? host->parts : host; c && rc == 0; c = c->next) {
        unsigned char id[CUDA_PLUGIN_ID] = {0};

        if (c->world_size == 1)
            continue;
        rc = comm_agree(host, share_id(plugin, id, c, err), err);
        if (rc == 0)
            rc = connect_nccl(dev, plugin, c, id, err);
    }
    return rc;
}

int device_simulate(struct device *dev, struct comm *host, const struct simulate_net *net,
                    struct ckpt_err *err)
{
    const struct cuda_plugin *plugin;
    int rc;

    if (!dev->discrete)
        return ckpt_fail(err, CKPT_ECONFIG, "`simulate_world` needs a GPU, the device is the CPU");
    if ((rc = open_cuda(&plugin, err)) != 0)
        return rc;
    for (struct comm *c = host->parts ? host->parts : host; c && rc == 0; c = c->next) {
        struct simulate_net own = simulate_part(net, c->stride);

        if (c->world_size > 1)
            rc = simulate_open(&c->device, c->world_size, &own, dev, plugin->simulate, err);
    }
    return rc;
}
