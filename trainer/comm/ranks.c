/* ranks - see ranks.h. */
#include "trainer/comm/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIZE "WORLD_SIZE"               /* of torchrun, and of whoever starts ranks by hand */

/*
 * One row per launcher, the surest first: a variable that says how many ranks there are and one
 * that says which of them this is.  torchrun comes before srun, which may have started it, once on
 * each host.  Slurm tells every process of a job about the job; srun alone tells of a step, and a
 * process in a batch script is no step.
 */
static const struct {
    const char *size, *rank, *local, *launcher;
    const char *needs;                  /* a variable without which the row says nothing */
    const char *mpi;                    /* one that is there when the ranks meet through MPI */
} row[] = {
    {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "mpirun", NULL,
     "OMPI_COMM_WORLD_SIZE"},
    {"PMI_SIZE", "PMI_RANK", "MPI_LOCALRANKID", "mpirun", NULL, "PMI_SIZE"},
    {SIZE, "RANK", "LOCAL_RANK", "torchrun", "MASTER_ADDR", NULL},
    {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_LOCALID", "srun", "SLURM_STEP_ID",
     "PMIX_RANK"},
    {"SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID", "srun", "SLURM_STEP_ID", "PMIX_RANK"},
    {SIZE, "RANK", "LOCAL_RANK", "torchrun", NULL, NULL},
};

/* The whole number in a variable; less where there is none. */
static long number(const char *name, long less)
{
    const char *text = getenv(name);
    char *end;
    long n;

    if (!text || *text < '0' || *text > '9')
        return less;
    n = strtol(text, &end, 10);
    return *end == '\0' && n <= 1 << 30 ? n : less;
}

void ranks_first_host(char *out, size_t size, const char *list)
{
    const char *in = list;
    size_t at = 0, n;

    *out = '\0';
    while (*in && *in != ',' && at + 1 < size) {
        bool first_of = *in == '[';     /* the first of these numbers, wherever they stand */

        in += first_of;
        n = first_of ? strcspn(in, "-,]") : strcspn(in, "[,");
        n = n < size - 1 - at ? n : size - 1 - at;
        memcpy(out + at, in, n);
        out[at += n] = '\0';
        in += first_of ? strcspn(in, "]") : n;
        in += first_of && *in == ']';
    }
}

/* MASTER_ADDR and MASTER_PORT; without them, under Slurm, the step's first host and a port that
 * no other step is likely to have. */
static void find_store(struct ranks *r, bool slurm)
{
    const char *host = getenv("MASTER_ADDR"), *agent = getenv("TORCHELASTIC_USE_AGENT_STORE");
    const char *nodes = getenv("SLURM_STEP_NODELIST");
    const char *given = getenv("MASTER_PORT");
    long port = number("MASTER_PORT", 0);

    if (host)
        snprintf(r->host, sizeof r->host, "%.255s", host);
    else if (slurm && nodes)
        ranks_first_host(r->host, sizeof r->host, nodes);
    if (given && *given && (port < 1 || port > UINT16_MAX))
        r->odd = "MASTER_PORT";
    else if (port < 1 && slurm)         /* below the ports that systems give out by themselves */
        port = 15000 + (number("SLURM_JOB_ID", 0) * 101 + number("SLURM_STEP_ID", 0)) % 15000;
    r->port = r->odd ? 0 : (uint16_t)port;
    r->held = getenv(RANKS_HELD_ENV) || (agent && strcmp(agent, "True") == 0);
    if (r->host[0] && r->port)
        r->meet = RANKS_STORE;
}

/* Whether a variable says something. */
static bool says(const char *name)
{
    const char *text = getenv(name);

    return text && *text;
}

struct ranks ranks_found(void)
{
    struct ranks r = {.world_size = 1, .where = "", .launcher = ""};
    long tasks = number("SLURM_NTASKS", 1);

    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        long n = number(row[i].size, 0);

        if (row[i].needs && !getenv(row[i].needs))
            continue;
        if (n < 1) {
            r.odd = !r.odd && says(row[i].size) ? row[i].size : r.odd;
            continue;
        }
        r.odd = NULL;
        r.world_size = n;
        r.rank = number(row[i].rank, -1);
        r.placed = getenv(row[i].rank);
        if (r.rank < 0 || r.rank >= n) {
            r.odd = r.placed ? row[i].rank : NULL;
            r.rank = 0;
        }
        r.local_rank = number(row[i].local, 0);
        r.where = row[i].size;
        r.launcher = row[i].launcher;
        if (row[i].mpi && getenv(row[i].mpi))
            r.meet = RANKS_MPI;
        else if (n > 1 && r.placed && !r.odd)
            find_store(&r, strcmp(row[i].launcher, "srun") == 0);
        break;
    }
    if (!*r.where && !r.odd && says("RANK") && (says("MASTER_ADDR") || number("RANK", 0) > 0))
        r.odd = SIZE;                   /* each of several would take itself for the only one */
    if (r.world_size == 1 && tasks > 1 && getenv("SLURM_PROCID")) {
        r.job = "SLURM_NTASKS";
        r.job_size = tasks;
    }
    return r;
}

/* What is wrong with the variable that says nothing usable. */
static void fail_odd(const struct ranks *r, struct ckpt_err *err)
{
    const char *value = getenv(r->odd);

    if (!says(r->odd))
        ckpt_fail(err, CKPT_ECONFIG, "RANK is \"%.40s\", but no %s says how many ranks there are",
                  getenv("RANK"), r->odd);
    else if (!*r->where)
        ckpt_fail(err, CKPT_ECONFIG, "%s is \"%.40s\": a number of ranks is wanted", r->odd, value);
    else if (strcmp(r->odd, "MASTER_PORT") == 0)
        ckpt_fail(err, CKPT_ECONFIG, "%s says %ld ranks, but MASTER_PORT is \"%.40s\": 1 to %d is "
                  "wanted", r->where, r->world_size, value, UINT16_MAX);
    else
        ckpt_fail(err, CKPT_ECONFIG, "%s is \"%.40s\": of the %ld ranks that %s says, 0 to %ld is "
                  "wanted", r->odd, value, r->world_size, r->where, r->world_size - 1);
}

int ranks_check(const struct ranks *r, struct ckpt_err *err)
{
    const char *unset = *r->where ? r->where : r->odd && says(r->odd) ? r->odd : "RANK";
    char n[24] = "N";

    if (*r->where && r->world_size > 1)
        snprintf(n, sizeof n, "%ld", r->world_size);
    if (*r->where ? r->world_size == 1 || r->meet != RANKS_NOWHERE : !r->odd)
        return 0;
    if (r->odd)
        fail_odd(r, err);
    else
        ckpt_fail(err, CKPT_ECONFIG, "%s says %ld ranks (%s), but %s", r->where, r->world_size,
                  r->launcher,
                  r->placed ? "neither MASTER_ADDR and MASTER_PORT nor MPI says where they meet"
                            : "no RANK says which of them this is");
    return ckpt_err_hint(err, "`nproc %s` on one host, torchrun --no-python, mpirun -np %s or "
                         "srun start ranks; a single rank: unset %s", n, n, unset);
}
