/*
 * loader: what each rank gets in each step, against a plain walk through the order; the same
 * after a seek to any position; packing; ends of epochs; errors.
 */
#include "tests/unit/unit.h"
#include "tests/unit/data_files.h"
#include "trainer/data/loader.h"
#include "trainer/data/mt19937.h"

#define N 37

/* Row i is i % 7 + 2 ids: i, i + 100, i + 200, ...; the first id tells which it is. */
static struct data_source *make_source(struct records **records, int64_t max_seq_length)
{
    struct data_opts o = {.max_seq_length = max_seq_length, .workers = 2};
    struct data_source *d;
    struct ckpt_err err = {0};
    char body[8192];
    size_t n = 0;

    for (int i = 0; i < N; i++) {
        n += (size_t)snprintf(body + n, sizeof body - n, "{\"input_ids\":[%d", i);
        for (int k = 1; k < i % 7 + 2; k++)
            n += (size_t)snprintf(body + n, sizeof body - n, ",%d", i + 100 * k);
        n += (size_t)snprintf(body + n, sizeof body - n, "]}\n");
    }
    *records = records_of(body);
    if (data_source_open(&d, *records, NULL, &o, &err))
        fail_msg("%s", err.text);
    return d;
}

/* One line a step: "step epoch: m[docs] m[docs] ... targets". */
static void print_step(char *out, size_t size, const struct loader_step *s)
{
    size_t n =
        (size_t)snprintf(out, size, "%lld %lld:", (long long)s->step, (long long)s->epoch);
    int64_t targets = 0, tokens = 0;

    for (int64_t m = 0; m < s->n_micro; m++) {
        const struct batch *b = s->micro[m];

        for (int64_t d = 0; d < b->n_docs; d++) {
            int32_t at = b->doc_start[d];

            n += (size_t)snprintf(out + n, size - n, "%c%d", d ? ' ' : '[', b->ids[at]);
            assert_int_equal(b->doc_start[d + 1] - at, b->ids[at] % 7 + 2);
            assert_int_equal(b->samples[d] % N, b->ids[at]);
        }
        n += (size_t)snprintf(out + n, size - n, "]");
        for (int64_t r = 0; r < b->n_rows; r++)
            assert_int_equal(b->targets[r], b->ids[b->rows[r] + 1]);
        targets += b->n_rows;
        tokens += b->n_tokens;
    }
    assert_int_equal(targets, s->n_targets);
    assert_int_equal(tokens, s->n_tokens);
    snprintf(out + n, size - n, " %lld", (long long)targets);
}

static void next_line(struct loader *l, char *out, size_t size)
{
    const struct loader_step *s;
    struct ckpt_err err = {0};

    if (loader_next(l, &s, &err))
        fail_msg("%s", err.text);
    print_step(out, size, s);
}

static struct loader *open_loader(struct data_source *d, const struct loader_opts *o)
{
    struct ckpt_err err = {0};
    struct loader *l;

    if (loader_open(&l, d, o, &err))
        fail_msg("%s", err.text);
    return l;
}

TEST(batches_of_every_rank)
{
    struct records *r;
    struct data_source *d = make_source(&r, 64);

    for (int world = 1; world <= 3; world++)
        for (int rank = 0; rank < world; rank++) {
            struct loader_opts o = {.micro_batch = 2, .grad_accum = 3, .seed = 42,
                                    .shuffle = true, .rank = rank, .world_size = world};
            struct loader *l = open_loader(d, &o);
            int64_t micros = (N + 2 * world - 1) / (2 * world), steps = (micros + 2) / 3, total;
            struct ckpt_err err = {0};

            assert_int_equal(loader_steps_per_epoch(l), steps);
            assert_int_equal(loader_steps_of(l, 3, &total, &err), 0);
            assert_int_equal(total, 3 * steps);
            assert_int_equal(loader_max_tokens(l), 2 * 64);
            for (int64_t step = 0; step < 2 * steps; step++) {
                const struct loader_step *s;
                struct mt19937 g;
                int64_t order[N], m0 = step % steps * 3;

                mt19937_seed(&g, 42 + (uint64_t)(step / steps));
                mt19937_randperm(&g, order, N);
                assert_int_equal(loader_next(l, &s, &err), 0);
                assert_int_equal(s->step_of_epoch, step % steps);
                assert_int_equal(s->n_micro, micros - m0 < 3 ? micros - m0 : 3);
                assert_int_equal(s->micro_done, m0 + s->n_micro);
                assert_int_equal(s->micro_of_epoch, micros);
                for (int64_t m = 0; m < s->n_micro; m++) {
                    int64_t at = ((m0 + m) * world + rank) * 2, n = 2;

                    n = world == 1 && N - at < 2 ? N - at : n;
                    assert_int_equal(s->micro[m]->n_docs, n);
                    for (int64_t k = 0; k < n; k++) {
                        assert_int_equal(s->micro[m]->ids[s->micro[m]->doc_start[k]],
                                         order[(at + k) % N]);
                        assert_int_equal(s->micro[m]->samples[k],
                                         order[(at + k) % N] + (at + k) / N * N);
                    }
                }
            }
            loader_close(l);
        }
    data_source_close(d);
    records_close(r);
}

