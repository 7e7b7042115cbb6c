/*
 * shuffle, mt19937: torch.randperm, accelerate's seedable sampler over ranks, and the bytes of
 * torch's generator state (printed by torch 2.15 for the same seeds and draws).
 */
#include "tests/unit/unit.h"

#include "libckpt/digest.h"
#include "libckpt/base/json.h"
#include "trainer/data/mt19937.h"
#include "trainer/data/pcg64.h"
#include "trainer/data/shuffle.h"

static json_t *root;

BEFORE_ALL()
{
    struct ckpt_err err = {0};
    struct ckpt_file *f;

    if (ckpt_file_open(&f, "tests/golden/shuffles.json", 0, &err) ||
        ckpt_json_read(&root, f, CKPT_JSON_MAX_BYTES, 0, &err))
        fail_msg("%s", err.text);
    ckpt_file_close(f);
}

AFTER_ALL()
{
    json_decref(root);
}

/* Check each row of a list of the golden file, which has so many. */
static void each_row(const char *list, size_t n, void (*check)(const json_t *row))
{
    const json_t *rows = json_object_get(root, list);

    assert_int_equal(json_array_size(rows), n);
    for (size_t i = 0; i < n; i++)
        check(json_array_get(rows, i));
}

static struct shuffle *must_shuffle(const struct shuffle_opts *o)
{
    struct ckpt_err err = {0};
    struct shuffle *s;

    if (shuffle_new(&s, o, &err))
        fail_msg("%s", err.text);
    return s;
}

static int64_t number(const json_t *obj, const char *key)
{
    const json_t *v = json_object_get(obj, key);

    assert_true(json_is_integer(v));
    return json_integer_value(v);
}

/* The golden file's digest of an order: FNV-1a 64 over little-endian u32. */
static uint64_t fnv(const int64_t *order, int64_t n)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);

    for (int64_t i = 0; i < n; i++)
        for (int b = 0; b < 4; b++)
            h = (h ^ ((uint64_t)order[i] >> (8 * b) & 0xff)) * UINT64_C(0x100000001b3);
    return h;
}

static void check_list(const json_t *want, const int64_t *got)
{
    for (size_t k = 0; k < json_array_size(want); k++)
        assert_int_equal(got[k], json_integer_value(json_array_get(want, k)));
}

static void check_order(const json_t *want, const int64_t *order, int64_t n)
{
    const json_t *all = json_object_get(want, "all"), *first = json_object_get(want, "first");
    const json_t *last = json_object_get(want, "last");
    const json_t *digest = json_object_get(want, "fnv1a64_u32le");

    assert_int_equal(n, number(want, "n"));
    assert_true(all ? json_array_size(all) == (size_t)n : first && last && digest);
    check_list(all, order);
    check_list(first, order);
    check_list(last, order + (size_t)n - json_array_size(last));
    if (digest)
        assert_true(fnv(order, n) == strtoull(json_string_value(digest), NULL, 16));
}

static void check_randperm(const json_t *row)
{
    int64_t n = number(row, "n"), *order = calloc((size_t)n, sizeof *order);
    struct mt19937 g;

    mt19937_seed(&g, (uint64_t)number(row, "seed"));
    mt19937_randperm(&g, order, n);
    check_order(json_object_get(row, "order"), order, n);
    free(order);
}

TEST(randperm_equals_torch)
{
    each_row("torch_randperm", 25, check_randperm);
}

static void check_batches(const json_t *row)
{
    const json_t *batches = json_object_get(row, "batches");
    struct shuffle_opts o = {
        .n = number(row, "n"), .seed = (uint64_t)number(row, "seed"), .shuffle = true,
        .micro_batch = number(row, "batch"), .grad_accum = 1, .rank = (int)number(row, "rank"),
        .world_size = (int)number(row, "world"),
    };
    struct shuffle *s = must_shuffle(&o);
    const int64_t *order = shuffle_order(s, number(row, "epoch"));

    assert_int_equal(shuffle_micros(s), json_array_size(batches));
    for (size_t m = 0; m < json_array_size(batches); m++) {
        const json_t *want = json_array_get(batches, m);
        struct shuffle_slice slice;

        shuffle_slice(s, (int64_t)m, &slice);
        /* The golden lists were made by the sharding sampler for one rank too; accelerate
         * itself leaves a lone rank's last batch short, and so do we. */
        if (o.world_size == 1 && slice.first + slice.n == o.n)
            assert_true(slice.n > 0 && (size_t)slice.n <= json_array_size(want));
        else
            assert_int_equal(slice.n, json_array_size(want));
        for (int64_t k = 0; k < slice.n; k++)
            assert_int_equal(order[(slice.first + k) % o.n],
                             json_integer_value(json_array_get(want, (size_t)k)));
    }
    shuffle_free(s);
}

TEST(ranks_get_what_accelerate_gives_them)
{
    each_row("seedable_sampler", 36, check_batches);
}

