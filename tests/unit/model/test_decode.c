/*
 * decode and generate: greedy continuations of transformers, the cache against whole passes in
 * any chunking, the choice of a token, stopping, independence of the batch.
 */
#include "tests/unit/golden_runs.h"

#include "trainer/model/generate/decode.h"
#include "trainer/model/generate/logits.h"

static const struct model_opts eval = {.max_tokens = 1400, .max_docs = 3, .max_rows = 2,
                                       .max_enc = 200};

/* Greedy tokens of one recorded batch; masked prompt tokens are left out. */
static void check_greedy(struct golden *g, const char *which)
{
    const json_t *gen = json_object_get(json_object_get(g->json, "generate_greedy_16"), which);
    const json_t *prompt = json_object_get(gen, "prompt"),
                 *output = json_object_get(gen, "output");
    const json_t *mask = json_object_get(gen, "attention_mask");
    struct generate_opts o = {.max_new_tokens = 16, .repetition_penalty = 1};
    struct generate_seq seq[3] = {0};
    int32_t all[160], ids[3][160], out[3][16];
    size_t n = json_array_size(prompt);
    int64_t n_all;
    struct ckpt_err err = {0};

    assert_true(json_number_value(json_object_get(gen, "min_top1_minus_top2")) > 1e-4);
    for (size_t i = 0; i < n; i++) {
        seq[i] = (struct generate_seq){.prompt = ids[i], .out = out[i], .stream = i};
        n_all = golden_tokens(all, golden_at(prompt, i));
        for (int64_t j = 0; j < n_all; j++)
            if (json_is_null(mask) ||
                json_integer_value(golden_at(golden_at(mask, i), (size_t)j)))
                ids[i][seq[i].n_prompt++] = all[j];
    }
    OK(generate_run(g->model, resident_door(g->weights), &o, seq, (int64_t)n, &err), err);
    for (size_t i = 0; i < n; i++) {
        /* After a prompt, or after the start id where an encoder reads the prompt. */
        size_t skip = g->arch->stack == ARCH_DECODER ? json_array_size(golden_at(prompt, i)) : 1;

        assert_int_equal(seq[i].n_out, 16);
        assert_false(seq[i].stopped);
        for (size_t j = 0; j < 16; j++)
            if (out[i][j] != json_integer_value(golden_at(golden_at(output, i), skip + j)))
                fail_msg("%s, sequence %zu, token %zu is %d", which, i, j, (int)out[i][j]);
    }
}

TEST(decode_generates_as_transformers)
{
    for (size_t i = 0; i < GOLDEN_MODELS; i++) {
        struct golden g;

        if (strcmp(golden_models[i], "opt-a") == 0 || strcmp(golden_models[i], "phi3-long") == 0)
            continue;                   /* nothing recorded; below */
        golden_open(&g, golden_models[i], &eval, 2);
        check_greedy(&g, "one");
        check_greedy(&g, "left_batch");
        golden_close(&g);
    }
}

static double option(const json_t *o, const char *key, double fallback)
{
    const json_t *v = json_object_get(o, key);

    return json_is_number(v) ? json_number_value(v) : fallback;
}

/* One search of tests/golden/beams.json. */
static void check_beams(struct golden *g, const json_t *c)
{
    const json_t *o = json_object_get(c, "options");
    const json_t *early = json_object_get(o, "early_stopping");
    int32_t end[4];
    struct generate_opts opts = {
        .max_new_tokens = (int64_t)option(o, "max_new_tokens", 0), .eos = end,
        .n_eos = (size_t)golden_tokens(end, json_object_get(c, "eos")),
        .num_beams = (int64_t)option(o, "num_beams", 1),
        .length_penalty = option(o, "length_penalty", 1),
        .repetition_penalty = option(o, "repetition_penalty", 1),
        .early_stopping = json_is_true(early)     ? GENERATE_FULL
                          : json_is_string(early) ? GENERATE_NEVER
                                                  : GENERATE_LIKELY,
    };

    golden_continue(g, &opts, c);
}

TEST(decode_searches_as_transformers)
{
    json_t *cases = json_load_file("tests/golden/beams.json", 0, NULL);

    assert_true(json_array_size(cases) > 80);
    golden_each(cases, &eval, check_beams);
    json_decref(cases);
}