/* From every position a new loader, and one that is wound back, continue alike. */
static void check_resume(struct data_source *d, const struct loader_opts *o, int n)
{
    char want[64][512], found[512];
    struct loader *l = open_loader(d, o), *fresh;
    struct ckpt_err err = {0};

    assert_true(n <= 64);
    for (int i = 0; i < n; i++)
        next_line(l, want[i], sizeof want[i]);
    for (int at = n - 1; at >= 0; at--) {
        fresh = open_loader(d, o);
        assert_int_equal(loader_seek(fresh, at, &err), 0);
        assert_int_equal(loader_seek(l, at, &err), 0);
        for (int i = at; i < n && i < at + 5; i++) {
            next_line(l, found, sizeof found);
            assert_string_equal(found, want[i]);
            next_line(fresh, found, sizeof found);
            assert_string_equal(found, want[i]);
        }
        loader_close(fresh);
    }
    assert_int_equal(loader_seek(l, -1, &err), CKPT_ECONFIG);
    loader_close(l);
}

TEST(resume_at_every_position)
{
    struct loader_opts o = {.micro_batch = 2, .grad_accum = 2, .seed = 7, .shuffle = true,
                            .rank = 1, .world_size = 2};
    struct records *r;
    struct data_source *d = make_source(&r, 64);

    for (int prefetch = 1; prefetch <= 3; prefetch++) {
        o.prefetch = prefetch;
        check_resume(d, &o, 20);
    }
    o.packing = true;
    o.max_tokens = 16;
    check_resume(d, &o, 40);
    data_source_close(d);
    records_close(r);
}

TEST(packing)
{
    struct records *r;
    struct data_source *d = make_source(&r, 64);
    int64_t steps[2], total;
    int seen[2][N] = {{0}};

    for (int rank = 0; rank < 2; rank++) {
        struct loader_opts o = {.packing = true, .max_tokens = 16, .grad_accum = 2, .seed = 1,
                                .shuffle = true, .rank = rank, .world_size = 2};
        struct loader *l = open_loader(d, &o);
        const struct loader_step *s;
        struct ckpt_err err = {0};

        steps[rank] = loader_steps_per_epoch(l);
        assert_int_equal(loader_max_tokens(l), 16);
        /* As many of the shortest rows as fit: six of 2 tokens and one of 3. */
        assert_int_equal(loader_max_docs(l), 7);
        assert_int_equal(loader_steps_of(l, 2, &total, &err), 0);
        for (int64_t i = 0; i < total; i++) {
            assert_int_equal(loader_next(l, &s, &err), 0);
            assert_int_equal(s->epoch, i >= steps[rank]);
            for (int64_t m = 0; m < s->n_micro; m++) {
                const struct batch *b = s->micro[m];

                assert_true(b->n_tokens <= 16 && b->n_docs > 0);
                for (int64_t k = 0; k < b->n_docs; k++)
                    seen[s->epoch][b->ids[b->doc_start[k]]]++;
            }
        }
        assert_int_equal(loader_next(l, &s, &err), 0);
        assert_int_equal(s->epoch, 2);
        loader_close(l);
    }
    assert_int_equal(steps[0], steps[1]);
    for (int i = 0; i < N; i++)         /* at most the completion's bins come twice */
        assert_true(seen[0][i] >= 1 && seen[0][i] <= 2 && seen[1][i] >= 1 && seen[1][i] <= 2);
    data_source_close(d);
    records_close(r);
}

/* For evaluation: every sample's targets once, and every rank has the same micro-batches. */
TEST(each_target_counts_once)
{
    struct records *r;
    struct data_source *d = make_source(&r, 64);

    for (int packing = 0; packing < 2; packing++)
        for (int world = 1; world <= 4; world++) {
            int64_t targets = 0, steps = 0;

            for (int rank = 0; rank < world; rank++) {
                struct loader_opts o = {.packing = packing, .max_tokens = 20, .micro_batch = 4,
                    .grad_accum = 1, .tail = SHUFFLE_MASK, .rank = rank, .world_size = world};
                struct loader *l = open_loader(d, &o);
                const struct loader_step *s;
                struct ckpt_err err = {0};

                assert_true(rank == 0 || loader_steps_per_epoch(l) == steps);
                steps = loader_steps_per_epoch(l);
                for (int64_t i = 0; i < steps; i++) {
                    assert_int_equal(loader_next(l, &s, &err), 0);
                    assert_int_equal(s->n_micro, 1);
                    assert_true(s->micro[0]->n_tokens > 0);
                    targets += s->n_targets;
                }
                loader_close(l);
            }
            assert_int_equal(targets, 143);     /* the sum of i % 7 + 1 */
        }
    data_source_close(d);
    records_close(r);
}

TEST(errors_come_out_of_the_thread)
{
    struct records *r = records_of("{\"input_ids\":[1,2]}\n{\"input_ids\":[1,2]}\n{\"x\":1}\n");
    struct data_opts so = {.max_seq_length = 4};
    struct loader_opts o = {.micro_batch = 1, .grad_accum = 1, .world_size = 1};
    const struct loader_step *s;
    struct data_source *d;
    struct loader *l;
    struct ckpt_err err = {0};

    assert_int_equal(data_source_open(&d, r, NULL, &so, &err), 0);
    l = open_loader(d, &o);
    assert_int_equal(loader_next(l, &s, &err), 0);
    assert_int_equal(loader_next(l, &s, &err), 0);
    assert_int_equal(loader_next(l, &s, &err), CKPT_EFORMAT);
    assert_non_null(strstr(err.text, "record 3"));
    assert_int_equal(loader_next(l, &s, &err), CKPT_EFORMAT);
    assert_int_equal(loader_seek(l, 0, &err), 0);
    assert_int_equal(loader_next(l, &s, &err), 0);
    loader_close(l);
    o.grad_accum = 0;
    assert_int_equal(loader_open(&l, d, &o, &err), CKPT_ECONFIG);
    o.grad_accum = 1;
    o.packing = true;
    assert_int_equal(loader_open(&l, d, &o, &err), CKPT_ECONFIG);
    data_source_close(d);
    records_close(r);
}
