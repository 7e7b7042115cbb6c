/*
 * bench_step - one optimizer step of the trainer on the CPU, and generation, as jobs that are
 * read from stdin, one a line.  The peer of the steps is bench_step_torch.py.
 *
 * usage: bench_step [threads] [hidden] [layers] [heads] [feed-forward of llama] [vocab]
 *   step llama|bloom f32|bf16 BATCH LENGTH STEPS   prints the median ms of a step, the median of
 *                                                  its CPU time, and the last loss
 *   profile ...                                    as step, and the last one's operations by time
 *   decode llama|bloom f32|bf16 TOKENS             prints GB of weights a second, and GB/s at
 *                                                  which the same threads read as many bytes;
 *                                                  one thread's by its CPU time
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "libckpt/base/json.h"
#include "libckpt/mem.h"
#include "trainer/clock.h"
#include "trainer/comm/comm.h"
#include "trainer/cpu/cpu.h"
#include "formats/families/arch.h"
#include "trainer/model/model.h"
#include "trainer/ops/profile.h"
#include "trainer/optim/optim.h"
#include "trainer/shard/zero.h"

enum { THREADS, HIDDEN, LAYERS, HEADS, FF, VOCAB, N_ARGS };

struct bench {
    struct arch   *arch;
    struct device *dev;
    struct comm   *comm;
    struct model  *model;
    struct zero   *zero;
    struct batch   batch;
    int32_t       *ints;
    int64_t        step;
};

static double now(void) { return clock_now() * 1e3; }

static double cpu_time(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + 1e-6 * (double)t.tv_nsec;
}

/* Numbers of the size that initialisers draw, cheaply; gains are 1. */
static int fill(void *ctx, size_t i, int64_t start, int64_t count, float *dst,
                struct ckpt_err *err)
{
    const struct params *p = ctx;
    bool gain = p->item[i].shape.rank == 1;

    (void)err;
#pragma omp parallel for
    for (int64_t j = 0; j < count; j++) {
        uint32_t r = (uint32_t)(start + j) * 2654435761u + (uint32_t)i * 40503u;

        r ^= r >> 15;
        r *= 2246822519u;
        r ^= r >> 13;
        dst[j] = gain ? 1.0f : ((float)(r >> 8) * 0x1p-24f - 0.5f) * 0.07f;
    }
    return 0;
}

static json_t *config(const char *model, const long *a)
{
    if (strcmp(model, "bloom") == 0)
        return json_pack("{s:s,s:I,s:I,s:I,s:I}", "model_type", "bloom", "hidden_size",
                         (json_int_t)a[HIDDEN], "n_layer", (json_int_t)a[LAYERS], "n_head",
                         (json_int_t)a[HEADS], "vocab_size", (json_int_t)a[VOCAB]);
    return json_pack("{s:s,s:I,s:I,s:I,s:I,s:I,s:I,s:b}", "model_type", "llama", "hidden_size",
                     (json_int_t)a[HIDDEN], "num_hidden_layers", (json_int_t)a[LAYERS],
                     "num_attention_heads", (json_int_t)a[HEADS], "intermediate_size",
                     (json_int_t)a[FF], "vocab_size", (json_int_t)a[VOCAB],
                     "max_position_embeddings", (json_int_t)4096, "tie_word_embeddings", 1);
}

static void close_bench(struct bench *b)
{
    zero_free(b->zero);
    model_free(b->model);
    arch_free(b->arch);
    comm_close(b->comm);
    device_close(b->dev);
    free(b->ints);
}

static int open_bench(struct bench *b, const char *model, bool bf16, const long *a,
                      const struct model_opts *opts, struct ckpt_err *err)
{
    json_t *json = config(model, a);
    int rc = arch_read_json(&b->arch, json, err);

    json_decref(json);
    if (rc || (rc = device_open_cpu(&b->dev, (int)a[THREADS], err)) != 0)
        return rc;
    b->dev->weight = bf16 ? CKPT_BF16 : CKPT_F32;
    if (comm_open(&b->comm, 0, err) || model_new(&b->model, b->arch, opts, b->dev, err) ||
        zero_new(&b->zero, model_params(b->model), &(struct zero_opts){.train = opts->train}, b->dev,
                 b->comm, err))
        return err->code;
    return zero_fill(b->zero, ZERO_MASTER, fill, (void *)(uintptr_t)model_params(b->model), err);
}

static void fill_batch(struct bench *b, int64_t batch, int64_t length, int64_t vocab)
{
    int64_t n = batch * length;
    int32_t *x = b->ints = calloc((size_t)(5 * n + 1), sizeof *x);
    int32_t *ids = x, *pos = x + n, *rows = x + 2 * n, *targets = x + 3 * n, *start = x + 4 * n;
    uint32_t r = 1;

    b->batch = (struct batch){.n_tokens = n, .n_docs = batch, .ids = ids, .positions = pos,
                              .doc_start = start, .rows = rows, .targets = targets};
    for (int64_t i = 0; i < n; i++) {
        r = r * 1664525u + 1013904223u;
        ids[i] = 5 + (int32_t)((r >> 8) % (uint32_t)(vocab - 5));
        pos[i] = (int32_t)(i % length);
    }
    for (int64_t i = 0; i < n; i++)
        if (pos[i] + 1 < length) {
            rows[b->batch.n_rows] = (int32_t)i;
            targets[b->batch.n_rows++] = ids[i + 1];
        }
    for (int64_t d = 0; d <= batch; d++)
        start[d] = (int32_t)(d * length);
}

