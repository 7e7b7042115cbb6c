/* Work on the host, drawing and reading weights, is done by the threads that the rank was given. */
#include "tests/unit/model_help.h"

#include <omp.h>

#include "trainer/checkpoint/weights.h"
#include "trainer/comm/comm.h"
#include "trainer/model/model.h"
#include "trainer/rng.h"
#include "trainer/shard/zero.h"

#define OK(call, err) do { if (call) fail_msg("%s", (err).text); } while (0)
#define LARGE "{\"model_type\":\"gpt2\",\"vocab_size\":131072,\"n_embd\":8,\"n_layer\":1,"          \
              "\"n_head\":2,\"n_positions\":16}"        /* its embedding has 1 Mi elements */
#define OPENMP 4                        /* threads, where nobody says how many */

BEFORE_ALL() { omp_set_num_threads(OPENMP); }

/* Threads of this process. */
static int threads_now(void)
{
    FILE *f = fopen("/proc/self/status", "r");
    char line[256];
    int n = 0;

    assert_non_null(f);
    while (n == 0 && fgets(line, sizeof line, f))
        if (sscanf(line, "Threads: %d", &n) != 1)
            n = 0;
    fclose(f);
    return n;
}

/* In this order: libgomp keeps the threads that it has started. */
TEST(draws_start_no_more_threads_than_they_may)
{
    enum { N = 1 << 18 };
    int before = threads_now();
    float *one = malloc(N * sizeof *one), *two = malloc(N * sizeof *two);

    rng_normal_by(1, one, 3, N, 0.5f, 7, 9);
    assert_int_equal(threads_now(), before);
    rng_normal_by(2, two, 3, N, 0.5f, 7, 9);
    assert_int_equal(threads_now(), before + 1);
    assert_memory_equal(one, two, N * sizeof *one);
    rng_normal(two, 3, N, 0.5f, 7, 9);
    assert_memory_equal(one, two, N * sizeof *one);
    free(one);
    free(two);
}

/* A file of all parameters, whose reads tell in how large a team they are. */
static _Atomic int team;

static void nothing(void *self) { (void)self; }

static int read_ones(void *self, size_t i, int64_t start, int64_t count, void *dst,
                     struct ckpt_err *err)
{
    (void)self, (void)i, (void)start, (void)err;
    for (int64_t k = 0; k < count; k++)
        ((float *)dst)[k] = 1;
    if (omp_get_num_threads() > team)
        team = omp_get_num_threads();   /* each thread of a team writes the same */
    return 0;
}

static struct ckpt_source *ones_of(const struct params *p)
{
    static const struct ckpt_source_ops ops = {"list", read_ones, NULL, nothing};
    static int self;
    struct ckpt_tensors list = {0};
    struct ckpt_source *src;
    struct ckpt_err err = {0};

    for (size_t i = 0; i < p->n; i++)
        OK(ckpt_tensors_add(&list, NULL, p->item[i].name, strlen(p->item[i].name), CKPT_F32,
                            &p->item[i].shape, NULL, 0, false, &err), err);
    OK(ckpt_source_new(&src, &ops, &self, &list, NULL, 0, NULL, &err), err);
    return src;
}

/* The largest team that reads weights. */
static int team_of(int threads)
{
    struct zero_opts zero_opts = {0};
    struct model_opts opts = {.max_tokens = 8, .max_docs = 1, .max_rows = 8};
    struct arch *arch = arch_of(LARGE);
    struct device *dev = cpu_device(threads);
    struct ckpt_err err = {0};
    struct ckpt_source *src;
    struct model *model;
    struct zero *zero;
    struct comm *comm;
    size_t *index;

    OK(comm_open(&comm, 0, &err), err);
    OK(model_new(&model, arch, &opts, dev, &err), err);
    OK(zero_new(&zero, model_params(model), &zero_opts, dev, comm, &err), err);
    src = ones_of(model_params(model));
    index = calloc(model_params(model)->n, sizeof *index);
    OK(weights_match(index, model_params(model), src, NULL, NULL, true, &err), err);
    team = 0;
    OK(weights_load(zero, ZERO_MASTER, src, index, NULL, &err), err);
    free(index);
    ckpt_source_close(src);
    zero_free(zero);
    model_free(model);
    comm_close(comm);
    device_close(dev);
    arch_free(arch);
    return team;
}

TEST(reads_have_the_threads_of_the_device)
{
    assert_int_equal(team_of(1), 1);
    assert_int_equal(team_of(3), 3);
    assert_int_equal(team_of(0), OPENMP);
}