/*
 * Longrope's angles change when a sequence passes 16 tokens here: what was cached is recomputed.
 * The recorded tokens (transformers 5.17) lost the prefix at that point; these are 5.23's, and
 * those of whole passes.
 */
TEST(decode_starts_again_where_angles_change)
{
    static const int32_t wanted[] = {6, 199, 54, 54, 54, 54, 126, 173, 14, 75, 54, 81, 254, 149,
                                     250, 54};
    struct generate_opts o = {.max_new_tokens = 16, .repetition_penalty = 1};
    struct ckpt_err err = {0};
    int32_t ids[16], out[3][16];
    const json_t *prompt;
    struct golden g;

    golden_open(&g, "phi3-long", &eval, 2);
    prompt = json_object_get(json_object_get(g.json, "generate_greedy_16"), "one");
    prompt = golden_at(json_object_get(prompt, "prompt"), 0);
    golden_tokens(ids, prompt);
    for (int round = 0; round < 2; round++) {   /* a batch; then the session's arrays again */
        struct generate_seq seq[3];

        for (int i = 0; i < 3; i++)
            seq[i] = (struct generate_seq){.prompt = ids, .out = out[i], .stream = (uint64_t)i,
                                           .n_prompt = (int64_t)json_array_size(prompt)};
        OK(generate_run(g.model, resident_door(g.weights), &o, seq, 3, &err), err);
        for (int i = 0; i < 3; i++)
            assert_memory_equal(out[i], wanted, sizeof wanted);
    }
    golden_close(&g);
}

/* Three sequences of `len` tokens each; deterministic. */
static void make_ids(int32_t *ids, int64_t n, int64_t vocab)
{
    uint32_t x = 7;

    for (int64_t i = 0; i < n; i++) {
        x = x * 1664525u + 1013904223u;
        ids[i] = (int32_t)((x >> 8) % (uint32_t)vocab);
    }
}

/*
 * Feeding pieces of any size gives the logits of a whole pass: pieces of 1, pieces across the
 * attention's block (64) and the session's chunk (512 rows), sequences that skip a call, single
 * rows beside a prompt, as one operation or (split) two.
 */
static void in_pieces(const char *model, bool split)
{
    enum { LEN = 450, DOCS = 3 };
    static const int32_t feed[][DOCS] = {{70, 1, 0}, {1, 1, 449}, {379, 3, 1}, {0, 445, 0}};
    struct ckpt_err err = {0};
    static int32_t ids[DOCS * LEN], pos[DOCS * LEN], fed[DOCS * LEN];
    const int32_t start[] = {0, LEN, 2 * LEN, 3 * LEN};
    struct batch b = {.n_tokens = DOCS * LEN, .n_docs = DOCS, .ids = ids, .positions = pos,
                      .doc_start = start};
    struct golden g;
    struct decode *d;
    int64_t V, done[DOCS] = {0};
    float *found, *wanted;

    golden_open(&g, model, &eval, 2);
    V = g.arch->vocab_size;
    make_ids(ids, DOCS * LEN, V);
    for (int i = 0; i < DOCS * LEN; i++)
        pos[i] = i % LEN;
    found = ckpt_arena_alloc(&g.arena, (size_t)(DOCS * V), sizeof *found);
    wanted = ckpt_arena_alloc(&g.arena, (size_t)V, sizeof *wanted);
    OK(decode_new(&d, g.model, DOCS, LEN, &err), err);
    d->split = split;
    for (int round = 0; round < 2; round++) {
        memset(done, 0, sizeof done);
        for (size_t f = 0; f < sizeof feed / sizeof feed[0]; f++) {
            int64_t n = 0;

            for (int i = 0; i < DOCS; i++) {
                memcpy(fed + n, ids + i * LEN + done[i], (size_t)feed[f][i] * sizeof *fed);
                n += feed[f][i];
                done[i] += feed[f][i];
            }
            OK(decode_step(d, resident_door(g.weights), fed, feed[f], DOCS, found, &err), err);
            for (int i = 0; i < DOCS; i++) {
                int32_t row = (int32_t)(i * LEN + done[i] - 1);

                if (feed[f][i] == 0)
                    continue;
                OK(model_logits(g.model, resident_door(g.weights), &b, &row, 1, wanted, &err),
                   err);
                for (int64_t j = 0; j < V; j++)
                    if (!(fabsf(found[i * V + j] - wanted[j]) <= 2e-5f))
                        fail_msg("%s, split %d, call %zu, sequence %d, id %d: %g, wanted %g",
                                 model, split, f, i, (int)j, (double)found[i * V + j], (double)wanted[j]);
            }
        }
        decode_reset(d);
    }
    decode_free(d);
    golden_close(&g);
}

