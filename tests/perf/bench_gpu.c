/*
 * bench_gpu - training steps and generation on a GPU: tokens a second, strict MFU, memory, clocks.
 * The peer is peer_torch.py, with the same options; bench_gpu.sh runs both over a whole table.
 * The models' configurations are in gpu_models.json.
 *
 * usage: bench_gpu MODEL [OPTION...]
 *   --lora                LoRA of rank 32 beside all linear layers, the rest frozen; of a
 *                         mixture of experts beside attention's four alone
 *   --lora-dropout P      of its input (0)
 *   --batch N             sequences of a micro-batch (8)
 *   --length N            tokens of each, of the encoder where there is one (512)
 *   --target N            T5: tokens of the decoder beside them
 *   --prompt P            so many percent of each sequence carry no loss (0)
 *   --accumulate N        micro-batches of a step (1)
 *   --packed              documents of real texts' lengths (below) fill batch x length tokens
 *   --recompute HOW       none, norms (norms and activations are recomputed) or full (none)
 *   --moments TYPE        f32, bf16 or 8bit (f32)
 *   --paged               true weights and moments lie on the host, as many as find no room
 *   --offload WHICH       states: all of those do; params: weights and gradients too
 *   --fp16                instead of bf16
 *   --fp8                 projections multiply factors of 8 bits
 *   --memory GIB          the device's limit
 *   --zero STAGE          of several ranks, as the environment announces them (0)
 *   --reduce TYPE         gradients travel as f32 or bf16 (f32)
 *   --reshard WHEN        stage 3: auto, true or false (auto)
 *   --simulate N          one rank of N, whose collectives are simulated (comm/simulate.h): comm_ms is
 *                         their time in a step, exposed_ms that of it which makes the step longer
 *   --node G              with --simulate: GPUs of a node (8)
 *   --network GBS         GB/s of the network between nodes, for each GPU (50)
 *   --link GBS            and GB/s at which data reaches a GPU from others of its node (136)
 *   --steps N             at most, after those to warm up (50)
 *   --seconds S           the most that they may take; ten are always done (60)
 *   --profile             where three steps' time goes, on stderr
 *   --device NAME         another than cuda
 *   --decode              N steps of generation behind `length` ids instead
 *   --mixed N             N prompts of mixed lengths by continuous batching instead
 *
 * Warming up takes five micro-batches at least, and lasts until three steps in a row are within 5 %
 * of the quickest so far (eight of a mixture of experts, whose rows an expert change from step to
 * step: sizes that were not met before have their algorithms timed), forty steps at most.
 *
 * Prints one line of name=value, of several ranks the first, with totals.  Weights are random (their values cost what trained ones do), ids
 * too.  Weights have f32 masters.  MFU is strict: 6 FLOPs a token for each weight of a
 * matrix that is multiplied (4 where it is frozen), attention causal and once, recomputing not
 * counted, over 989.4 TFLOP/s.  Generation's bound: the weights that are multiplied and the cache
 * go once over the memory's 4.1 TB/s for each token.
 *
 * Lengths of packed documents stand in text_lengths.txt, and are cut to `length`: a thousand of the
 * docstrings of transformers 5.23, any order, in tokens of DeepSeek's tokenizer: 75 in the median, 154
 * in the mean, one in fifteen past 512.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/json.h"
#include "libckpt/mem.h"
#include "tests/perf/gpu_watch.h"
#include "trainer/clock.h"
#include "trainer/comm/comm.h"
#include "trainer/comm/simulate.h"
#include "trainer/fp8_cache.h"
#include "trainer/plan/fit.h"
#include "formats/families/arch.h"
#include "trainer/model/generate/slots.h"
#include "trainer/model/lora.h"
#include "trainer/model/model.h"
#include "trainer/ops/profile.h"
#include "trainer/optim/optim.h"
#include "trainer/rng.h"
#include "trainer/shard/zero.h"

#define PEAK      989.4e12
#define BANDWIDTH 4.1e12

enum { WARM = 5, STEADY = 3, STEADY_EXPERTS = 8, WARM_MOST = 40, AT_LEAST = 10, PACKED_BATCHES = 8, TEXTS = 1000 };

struct options {
    const char *model, *device;
    int64_t     mixed;                  /* prompts of mixed lengths */
    bool        lora, decode, fp16, fp8, packed, profile, paged;
    enum ckpt_dtype reduce;
    int         stage, reshard;         /* reshard: 1: true, 2: false */
    int         simulate;               /* ranks; 0: those that there are */
    struct simulate_net net;
    int         offload;                /* 1: states; 2: weights and gradients too */
    enum recompute  recompute;
    enum op_moments moments;
    int64_t     docs, length, target, prompt, accumulate, steps;
    double      memory, seconds, lora_dropout;
};

