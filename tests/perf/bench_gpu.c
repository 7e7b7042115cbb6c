/*
 * bench_gpu - training steps on a GPU at full length: tokens a second, strict MFU, memory.
 * The peer is peer_torch.py; the models' configurations are in gpu_models.json.
 *
 * usage: bench_gpu MODEL full|lora|recompute BATCH LENGTH STEPS [PROMPT%] [TARGET]
 *        bench_gpu MODEL decode BATCH LENGTH STEPS
 *   PROMPT%  so much of each document carries no loss (0)
 *   TARGET   T5: tokens of the decoder beside LENGTH of the encoder
 * decode: STEPS tokens each for BATCH sequences behind LENGTH ids; the bound is that the weights that
 * are multiplied and the cache go once over the memory's 4.1 TB/s for each token.
 * Weights are random (their values cost what trained ones do), ids too.  Weights have f32 masters
 * and moments.  MFU is strict: 6 FLOPs a token for each weight of a matrix that is multiplied (4
 * where it is frozen), attention causal and once, recomputing not counted, over 989.4 TFLOP/s.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "libckpt/json.h"
#include "libckpt/mem.h"
#include "trainer/comm/comm.h"
#include "trainer/model/config.h"
#include "trainer/model/lora.h"
#include "trainer/model/model.h"
#include "trainer/ops/profile.h"
#include "trainer/optim.h"
#include "trainer/rng.h"
#include "trainer/shard/zero.h"

#define PEAK 989.4e12

struct bench {
    struct arch   *arch;
    struct lora   *lora;
    struct device *dev;
    struct comm   *comm;
    struct model  *model;
    struct zero   *zero;
    struct batch   batch;
    int64_t        step;
};

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void need(int rc, const struct ckpt_err *err)
{
    if (rc) {
        fprintf(stderr, "bench_gpu: %s\n", err->text);
        exit(1);
    }
}

/* Normal values of a block, over and over, whose length no width divides; gains are 1. */
enum { BLOCK = 1048583 };

static int fill(void *ctx, size_t i, int64_t start, int64_t count, float *dst,
                struct ckpt_err *err)
{
    static float block[BLOCK];
    const struct params *p = ctx;
    bool gain = p->item[i].shape.rank == 1 && strstr(p->item[i].name, "weight");

    (void)err;
    if (block[0] == 0)
        rng_normal(block, 0, BLOCK, 0.02f, 1, 1);
    for (int64_t j = 0; j < count; j++)
        dst[j] = gain ? 1.0f : block[(start + j) % BLOCK];
    return 0;
}

static void make_batch(struct bench *b, int64_t docs, int64_t length, int64_t prompt,
                       int64_t target)
{
    int64_t dec = target ? target : length, n = docs * dec, e = target ? docs * length : 0;
    int32_t *x = calloc((size_t)(4 * n + e + 2 * docs + 2), sizeof *x);
    int32_t *ids = x, *pos = x + n, *rows = x + 2 * n, *targets = x + 3 * n, *start = x + 4 * n;
    int32_t *enc = start + docs + 1, *enc_start = enc + e;
    uint32_t r = 1;

    b->batch = (struct batch){.n_tokens = n, .n_docs = docs, .ids = ids, .positions = pos,
                              .doc_start = start, .rows = rows, .targets = targets, .n_enc = e,
                              .enc_ids = e ? enc : NULL, .enc_start = e ? enc_start : NULL};
    for (int64_t i = 0; i < n + e; i++) {
        int32_t id;

        r = r * 1664525u + 1013904223u;
        id = 5 + (int32_t)((r >> 8) % (uint32_t)(b->arch->vocab_size - 5));
        *(i < n ? &ids[i] : &enc[i - n]) = id;
    }
    for (int64_t i = 0; i < n; i++) {
        pos[i] = (int32_t)(i % dec);
        if (pos[i] >= dec * prompt / 100 && (target || pos[i] + 1 < dec)) {
            rows[b->batch.n_rows] = (int32_t)i;
            targets[b->batch.n_rows++] = ids[target ? i : i + 1];
        }
    }
    for (int64_t d = 0; d <= docs; d++) {
        start[d] = (int32_t)(d * dec);
        enc_start[d] = (int32_t)(d * length);
    }
}

/* As trainer/step.c does it for one rank. */
static double step(struct bench *b, double *norm)
{
    struct optim_opts optim = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1,
                               .max_grad_norm = 1.0};
    struct ckpt_err err = {0};
    double loss;

    zero_begin(b->zero);
    need(model_loss_grad(b->model, zero_weights(b->zero), &b->batch,
                         1.0f / (float)b->batch.n_rows, &loss, &err), &err);
    zero_reduce(b->zero);
    *norm = sqrt(zero_grad_sum_squares(b->zero));
    optim_step(b->zero, b->dev, &optim, 1e-5, ++b->step, *norm);
    return loss / (double)b->batch.n_rows;
}