TEST(decode_equals_whole_passes_when_fed_in_pieces)
{
    in_pieces("bloom-a", false);
    in_pieces("bloom-a", true);
    in_pieces("qwen3-a", false);
    in_pieces("qwen3-a", true);         /* queries and keys are normed and rotated */
}

/* A device that counts its graphs; operations run as they are captured. */
static struct {
    int captured, launched, freed;
} graphs;

static bool count_begin(struct device *dev)
{
    (void)dev;
    return true;
}

static struct op_graph *count_end(struct device *dev)
{
    (void)dev;
    graphs.captured++;
    return (struct op_graph *)(void *)&graphs;
}

static void count_launch(struct device *dev, struct op_graph *r)
{
    (void)dev;
    (void)r;
    graphs.launched++;
}

static void count_free(struct device *dev, struct op_graph *r)
{
    (void)dev;
    (void)r;
    graphs.freed++;
}

TEST(a_step_is_captured_once_though_prompts_come_between)
{
    enum { DOCS = 3 };
    static const int32_t feed[][DOCS] = {
        {5, 5, 5}, {1, 1, 1}, {1, 1, 1}, {1, 1, 7}, {1, 1, 1}, {1, 1, 1},   /* 3 launches */
        {1, 1, 0}, {1, 1, 0}, {1, 1, 1}, {1, 0, 0}, {1, 0, 0},              /* 3 more */
    };
    static int32_t ids[64];
    struct ckpt_err err = {0};
    struct ops counting;
    struct golden g;
    struct decode *d;
    float *logits;
    bool discrete;

    golden_open(&g, "bloom-a", &eval, 2);
    counting = *g.model->dev->ops;
    counting.can |= OP_CAN_GRAPH;
    counting.graph_begin = count_begin;
    counting.graph_end = count_end;
    counting.graph_launch = count_launch;
    counting.graph_free = count_free;
    g.model->dev->ops = &counting;
    logits = ckpt_arena_alloc(&g.arena, (size_t)(DOCS * g.arch->vocab_size), sizeof *logits);
    OK(decode_new(&d, g.model, DOCS, 64, &err), err);
    discrete = g.model->dev->discrete;
    g.model->dev->discrete = true;      /* numbers of keys are rounded */
    for (size_t f = 0; f < sizeof feed / sizeof feed[0]; f++)
        OK(decode_step(d, resident_door(g.weights), ids, feed[f], DOCS, logits, &err), err);
    g.model->dev->discrete = discrete;
    assert_int_equal(graphs.captured, 3);
    assert_int_equal(graphs.launched, 6);
    decode_free(d);
    assert_int_equal(graphs.freed, 3);
    golden_close(&g);
}

TEST(decode_refuses_what_does_not_fit)
{
    struct ckpt_err err = {0};
    struct golden g;
    struct decode *d;
    int32_t ids[5] = {1, 2, 3, 4, 261}, n_new[3] = {4, 0, 1};
    float *logits;

    golden_open(&g, "bloom-a", &eval, 1);
    logits = ckpt_arena_alloc(&g.arena, 3 * 261, sizeof *logits);
    assert_int_equal(decode_new(&d, g.model, 0, 4, &err), CKPT_ELIMIT);
    OK(decode_new(&d, g.model, 2, 4, &err), err);
    assert_int_equal(decode_step(d, resident_door(g.weights), ids, n_new, 3, logits, &err),
                     CKPT_ELIMIT);
    n_new[1] = 1;
    assert_int_equal(decode_step(d, resident_door(g.weights), ids, n_new, 2, logits, &err),
                     CKPT_ELIMIT);      /* id 261 */
    ids[4] = 5;
    OK(decode_step(d, resident_door(g.weights), ids, n_new, 2, logits, &err), err);
    n_new[0] = 1;
    assert_int_equal(decode_step(d, resident_door(g.weights), ids, n_new, 2, logits, &err),
                     CKPT_ELIMIT);      /* the fifth token */
    decode_free(d);
    golden_close(&g);
    golden_open(&g, "t5-v10", &eval, 1);        /* an encoder's rows are i32: refused unallocated */
    assert_int_equal(decode_new(&d, g.model, 1 << 16, 1 << 15, &err), CKPT_ELIMIT);
    assert_non_null(strstr(err.text, "31 bits"));
    golden_close(&g);
}