struct bench {
    struct options o;
    struct arch   *arch;
    struct lora   *lora;
    struct device *dev;
    struct comm   *comm;
    struct model  *model;
    struct zero   *zero;
    struct batch  *batch;               /* [n_batch]: taken in turn */
    int64_t        n_batch, turn;
    int64_t        text[TEXTS], next;   /* lengths of texts, and which comes next */
    int64_t        step;
    double         tokens, docs, flops; /* of the steps so far */
};

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

static void read_texts(struct bench *b)
{
    FILE *f = fopen("tests/perf/text_lengths.txt", "r");
    long one;

    for (int i = 0; i < TEXTS; i++) {
        if (!f || fscanf(f, "%ld", &one) != 1 || one < 8) {
            fprintf(stderr, "bench_gpu: tests/perf/text_lengths.txt: no %d lengths\n", TEXTS);
            exit(1);
        }
        b->text[i] = one;
    }
    fclose(f);
}

/* The n lengths of a batch's documents; gives how many. */
static int64_t lengths(struct bench *b, int64_t *len)
{
    const struct options *o = &b->o;
    int64_t most = o->docs * o->length, n = 0, all = 0;

    while (!o->packed && n < o->docs)
        len[n++] = o->target ? o->target : o->length;
    while (o->packed) {
        int64_t one = b->text[b->next % TEXTS];

        one = one > o->length ? o->length : one;
        if (all + one > most)
            break;
        b->next++;
        all += one;
        len[n++] = one;
    }
    return n;
}

static void make_batch(struct bench *b, struct batch *to, uint32_t *r)
{
    const struct options *o = &b->o;
    int64_t most = o->docs * o->length, e = o->target ? most : 0;
    int64_t *len = calloc((size_t)(most / 8 + o->docs), sizeof *len);
    int64_t docs = lengths(b, len), n = 0;
    int32_t *x = calloc((size_t)(4 * most + e + 2 * docs + 2), sizeof *x);
    int32_t *ids = x, *pos = x + most, *rows = x + 2 * most, *targets = x + 3 * most;
    int32_t *start = x + 4 * most, *enc_start = start + docs + 1, *enc = enc_start + docs + 1;

    *to = (struct batch){.n_docs = docs, .ids = ids, .positions = pos, .doc_start = start,
                         .rows = rows, .targets = targets, .n_enc = e,
                         .enc_ids = e ? enc : NULL, .enc_start = e ? enc_start : NULL};
    for (int64_t d = 0; d < docs; d++) {
        for (int64_t i = 0; i < len[d]; i++)
            pos[n++] = (int32_t)i;
        start[d + 1] = (int32_t)n;
        enc_start[d + 1] = (int32_t)((d + 1) * o->length);
    }
    to->n_tokens = n;
    for (int64_t i = 0; i < n + e; i++) {
        *r = *r * 1664525u + 1013904223u;
        *(i < n ? &ids[i] : &enc[i - n]) =
            5 + (int32_t)((*r >> 8) % (uint32_t)(b->arch->vocab_size - 5));
    }
    for (int64_t d = 0, i = 0; d < docs; d++)
        for (int64_t end = start[d + 1]; i < end; i++)
            if (pos[i] >= len[d] * o->prompt / 100 && (o->target || i + 1 < end)) {
                rows[to->n_rows] = (int32_t)i;
                targets[to->n_rows++] = ids[o->target ? i : i + 1];
            }
    free(len);
}