/* Strict FLOPs of a step. */
static double flops(const struct bench *b, bool lora)
{
    const struct params *p = model_params(b->model);
    const struct arch *a = b->arch;
    double matrix = 0, tokens = (double)(b->batch.n_tokens + b->batch.n_enc), attention = 0;
    bool pair = b->batch.n_enc > 0;

    for (size_t i = 0; i < p->n; i++) {
        const struct param *q = &p->item[i];
        double n = (double)q->numel, rows = (double)b->batch.n_tokens, times = 6;

        if (q->shape.rank < 2 || q->kind != PARAM_BASE || strstr(q->name, "relative_attention") ||
            strstr(q->name, "embed_positions") || strstr(q->name, "embed_tokens") ||
            strstr(q->name, "word_embeddings") || strstr(q->name, "shared") ||
            strstr(q->name, "lm_head"))
            continue;
        if (q->expert >= 0 && a->num_experts && strstr(q->name, "experts"))
            n *= (double)a->num_experts_per_tok / (double)a->num_experts;
        if (pair && (strstr(q->name, "encoder.") || strstr(q->name, "EncDecAttention.k") ||
                     strstr(q->name, "EncDecAttention.v")) && !strstr(q->name, "decoder.block"))
            rows = (double)b->batch.n_enc;
        if (pair && (strstr(q->name, "EncDecAttention.k") || strstr(q->name, "EncDecAttention.v")))
            rows = (double)b->batch.n_enc;
        if (lora)
            times = 4;
        matrix += times * n * rows;
    }
    matrix += (lora ? 4.0 : 6.0) * (double)(a->vocab_size * a->word_embed_proj_dim) *
              (double)b->batch.n_rows;
    if (!pair) {
        double T = tokens / (double)b->batch.n_docs;

        attention = 12.0 * (double)a->num_hidden_layers *
                    (double)(a->num_attention_heads * a->head_dim) * T * 0.5 * tokens;
    } else {
        double S = (double)b->batch.n_enc / (double)b->batch.n_docs;
        double T = (double)b->batch.n_tokens / (double)b->batch.n_docs;
        double w = (double)(a->num_attention_heads * a->head_dim);
        double E = (double)a->num_encoder_layers;
        double D = (double)(a->num_hidden_layers - a->num_encoder_layers);

        attention = 12.0 * w * (double)b->batch.n_docs * (E * S * S + D * (0.5 * T * T + T * S));
    }
    return matrix + attention;
}

/* Generation: the time of a token, and how much of the bound that is. */
static void decode(struct bench *b, int64_t docs, int64_t length, int64_t n)
{
    const struct params *p = model_params(b->model);
    const struct arch *a = b->arch;
    int64_t V = a->vocab_size;
    float *logits = malloc((size_t)(docs * V) * sizeof *logits);
    int32_t *ids = malloc((size_t)(docs * length) * sizeof *ids), *some;
    struct ckpt_err err = {0};
    struct decode *d;
    double weights = 0, cache, start, each, bound;

    some = malloc((size_t)docs * sizeof *some);
    for (int64_t i = 0; i < docs * length; i++)
        ids[i] = 5 + (int32_t)((i * 7919) % (V - 5));
    need(decode_new(&d, b->model, docs, length + n + 8, &err), &err);
    for (int64_t i = 0; i < docs; i++)
        some[i] = (int32_t)length;
    need(decode_step(d, zero_weights(b->zero), ids, some, docs, logits, &err), &err);
    for (int64_t i = 0; i < docs; i++)
        some[i] = 1;
    for (int i = 0; i < 4; i++)
        need(decode_step(d, zero_weights(b->zero), ids, some, docs, logits, &err), &err);
    start = now();
    for (int64_t i = 0; i < n; i++)
        need(decode_step(d, zero_weights(b->zero), ids, some, docs, logits, &err), &err);
    each = (now() - start) / (double)n;
    for (size_t i = 0; i < p->n; i++)
        if (p->item[i].shape.rank == 2 && !strstr(p->item[i].name, "embed_tokens") &&
            (!strstr(p->item[i].name, "word_embeddings") || a->tie_word_embeddings))
            weights += 2.0 * (double)p->item[i].numel;
    cache = 2.0 * 2.0 * (double)(docs * (length + n / 2) * a->num_hidden_layers) *
            (double)(a->num_key_value_heads * a->head_dim);
    bound = (weights + cache) / 4.1e12;
    printf("decode, %lld sequences of %lld: %.3f ms a token, %.1f tok/s, %.0f %% of the bound of "
           "%.3f ms\n", (long long)docs, (long long)length, 1e3 * each, (double)docs / each,
           100 * bound / each, 1e3 * bound);
    decode_free(d);
    free(logits);
    free(ids);
    free(some);
}

