/*
 * fsdp: files that ranks left one each, joined, against the live weights; how a mesh cuts; sets
 * with a file missing, swapped or of another save; flattened parameters without and with a base.
 */
#include "tests/unit/compare.h"
#include "tests/unit/unit.h"

#include "formats/dcp/fsdp_files.h"

#define GOLDEN "tests/golden/fsdp/"
#define FSDP1  GOLDEN "2.15-fsdp1_w2/"
#define RANKS  GOLDEN "2.15-more/ranks"

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
    const char *dir = scratch("fsdp");
    struct ckpt_open_opts opts = {.optimizer = true};
    struct ckpt_source *s;
    char command[2000];

    snprintf(command, sizeof command, "for r in 0 1; do cp " FSDP1 "sharded_rank$r.pt "
             "%s/model_world_size_2_rank_$r.pt && cp " FSDP1 "sharded_optim_rank$r.pt "
             "%s/optim_world_size_2_rank_$r.pt || exit 1; done; echo '{}' > %s/config.json",
             dir, dir, dir);
    assert_int_equal(system(command), 0);
    s = must_open(dir, &opts);
    assert_int_equal(assert_holds(s, FSDP1 "expected.safetensors"), 17);
    assert_int_equal(assert_holds(s, FSDP1 "dcp_moments.safetensors"), 30);
    assert_non_null(ckpt_source_extra(s, "config.json"));
    ckpt_source_close(s);
    snprintf(command, sizeof command, "cd %s && rm *.pt && cp ../../" FSDP1 "full.pt "
             "pytorch_model_fsdp.bin && cp ../../" FSDP1 "full_optim.pt optimizer.bin", dir);
    assert_int_equal(system(command), 0);
    s = must_open(dir, &opts);
    assert_int_equal(assert_holds(s, FSDP1 "expected.safetensors"), 17);
    assert_int_equal(assert_holds(s, FSDP1 "expected_moments.safetensors"), 30);
    ckpt_source_close(s);
    scratch_remove(dir);
}

TEST(a_plain_archive_stays_torch)
{
    const struct ckpt_format *f = NULL;
    struct ckpt_err err = {0};

    assert_int_equal(ckpt_recognise(&f, FSDP1 "full.pt", false, &err), 0);
    assert_string_equal(f->name, "torch");
    assert_int_equal(ckpt_recognise(&f, FSDP1 "local_rank0.pt", false, &err), 0);
    assert_string_equal(f->name, "fsdp");
    assert_int_equal(ckpt_recognise(&f, RANKS, false, &err), 0);
    assert_string_equal(f->name, "fsdp");
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

static void assert_refused(const char *path, const char *base, int code, const char *words)
{
    struct ckpt_open_opts opts = {.optimizer = true, .base = base};
    struct ckpt_source *s = NULL;
    struct ckpt_err err = {0};
    int rc = ckpt_open(&s, path, &opts, &err);

    if (rc == 0)
        fail_msg("%s was opened, \"%s\" expected", path, words);
    if (rc != code || !strstr(err.text, words))
        fail_msg("%d \"%s\", %d with \"%s\" expected", rc, err.text, code, words);
    assert_null(s);
}

/* A directory that a command made of copies; $G is golden, $D the directory. */
static const char *made(const char *command)
{
    const char *dir = scratch("fsdp");
    char whole[2000];

    snprintf(whole, sizeof whole, "G=tests/golden/fsdp D=%s; %s", dir, command);
    if (system(whole))
        fail_msg("%s", whole);
    return dir;
}

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
        const char *dir = made(row[i].command);
        char path[400];

        snprintf(path, sizeof path, "%s%s", dir, row[i].file);
        assert_refused(path, NULL, row[i].code, row[i].words);
        scratch_remove(dir);
    }
}

TEST(flattened_parameters_that_do_not_fit)
{
    assert_refused(FSDP1 "local_rank0.pt", NULL, CKPT_EUNSUPPORTED, "their shapes are not in");
    assert_refused(FSDP1 "local_rank0.pt", RANKS "/expected.safetensors", CKPT_EMISMATCH,
                   "is not in the base");
    assert_refused(FSDP1 "local_rank0.pt", FSDP1 "dcp_moments.safetensors", CKPT_EMISMATCH,
                   "is not in the base");
    assert_refused(FSDP1 "local_rank0.pt", "build/no-such-model", CKPT_ENOTFOUND, "");
}

/* One byte of rank 1's file at a time: a word or values, nothing else. */
TEST(flipped_files)
{
    const char *dir = made("cp $G/2.15-fsdp2_w2/dtensor_rank?.pt $D");
    char path[400], from[400];
    size_t opened = 0, tries = 0;
    FILE *f;

    snprintf(path, sizeof path, "%s/dtensor_rank0.pt", dir);
    snprintf(from, sizeof from, "%s/dtensor_rank1.pt", dir);
    f = fopen(from, "r+b");
    assert_non_null(f);
    for (long i = 0; i < 6000; i += 3, tries++) {
        struct ckpt_source *s = NULL;
        struct ckpt_err err = {0};
        int was, bit = 1 << (i % 8);

        fseek(f, i, SEEK_SET);
        was = fgetc(f);
        assert_int_not_equal(was, EOF);
        fseek(f, i, SEEK_SET);
        fputc(was ^ bit, f);
        fflush(f);
        if (ckpt_open_as(&s, "fsdp", path, NULL, &err) == 0)
            opened++;
        else
            assert_true(err.text[0] != '\0');
        for (size_t t = 0; s && t < ckpt_source_count(s); t++)
            if (ckpt_source_tensor(s, t)->numel > 0)
                free(read_whole(s, t));
        ckpt_source_close(s);
        fseek(f, i, SEEK_SET);
        fputc(was, f);
        fflush(f);
    }
    fclose(f);
    assert_true(opened < tries);
    scratch_remove(dir);
}