/* -- a caller that stops the work --------------------------------------------------------------- */

static volatile int asked;
static int n_cached, n_linear_after;
static const struct ops *own;

static void stop_in_the_second_block(struct device *dev, const struct op_cached *a)
{
    own->attention_cached(dev, a);
    asked = ++n_cached == 2;
}

static void count_after(struct device *dev, const struct op_linear *a)
{
    n_linear_after += asked;
    own->linear_fwd(dev, a);
}

/* A prompt of several chunks ends in the block where the stop is asked for; without it the same
 * session computes the same bits as one that nobody can stop. */
TEST(decode_stops_between_blocks)
{
    enum { LEN = 1300 };
    static int32_t ids[LEN];
    const int32_t n_new[] = {LEN};
    struct ckpt_err err = {0};
    struct ops watched;
    struct decode *d;
    struct golden g;
    float *found, *wanted;
    size_t bytes;

    golden_open(&g, "bloom-a", &eval, 2);
    bytes = (size_t)g.arch->vocab_size * sizeof *found;
    make_ids(ids, LEN, g.arch->vocab_size);
    found = ckpt_arena_alloc(&g.arena, 1, bytes);
    wanted = ckpt_arena_alloc(&g.arena, 1, bytes);
    OK(decode_new(&d, g.model, 1, LEN, &err), err);
    OK(decode_step(d, resident_door(g.weights), ids, n_new, 1, wanted, &err), err);
    own = g.dev->ops;
    watched = *own;
    watched.attention_cached = stop_in_the_second_block;
    watched.linear_fwd = count_after;
    g.dev->ops = &watched;
    g.dev->stop = &asked;
    decode_reset(d);
    assert_int_equal(decode_step(d, resident_door(g.weights), ids, n_new, 1, found, &err),
                     CKPT_ESTOPPED);
    assert_int_equal(n_cached, 2);
    assert_in_range(n_linear_after, 0, 3);      /* the rest of that block: they return at once */
    g.dev->ops = own;
    asked = 0;
    decode_reset(d);
    OK(decode_step(d, resident_door(g.weights), ids, n_new, 1, found, &err), err);
    assert_memory_equal(found, wanted, bytes);
    decode_free(d);
    golden_close(&g);
}

/* -- products whose rows differ ------------------------------------------------------------------ */

static int n_same, n_varying;

static void count_varying(struct device *dev, const struct op_linear *a)
{
    *(dev->varies ? &n_varying : &n_same) += 1;
    own->linear_fwd(dev, a);
}

/* Prompts, and steps of a part of the batch, differ; a token for each sequence of it does not. */
TEST(decode_tells_which_passes_differ)
{
    enum { DOCS = 4 };
    static const struct { int32_t n_new[DOCS]; int64_t n; bool varies; } step[] = {
        {{3, 2, 5, 1}, 4, true}, {{1, 1, 1, 1}, 4, false}, {{1, 1, 1, 2}, 4, true},
        {{1, 1, 1}, 3, false}, {{1, 1}, 2, true}, {{1, 1, 1, 1}, 4, false}};
    struct ckpt_err err = {0};
    int32_t ids[16];
    struct ops watched;
    struct decode *d;
    struct golden g;
    float *logits;

    golden_open(&g, "bloom-a", &eval, 1);
    make_ids(ids, 16, g.arch->vocab_size);
    logits = ckpt_arena_alloc(&g.arena, DOCS * (size_t)g.arch->vocab_size, sizeof *logits);
    OK(decode_new(&d, g.model, DOCS, 16, &err), err);
    own = g.dev->ops;
    watched = *own;
    watched.linear_fwd = count_varying;
    g.dev->ops = &watched;
    for (size_t i = 0; i < sizeof step / sizeof step[0]; i++) {
        n_same = n_varying = 0;
        OK(decode_step(d, resident_door(g.weights), ids, step[i].n_new, step[i].n, logits, &err),
           err);
        assert_int_equal(n_varying > 0, step[i].varies);
        assert_int_equal(n_same > 0, !step[i].varies);
        assert_false(g.dev->varies);
    }
    g.dev->ops = own;
    decode_free(d);
    golden_close(&g);
}

