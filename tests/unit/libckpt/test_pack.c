/* pack: rows and targets of documents without padding; first-fit decreasing. */
#include "tests/unit/unit.h"

#include "trainer/data/pack.h"

TEST_ERR(rows_and_targets_stay_inside_documents)
{
    int32_t a_ids[] = {10, 11, 12, 13}, a_labels[] = {10, -100, 12, 13};
    int32_t b_ids[] = {20}, b_labels[] = {20}, c_ids[] = {30, 31}, c_labels[] = {-100, 31};
    struct sample a = {.ids = a_ids, .labels = a_labels, .n = 4};
    struct sample b = {.ids = b_ids, .labels = b_labels, .n = 1};
    struct sample c = {.ids = c_ids, .labels = c_labels, .n = 2};
    const int32_t ids[] = {10, 11, 12, 13, 20, 30, 31}, positions[] = {0, 1, 2, 3, 0, 0, 1};
    const int32_t starts[] = {0, 4, 5, 7}, rows[] = {1, 2, 5}, targets[] = {12, 13, 31};
    const int64_t samples[] = {70, 60, 5000000000};
    struct pack p;

    assert_int_equal(pack_init(&p, 7, 3, err), 0);
    for (int again = 0; again < 2; again++) {
        pack_clear(&p);
        assert_int_equal(pack_add(&p, &a, 70, true, err), 0);
        assert_int_equal(pack_add(&p, &b, 60, true, err), 0);
        assert_int_equal(pack_add(&p, &c, 5000000000, true, err), 0);
        assert_int_equal(p.batch.n_tokens, 7);
        assert_int_equal(p.batch.n_docs, 3);
        assert_int_equal(p.batch.n_rows, 3);
        assert_memory_equal(p.batch.ids, ids, sizeof ids);
        assert_memory_equal(p.batch.positions, positions, sizeof positions);
        assert_memory_equal(p.batch.doc_start, starts, sizeof starts);
        assert_memory_equal(p.batch.rows, rows, sizeof rows);
        assert_memory_equal(p.batch.targets, targets, sizeof targets);
        assert_memory_equal(p.batch.samples, samples, sizeof samples);
    }
    assert_int_equal(sample_targets(&a) + sample_targets(&b) + sample_targets(&c), 3);
    /* Full: by documents, by tokens. */
    assert_int_equal(pack_add(&p, &b, 7, true, err), CKPT_ESTATE);
    pack_clear(&p);
    assert_int_equal(pack_add(&p, &a, 7, false, err), 0);
    assert_int_equal(p.batch.n_rows, 0);
    assert_int_equal(pack_add(&p, &a, 7, true, err), CKPT_ESTATE);
    assert_int_equal(p.batch.n_tokens, 4);
    pack_release(&p);
    assert_int_equal(pack_init(&p, 0, 1, err), CKPT_ECONFIG);
    assert_int_equal(pack_init(&p, 1, 0, err), CKPT_ECONFIG);
}

TEST_ERR(first_fit_decreasing)
{
    /* Longest first: 5, 4, 3, 3, 2, 1 into bins of 6: {5 1} {4 2} {3 3}; bins come in the order
     * of their earliest sample, samples in the order given. */
    const int64_t order[] = {3, 0, 4, 1, 5, 2};
    const int32_t length[] = {4, 3, 1, 3, 5, 2};    /* by sample: order is 3 4 5 3 2 1 long */
    const int64_t item[] = {3, 1, 0, 5, 4, 2}, bin[] = {0, 2, 4, 6};
    struct pack_plan plan = {0};

    assert_int_equal(pack_plan_make(&plan, order, 6, length, 6, err), 0);
    assert_int_equal(plan.n_bin, 3);
    assert_int_equal(plan.largest, 2);
    assert_memory_equal(plan.item, item, sizeof item);
    assert_memory_equal(plan.bin, bin, sizeof bin);
    assert_int_equal(pack_plan_make(&plan, order, 6, length, 4, err), CKPT_ELIMIT);
    pack_plan_release(&plan);
}

static int down(const void *a, const void *b)
{
    return *(const int *)b - *(const int *)a;
}

/* The same rule by plain search, for a window. */
static int64_t plain_bins(const int *length, size_t n, int max)
{
    int *sorted = malloc(n * sizeof *sorted), *room = calloc(n, sizeof *room);
    int64_t bins = 0;

    memcpy(sorted, length, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, down);
    for (size_t i = 0; i < n; i++) {
        int64_t b = 0;

        while (b < bins && room[b] < sorted[i])
            b++;
        if (b == bins)
            room[bins++] = max;
        room[b] -= sorted[i];
    }
    free(sorted);
    free(room);
    return bins;
}

TEST_ERR(every_sample_once_and_no_bin_too_full)
{
    const int64_t n = PACK_WINDOW + 1000;
    int64_t *order = calloc((size_t)n, sizeof *order), want;
    int32_t *length = calloc((size_t)n, sizeof *length);
    int *first = calloc((size_t)n, sizeof *first);
    bool *seen = calloc((size_t)n, sizeof *seen);
    struct pack_plan plan = {0};
    uint32_t random = 7;

    for (int64_t i = 0; i < n; i++) {
        random = random * 1664525u + 1013904223u;
        order[i] = n - 1 - i;
        length[i] = 1 + (int32_t)(random >> 24);
    }
    for (int64_t i = 0; i < n; i++)
        first[i] = length[order[i]];
    for (int again = 0; again < 2; again++)
        assert_int_equal(pack_plan_make(&plan, order, n, length, 512, err), 0);
    want = plain_bins(first, PACK_WINDOW, 512) + plain_bins(first + PACK_WINDOW, 1000, 512);
    assert_int_equal(plan.n_bin, want);
    assert_int_equal(plan.bin[plan.n_bin], n);
    for (int64_t b = 0; b < plan.n_bin; b++) {
        int64_t tokens = 0;

        assert_true(plan.bin[b] < plan.bin[b + 1]);
        for (int64_t i = plan.bin[b]; i < plan.bin[b + 1]; i++) {
            assert_false(seen[plan.item[i]]);
            seen[plan.item[i]] = true;
            tokens += length[plan.item[i]];
        }
        assert_true(tokens <= 512);
    }
    pack_plan_release(&plan);
    free(order);
    free(length);
    free(first);
    free(seen);
}
