/* train/start - see train/start.h. */
#include "tools/train/start.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libckpt/log.h"
#include "tools/cli.h"
#include "trainer/comm/comm.h"
#include "trainer/launch/hosts.h"
#include "trainer/launch/mpirun.h"
#include "trainer/comm/ranks.h"
#include "trainer/comm/report.h"
#include "trainer/launch/supervise.h"

#define OPT_VALUES struct train_start
static const struct opt rows[] = {
    OPT_HEADING("Tries and hosts"),
    OPT_INT("max-restarts", "N", max_restarts, 0, 1000000,
            "tries after the first: ranks that a signal ended, or that lost a peer, are started "
            "again from the newest checkpoint"),
    OPT_INT("min-ranks", "N", min_ranks, 0, 1 << 20,
            "fewest ranks of another try, where GPUs or hosts have gone; 0: as many as at first"),
    OPT_PATH("hostfile", "FILE", hostfile,
             "start ranks on the hosts of a file with lines HOST slots=N"),
    OPT_ENUM("launcher", "NAME", launcher, "ssh mpirun",
             "program that starts ranks on the hosts of --hostfile; with mpirun they talk over "
             "MPI"),
    OPT_TEXT("include", "CHOICE", include,
             "hosts and slots of --hostfile to use, such as worker-0@worker-1:0,2",
             .absent = "all"),
    OPT_TEXT("exclude", "CHOICE", exclude, "hosts and slots of --hostfile to leave out"),
    OPT_INT("num-nodes", "N", num_nodes, 0, HOSTFILE_MAX_HOSTS,
            "use the first N hosts of --hostfile; 0: all"),
    OPT_INT("num-gpus", "N", num_gpus, 0, HOSTFILE_MAX_SLOTS,
            "use the first N slots of each host; 0: all"),
    OPT_TEXT("master-addr", "HOST", master_addr,
             "name or address of the first host, by which all others reach it",
             .absent = "its name in --hostfile"),
    OPT_INT("master-port", "PORT", master_port, 1, UINT16_MAX,
            "port there, at which ranks meet"),
    OPT_INT("ssh-port", "PORT", ssh_port, 0, UINT16_MAX, "port of ssh; 0: as ssh is configured"),
};
#undef OPT_VALUES

struct opt_section train_start_rows(struct train_start *s)
{
    s->master_port = 29500;
    s->launcher = "ssh";
    return (struct opt_section)OPT_SECTION(rows, s);
}

int train_start_begin(struct train_start *s, struct ckpt_err *err)
{
    int rc = report_open(err);

    return rc == 0 && node_started() ? node_read(&s->node, err) : rc;
}

bool train_start_tell(const struct ckpt_err *err)
{
    if (!node_is())
        return false;
    node_tell(NULL, err);
    return true;
}

void train_start_end(struct train_start *s) { hostfile_release(&s->hosts); }

/* -- how many --------------------------------------------------------------------------------- */

/* `nproc gpu`, and more ranks than GPUs. */
static int count_gpus(struct train_start *s, struct settings *set, struct ckpt_err *err)
{
    bool all = set->nproc == SETTINGS_GPUS;

    return !all && set->dry_run ? 0 : launch_count(&set->nproc, all, set->device, &s->on_gpus, err);
}

static int choose_hosts(struct train_start *s, struct ckpt_err *err)
{
    int rc = hostfile_read(&s->hosts, s->hostfile, err);

    if (rc == 0 && s->include)
        rc = hostfile_include(&s->hosts, s->include, err);
    if (rc == 0 && s->exclude)
        rc = hostfile_exclude(&s->hosts, s->exclude, err);
    if (rc == 0 && s->num_nodes)
        rc = hostfile_first_hosts(&s->hosts, s->num_nodes, err);
    if (rc == 0 && s->num_gpus)
        rc = hostfile_first_slots(&s->hosts, s->num_gpus, err);
    return rc;
}

/* Whether the ranks that are to be started or planned fill groups of hybrid sharding. */
static int check_groups(const struct train_start *s, struct settings *set, struct ckpt_err *err)
{
    int64_t world = set->simulate_world > 0 ? set->simulate_world : set->nproc;
    int size = settings_hybrid(set);

    for (size_t i = 0; size == SETTINGS_NODE && i < s->hosts.n; i++) {
        const struct hostfile_host *first = &s->hosts.host[0], *host = &s->hosts.host[i];

        if (host->n == first->n)
            continue;
        ckpt_fail(err, CKPT_ECONFIG, "hybrid sharding: %s has %lld ranks, %s has %lld", first->name,
                  (long long)first->n, host->name, (long long)host->n);
        return ckpt_err_hint(err, "`num_gpus N` uses as many slots of each host; or set the ranks "
                             "of a group: `hybrid_shard_size N`");
    }
    if (s->hosts.n)
        set->node_ranks = s->hosts.host[0].n;
    if (size == SETTINGS_NODE)
        size = set->simulate_world > 0 && set->simulate_node < world ? (int)set->simulate_node : 0;
    return size && world > 0 ? comm_split_check(world, size, err) : 0;
}

bool train_start_is_rank(const struct train_start *s)
{
    return report_watched() || s->node.n > 0 || getenv(HOSTS_CHOSEN_ENV);
}

static bool takes_mpirun(const struct train_start *s) { return strcmp(s->launcher, "mpirun") == 0; }

