/*
 * fsdp: files that ranks left one each, joined, against the live weights; how a mesh cuts; sets
 * with a file missing, swapped or of another save; flattened parameters without and with a base.
 */
#include "tests/unit/compare.h"
#include "tests/unit/files.h"

#include "formats/dcp/fsdp_files.h"

#define GOLDEN "tests/golden/fsdp/"
#define FSDP1  GOLDEN "2.15-fsdp1_w2/"
#define RANKS  GOLDEN "2.15-more/ranks"

static const struct ckpt_open_opts with_optimizer = {.optimizer = true};

SCRATCH_EACH("fsdp")

/* Run a command in the shell; $G is golden, $F FSDP1's run in it, $D the test's directory. */
static void make(const char *command)
{
    shell(text_of("G=tests/golden/fsdp F=" FSDP1 " D=%s; %s", dir, command));
}

/* -- what is read ---------------------------------------------------------------------------- */

TEST(weights_are_those_of_the_live_model)
{
    static const struct { const char *path, *expected; size_t n; } row[] = {
        {GOLDEN "2.15-fsdp2_w2/dtensor_rank0.pt", GOLDEN "2.15-fsdp2_w2/expected.safetensors", 17},
        {GOLDEN "2.15-fsdp2_w2/dtensor_rank1.pt", GOLDEN "2.15-fsdp2_w2/expected.safetensors", 17},
        {GOLDEN "2.15-fsdp2_w2_bf16/dtensor_rank0.pt",
         GOLDEN "2.15-fsdp2_w2_bf16/expected.safetensors", 17},
        {FSDP1 "sharded_rank1.pt", FSDP1 "expected.safetensors", 17},
        {RANKS, RANKS "/expected.safetensors", 6},
        {RANKS "/model_world_size_4_rank_3.pt", RANKS "/expected.safetensors", 6},
    };

    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        struct ckpt_source *s = must_open(row[i].path, NULL);

        assert_string_equal(ckpt_source_format(s), "fsdp");
        assert_int_equal(assert_holds(s, row[i].expected), row[i].n);
        assert_int_equal(ckpt_source_count(s), row[i].n);
        ckpt_source_close(s);
    }
}

/* An optimizer's set has no weights: its state is listed unasked. */
TEST(moments)
{
    struct ckpt_source *s = must_open(FSDP1 "sharded_optim_rank0.pt", NULL);
    size_t step = ckpt_source_find(s, "emb.weight|step");

    assert_int_equal(assert_holds(s, FSDP1 "dcp_moments.safetensors"), 30);
    assert_true(step != SIZE_MAX);
    assert_int_equal(ckpt_source_tensor(s, step)->kind, CKPT_OPTIM);
    assert_int_equal(ckpt_source_count(s), 45);
    ckpt_source_close(s);
}

TEST(flattened_parameters_take_their_shapes_from_a_base)
{
    static const char *const base[] = {FSDP1 "expected.safetensors", FSDP1 "full.pt"};

    for (size_t i = 0; i < 2; i++) {
        struct ckpt_open_opts opts = {.base = base[i]};
        struct ckpt_source *s = must_open(FSDP1 "local_rank0.pt", &opts);

        assert_int_equal(assert_holds(s, FSDP1 "expected.safetensors"), 17);
        assert_int_equal(ckpt_source_count(s), 17);
        ckpt_source_close(s);
    }
}

TEST(directories)
{
    struct ckpt_source *s;

    make("for r in 0 1; do cp $F/sharded_rank$r.pt $D/model_world_size_2_rank_$r.pt && "
         "cp $F/sharded_optim_rank$r.pt $D/optim_world_size_2_rank_$r.pt || exit 1; done; "
         "echo '{}' > $D/config.json");
    s = must_open(dir, &with_optimizer);
    assert_int_equal(assert_holds(s, FSDP1 "expected.safetensors"), 17);
    assert_int_equal(assert_holds(s, FSDP1 "dcp_moments.safetensors"), 30);
    assert_non_null(ckpt_source_extra(s, "config.json"));
    ckpt_source_close(s);
    make("rm $D/*.pt && cp $F/full.pt $D/pytorch_model_fsdp.bin && "
         "cp $F/full_optim.pt $D/optimizer.bin");
    s = must_open(dir, &with_optimizer);
    assert_int_equal(assert_holds(s, FSDP1 "expected.safetensors"), 17);
    assert_int_equal(assert_holds(s, FSDP1 "expected_moments.safetensors"), 30);
    ckpt_source_close(s);
}

TEST(a_plain_archive_stays_torch)
{
    static const char *const rows[][2] = {
        {FSDP1 "full.pt", "torch"}, {FSDP1 "local_rank0.pt", "fsdp"}, {RANKS, "fsdp"},
    };
    const struct ckpt_format *f = NULL;
    struct ckpt_err err = {0};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(ckpt_recognise(&f, rows[i][0], false, &err), 0);
        assert_string_equal(f->name, rows[i][1]);
    }
}

