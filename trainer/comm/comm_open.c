/*
 * comm_open - which communicator a process gets; the only room that knows them all.
 *
 * Ranks announce themselves through the environment of their launcher: Open MPI
 * (OMPI_COMM_WORLD_SIZE), MPICH and Intel MPI (PMI_SIZE), Slurm (SLURM_NTASKS with
 * SLURM_PROCID), torchrun (WORLD_SIZE).  MPI lives in a plug-in, so a single-process run
 * needs none installed.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/mem.h"
#include "trainer/comm/comm.h"
#include "trainer/comm/comm_plugin.h"
#include "trainer/plugin.h"

static const char *const announced_by[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS",
                                           "WORLD_SIZE"};

static void single_close(struct comm *c) { (void)c; }

/* One rank: the wrappers in comm.c never call the other entries. */
static const struct comm_ops single_ops = {.name = "single", .close = single_close};

/* How many ranks the launcher says there are, and where it says so. */
static long announced(const char **where)
{
    for (size_t i = 0; i < sizeof announced_by / sizeof announced_by[0]; i++) {
        const char *text = getenv(announced_by[i]);
        char *end;
        long n;

        if (!text || (strcmp(announced_by[i], "SLURM_NTASKS") == 0 && !getenv("SLURM_PROCID")))
            continue;
        n = strtol(text, &end, 10);
        if (*end == '\0' && n > 0) {
            *where = announced_by[i];
            return n;
        }
    }
    *where = "";
    return 1;
}

int comm_open(struct comm **out, struct ckpt_err *err)
{
    const struct comm_plugin *plugin;
    const char *where;
    char why[512];
    long n = announced(&where);
    struct comm *c;
    void *so;

    *out = NULL;
    if (n == 1) {
        c = ckpt_alloc(1, sizeof *c);
        if (!c)
            return ckpt_nomem(err, sizeof *c);
        c->ops = &single_ops;
        c->world_size = 1;
        *out = c;
        return 0;
    }
    so = plugin_open("libckpt_mpi.so", why, sizeof why);
    if (!so)
        return ckpt_fail(err, CKPT_EDEVICE,
                         "%s says %ld ranks, but the MPI plug-in did not open: %s", where, n,
                         why);
    plugin = dlsym(so, "comm_plugin");
    if (!plugin || plugin->version != COMM_PLUGIN_VERSION)
        return ckpt_fail(err, CKPT_EDEVICE, "libckpt_mpi.so: of another version than this program");
    c = ckpt_alloc(1, plugin->size);
    if (!c)
        return ckpt_nomem(err, plugin->size);
    if (plugin->start(c)) {
        *err = c->err;
        ckpt_free(c);
        return err->code;
    }
    if (c->world_size != n) {
        ckpt_fail(err, CKPT_ECOMM, "%s says %ld ranks, MPI found %d", where, n, c->world_size);
        comm_close(c);
        return err->code;
    }
    *out = c;
    return 0;
}
