/* ranks - see ranks.h. */
#include "trainer/comm/ranks.h"

#include <stdlib.h>

/*
 * One row per launcher, the surest first: a variable that says how many ranks there are and one
 * that says which of them this is.  Slurm sets every process' variables of the job; srun alone
 * sets those of a step, and a process in a batch script is no step.
 */
static const struct {
    const char *size, *rank, *launcher;
    const char *needs;                  /* a variable without which the row says nothing */
    const char *meet;                   /* one that ranks meet through: NULL: size itself */
} row[] = {
    {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "mpirun", NULL, NULL},
    {"PMI_SIZE", "PMI_RANK", "mpirun", NULL, NULL},
    {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "srun", "SLURM_STEP_ID", "PMIX_RANK"},
    {"SLURM_NTASKS", "SLURM_PROCID", "srun", "SLURM_STEP_ID", "PMIX_RANK"},
    {"WORLD_SIZE", "RANK", "torchrun", NULL, ""},
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

struct ranks ranks_found(void)
{
    struct ranks r = {.world_size = 1, .where = "", .launcher = ""};
    long tasks = number("SLURM_NTASKS", 1);

    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        long n = number(row[i].size, 0);

        if (n < 1 || (row[i].needs && !getenv(row[i].needs)))
            continue;
        r.world_size = n;
        r.rank = number(row[i].rank, 0) < n ? number(row[i].rank, 0) : 0;
        r.placed = getenv(row[i].rank);
        r.where = row[i].size;
        r.launcher = row[i].launcher;
        r.meets = !row[i].meet || getenv(row[i].meet);
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
    if (r->world_size == 1 || r->meets)
        return 0;
    ckpt_fail(err, CKPT_ECONFIG, "%s says %ld ranks (%s), but they cannot find each other: MPI "
              "sets OMPI_COMM_WORLD_SIZE, PMI_SIZE or PMIX_RANK",
              r->where, r->world_size, r->launcher);
    return ckpt_err_hint(err, "`nproc %ld` on one host, mpirun -np %ld, or srun --mpi=pmix; a "
                         "single rank: unset %s", r->world_size, r->world_size, r->where);
}
