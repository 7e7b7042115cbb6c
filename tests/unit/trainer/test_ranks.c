/*
 * What launchers' variables come to: how many ranks, which, and whether they can meet; and the
 * communicator of a plan.
 */
#include "tests/unit/unit.h"

#include "trainer/comm/comm.h"
#include "trainer/comm/ranks.h"

static const char *const names[] = {
    "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMI_SIZE", "PMI_RANK", "PMIX_RANK",
    "SLURM_NTASKS", "SLURM_PROCID", "SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID",
    "SLURM_STEP_NODELIST", "SLURM_JOB_ID", "WORLD_SIZE", "RANK", "LOCAL_RANK", "MASTER_ADDR",
    "MASTER_PORT", "TORCHELASTIC_USE_AGENT_STORE",
};

#define SLURM "SLURM_NTASKS=4 SLURM_PROCID=2 SLURM_STEP_ID=0"
#define TORCH "MASTER_ADDR=h MASTER_PORT=29500"
static const struct {
    const char     *env;                /* NAME=VALUE, by blanks */
    long            world_size, rank;
    const char     *launcher;
    enum ranks_meet meet;               /* looked at with several ranks only */
    long            job_size;
    const char     *store;              /* RANKS_STORE: HOST:PORT, "+" when it is held */
} cases[] = {
    {"", 1, 0, "", RANKS_NOWHERE, 0, ""},
    {"OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=3", 4, 3, "mpirun", RANKS_MPI, 0, ""},
    {"PMI_SIZE=2 PMI_RANK=1", 2, 1, "mpirun", RANKS_MPI, 0, ""},
    {"SLURM_NTASKS=4 SLURM_PROCID=0", 1, 0, "", RANKS_NOWHERE, 4, ""},
    {"SLURM_NTASKS=4", 1, 0, "", RANKS_NOWHERE, 0, ""},
    {SLURM, 4, 2, "srun", RANKS_NOWHERE, 0, ""},
    {SLURM " PMIX_RANK=2", 4, 2, "srun", RANKS_MPI, 0, ""},
    {SLURM " SLURM_STEP_NODELIST=tux[03-04] SLURM_JOB_ID=7", 4, 2, "srun", RANKS_STORE, 0,
     "tux03:15707"},
    {SLURM " SLURM_STEP_NODELIST=tux[03-04] " TORCH, 4, 2, "srun", RANKS_STORE, 0, "h:29500"},
    {SLURM " WORLD_SIZE=8 RANK=5 " TORCH, 8, 5, "torchrun", RANKS_STORE, 0, "h:29500"},
    {"SLURM_NTASKS=8 SLURM_STEP_NUM_TASKS=1 SLURM_PROCID=0 SLURM_STEP_ID=0", 1, 0, "srun",
     RANKS_NOWHERE, 8, ""},
    {"SLURM_NTASKS=8 SLURM_STEP_NUM_TASKS=8 SLURM_PROCID=0 OMPI_COMM_WORLD_SIZE=2 "
     "OMPI_COMM_WORLD_RANK=1", 2, 1, "mpirun", RANKS_MPI, 0, ""},
    {"WORLD_SIZE=1 RANK=0", 1, 0, "torchrun", RANKS_NOWHERE, 0, ""},
    {"WORLD_SIZE=3 RANK=2", 3, 2, "torchrun", RANKS_NOWHERE, 0, ""},
    {"WORLD_SIZE=3 RANK=2 " TORCH, 3, 2, "torchrun", RANKS_STORE, 0, "h:29500"},
    {"WORLD_SIZE=3 RANK=2 TORCHELASTIC_USE_AGENT_STORE=True " TORCH, 3, 2, "torchrun",
     RANKS_STORE, 0, "h:29500+"},
    {"WORLD_SIZE=3 RANK=2 MASTER_ADDR=h", 3, 2, "torchrun", RANKS_NOWHERE, 0, ""},
    {"WORLD_SIZE=3 RANK=2 MASTER_ADDR=h MASTER_PORT=70000", 3, 2, "torchrun", RANKS_NOWHERE, 0, ""},
    {"WORLD_SIZE=3 " TORCH, 3, 0, "torchrun", RANKS_NOWHERE, 0, ""},
    {"WORLD_SIZE=3 RANK=7", 3, 0, "torchrun", RANKS_NOWHERE, 0, ""},
    {"WORLD_SIZE=3 RANK=3 " TORCH, 3, 0, "torchrun", RANKS_NOWHERE, 0, ""},
    {"WORLD_SIZE=3 RANK=one " TORCH, 3, 0, "torchrun", RANKS_NOWHERE, 0, ""},
    {"WORLD_SIZE=x RANK=0", 1, 0, "", RANKS_NOWHERE, 0, ""},
    {"WORLD_SIZE=-2", 1, 0, "", RANKS_NOWHERE, 0, ""},
    {"WORLD_SIZE=99999999999999999999", 1, 0, "", RANKS_NOWHERE, 0, ""},
    {"WORLD_SIZE=2x", 1, 0, "", RANKS_NOWHERE, 0, ""},
    {"OMPI_COMM_WORLD_SIZE= WORLD_SIZE=2", 2, 0, "torchrun", RANKS_NOWHERE, 0, ""},
};