/* Strict FLOPs of a batch. */
static double flops(const struct bench *b, const struct batch *some)
{
    const struct params *p = model_params(b->model);
    const struct arch *a = b->arch;
    double matrix = 0, attention = 0, times = b->o.lora ? 4 : 6;
    double width = (double)(a->num_attention_heads * a->head_dim);
    double blocks = (double)a->num_hidden_layers, encoder = (double)a->num_encoder_layers;

    for (size_t i = 0; i < p->n; i++) {
        const struct param *q = &p->item[i];
        double n = (double)q->numel, rows = (double)some->n_tokens;

        if (q->shape.rank < 2 || q->kind != PARAM_BASE || strstr(q->name, "relative_attention") ||
            strstr(q->name, "embed_positions") || strstr(q->name, "embed_tokens") ||
            strstr(q->name, "word_embeddings") || strstr(q->name, "shared") ||
            strstr(q->name, "lm_head"))
            continue;
        if (q->expert >= 0 && a->num_experts && strstr(q->name, "experts"))
            n *= (double)a->num_experts_per_tok / (double)a->num_experts;
        if (some->n_enc && (strncmp(q->name, "encoder.", 8) == 0 ||
                            strstr(q->name, "EncDecAttention.k") ||
                            strstr(q->name, "EncDecAttention.v")))
            rows = (double)some->n_enc;
        matrix += times * n * rows;
    }
    matrix += times * (double)(a->vocab_size * a->word_embed_proj_dim) * (double)some->n_rows;
    for (int64_t d = 0; d < some->n_docs; d++) {
        double T = (double)(some->doc_start[d + 1] - some->doc_start[d]), S = 0;

        if (some->n_enc)
            S = (double)(some->enc_start[d + 1] - some->enc_start[d]);
        attention += 12 * width * (encoder * S * S + (blocks - encoder) * (0.5 * T * T + T * S));
    }
    return matrix + attention;
}

/* The same decision on every rank: by the slowest. */
static double slowest(struct bench *b, double seconds)
{
    comm_all_reduce(b->comm, &seconds, 1, CKPT_F64, COMM_MAX);
    return seconds;
}

/* As trainer/run/step.c does it. */
static double step(struct bench *b, double *norm)
{
    struct optim_opts optim = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1,
                               .max_grad_norm = 1.0};
    struct ckpt_err err = {0};
    double loss = 0, rows = 0;

    for (int64_t i = 0; i < b->o.accumulate; i++)
        rows += (double)b->batch[(b->turn + i) % b->n_batch].n_rows;
    comm_all_reduce(b->comm, &rows, 1, CKPT_F64, COMM_SUM);
    zero_begin(b->zero);
    for (int64_t i = 0; i < b->o.accumulate; i++) {
        const struct batch *some = &b->batch[b->turn++ % b->n_batch];
        double sum;

        if (i + 1 == b->o.accumulate)
            zero_last(b->zero);
        need(model_loss_grad(b->model, zero_weights(b->zero), some, (float)(1 / rows), &sum, &err),
             &err);
        loss += sum;
        b->tokens += (double)(some->n_tokens + some->n_enc);
        b->docs += (double)some->n_docs;
        b->flops += flops(b, some);
    }
    zero_reduce(b->zero);
    comm_all_reduce(b->comm, &loss, 1, CKPT_F64, COMM_SUM);
    zero_judge(b->zero, optim.max_grad_norm, 1);
    optim_step(b->zero, &optim, 1e-5, ++b->step);
    *norm = zero_verdict_host(b->zero).norm;
    need(comm_error(b->comm, &err), &err);
    return loss / rows;
}

/* Of weights, as a step of generation reads them once. */
static double read_bytes(const struct bench *b)
{
    const struct params *p = model_params(b->model);
    double bytes = 0;

    for (size_t i = 0; i < p->n; i++)
        if (p->item[i].shape.rank == 2 && !strstr(p->item[i].name, "embed_tokens") &&
            (!strstr(p->item[i].name, "word_embeddings") || b->arch->tie_word_embeddings))
            bytes += 2.0 * (double)p->item[i].numel;
    return bytes;
}

