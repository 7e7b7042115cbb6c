/* ranks - see ranks.h. */
#include "trainer/comm/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    {"WORLD_SIZE", "RANK", "LOCAL_RANK", "torchrun", "MASTER_ADDR", NULL},
    {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_LOCALID", "srun", "SLURM_STEP_ID",
     "PMIX_RANK"},
    {"SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID", "srun", "SLURM_STEP_ID", "PMIX_RANK"},
    {"WORLD_SIZE", "RANK", "LOCAL_RANK", "torchrun", NULL, NULL},
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
    size_t name = strcspn(list, "[,"), digits = 0;
    const char *in = list + name;

    if (*in == '[')
        digits = strcspn(++in, "-,]");
    snprintf(out, size, "%.*s%.*s", (int)name, list, (int)digits, in);
}

/* MASTER_ADDR and MASTER_PORT; without them, under Slurm, the step's first host and a port that
 * no other step is likely to have. */
static void find_store(struct ranks *r, bool slurm)
{
    const char *host = getenv("MASTER_ADDR"), *agent = getenv("TORCHELASTIC_USE_AGENT_STORE");
    const char *nodes = getenv("SLURM_STEP_NODELIST");
    long port = number("MASTER_PORT", 0);

    if (host)
        snprintf(r->host, sizeof r->host, "%.255s", host);
    else if (slurm && nodes)
        ranks_first_host(r->host, sizeof r->host, nodes);
    if (port < 1 && slurm)              /* below the ports that systems give out by themselves */
        port = 15000 + (number("SLURM_JOB_ID", 0) * 101 + number("SLURM_STEP_ID", 0)) % 15000;
    r->port = port <= UINT16_MAX ? (uint16_t)port : 0;
    r->held = getenv(RANKS_HELD_ENV) || (agent && strcmp(agent, "True") == 0);
    if (r->host[0] && r->port)
        r->meet = RANKS_STORE;
}

struct ranks ranks_found(void)
{
    struct ranks r = {.world_size = 1, .where = "", .launcher = ""};
    long tasks = number("SLURM_NTASKS", 1);

    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        long n = number(row[i].size, 0);

        if (n < 1 || (row[i].needs && !getenv(row[i].needs)))
            continue;
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
    if (r.world_size == 1 && tasks > 1 && getenv("SLURM_PROCID")) {
        r.job = "SLURM_NTASKS";
        r.job_size = tasks;
    }
    return r;
}

int ranks_check(const struct ranks *r, struct ckpt_err *err)
{
    if (r->world_size == 1 || r->meet != RANKS_NOWHERE)
        return 0;
    if (r->odd)
        ckpt_fail(err, CKPT_ECONFIG, "%s is \"%.40s\": of the %ld ranks that %s says, 0 to %ld is "
                  "wanted", r->odd, getenv(r->odd), r->world_size, r->where, r->world_size - 1);
    else
        ckpt_fail(err, CKPT_ECONFIG, "%s says %ld ranks (%s), but %s", r->where, r->world_size,
                  r->launcher,
                  r->placed ? "neither MASTER_ADDR and MASTER_PORT nor MPI says where they meet"
                            : "no RANK says which of them this is");
    return ckpt_err_hint(err, "`nproc %ld` on one host, torchrun --no-python, mpirun -np %ld or "
                         "srun start ranks; a single rank: unset %s", r->world_size,
                         r->world_size, r->where);
}