/* -- names of files -------------------------------------------------------------------------- */

TEST(names_of_ranks)
{
    static const struct { const char *name; bool is; size_t at, len; } row[] = {
        {"dtensor_rank0.pt", true, 12, 1}, {"model_world_size_8_rank_12.pt", true, 24, 2},
        {"pytorch_model_fsdp_0_rank3.bin", true, 25, 1}, {"rank.pt", false, 0, 0},
        {"zero_pp_rank_0_mp_rank_00_model_states.pt", false, 0, 0}, {"model.pt", false, 0, 0},
        {"frank5.pt", true, 5, 1}, {"rank_0000000.pt", false, 0, 0}, {"rank_", false, 0, 0},
    };

    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        size_t at = 0, len = 0;
        bool is = fsdp_rank_in(row[i].name, &at, &len);

        if (is != row[i].is || (is && (at != row[i].at || len != row[i].len)))
            fail_msg("%s: %d at %zu, +%zu", row[i].name, is, at, len);
    }
}

/* -- damage ---------------------------------------------------------------------------------- */

TEST(sets_that_are_not_whole)
{
    static const struct { const char *command, *file; int code; const char *words; } row[] = {
        {"cp $G/2.15-more/ranks/*.pt $D; rm $D/*_rank_3.pt", "", CKPT_EFORMAT,
         "written by 4 ranks, 3 files of its set are there"},
        {"cp $G/2.15-more/ranks/*.pt $D; rm $D/*_rank_1.pt", "", CKPT_EFORMAT,
         "but only 3 files of its set"},
        {"cp $G/2.15-fsdp2_w2/dtensor_rank0.pt $D/x.pt", "/x.pt", CKPT_EFORMAT,
         "written by 2 ranks, 1 files"},
        {"cp $G/2.15-fsdp1_w2/sharded_rank0.pt $D/a_rank1.pt; "
         "cp $G/2.15-fsdp1_w2/sharded_rank1.pt $D/a_rank0.pt", "/a_rank0.pt", CKPT_EFORMAT,
         "is of rank 1 by what it holds"},
        {"cp $G/2.15-fsdp2_w2/dtensor_rank0.pt $D/a_rank0.pt; "
         "cp $G/2.15-fsdp2_w2/dtensor_rank0.pt $D/a_rank1.pt", "/a_rank0.pt", CKPT_EFORMAT, ""},
        {"cp $G/2.15-fsdp2_w2/dtensor_rank0.pt $D/a_rank0.pt; "
         "cp $G/2.15-fsdp2_w2_bf16/dtensor_rank1.pt $D/a_rank1.pt", "/a_rank0.pt", CKPT_EFORMAT,
         "is not alike on all ranks"},
        {"cp $G/2.15-more/ranks/*.pt $D; cp $G/2.15-fsdp2_w2/dtensor_rank0.pt "
         "$D/model_world_size_2_rank_0.pt", "", CKPT_EUNSUPPORTED, "files of two sets"},
        {"cp $G/2.15-more/ranks/*.pt $D; cp $D/*_rank_0.pt $D/model_world_size_4_rank_00.pt", "",
         CKPT_EFORMAT, "a rank twice"},
    };

    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        make(row[i].command);
        must_not_open(text_of("%s%s", dir, row[i].file), &with_optimizer, row[i].code,
                      row[i].words);
        scratch_at(dir);
    }
}

TEST(flattened_parameters_that_do_not_fit)
{
    static const struct { const char *base; int code; const char *words; } row[] = {
        {NULL, CKPT_EUNSUPPORTED, "their shapes are not in"},
        {RANKS "/expected.safetensors", CKPT_EMISMATCH, "is not in the base"},
        {FSDP1 "dcp_moments.safetensors", CKPT_EMISMATCH, "is not in the base"},
        {"build/no-such-model", CKPT_ENOTFOUND, ""},
    };

    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++)
        must_not_open(FSDP1 "local_rank0.pt", &(struct ckpt_open_opts){.base = row[i].base},
                      row[i].code, row[i].words);
}

/* Open a set that may be broken, and read it: a sentence or values, nothing else. */
static bool opens(void)
{
    struct ckpt_source *s = NULL;
    struct ckpt_err err = {0};
    int rc = ckpt_open_as(&s, "fsdp", text_of("%s/dtensor_rank0.pt", dir), NULL, &err);

    assert_true(rc == 0 || err.text[0] != '\0');
    for (size_t t = 0; s && t < ckpt_source_count(s); t++)
        if (ckpt_source_tensor(s, t)->numel > 0)
            free(read_whole(s, t));
    ckpt_source_close(s);
    return rc == 0;
}

/* One byte of rank 1's file at a time. */
TEST(flipped_files)
{
    size_t tried;

    make("cp $G/2.15-fsdp2_w2/dtensor_rank?.pt $D");
    assert_true(flip_each(text_of("%s/dtensor_rank1.pt", dir), 5, NULL, 0, opens, &tried) <
                tried);
}