/* Generation: the time of a token, and how much of the bound that is. */
static void decode(struct bench *b)
{
    const struct arch *a = b->arch;
    int64_t V = a->vocab_size, docs = b->o.docs, length = b->o.length, n = b->o.steps;
    struct decode_top top = {.k = 1};
    int32_t *ids = malloc((size_t)(docs * length) * sizeof *ids);
    int32_t *some = malloc((size_t)docs * sizeof *some);
    struct gpu_watch watch;
    struct ckpt_err err = {0};
    struct decode *d;
    double weights = 0, cache, start = 0, each, bound;
    char text[256];

    for (int64_t i = 0; i < docs * length; i++)
        ids[i] = 5 + (int32_t)((i * 7919) % (V - 5));
    need(decode_new(&d, b->model, docs, length + n + 8, &err), &err);
    for (int64_t i = 0; i < docs; i++)
        some[i] = (int32_t)length;
    need(decode_top(d, zero_weights(b->zero), ids, some, docs, &top, &err), &err);
    for (int64_t i = 0; i < docs; i++)
        some[i] = 1;
    for (int64_t i = -4; i < n; i++) {
        if (i == 0) {
            gpu_watch_start(&watch, b->dev->bus);
            start = clock_now();
        }
        for (int64_t j = 0; j < docs; j++)
            ids[j] = top.id[j];
        need(decode_top(d, zero_weights(b->zero), ids, some, docs, &top, &err), &err);
    }
    each = (clock_now() - start) / (double)n;
    gpu_watch_stop(&watch);
    weights = read_bytes(b);
    cache = 2.0 * 2.0 * (double)(docs * (length + n / 2) * a->num_hidden_layers) *
            (double)(a->num_key_value_heads * a->head_dim);
    bound = (weights + cache) / BANDWIDTH;
    printf("model=%s work=decode tok_s=%.1f ms=%.3f bound_ms=%.3f bound=%.1f gib=%.2f steps=%lld "
           "%s\n", b->o.model, (double)docs / each, 1e3 * each, 1e3 * bound, 100 * bound / each,
           (double)b->dev->held / (1 << 30), (long long)n, gpu_watch_text(&watch, text));
    if (b->o.profile) {
        struct profile *prof = NULL;

        need(profile_on(&prof, b->dev, &err), &err);
        for (int i = 0; i < 3; i++)
            need(decode_top(d, zero_weights(b->zero), ids, some, docs, &top, &err), &err);
        profile_print(prof, stderr, 3);
        profile_off(prof);
    }
    decode_free(d);
    free(ids);
    free(some);
}

/*
 * Continuous batching: --mixed N prompts of 50 to 1,500 ids with 20 to 400 new ones each, --batch
 * at once.  The bound: weights once for each full batch of new ids, and each id's keys and values.
 */
static void mixed(struct bench *b)
{
    enum { PROMPT = 1500, NEW = 400 };
    int64_t n = b->o.mixed, V = b->arch->vocab_size, fed = 0, out = 0;
    struct generate_opts o = {.max_new_tokens = NEW, .repetition_penalty = 1,
                              .max_batch = b->o.docs};
    struct generate_seq *seq = calloc((size_t)n, sizeof *seq);
    int32_t *ids = malloc((size_t)(n * (PROMPT + NEW)) * sizeof *ids);
    double keys = 0, start, took, bound;
    struct gpu_watch watch;
    struct profile *prof = NULL;
    struct ckpt_err err = {0};
    uint32_t x = 1;
    char text[256];

    for (int64_t i = 0; i < n; i++) {
        int32_t *prompt = ids + i * (PROMPT + NEW);

        x = x * 1664525u + 1013904223u;
        seq[i] = (struct generate_seq){.prompt = prompt, .out = prompt + PROMPT,
                                       .n_prompt = 50 + (x >> 8) % (PROMPT - 49),
                                       .max_new = 20 + (x >> 16) % (NEW - 19),
                                       .stream = (uint64_t)i};
        for (int j = 0; j < PROMPT; j++)
            prompt[j] = 5 + (int32_t)(((x >> 4) + (uint32_t)j * 7919u) % (uint32_t)(V - 5));
        fed += seq[i].n_prompt;
    }
    if (b->o.profile)
        need(profile_on(&prof, b->dev, &err), &err);
    gpu_watch_start(&watch, b->dev->bus);
    start = clock_now();
    need(generate_run(b->model, zero_weights(b->zero), &o, seq, n, &err), &err);
    took = clock_now() - start;
    gpu_watch_stop(&watch);
    for (int64_t i = 0; i < n; i++) {
        out += seq[i].n_out;
        keys += (double)seq[i].n_out * ((double)seq[i].n_prompt + 0.5 * (double)seq[i].n_out);
    }
    bound = ((double)out / (double)b->o.docs * read_bytes(b) +
             keys * (double)generate_row_bytes(b->model)) / BANDWIDTH;
    printf("model=%s work=mixed tok_s=%.1f prompt_tok_s=%.1f s=%.2f bound_s=%.2f bound=%.1f "
           "prompts=%lld gib=%.2f %s\n", b->o.model, (double)out / took, (double)fed / took, took,
           bound, 100 * bound / took, (long long)n, (double)b->dev->held / (1 << 30),
           gpu_watch_text(&watch, text));
    if (prof)
        profile_print(prof, stderr, 1);
    profile_off(prof);
    free(ids);
    free(seq);
}