static json_t *preset(const char *name)
{
    json_t *all = json_load_file("tests/perf/gpu_models.json", 0, NULL), *one;

    one = json_incref(json_object_get(all, name));
    json_decref(all);
    if (!one) {
        fprintf(stderr, "bench_gpu: no model %s in tests/perf/gpu_models.json\n", name);
        exit(1);
    }
    return one;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    bool lora = argc > 2 && strcmp(argv[2], "lora") == 0;
    bool generate = argc > 2 && strcmp(argv[2], "decode") == 0;
    bool recompute = argc > 2 && strcmp(argv[2], "recompute") == 0;
    int64_t docs, length, n, prompt, target, warm = 5;
    struct device_opts device = {.name = "cuda", .weights = CKPT_BF16};
    struct ckpt_err err = {0};
    struct model_opts opts;
    struct bench b = {0};
    double *seconds, loss = 0, norm = 0, rate, began;
    json_t *config;

    if (argc < 6) {
        fprintf(stderr, "usage: bench_gpu MODEL full|lora|recompute BATCH LENGTH STEPS "
                        "[PROMPT%%] [TARGET]\n");
        return 64;
    }
    docs = atol(argv[3]);
    length = atol(argv[4]);
    n = atol(argv[5]);
    prompt = argc > 6 ? atol(argv[6]) : 0;
    target = argc > 7 ? atol(argv[7]) : 0;
    config = preset(argv[1]);
    need(arch_read_json(&b.arch, config, &err), &err);
    json_decref(config);
    if (lora) {
        config = json_pack("{s:s,s:i,s:i,s:s}", "peft_type", "LORA", "r", 32, "lora_alpha", 32,
                           "target_modules", "all-linear");
        need(lora_new(&b.lora, config, &err), &err);
        json_decref(config);
    }
    need(device_open(&b.dev, &device, &err), &err);
    need(comm_open(&b.comm, &err), &err);
    opts = (struct model_opts){.max_tokens = docs * (target ? target : length), .max_docs = docs,
                               .max_rows = docs * (target ? target : length),
                               .max_enc = docs * length, .train = !generate, .recompute = recompute,
                               .lora = b.lora};
    need(model_new(&b.model, b.arch, &opts, b.dev, &err), &err);
    need(zero_new(&b.zero, model_params(b.model), 0, !generate, b.dev, b.comm, &err), &err);
    need(zero_fill(b.zero, fill, (void *)(uintptr_t)model_params(b.model), &err), &err);
    if (generate) {
        decode(&b, docs, length, n);
        goto out;
    }
    make_batch(&b, docs, length, prompt, target);
    seconds = malloc((size_t)n * sizeof *seconds);
    for (int64_t i = 0; i < warm; i++)
        loss = step(&b, &norm);
    need(device_sync(b.dev, &err), &err);
    printf("%s: first loss %.4f, gradient norm %.4g\n", argv[1], loss, norm);
    began = now();
    for (int64_t i = 0; i < n; i++) {
        double start = now();

        loss = step(&b, &norm);
        need(device_sync(b.dev, &err), &err);
        seconds[i] = now() - start;
    }
    began = now() - began;
    qsort(seconds, (size_t)n, sizeof *seconds, by_size);
    rate = (double)(b.batch.n_tokens + b.batch.n_enc) * (double)n / began;
    printf("%s %s %lldx%lld%s: %.0f tok/s, %.2f ex/s, %.2f ms a step (median %.2f, best %.2f), "
           "MFU %.1f %%, %.2f GiB, loss %.4f\n",
           argv[1], argv[2], (long long)docs, (long long)length, prompt ? " half prompt" : "", rate,
           (double)docs * (double)n / began, 1e3 * began / (double)n, 1e3 * seconds[n / 2],
           1e3 * seconds[0], 100 * flops(&b, lora) * (double)n / began / PEAK,
           (double)b.dev->held / (1 << 30), loss);
    if (getenv("PROFILE")) {
        struct profile *prof = NULL;

        need(profile_on(&prof, b.dev, &err), &err);
        for (int64_t i = 0; i < 3; i++)
            step(&b, &norm);
        need(device_sync(b.dev, &err), &err);
        profile_print(prof, stdout, 3);
        profile_off(prof);
    }
out:
    zero_free(b.zero);
    model_free(b.model);
    lora_free(b.lora);
    arch_free(b.arch);
    comm_close(b.comm);
    device_close(b.dev);
    return 0;
}