/* All samples of a rank and epoch, batch after batch, for any batch size. */
static void check_samples(const json_t *row, int64_t batch)
{
    struct shuffle_opts o = {
        .n = number(row, "n"), .seed = (uint64_t)number(row, "seed"), .shuffle = true,
        .micro_batch = batch, .grad_accum = 1, .rank = (int)number(row, "rank"),
        .world_size = (int)number(row, "world"), .distributed = true,
        .tail = json_is_true(json_object_get(row, "drop_last")) ? SHUFFLE_DROP : SHUFFLE_WRAP,
    };
    int64_t *got = calloc((size_t)o.n, sizeof *got), n = 0;
    struct shuffle *s = must_shuffle(&o);
    const int64_t *order = shuffle_order(s, number(row, "epoch"));

    for (int64_t m = 0; m < shuffle_micros(s); m++) {
        struct shuffle_slice slice;

        shuffle_slice(s, m, &slice);
        assert_int_equal(slice.real, slice.n);
        for (int64_t k = 0; k < slice.n; k++)
            got[n++] = order[(slice.first + k * slice.stride) % o.n];
    }
    check_order(json_object_get(row, "order"), got, n);
    shuffle_free(s);
    free(got);
}

static void check_distributed(const json_t *row)
{
    check_samples(row, 1);
    if (!json_is_true(json_object_get(row, "drop_last")))
        check_samples(row, 3);
}

TEST(ranks_get_what_a_distributed_sampler_gives_them)
{
    each_row("distributed_sampler", 90, check_distributed);
}

static void check_dataset(const json_t *row)
{
    int64_t n = number(row, "n"), *order = calloc((size_t)n, sizeof *order), n_train;
    const json_t *split = json_object_get(row, "split_0.1");
    uint64_t seed = (uint64_t)number(row, "seed");
    struct pcg64 g;

    pcg64_seed(&g, seed);
    pcg64_permutation(&g, order, n);
    check_order(json_object_get(row, "shuffle"), order, n);
    n_train = pcg64_train_test_split(order, n, 0.1, true, seed);
    check_order(json_object_get(split, "train"), order, n_train);
    check_order(json_object_get(split, "test"), order + n_train, n - n_train);
    n_train = pcg64_train_test_split(order, n, 3, false, seed);
    check_order(json_object_get(json_object_get(row, "split_3_noshuffle"), "test"),
                order + n_train, n - n_train);
    free(order);
}

TEST(orders_and_splits_of_datasets)
{
    each_row("datasets", 9, check_dataset);
}

TEST(pcg64_equals_numpy)
{
    static const uint64_t seeds[] = {0, 42, UINT64_C(1099511627781)};

    for (size_t i = 0; i < 3; i++) {
        const json_t *want, *list;
        int64_t order[17];
        char key[40];
        struct pcg64 g;

        snprintf(key, sizeof key, "pcg64_%llu", (unsigned long long)seeds[i]);
        want = json_object_get(json_object_get(root, "numpy"), key);
        list = json_object_get(want, "raw_u64");
        assert_int_equal(json_array_size(list), 6);
        pcg64_seed(&g, seeds[i]);
        for (size_t k = 0; k < 6; k++)
            assert_true(pcg64_u64(&g) ==
                        strtoull(json_string_value(json_array_get(list, k)), NULL, 10));
        list = json_object_get(want, "permutation_17");
        pcg64_seed(&g, seeds[i]);
        pcg64_permutation(&g, order, 17);
        assert_int_equal(json_array_size(list), 17);
        check_list(list, order);
    }
}

static void check_lengths(const json_t *row)
{
    int64_t n = number(row, "n"), seed = number(row, "seed");
    int32_t *length = calloc((size_t)n, sizeof *length);
    struct shuffle_opts o = {.n = n, .seed = (uint64_t)seed - 3, .shuffle = true, .micro_batch = 1,
                             .grad_accum = 1, .world_size = 1, .length = length,
                             .group = number(row, "batch")};
    struct shuffle *s;

    for (int64_t k = 0; k < n; k++)
        length[k] = (int32_t)(k * 7919 % 97 + 1);
    s = must_shuffle(&o);
    check_order(json_object_get(row, "order"), shuffle_order(s, 3), n);
    shuffle_free(s);
    free(length);
}

TEST(orders_by_length_are_those_of_transformers)
{
    each_row("length_grouped", 24, check_lengths);
}

/* So many micro-batches are cut by these options. */
static void check_micros(const struct shuffle_opts *o, int64_t n)
{
    struct shuffle *s = must_shuffle(o);

    assert_int_equal(shuffle_micros(s), n);
    shuffle_free(s);
}