/* As the top of the file says; the loss of the last step. */
static double warm_up(struct bench *b, double *norm)
{
    int steady = 0, need_steady = b->arch->num_experts ? STEADY_EXPERTS : STEADY;
    struct ckpt_err err = {0};
    double best = 1e30, loss = 0;

    for (int i = 0; i < WARM_MOST && (b->turn < WARM || b->turn < b->n_batch || steady < need_steady);
         i++) {
        double start = clock_now(), took;

        loss = step(b, norm);
        need(device_sync(b->dev, &err), &err);
        took = slowest(b, clock_now() - start);
        best = took < best ? took : best;
        steady = took <= 1.05 * best ? steady + 1 : 0;
    }
    return loss;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* n steps, or as many as there is time for; each one's seconds.  Gives those of all. */
static double steps(struct bench *b, double *seconds, int64_t *n, double *loss)
{
    int64_t most = *n;
    struct ckpt_err err = {0};
    double began = clock_now(), norm;

    for (*n = 0; *n < most && (*n < AT_LEAST || slowest(b, clock_now() - began) < b->o.seconds);
         ++*n) {
        double start = clock_now();

        *loss = step(b, &norm);
        need(device_sync(b->dev, &err), &err);
        seconds[*n] = clock_now() - start;
    }
    return clock_now() - began;
}

/* What the collectives of n steps took, and how much longer than without them the steps did. */
static const char *simulated(struct bench *b, char text[128], double *seconds, int64_t n, double took)
{
    struct comm *comm = comm_on_device(b->comm);
    struct simulate_sum sum;
    double loss, alone;
    int64_t again = n;

    text[0] = '\0';
    if (!b->o.simulate)
        return text;
    sum = simulate_take(comm);
    simulate_pause(comm, true);
    alone = steps(b, seconds, &again, &loss) / (double)again;
    simulate_pause(comm, false);
    snprintf(text, 128, "comm_ms=%.3f exposed_ms=%.3f ", 1e3 * sum.seconds / (double)n,
             1e3 * (took / (double)n - alone));
    return text;
}

static void train(struct bench *b)
{
    struct ckpt_err err = {0};
    struct profile *prof = NULL;
    struct gpu_watch watch;
    double *seconds = malloc((size_t)b->o.steps * sizeof *seconds), loss = 0, norm = 0, took;
    double tokens, docs, flop, median, best;
    uint32_t r = 1;
    int64_t n = b->o.steps;
    char text[256], comm[128];

    b->n_batch = b->o.packed ? PACKED_BATCHES : b->o.accumulate;
    if (b->o.packed)
        read_texts(b);
    b->batch = calloc((size_t)b->n_batch, sizeof *b->batch);
    for (int64_t i = 0; i < b->n_batch; i++)
        make_batch(b, &b->batch[i], &r);
    loss = warm_up(b, &norm);
    if (b->comm->rank == 0)
        fprintf(stderr, "%s: loss %.6f, gradient norm %.6g\n", b->o.model, loss, norm);
    b->tokens = b->docs = b->flops = 0;
    if (b->o.simulate)
        simulate_take(comm_on_device(b->comm));
    gpu_watch_start(&watch, b->dev->bus);
    took = steps(b, seconds, &n, &loss);
    gpu_watch_stop(&watch);
    qsort(seconds, (size_t)n, sizeof *seconds, by_size);
    tokens = b->tokens * b->comm->world_size / took;
    docs = b->docs * b->comm->world_size / took;
    flop = b->flops / took;
    median = seconds[n / 2];
    best = seconds[0];
    simulated(b, comm, seconds, n, took);
    if (b->comm->rank == 0)
        printf("model=%s work=%s ranks=%d tok_s=%.0f ex_s=%.2f ms=%.2f median_ms=%.2f best_ms=%.2f "
               "mfu=%.1f gib=%.2f steps=%lld loss=%.4f %s%s\n", b->o.model,
               b->o.lora ? "lora" : "full", b->comm->world_size,
               tokens, docs, 1e3 * took / (double)n, 1e3 * median, 1e3 * best, 100 * flop / PEAK,
               (double)b->dev->held / (1 << 30), (long long)n, loss, comm,
               gpu_watch_text(&watch, text));
    if (b->o.profile) {
        need(profile_on(&prof, b->dev, &err), &err);
        for (int64_t i = 0; i < 3; i++)
            step(b, &norm);
        need(device_sync(b->dev, &err), &err);
        if (b->comm->rank == 0)
            profile_print(prof, stderr, 3);
        profile_off(prof);
    }
    for (int64_t i = 0; i < b->n_batch; i++)
        free((void *)(uintptr_t)b->batch[i].ids);       /* the first of one block */
    free(b->batch);
    free(seconds);
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

/* Which of the words it is. */
static int one_of(const char *words, const char *word)
{
    size_t n = strlen(word);
    int i = 0;

    for (const char *at = words; at; at = strchr(at, ' '), i++) {
        at += i > 0;
        if (strncmp(at, word, n) == 0 && (at[n] == ' ' || !at[n]))
            return i;
    }
    fprintf(stderr, "bench_gpu: %s is none of: %s\n", word, words);
    exit(64);
}

static void read_options(struct options *o, int argc, char **argv)
{
    static const struct option names[] = {
        {"lora", 0, 0, 'l'}, {"lora-dropout", 1, 0, 'P'}, {"batch", 1, 0, 'b'}, {"length", 1, 0, 'n'}, {"target", 1, 0, 't'},
        {"prompt", 1, 0, 'p'}, {"accumulate", 1, 0, 'a'}, {"packed", 0, 0, 'k'},
        {"recompute", 1, 0, 'r'}, {"moments", 1, 0, 'o'}, {"paged", 0, 0, 'g'},
        {"offload", 1, 0, 'w'}, {"fp16", 0, 0, 'h'}, {"fp8", 0, 0, '8'},
        {"memory", 1, 0, 'm'}, {"zero", 1, 0, 'z'}, {"reshard", 1, 0, 'R'}, {"reduce", 1, 0, 'D'}, {"steps", 1, 0, 's'}, {"seconds", 1, 0, 'x'},
        {"profile", 0, 0, 'f'}, {"decode", 0, 0, 'd'}, {"mixed", 1, 0, 'X'}, {"device", 1, 0, 'e'},
        {"simulate", 1, 0, 'S'}, {"node", 1, 0, 'N'}, {"network", 1, 0, 'B'}, {"link", 1, 0, 'L'}, {0},
    };
    int c;

    *o = (struct options){.docs = 8, .length = 512, .accumulate = 1, .steps = 50, .seconds = 60,
                          .device = "cuda", .net = {.node = 8, .network = 50e9}};
    while ((c = getopt_long(argc, argv, "", names, NULL)) != -1)
        switch (c) {
        case 'l': o->lora = true; break;
        case 'P': o->lora_dropout = strtod(optarg, NULL); break;
        case 'b': o->docs = atol(optarg); break;
        case 'n': o->length = atol(optarg); break;
        case 't': o->target = atol(optarg); break;
        case 'p': o->prompt = atol(optarg); break;
        case 'a': o->accumulate = atol(optarg); break;
        case 'k': o->packed = true; break;
        case 'r': o->recompute = (enum recompute)one_of("none norms full", optarg); break;
        case 'o': o->moments = (enum op_moments)one_of("f32 bf16 8bit", optarg); break;
        case 'g': o->paged = true; break;
        case 'w': o->offload = 1 + (int)one_of("states params", optarg); break;
        case 'h': o->fp16 = true; break;
        case '8': o->fp8 = true; break;
        case 'm': o->memory = strtod(optarg, NULL); break;
        case 'z': o->stage = atoi(optarg); break;
        case 'R': o->reshard = one_of("auto true false", optarg); break;
        case 'D': o->reduce = one_of("f32 bf16", optarg) ? CKPT_BF16 : CKPT_F32; break;
        case 's': o->steps = atol(optarg); break;
        case 'x': o->seconds = strtod(optarg, NULL); break;
        case 'f': o->profile = true; break;
        case 'd': o->decode = true; break;
        case 'X': o->mixed = atol(optarg); o->decode = true; break;
        case 'e': o->device = optarg; break;
        case 'S': o->simulate = atoi(optarg); break;
        case 'N': o->net.node = atoi(optarg); break;
        case 'L': o->net.link = 1e9 * strtod(optarg, NULL); break;
        case 'B': o->net.network = 1e9 * strtod(optarg, NULL); break;
        default: exit(64);
        }
    if (optind + 1 != argc || o->docs < 1 || o->length < 8 || o->accumulate < 1 ||
        o->steps < AT_LEAST || (o->packed && o->target) || o->simulate < 0 || o->simulate == 1 ||
        o->net.node < 1 || !(o->net.network > 0)) {
        fprintf(stderr, "usage: bench_gpu MODEL [OPTION...]; the options stand in bench_gpu.c\n");
        exit(64);
    }
    o->model = argv[optind];
}

int main(int argc, char **argv)
{
    struct bench b = {0};
    struct options *o = &b.o;
    struct device_opts device = {0};
    struct model_opts opts;
    struct zero_opts zero;
    struct fit_opts want;
    struct fit fit;
    struct ckpt_err err = {0};
    char name[32];
    json_t *config;

    read_options(o, argc, argv);
    config = preset(o->model);
    need(arch_read_json(&b.arch, config, &err), &err);
    json_decref(config);
    if (o->lora) {
        config = json_pack("{s:s,s:i,s:i,s:f}", "peft_type", "LORA", "r", 32, "lora_alpha", 32,
                           "lora_dropout", o->lora_dropout);
        json_object_set_new(config, "target_modules",
                            b.arch->num_experts ? json_pack("[s,s,s,s]", "q_proj", "k_proj",
                                                            "v_proj", "o_proj")
                                                : json_string("all-linear"));
        need(lora_new(&b.lora, config, &err), &err);
        json_decref(config);
    }
    need(o->simulate ? comm_open_single(&b.comm, o->simulate, &err) : comm_open(&b.comm, 0, &err),
         &err);
    snprintf(name, sizeof name, "%s:%d", o->device, b.comm->local_rank);
    device.name = b.comm->world_size > 1 && !o->simulate && strcmp(o->device, "cuda") == 0 ? name : o->device;
    device.weights = o->fp16 ? CKPT_F16 : CKPT_BF16;
    device.fp8 = o->fp8 ? DEVICE_FP8_HYBRID : DEVICE_FP8_OFF;
    device.memory_limit = (uint64_t)(o->memory * (1 << 30));
    zero = (struct zero_opts){.train = !o->decode, .moments = o->moments, .paged = o->paged,
                              .offload = o->offload == 1, .offload_param = o->offload == 2,
                              .stage = o->stage, .reduce = o->reduce};
    need(device_open(&b.dev, &device, &err), &err);
    need(o->simulate ? device_simulate(b.dev, b.comm, &o->net, &err)
                     : device_join(b.dev, b.comm, &err), &err);
    opts = (struct model_opts){.max_tokens = o->docs * (o->target ? o->target : o->length),
                               .max_docs = o->packed ? o->docs * o->length / 8 : o->docs,
                               .max_enc = o->docs * o->length, .train = !o->decode,
                               .recompute = o->recompute, .lora = b.lora,
                               .ranks = o->stage > 0 ? b.comm->world_size : 1};
    opts.max_rows = opts.max_tokens;
    want = (struct fit_opts){.arch = b.arch, .dev = b.dev, .model = opts,
                             .world_size = b.comm->world_size, .reshard = o->reshard == 1,
                             .keep = o->reshard == 2, .zero = zero, .free_bytes = b.dev->ops->free_bytes(b.dev)};
    need(fit_find(&fit, &want, &err), &err);
    zero.paged = fit.paged;
    zero.optim_on_device = fit.optim_on_device;
    zero.keep_weights = fit.keep_weights;
    zero.keep_grads = fit.keep_grads;
    zero.few = fit.few;
    need(model_new(&b.model, b.arch, &opts, b.dev, &err), &err);
    need(zero_new(&b.zero, model_params(b.model), &zero, b.dev, b.comm, &err), &err);
    need(zero_fill(b.zero, ZERO_MASTER, fill, (void *)(uintptr_t)model_params(b.model), &err), &err);
    if (o->fp8)
        need(fp8_cache_lend(b.dev, model_params(b.model), fit.free_bytes - fit.all, false, &err), &err);
    if (o->mixed)
        mixed(&b);
    else if (o->decode)
        decode(&b);
    else
        train(&b);
    comm_leave_device(b.comm);
    zero_free(b.zero);
    model_free(b.model);
    lora_free(b.lora);
    arch_free(b.arch);
    device_close(b.dev);
    comm_close(b.comm);
    return 0;
}