/* No pass of any family gives a result once the stop is set. */
TEST(no_pass_ends_well_after_a_stop)
{
    static const int set = 1;
    static const int32_t ids[] = {5, 6, 7, 8}, start[] = {0, 4}, pos[] = {0, 1, 2, 3};
    const int32_t rows[] = {1, 2}, targets[] = {3, 4};
    struct generate_opts o = {.max_new_tokens = 2, .repetition_penalty = 1};

    for (size_t i = 0; i < GOLDEN_MODELS; i++) {
        const struct batch b = {.n_tokens = 4, .n_docs = 1, .ids = ids, .positions = pos,
                                .doc_start = start, .n_rows = 2, .rows = rows,
                                .targets = targets};
        int32_t out[2];
        struct generate_seq seq = {.prompt = ids, .n_prompt = 4, .out = out};
        struct ckpt_err err = {0};
        struct golden g;
        float *logits;
        double sum;

        golden_open(&g, golden_models[i], &eval, 2);
        logits = ckpt_arena_alloc(&g.arena, (size_t)g.arch->vocab_size, sizeof *logits);
        g.dev->stop = &set;
        assert_int_equal(generate_run(g.model, resident_door(g.weights), &o, &seq, 1, &err),
                         CKPT_ESTOPPED);
        if (g.arch->stack == ARCH_DECODER) {
            assert_int_equal(model_loss(g.model, resident_door(g.weights), &b, &sum, NULL, &err),
                             CKPT_ESTOPPED);
            assert_int_equal(model_logits(g.model, resident_door(g.weights), &b, rows, 1, logits,
                                          &err), CKPT_ESTOPPED);
        }
        golden_close(&g);
    }
}

/* generate_pick on hand-made logits: how often each id is chosen over even draws. */
static void draws(int count[6], const struct generate_opts *o, const int32_t *history,
                  int64_t n)
{
    static const double p[6] = {0.05, 0.4, 0.1, 0.25, 0.15, 0.05};
    const struct generate_place at = {.history = history, .n = n};
    struct generate_choice scratch[6];

    memset(count, 0, 6 * sizeof *count);
    for (int i = 0; i < 1000; i++) {
        float logits[6];
        int32_t id;

        for (int j = 0; j < 6; j++)
            logits[j] = (float)log(p[j]) + 5;
        id = generate_pick(logits, 6, &at, o, (i + 0.5) / 1000, scratch);
        assert_in_range(id, 0, 5);
        count[id]++;
    }
}

TEST(generate_pick_follows_the_options)
{
    struct generate_opts o = {.do_sample = true, .temperature = 1, .top_p = 1,
                              .repetition_penalty = 1};
    const int32_t history[] = {1, 1, 3};
    int c[6];

    draws(c, &o, NULL, 0);
    assert_true(c[0] == 50 && c[1] == 400 && c[2] == 100 && c[3] == 250 && c[4] == 150);
    o.top_k = 2;
    draws(c, &o, NULL, 0);
    assert_true(c[1] == 615 && c[3] == 385);
    o.top_k = 0;
    o.top_p = 0.6;                      /* 0.4, then 0.25 reaches it */
    draws(c, &o, NULL, 0);
    assert_true(c[1] == 615 && c[3] == 385);
    o.top_p = 0.7;                      /* 0.4 + 0.25 + 0.15 */
    draws(c, &o, NULL, 0);
    assert_in_range(c[1], 499, 501);
    assert_in_range(c[3], 312, 313);
    assert_in_range(c[4], 187, 188);
    o.top_p = 0.01;
    draws(c, &o, NULL, 0);
    assert_int_equal(c[1], 1000);
    o.top_p = 1;
    o.temperature = 0.5;                /* p^2: 0.16 of 0.2600 */
    draws(c, &o, NULL, 0);
    assert_in_range(c[1], 615 - 2, 615 + 2);
    o.temperature = 1;
    o.repetition_penalty = 2;           /* once per id: logit 4.08 to 2.04, 3.61 to 1.81 */
    draws(c, &o, history, 3);
    assert_in_range(c[4], 338, 340);    /* Python: 0.3386, 0.1172, 0.0927 */
    assert_in_range(c[1], 116, 118);
    assert_in_range(c[3], 92, 94);
    o.do_sample = false;
    draws(c, &o, history, 3);
    assert_int_equal(c[4], 1000);
}

