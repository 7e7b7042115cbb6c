/*
 * deepspeed: what real DeepSpeed wrote, against what its own converter makes of it, and against
 * the live engine's moments; then sets that were damaged.
 */
#include "tests/unit/compare.h"

#include <sys/stat.h>
#include <unistd.h>

#include "formats/weights/deepspeed_layout.h"

#define GOLDEN "tests/golden/deepspeed/"

/*
 * Where the peer's converter is right, bit for bit.  In 0.14 it turns buffers into f32; those
 * two are held against the stored dtype in test_buffers_keep_their_dtype instead.
 */
static const char *const exact[] = {
    "0.19-s1_w2_universal", "0.19-s2_w2_bf16", "0.19-s2_w2_elastic", "0.19-s2_w2_fp16",
    "0.19-s2_w2_fp32", "0.19-s2_w2_offload", "0.19-s3_w1_bf16", "0.19-s3_w2_bf16",
    "0.19-s3_w2_fp16", "0.19-s3_w2_offload", "0.19-s3_w2_subgroup", "0.19-s3_w2_universal",
    "0.19-s3_w4_hpz2", "0.19-s1_w1_fp32", "0.19-s1_w2_bf16", "0.19-s1_w2_fp16",
    "0.14-s1_w2_fp16", "0.14-s1_w2_universal", "0.14-s3_w2_fp16",
};

static struct ckpt_source *open_run(const char *name, bool optimizer)
{
    struct ckpt_open_opts opts = {.optimizer = optimizer};
    char path[512];

    snprintf(path, sizeof path, GOLDEN "%s/ckpt", name);
    return must_open(path, &opts);
}

static void test_weights_equal_zero_to_fp32(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof exact / sizeof exact[0]; i++) {
        struct ckpt_source *s = open_run(exact[i], false);
        char expected[512];

        snprintf(expected, sizeof expected, GOLDEN "%s/expected.safetensors", exact[i]);
        assert_true(assert_holds(s, expected) >= 13);
        ckpt_source_close(s);
    }
}

static void test_moments_equal_the_live_engine(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof exact / sizeof exact[0]; i++) {
        struct ckpt_source *s = open_run(exact[i], true);
        char expected[512];

        snprintf(expected, sizeof expected, GOLDEN "%s/expected_moments.safetensors", exact[i]);
        assert_true(assert_holds(s, expected) >= 10);
        ckpt_source_close(s);
    }
}

/* zero_to_fp32 drops frozen weights of stage 1 and refuses BF16_Optimizer: we read both. */
static void test_reads_what_the_peer_cannot(void **state)
{
    struct ckpt_source *s = open_run("0.19-s1_w2_bf16", false);

    (void)state;
    assert_true(ckpt_source_find(s, "frozen_vec") != SIZE_MAX);
    assert_true(ckpt_source_find(s, "l1.base.weight") != SIZE_MAX);
    ckpt_source_close(s);
    s = open_run("0.19-s1_w2_bf16grad", false);
    assert_true(assert_holds(s, GOLDEN "0.19-s1_w2_bf16grad/expected.safetensors") >= 17);
    ckpt_source_close(s);
    s = open_run("0.19-s0_w1_fp32", false);
    assert_true(assert_holds(s, GOLDEN "0.19-s0_w1_fp32/expected.safetensors") >= 10);
    ckpt_source_close(s);
}

static void test_buffers_keep_their_dtype(void **state)
{
    struct ckpt_source *s = open_run("0.14-s3_w2_bf16", false);

    (void)state;
    assert_int_equal(ckpt_source_tensor(s, ckpt_source_find(s, "counter"))->dtype, CKPT_I64);
    assert_int_equal(ckpt_source_tensor(s, ckpt_source_find(s, "counter"))->kind, CKPT_BUFFER);
    ckpt_source_close(s);
}

static void test_tied_names_share_their_tensor(void **state)
{
    struct ckpt_source *s = open_run("0.19-s3_w2_bf16", false);
    size_t head = ckpt_source_find(s, "head.weight"), emb = ckpt_source_find(s, "emb.weight");

    (void)state;
    assert_true(head != SIZE_MAX && emb != SIZE_MAX);
    assert_int_equal(ckpt_source_tensor(s, head)->alias_of, emb);
    ckpt_source_close(s);
}