int train_start_count(struct train_start *s, struct settings *set, struct ckpt_err *err)
{
    int rc;

    if (train_start_is_rank(s))
        return 0;
    if (s->hostfile) {
        if ((rc = choose_hosts(s, err)) != 0)
            return rc;
        set->nproc = hostfile_slots(&s->hosts);
        if (takes_mpirun(s) && s->max_restarts > 0)
            return ckpt_fail(err, CKPT_ECONFIG, "`max_restarts %lld` with `launcher mpirun`: "
                             "mpirun makes no other try", (long long)s->max_restarts);
    } else if ((rc = count_gpus(s, set, err)) != 0) {
        return rc;
    }
    if ((rc = check_groups(s, set, err)) != 0)
        return rc;
    if (s->min_ranks > set->nproc)
        return ckpt_fail(err, CKPT_ECONFIG, "`min_ranks %lld` of %lld ranks",
                         (long long)s->min_ranks, (long long)set->nproc);
    return 0;
}

/* -- starting --------------------------------------------------------------------------------- */

/* Whether this process is to start ranks: those that were started already do not. */
static int starts_ranks(bool *starts, const struct train_start *s, const struct settings *set,
                        struct ckpt_err *err)
{
    struct ranks r = ranks_found();

    *starts = false;
    if (set->simulate_world > 0 && r.world_size > 1 && r.placed)
        return ckpt_fail(err, CKPT_ECONFIG, "--simulate-world times one rank, but this process is "
                         "one of %ld of %s (%s)", r.world_size, r.launcher, r.where);
    if (getenv(HOSTS_CHOSEN_ENV))
        return 0;
    *starts = (set->nproc > 1 || s->max_restarts > 0 || s->hosts.n) && !set->dry_run;
    if (!*starts || r.world_size == 1 || !r.placed)
        return 0;
    *starts = false;
    if (r.meet != RANKS_NOWHERE && r.world_size == set->nproc && !s->hosts.n) {
        if (s->max_restarts && r.rank == 0)
            ckpt_log(CKPT_LOG_WARNING, "`max_restarts %lld`: %s started the ranks, and decides "
                     "about other tries", (long long)s->max_restarts, r.launcher);
        return 0;
    }
    ckpt_fail(err, CKPT_ECONFIG, "--%s starts ranks, but this process is one of %ld ranks of %s "
              "already (%s)", s->hosts.n ? "hostfile" : "nproc", r.world_size, r.launcher, r.where);
    return ckpt_err_hint(err, "leave it out, or start ckpt-train once");
}

static void print(void *ctx, const struct ckpt_err *err) { cli_error(ctx, err); }

/* The ranks of one of several hosts. */
static int run_node(int *status, const struct train_start *s, struct ckpt_err *err)
{
    const struct supervise_opts here = {
        .n = s->node.n, .argv = s->argv, .place = &s->node.place, .line = STDIN_FILENO,
        .resumes = true, .tell = node_tell, .ended = node_ended,
    };

    return supervise_run(status, &here, err);
}

static int run_here(int *status, const struct train_start *s, const struct settings *set,
                    struct cli *cli, struct ckpt_err *err)
{
    const struct supervise_opts here = {
        .n = set->nproc, .argv = s->argv, .max_restarts = s->max_restarts,
        .min_ranks = s->min_ranks, .on_gpus = s->on_gpus, .line = -1,
        .patience = (double)set->ddp_timeout, .resumes = true, .ctx = cli, .tell = print,
    };

    return supervise_run(status, &here, err);
}

/* The GPUs of a host's slots, "0,2". */
static int take_slots(const struct hostfile_host *host, struct ckpt_err *err)
{
    char text[6 * HOSTFILE_MAX_SLOTS];

    hostfile_slot_list(text, sizeof text, host);
    return setenv("CUDA_VISIBLE_DEVICES", text, 1) ? ckpt_nomem(err, strlen(text)) : 0;
}

static int run_hosts(int *status, const struct train_start *s, const struct settings *set,
                     struct cli *cli, struct ckpt_err *err)
{
    const struct hosts_opts there = {
        .hosts = &s->hosts, .master = s->master_addr, .master_port = (uint16_t)s->master_port,
        .ssh_port = s->ssh_port, .max_restarts = s->max_restarts, .min_ranks = s->min_ranks,
        .argv = s->argv, .ctx = cli, .tell = print,
    };
    int rc;

    if (takes_mpirun(s))
        return mpirun_run(status, &there, err);
    if (s->hosts.n > 1 || !hostfile_is_here(s->hosts.host[0].name))
        return hosts_run(status, &there, err);
    rc = take_slots(&s->hosts.host[0], err);
    return rc ? rc : run_here(status, s, set, cli, err);
}

int train_start_ranks(int *status, const struct train_start *s, const struct settings *set,
                      struct cli *cli, struct ckpt_err *err)
{
    bool starts = false;
    int rc = 0;

    if (report_watched())
        return 0;
    if (s->node.n)
        return (rc = run_node(status, s, err)) == 0 ? 1 : rc;
    if ((rc = starts_ranks(&starts, s, set, err)) != 0 || !starts)
        return rc;
    rc = s->hosts.n ? run_hosts(status, s, set, cli, err) : run_here(status, s, set, cli, err);
    return rc == 0 ? 1 : rc;
}