TEST(generate_pick_refuses_nan)
{
    struct generate_opts o = {.repetition_penalty = 1};
    const struct generate_place at = {.n = 0};
    struct generate_choice scratch[3];
    float bad[3] = {1, NAN, 2}, none[3] = {-INFINITY, -INFINITY, -INFINITY},
          ties[3] = {1, 2, 2};

    assert_int_equal(generate_pick(bad, 3, &at, &o, 0.5, scratch), -1);
    assert_int_equal(generate_pick(none, 3, &at, &o, 0.5, scratch), -1);
    assert_int_equal(generate_pick(ties, 3, &at, &o, 0.5, scratch), 1);
}

/* Sampled continuations are the same alone, in a batch, and in another order. */
TEST(generate_is_independent_of_the_batch)
{
    struct generate_opts o = {.max_new_tokens = 12, .do_sample = true, .temperature = 1.3,
                              .top_k = 50, .top_p = 0.95, .repetition_penalty = 1.1, .seed = 9};
    const int32_t prompt[3][4] = {{5, 6, 7, 8}, {9, 9, 1, 2}, {100, 3, 4, 4}};
    int32_t out[3][12], alone[12], other[12];
    struct generate_seq seq[3], one;
    struct ckpt_err err = {0};
    struct golden g;

    golden_open(&g, "bloom-a", &eval, 2);
    for (int i = 0; i < 3; i++)
        seq[i] = (struct generate_seq){
            .prompt = prompt[i], .n_prompt = 2 + i, .stream = 10 + (unsigned)i, .out = out[i]};
    seq[2].n_prompt = 4;
    OK(generate_run(g.model, resident_door(g.weights), &o, seq, 3, &err), err);
    for (int i = 0; i < 3; i++) {
        one = seq[i];
        one.out = alone;
        OK(generate_run(g.model, resident_door(g.weights), &o, &one, 1, &err), err);
        assert_memory_equal(alone, out[i], sizeof alone);
    }
    one.stream = 99;
    one.out = other;
    OK(generate_run(g.model, resident_door(g.weights), &o, &one, 1, &err), err);
    assert_memory_not_equal(other, out[2], sizeof other);
    golden_close(&g);
}

TEST(generate_stops_at_any_eos)
{
    struct generate_opts o = {.max_new_tokens = 16, .repetition_penalty = 1};
    const int32_t prompt[2][7] = {{220, 100, 89, 217, 240, 42, 157},
                                  {202, 219, 156, 45, 110, 59, 8}};
    int32_t out[2][16], eos[2];
    struct generate_seq seq[2];
    struct ckpt_err err = {0};
    struct golden g;
    int64_t first = 0;

    golden_open(&g, "bloom-a", &eval, 1);
    for (int i = 0; i < 2; i++)
        seq[i] = (struct generate_seq){.prompt = prompt[i], .n_prompt = 7, .out = out[i]};
    OK(generate_run(g.model, resident_door(g.weights), &o, seq, 2, &err), err);
    eos[0] = 1;
    eos[1] = out[0][5];
    while (out[0][first] != eos[1])
        first++;
    o.eos = eos;
    o.n_eos = 2;
    OK(generate_run(g.model, resident_door(g.weights), &o, seq, 1, &err), err);
    assert_true(seq[0].stopped);
    assert_int_equal(seq[0].n_out, first + 1);
    assert_int_equal(out[0][first], eos[1]);
    o.temperature = 0;
    o.do_sample = true;
    assert_int_equal(generate_run(g.model, resident_door(g.weights), &o, seq, 1, &err),
                     CKPT_ECONFIG);
    golden_close(&g);
}