static void set(const char *env)
{
    char text[256], *at = text, *one;

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        unsetenv(names[i]);
    snprintf(text, sizeof text, "%s", env);
    while ((one = strsep(&at, " "))) {
        char *value = strchr(one, '=');

        if (!value)
            continue;
        *value = '\0';
        setenv(one, value + 1, 1);
    }
}

TEST(variables_say_how_many_and_which)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ckpt_err err = {0};
        struct ranks r;
        char store[300] = "";
        bool refused;

        set(cases[i].env);
        r = ranks_found();
        refused = ranks_check(&r, &err) != 0;
        if (r.meet == RANKS_STORE)
            snprintf(store, sizeof store, "%s:%u%s", r.host, (unsigned)r.port, r.held ? "+" : "");
        if (r.world_size != cases[i].world_size || r.rank != cases[i].rank ||
            strcmp(r.launcher, cases[i].launcher) != 0 || r.job_size != cases[i].job_size ||
            r.meet != cases[i].meet || strcmp(store, cases[i].store) != 0 ||
            refused != (r.odd || (r.world_size > 1 && r.meet == RANKS_NOWHERE)))
            fail_msg("%s: %ld ranks, this is %ld, of %s, a job of %ld, %s, at '%s'", cases[i].env,
                     r.world_size, r.rank, r.launcher, r.job_size, refused ? "refused" : "taken",
                     store);
        if (refused) {
            assert_int_equal(err.code, CKPT_ECONFIG);
            assert_non_null(strstr(err.text, *r.where ? r.where : r.odd));
            assert_non_null(strstr(err.hint, "`nproc"));
        }
    }
    set("");
}

static const struct { const char *env, *text; } odd[] = {
    {"WORLD_SIZE=two RANK=1 " TORCH, "WORLD_SIZE is \"two\": a number of ranks is wanted"},
    {"WORLD_SIZE=0 RANK=0", "WORLD_SIZE is \"0\": a number of ranks is wanted"},
    {"RANK=1 " TORCH, "RANK is \"1\", but no WORLD_SIZE says how many ranks there are"},
    {"RANK=0 WORLD_SIZE= " TORCH, "RANK is \"0\", but no WORLD_SIZE"},
    {"RANK=1", "RANK is \"1\", but no WORLD_SIZE"},
    {"WORLD_SIZE=2 RANK=0 MASTER_ADDR=h MASTER_PORT=0x7", "MASTER_PORT is \"0x7\": 1 to 65535 is"},
    {"WORLD_SIZE=2 RANK=0 MASTER_ADDR=h MASTER_PORT=65536", "MASTER_PORT is \"65536\": 1 to"},
    {SLURM " SLURM_STEP_NODELIST=a MASTER_PORT=many", "SLURM_NTASKS says 4 ranks, but MASTER_PORT"},
};

TEST(variables_that_contradict_each_other_are_refused)
{
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        struct ckpt_err err = {0};
        struct ranks r;

        set(odd[i].env);
        r = ranks_found();
        assert_int_equal(ranks_check(&r, &err), CKPT_ECONFIG);
        if (!strstr(err.text, odd[i].text))
            fail_msg("%s: %s", odd[i].env, err.text);
    }
    set("RANK=0");                      /* the first of one, as far as it goes */
    {
        struct ckpt_err err = {0};
        struct ranks r = ranks_found();

        assert_int_equal(ranks_check(&r, &err), 0);
    }
    set("");
}

TEST(a_node_list_begins_with_a_host)
{
    static const char *const list[][2] = {
        {"tux", "tux"}, {"tux3,tux4", "tux3"}, {"tux[03-07,9],other", "tux03"}, {"a[9,11]", "a9"},
        {"a[5]", "a5"}, {"", ""}, {"a[", "a"},
        {"rack[1-2]n[04-06],m1", "rack1n04"}, {"n[1-2]-ib", "n1-ib"}, {"a[1", "a1"},
        {"[7-8]", "7"}, {",a", ""},
    };
    char host[64];

    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        ranks_first_host(host, sizeof host, list[i][0]);
        assert_string_equal(host, list[i][1]);
    }
}

TEST(a_plan_has_ranks_that_are_not_there)
{
    struct ckpt_err err = {0};
    int64_t one[2] = {5, 7}, all[6] = {0};
    struct comm *c;

    set("WORLD_SIZE=9");                /* nobody looks */
    assert_int_equal(comm_open_single(&c, 3, &err), 0);
    assert_int_equal(c->world_size, 3);
    assert_int_equal(c->rank, 0);
    comm_all_reduce(c, one, 2, CKPT_I64, COMM_SUM);
    comm_all_gather(c, all, one, 2, CKPT_I64);
    assert_int_equal(all[5], 7);
    comm_barrier(c);
    assert_int_equal(comm_agree(c, 0, &err), 0);
    ckpt_fail(&err, CKPT_EFORMAT, "no");
    assert_int_equal(comm_agree(c, CKPT_EFORMAT, &err), CKPT_EFORMAT);
    assert_int_equal(comm_agree(c, 0, &err), 0);        /* what a success left in the record */
    comm_close(c);
    ckpt_err_clear(&err);
    assert_int_equal(comm_open_single(&c, 1, &err), 0);
    assert_int_equal(c->world_size, 1);
    comm_close(c);
    set("");
}