static void test_facts_are_told(void **state)
{
    struct ckpt_source *s = open_run("0.19-s2_w2_fp16", false);
    const json_t *info = ckpt_source_info(s);

    (void)state;
    assert_string_equal(json_string_value(json_object_get(info, "tag")), "my-tag_7");
    assert_int_equal(json_integer_value(json_object_get(info, "zero_stage")), 2);
    assert_int_equal(json_integer_value(json_object_get(info, "world_size")), 2);
    ckpt_source_close(s);
}

/* -- layout ---------------------------------------------------------------------------------- */

static void test_pieces_cover_every_element_once(void **state)
{
    static const int worlds[] = {1, 2, 3, 8};
    static const int64_t sizes[] = {1, 2, 5, 7, 31, 64, 1000, 1023};

    (void)state;
    for (size_t k = 0; k < 4; k++)
        for (size_t i = 0; i < 8; i++) {
            int64_t next3 = 0, next12 = 0, pad = 0, w = worlds[k], n = sizes[i];

            for (int r = 0; r < w; r++) {
                struct ds_piece a = ds3_piece(n, 17, r, (int)w);
                struct ds_piece b = ds12_piece(3, n, n + 10, r, (int)w);

                if (a.count) {
                    assert_int_equal(a.start, next3);
                    assert_int_equal(a.at, 17);
                }
                if (b.count)
                    assert_int_equal(b.start, next12);
                next3 += a.count;
                next12 += b.count;
                pad += ds12_padding(n + 10, r, (int)w);
                assert_true(b.at + b.count <= ds12_part(n + 10, (int)w));
            }
            assert_int_equal(next3, n);
            assert_int_equal(next12, n);
            assert_int_equal(ds12_part(n + 10, (int)w) * w, n + 10 + pad);
        }
}

/* -- damage ---------------------------------------------------------------------------------- */

#define COPY "build/test-deepspeed"

static void shell(const char *command)
{
    if (system(command) != 0)
        fail_msg("%s", command);
}

static int open_copy(struct ckpt_err *err)
{
    struct ckpt_source *s = NULL;
    int rc;

    memset(err, 0, sizeof *err);
    rc = ckpt_open(&s, COPY, NULL, err);
    ckpt_source_close(s);
    return rc;
}

static void fresh_copy(void)
{
    shell("rm -rf " COPY " && mkdir -p build && cp -r " GOLDEN "0.19-s3_w2_bf16/ckpt " COPY);
}

static void test_damaged_sets_are_refused_by_name(void **state)
{
    struct ckpt_err err;

    (void)state;
    fresh_copy();
    assert_int_equal(open_copy(&err), 0);
    shell("rm " COPY "/global_step4/*rank_1_*optim_states.pt");
    assert_int_equal(open_copy(&err), CKPT_EFORMAT);
    assert_non_null(strstr(err.text, "rank 1"));
    fresh_copy();
    shell("for f in " COPY "/global_step4/*rank_1_*optim_states.pt; do truncate -s -100 $f; done");
    assert_int_equal(open_copy(&err), CKPT_EFORMAT);
    assert_non_null(strstr(err.text, "rank_1"));
    fresh_copy();
    shell("printf ../global_step4 > " COPY "/latest");
    assert_int_equal(open_copy(&err), CKPT_EREFUSED);
    fresh_copy();
    shell("printf global_step9 > " COPY "/latest");
    assert_int_equal(open_copy(&err), CKPT_ENOTFOUND);
    fresh_copy();
    shell("cp " GOLDEN "0.19-s3_w4_hpz2/ckpt/global_step*/*rank_1_mp_rank_00_optim_states.pt " COPY
          "/global_step4/");
    assert_int_equal(open_copy(&err), CKPT_EFORMAT);
    shell("rm -rf " COPY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_weights_equal_zero_to_fp32),
        cmocka_unit_test(test_moments_equal_the_live_engine),
        cmocka_unit_test(test_reads_what_the_peer_cannot),
        cmocka_unit_test(test_buffers_keep_their_dtype),
        cmocka_unit_test(test_tied_names_share_their_tensor),
        cmocka_unit_test(test_facts_are_told),
        cmocka_unit_test(test_pieces_cover_every_element_once),
        cmocka_unit_test(test_damaged_sets_are_refused_by_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
