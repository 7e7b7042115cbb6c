/*
 * bench_step - one optimizer step of a BLOOM of the demo's size on the CPU: tokens per second.
 *
 * usage: bench_step [threads] [batch] [length] [hidden] [layers] [heads] [vocab]
 * Prints a number, never passes or fails; bench_step_torch.py is its peer.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "libckpt/json.h"
#include "libckpt/mem.h"
#include "trainer/model/config.h"
#include "trainer/model/init.h"
#include "trainer/model/model.h"
#include "trainer/model/resident.h"

enum { THREADS, BATCH, LENGTH, HIDDEN, LAYERS, HEADS, VOCAB, N_ARGS };

struct bench {
    struct arch     *arch;
    struct device   *dev;
    struct model    *model;
    struct resident *weights;
    float           *moments;
    struct batch     batch;
    int64_t          step;
};

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int open_bench(struct bench *b, const long *a, struct ckpt_err *err)
{
    int64_t n = a[BATCH] * a[LENGTH];
    struct model_opts opts = {
        .max_tokens = n, .max_docs = a[BATCH], .max_rows = n, .train = true};
    json_t *json = json_pack("{s:s,s:I,s:I,s:I,s:I}", "model_type", "bloom", "hidden_size",
                             (json_int_t)a[HIDDEN], "n_layer", (json_int_t)a[LAYERS], "n_head",
                             (json_int_t)a[HEADS], "vocab_size", (json_int_t)a[VOCAB]);
    struct init init;
    const struct params *p;

    if (arch_read_json(&b->arch, json, err) || device_open_cpu(&b->dev, (int)a[THREADS], err) ||
        model_new(&b->model, b->arch, &opts, b->dev, err))
        return err->code;
    json_decref(json);
    p = model_params(b->model);
    if (resident_new(&b->weights, p, true, b->dev, err))
        return err->code;
    b->moments = b->dev->ops->alloc(b->dev, 2 * (size_t)p->numel * sizeof *b->moments);
    init = (struct init){.arch = b->arch, .params = p, .seed = 0};
    for (size_t i = 0; i < p->n; i++)
        if (init_fill(&init, i, 0, p->item[i].numel, resident_weight(b->weights, i), err))
            return err->code;
    return 0;
}

static void fill_batch(struct bench *b, const long *a)
{
    int64_t n = a[BATCH] * a[LENGTH];
    int32_t *x = calloc((size_t)(5 * n + 1), sizeof *x);
    int32_t *ids = x, *pos = x + n, *rows = x + 2 * n, *targets = x + 3 * n, *start = x + 4 * n;
    uint32_t r = 1;

    b->batch = (struct batch){.n_tokens = n, .n_docs = a[BATCH], .ids = ids, .positions = pos,
                              .doc_start = start, .rows = rows, .targets = targets};
    for (int64_t i = 0; i < n; i++) {
        r = r * 1664525u + 1013904223u;
        ids[i] = 5 + (int32_t)((r >> 8) % (uint32_t)(a[VOCAB] - 5));
        pos[i] = (int32_t)(i % a[LENGTH]);
    }
    for (int64_t i = 0; i < n; i++)
        if (pos[i] + 1 < a[LENGTH]) {
            rows[b->batch.n_rows] = (int32_t)i;
            targets[b->batch.n_rows++] = ids[i + 1];
        }
    for (int64_t d = 0; d <= a[BATCH]; d++)
        start[d] = (int32_t)(d * a[LENGTH]);
}

static double step(struct bench *b, struct ckpt_err *err)
{
    const struct params *p = model_params(b->model);
    struct adamw a = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1,
                      .step = ++b->step};
    float *grads = resident_grads(b->weights);
    double loss, squares;

    b->dev->ops->zero(b->dev, grads, (size_t)p->numel * sizeof *grads);
    if (model_loss_grad(b->model, resident_door(b->weights), &b->batch,
                        1.0f / (float)b->batch.n_rows, &loss, err)) {
        fprintf(stderr, "%s\n", err->text);
        exit(1);
    }
    b->dev->ops->sum_squares(b->dev, &squares, grads, p->numel);
    a.grad_scale = fmin(1.0, 1.0 / (sqrt(squares) + 1e-6));
    b->dev->ops->adamw(b->dev, resident_weights(b->weights), b->moments, b->moments + p->numel,
                       grads, p->numel, &a);
    return loss / (double)b->batch.n_rows;
}

int main(int argc, char **argv)
{
    long a[N_ARGS] = {2, 8, 128, 256, 4, 8, 4096};
    struct ckpt_err err = {0};
    struct bench b = {0};
    double best = 1e9, start, mean, loss = 0, tokens;
    int n = 0;

    for (int i = 1; i < argc && i <= N_ARGS; i++)
        a[i - 1] = strtol(argv[i], NULL, 10);
    if (open_bench(&b, a, &err)) {
        fprintf(stderr, "bench_step: %s\n", err.text);
        return 1;
    }
    fill_batch(&b, a);
    tokens = (double)b.batch.n_tokens;
    for (int i = 0; i < 3; i++)
        step(&b, &err);
    for (start = now(); n < 10 || now() - start < 10; n++) {
        double t = now();

        loss = step(&b, &err);
        t = now() - t;
        best = t < best ? t : best;
    }
    mean = (now() - start) / n;
    printf("ckpt: %ld threads, %ld x %ld tokens, hidden %ld, %ld layers: %.0f tok/s mean, %.0f "
           "best "
           "(%.1f ms, %.1f ms), loss %.4f, %.1f MiB planned\n",
           a[THREADS], a[BATCH], a[LENGTH], a[HIDDEN], a[LAYERS], tokens / mean, tokens / best,
           mean * 1e3, best * 1e3, loss, (double)model_planned_bytes(b.model) / (1 << 20));
    free((void *)(uintptr_t)b.batch.ids);
    b.dev->ops->free(b.dev, b.moments);
    resident_free(b.weights);
    model_free(b.model);
    arch_free(b.arch);
    device_close(b.dev);
    return 0;
}