TEST(tails)
{
    struct shuffle_opts o = {.n = 11, .micro_batch = 2, .grad_accum = 3, .rank = 1,
                             .world_size = 2};
    struct ckpt_err err = {0};
    struct shuffle_slice slice;
    struct shuffle *s;
    int64_t first;

    o.tail = SHUFFLE_MASK;
    s = must_shuffle(&o);
    assert_int_equal(shuffle_micros(s), 3);
    assert_int_equal(shuffle_steps(s), 1);
    shuffle_slice(s, 2, &slice);        /* entries 10 and 11; one is a completion */
    assert_int_equal(slice.first, 10);
    assert_int_equal(slice.n, 2);
    assert_int_equal(slice.real, 1);
    shuffle_free(s);
    o.tail = SHUFFLE_DROP;
    check_micros(&o, 2);
    o.grad_accum = 2;
    o.tail = SHUFFLE_WRAP;
    s = must_shuffle(&o);
    assert_int_equal(shuffle_steps(s), 2);
    assert_int_equal(shuffle_step(s, 0, &first), 2);
    assert_int_equal(shuffle_step(s, 1, &first), 1);    /* an epoch's last step is shorter */
    assert_int_equal(first, 2);
    assert_int_equal(shuffle_order(s, 7)[10], 10);      /* not shuffled */
    shuffle_free(s);
    /* Fewer samples than one micro-batch of all ranks: the order is gone through again. */
    o.n = 1;
    check_micros(&o, 1);
    o.tail = SHUFFLE_DROP;
    assert_int_equal(shuffle_new(&s, &o, &err), CKPT_ECONFIG);
    o.n = 0;
    assert_int_equal(shuffle_new(&s, &o, &err), CKPT_ECONFIG);
    o.n = 5;
    o.rank = 2;
    assert_int_equal(shuffle_new(&s, &o, &err), CKPT_ECONFIG);
}

/* The same global batch on other numbers of ranks covers the same samples in every step. */
TEST(steps_do_not_depend_on_the_number_of_ranks)
{
    static const struct { int world; int64_t micro, accum; } cuts[] = {
        {1, 4, 3}, {2, 2, 3}, {4, 1, 3}, {3, 4, 1}, {2, 6, 1}, {1, 1, 12}};

    for (int64_t step = 0; step < 8; step++)
        for (size_t c = 0; c < sizeof cuts / sizeof *cuts; c++) {
            bool seen[96] = {false};

            for (int rank = 0; rank < cuts[c].world; rank++) {
                struct shuffle_opts o = {.n = 96, .seed = 3, .shuffle = true, .rank = rank,
                    .world_size = cuts[c].world, .micro_batch = cuts[c].micro,
                    .grad_accum = cuts[c].accum};
                struct shuffle *s = must_shuffle(&o);
                int64_t first, n;

                assert_int_equal(shuffle_steps(s), 8);
                n = shuffle_step(s, step, &first);
                for (int64_t m = first; m < first + n; m++) {
                    struct shuffle_slice slice;

                    shuffle_slice(s, m, &slice);
                    for (int64_t k = 0; k < slice.n; k++)
                        seen[slice.first + k] = true;
                }
                shuffle_free(s);
            }
            for (int64_t i = 0; i < 96; i++)
                assert_int_equal(seen[i], i / 12 == step);
        }
}

TEST(torch_generator_state)
{
    static const struct {
        uint64_t seed;
        int draws;
        const char *sha256;
        int64_t then[5];
    } rows[] = {
        {42, 0, "5feb54a46230d321d888e9b43cf5a57492665f199e4377408d79ee460e36679c",
         {2, 4, 3, 0, 1}},
        {42, 1, "14239309871b8989a3075b343f5f5a0b82f3adb99b25be00cc3c8edcfb25eba2",
         {2, 1, 3, 0, 4}},
        {42, 623, "550364b15cc9aa07a72c362a344ffd8963b192440839f1433ffd062bac406ef6",
         {0, 1, 4, 3, 2}},
        {42, 624, "e390c389ddb91c65b76817ea612e51a55ad7246c340927a4e1e9ceb37c4a08b9",
         {2, 0, 4, 1, 3}},
        {(UINT64_C(1) << 40) + 7, 1000, "631212b9f20094d9ae9a2dd1cf610b6eec972a09f0482b940d69a6da91f3ac30",
         {2, 0, 4, 3, 1}},
    };
    struct ckpt_err err = {0};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        unsigned char bytes[MT19937_TORCH_BYTES], digest[CKPT_SHA256_BYTES];
        char hex[CKPT_SHA256_HEX];
        struct ckpt_sha256 *sha;
        struct mt19937 g, back;
        int64_t order[5];

        mt19937_seed(&g, rows[i].seed);
        for (int d = 0; d < rows[i].draws; d++)
            mt19937_u32(&g);
        mt19937_to_torch(&g, bytes);
        assert_int_equal(ckpt_sha256_new(&sha, &err), 0);
        assert_int_equal(ckpt_sha256_add(sha, bytes, sizeof bytes, &err), 0);
        assert_int_equal(ckpt_sha256_end(sha, digest, &err), 0);
        ckpt_sha256_free(sha);
        ckpt_digest_hex(hex, digest, sizeof digest);
        assert_string_equal(hex, rows[i].sha256);
        assert_int_equal(mt19937_from_torch(&back, bytes), 0);
        mt19937_randperm(&back, order, 5);
        assert_memory_equal(order, rows[i].then, sizeof order);
        bytes[8] ^= 1;                                  /* left no longer fits next */
        assert_int_equal(mt19937_from_torch(&back, bytes), -1);
    }
}