/* As trainer/run/step.c does it for one rank. */
static double step(struct bench *b, struct ckpt_err *err)
{
    struct optim_opts optim = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1,
                               .max_grad_norm = 1.0};
    double loss;

    zero_begin(b->zero);
    if (model_loss_grad(b->model, zero_weights(b->zero), &b->batch,
                        1.0f / (float)b->batch.n_rows, &loss, err)) {
        fprintf(stderr, "%s\n", err->text);
        exit(1);
    }
    zero_reduce(b->zero);
    zero_judge(b->zero, optim.max_grad_norm, 1);
    optim_step(b->zero, &optim, 1e-3, ++b->step);
    return loss / (double)b->batch.n_rows;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static int steps(const char *model, bool bf16, int64_t batch, int64_t length, int n, bool profile,
                 const long *a)
{
    struct model_opts opts = {.max_tokens = batch * length, .max_docs = batch,
                              .max_rows = batch * length, .train = true};
    double wall[100], cpu[100], loss = 0;
    struct profile *prof = NULL;
    struct ckpt_err err = {0};
    struct bench b = {0};

    if (open_bench(&b, model, bf16, a, &opts, &err)) {
        fprintf(stderr, "bench_step: %s\n", err.text);
        return 1;
    }
    fill_batch(&b, batch, length, a[VOCAB]);
    step(&b, &err);
    for (int i = 0; i < n; i++) {
        double t = now(), c = cpu_time();

        if (profile && i == n - 1 && profile_on(&prof, b.dev, &err))
            fprintf(stderr, "bench_step: %s\n", err.text);
        loss = step(&b, &err);
        wall[i] = now() - t;
        cpu[i] = cpu_time() - c;
    }
    qsort(wall, (size_t)n, sizeof *wall, by_size);
    qsort(cpu, (size_t)n, sizeof *cpu, by_size);
    printf("%.2f %.2f %.4f\n", wall[n / 2], cpu[n / 2], loss);
    if (prof)
        profile_print(prof, stdout, 1);
    profile_off(prof);
    close_bench(&b);
    return 0;
}

/* One thread's own time, where others take turns with it. */
static double clock_of(const struct bench *b) { return b->dev->threads == 1 ? cpu_time() : now(); }

__attribute__((target("avx2"), optimize("O3")))
static uint64_t sum_of(const uint64_t *x, size_t n)
{
    uint64_t sum = 0;

    for (size_t j = 0; j < n; j++)
        sum += x[j];
    return sum;
}

/* GB/s at which the threads read the weights, best of ten: what generation cannot beat. */
static double stream(const struct bench *b, const void *p, size_t bytes)
{
    const uint64_t *x = p;
    double best = 0;

    for (int i = 0; i < 10; i++) {
        uint64_t sum = 0;
        double t = clock_of(b);

#pragma omp parallel reduction(+ : sum) num_threads(b->dev->threads)
        {
            int64_t begin, end;

            cpu_range(&begin, &end, (int64_t)(bytes / sizeof *x), 512, omp_get_thread_num(),
                      omp_get_num_threads());
            sum += sum_of(x + begin, (size_t)(end - begin));
        }
        __asm__ volatile("" : : "r"(sum));
        t = (double)bytes / (clock_of(b) - t) * 1e-6;
        best = t > best ? t : best;
    }
    return best;
}

/* Every step reads all weights once (the embedding as the head). */
static int decodes(const char *model, bool bf16, int n, const long *a)
{
    struct model_opts opts = {.max_tokens = 64, .max_docs = 1, .max_rows = 1};
    float *logits = malloc((size_t)a[VOCAB] * sizeof *logits);
    double *each = malloc((size_t)n * sizeof *each), bytes, memory, again;
    int32_t id = 7, one = 1;
    struct ckpt_err err = {0};
    struct bench b = {0};
    struct decode *d;
    const void *w;

    if (open_bench(&b, model, bf16, a, &opts, &err) || decode_new(&d, b.model, 1, n + 2, &err)) {
        fprintf(stderr, "bench_step: %s\n", err.text);
        return 1;
    }
    bytes = (double)model_params(b.model)->numel * (bf16 ? 2.0 : 4.0);
    w = zero_weights(b.zero)->acquire(zero_weights(b.zero)->ctx, 0);
    memory = stream(&b, w, (size_t)bytes);
    for (int i = -2; i < n; i++) {
        double t = clock_of(&b);

        if (decode_step(d, zero_weights(b.zero), &id, &one, 1, logits, &err)) {
            fprintf(stderr, "bench_step: %s\n", err.text);
            return 1;
        }
        if (i >= 0)
            each[i] = clock_of(&b) - t;
    }
    again = stream(&b, w, (size_t)bytes);
    memory = again > memory ? again : memory;
    qsort(each, (size_t)n, sizeof *each, by_size);
    printf("%.2f %.2f %.3f\n", bytes / each[n / 2] * 1e-6, memory, each[n / 2]);
    decode_free(d);
    close_bench(&b);
    free(logits);
    free(each);
    return 0;
}

int main(int argc, char **argv)
{
    long a[N_ARGS] = {2, 768, 12, 12, 2048, 32000};
    char line[200], job[16], model[16], type[16];
    long batch, length;
    int n, rc = 0;

    for (int i = 1; i < argc && i <= N_ARGS; i++)
        a[i - 1] = strtol(argv[i], NULL, 10);
    while (rc == 0 && fgets(line, sizeof line, stdin)) {
        if (sscanf(line, "%15s %15s %15s %ld %ld %d", job, model, type, &batch, &length, &n) == 6 &&
            n > 0 && n <= 100)
            rc = steps(model, strcmp(type, "bf16") == 0, batch, length, n, job[0] == 'p', a);
        else if (sscanf(line, "decode %15s %15s %d", model, type, &n) == 3 && n > 0)
            rc = decodes(model, strcmp(type, "bf16") == 0, n, a);
        else
            printf("no such job: %s", line);
        fflush(stdout);
    }
    return rc;
}
