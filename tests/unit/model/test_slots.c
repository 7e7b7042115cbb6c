/*
 * Continuous batching: the same tokens, and the same logprobs bit by bit, whatever else is in the
 * batch and however small the cache is; plans within their bytes; places that come and go.
 */
#include "tests/unit/golden_runs.h"

#include <math.h>

#include "trainer/model/generate/slots.h"
#include "trainer/model/generate/space.h"

static const struct model_opts eval = {.max_tokens = 600, .max_docs = 3, .max_rows = 1,
                                       .max_enc = 400};

enum { N = 24, NEW = 20, LONGEST = 150, TOP = 3 };

struct run {
    int32_t             prompt[N][LONGEST], out[N][NEW], top_id[N][NEW][TOP];
    float               logprob[N][NEW], top[N][NEW][TOP];
    struct generate_seq seq[N];
    int64_t             order[N];       /* of sequences as they ended */
    int                 n_ended;
};

static int ended(void *ctx, const struct generate_seq *q, struct ckpt_err *err)
{
    struct run *r = ctx;

    (void)err;
    r->order[r->n_ended++] = q - r->seq;
    return 0;
}

/* Prompts of 1 to 150 tokens, or as many as the model has positions for; all begin with `same`
 * equal ones. */
static void fill(struct run *r, const struct arch *arch, int64_t same)
{
    int64_t vocab = arch->vocab_size, most = LONGEST;
    uint32_t x = 77;

    if (arch->pos == ARCH_POS_LEARNED && arch->max_position_embeddings < LONGEST + NEW)
        most = arch->max_position_embeddings - NEW;

    *r = (struct run){0};
    for (int i = 0; i < N; i++) {
        x = x * 1664525u + 1013904223u;
        r->seq[i] = (struct generate_seq){
            .prompt = r->prompt[i], .n_prompt = same + 1 + (x >> 8) % (uint32_t)(most - same),
            .stream = (uint64_t)i, .out = r->out[i], .logprob = r->logprob[i],
            .top_id = r->top_id[i][0], .top_logprob = r->top[i][0]};
        for (int j = 0; j < LONGEST; j++) {
            x = x * 1664525u + 1013904223u;
            r->prompt[i][j] = (int32_t)((j < same ? (uint32_t)j * 7u + 3u : x >> 8) %
                                        (uint32_t)vocab);
        }
    }
}

static struct run found, wanted;

static void check_same(void)
{
    assert_int_equal(found.n_ended, N);
    for (int i = 0; i < N; i++) {
        assert_int_equal(found.seq[i].n_out, wanted.seq[i].n_out);
        assert_int_equal(found.seq[i].stopped, wanted.seq[i].stopped);
    }
    assert_memory_equal(found.out, wanted.out, sizeof found.out);
#ifdef SLOTS_NEAR                           /* a GPU's products depend on the number of rows */
    for (int i = 0; i < N; i++)
        for (int j = 0; j < found.seq[i].n_out; j++)
            assert_true(fabsf(found.logprob[i][j] - wanted.logprob[i][j]) <= SLOTS_NEAR);
    return;
#endif
    assert_memory_equal(found.logprob, wanted.logprob, sizeof found.logprob);
    assert_memory_equal(found.top_id, wanted.top_id, sizeof found.top_id);
    assert_memory_equal(found.top, wanted.top, sizeof found.top);
}

/* Batches of 1, 3 and 64, a cache for hardly more than the longest, logits of all tokens. */
static void check_model(const char *name, int64_t same, bool sampled)
{
    struct generate_opts o = {.max_new_tokens = NEW, .repetition_penalty = 1, .temperature = 1,
                              .top_p = 1, .top_k = 20, .do_sample = sampled, .seed = 5,
                              .n_logprobs = TOP, .max_batch = 1};
    struct generate_hooks hooks = {.ctx = &found, .done = ended};
    struct ckpt_err err = {0};
    int32_t eos[] = {2, 17, 30};
    struct golden g;

    golden_open(&g, name, &eval, 2);
    o.eos = eos;
    o.n_eos = 3;
    fill(&wanted, g.arch, same);
    OK(generate_run(g.model, resident_door(g.weights), &o, wanted.seq, N, &err), err);
    o.hooks = &hooks;
    for (int round = 0; round < 4; round++) {
        static const int64_t batch[] = {3, 64, 64, 7};

        fill(&found, g.arch, same);
        o.max_batch = batch[round];
        o.cache_bytes = round == 2 ? 1 : round == 3 ? 350 * generate_row_bytes(g.model) : 0;
        o.temperature = 1 + 1e-300;
        OK(generate_run(g.model, resident_door(g.weights), &o, found.seq, N, &err), err);
        check_same();
    }
    golden_close(&g);
}

TEST(slots_give_the_same_bits_in_any_batch)
{
    static const char *const names[] = {"bloom-a", "gpt2-a", "llama-a", "qwen3moe-a", "opt-350m",
                                        "mistral-sw", "t5-v11"};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        check_model(names[i], 0, i % 2);
}

TEST(slots_share_what_all_prompts_begin_with)
{
    check_model("llama-a", 100, false);
    check_model("bloom-b", 64, true);
}

/* A sequence that ends frees its place at once: short ones do not wait for long ones. */
TEST(slots_are_filled_as_sequences_end)
{
    struct generate_opts o = {.max_new_tokens = NEW, .repetition_penalty = 1, .max_batch = 2};
    struct generate_hooks hooks = {.ctx = &found, .done = ended};
    struct ckpt_err err = {0};
    struct golden g;

    golden_open(&g, "llama-a", &eval, 1);
    fill(&found, g.arch, 0);
    for (int i = 0; i < N; i++)
        found.seq[i].logprob = NULL;
    o.hooks = &hooks;
    o.max_length = 30;                  /* the first prompts of fewer than 30 tokens: */
    for (int i = 0; i < N; i++)
        found.seq[i].n_prompt = i == 0 ? 10 : 29;
    OK(generate_run(g.model, resident_door(g.weights), &o, found.seq, N, &err), err);
    assert_int_equal(found.seq[0].n_out, 20);
    assert_int_equal(found.seq[1].n_out, 1);
    assert_int_equal(found.order[0], 1);
    assert_true(found.order[18] == 18 || found.order[18] == 19 || found.order[19] == 0);
    golden_close(&g);
}

/* -- what a step fetches ------------------------------------------------------------------------- */

static const struct ops *own;
static size_t most_fetched;
static int n_top;

static void watch_host(struct device *dev, void *host, const void *from, size_t bytes)
{
    most_fetched = bytes > most_fetched ? bytes : most_fetched;
    own->to_host(dev, host, from, bytes);
}

static void count_top(struct device *dev, const struct op_top *a)
{
    n_top++;
    own->head_top(dev, a);
}

/* A batch's logits are many megabytes: greedy ones, and the 20 likeliest, are chosen on the device,
 * with and without a common prefix. */
TEST(slots_fetch_the_likeliest_alone)
{
    for (int round = 0; round < 4; round++) {
        struct generate_opts o = {.max_new_tokens = NEW, .repetition_penalty = 1, .temperature = 1,
                                  .do_sample = round % 2, .top_k = 20, .top_p = 1, .max_batch = 8};
        struct ckpt_err err = {0};
        struct ops watched;
        struct golden g;

        golden_open(&g, "bloom-a", &eval, 1);
        fill(&found, g.arch, round < 2 ? 0 : 64);
        for (int i = 0; i < N; i++)
            found.seq[i].logprob = NULL;
        own = g.dev->ops;
        watched = *own;
        watched.to_host = watch_host;
        watched.head_top = count_top;
        g.dev->ops = &watched;
        most_fetched = 0;
        n_top = 0;
        OK(generate_run(g.model, resident_door(g.weights), &o, found.seq, N, &err), err);
        g.dev->ops = own;
        assert_true(n_top >= 3 * NEW);
        assert_true(most_fetched <= 9 * (sizeof(double) + 28 * 2 * sizeof(float)));
        golden_close(&g);
    }
}

/* The third step is not begun. */
static int steps_left;
static int two_steps(void *ctx, struct ckpt_err *err)
{
    (void)ctx;
    return steps_left-- > 0 ? 0 : ckpt_fail(err, CKPT_ESTOPPED, "enough");
}

TEST(slots_and_beams_end_between_tokens)
{
    struct generate_opts o = {.max_new_tokens = NEW, .repetition_penalty = 1, .max_batch = 2,
                              .min_new_tokens = NEW, .length_penalty = 1};
    struct generate_hooks hooks = {.ctx = &found, .done = ended, .goes_on = two_steps};
    struct ckpt_err err = {0};
    struct golden g;

    golden_open(&g, "llama-a", &eval, 1);
    o.hooks = &hooks;
    for (o.num_beams = 1; o.num_beams <= 3; o.num_beams += 2) {
        fill(&found, g.arch, 0);
        for (int i = 0; i < N; i++)
            found.seq[i].logprob = NULL;
        steps_left = 2;
        assert_int_equal(generate_run(g.model, resident_door(g.weights), &o, found.seq, N, &err),
                         CKPT_ESTOPPED);
        assert_int_equal(found.n_ended, 0);
        ckpt_err_clear(&err);
    }
    golden_close(&g);
}

TEST(slots_plan_within_their_bytes)
{
    struct generate_opts o = {.max_new_tokens = NEW, .repetition_penalty = 1};
    struct ckpt_err err = {0};
    struct generate_plan p;
    struct golden g;
    uint64_t row;

    golden_open(&g, "llama-a", &eval, 1);
    row = generate_row_bytes(g.model);
    fill(&found, g.arch, 0);
    OK(generate_plan(&p, g.model, &o, found.seq, N, &err), err);
    assert_int_equal(p.slots, N);
    assert_true(p.rows < N * p.longest);
    assert_int_equal(p.prefix, 0);
    o.cache_bytes = 1000 * row;
    OK(generate_plan(&p, g.model, &o, found.seq, N, &err), err);
    assert_int_equal(p.rows, 1000);
    o.cache_bytes = row;
    OK(generate_plan(&p, g.model, &o, found.seq, N, &err), err);
    assert_int_equal(p.rows, p.longest);
    o.max_batch = 3;
    o.cache_bytes = 0;
    OK(generate_plan(&p, g.model, &o, found.seq, N, &err), err);
    assert_int_equal(p.slots, 3);
    assert_true(p.rows <= 3 * p.longest);
    golden_close(&g);
}

TEST(space_gives_the_lowest_gap)
{
    struct space_piece piece[8];
    struct space s = {.size = 100, .piece = piece};

    assert_int_equal(space_take(&s, 30), 0);
    assert_int_equal(space_take(&s, 30), 30);
    assert_int_equal(space_take(&s, 41), -1);
    assert_int_equal(space_take(&s, 40), 60);
    assert_int_equal(space_take(&s, 1), -1);
    space_drop(&s, 30);
    assert_int_equal(space_take(&s, 10), 30);
    assert_int_equal(space_take(&s, 21), -1);
    assert_int_equal(space_take(&s, 20), 40);
    space_drop(&s, 7);
    assert_int_equal(space_take(&s, 0), 0);
    space_drop(&s, 0);
    assert_int_equal(space_take(&s, 25), 0);
    assert_int_equal(s.n, 4);
}
