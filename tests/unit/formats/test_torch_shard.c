/* torch_shard: state dicts that every rank saved its part of, by the format that joins them. */
#include "tests/unit/compare.h"
#include "tests/unit/faults.h"
#include "tests/unit/files.h"

#define GOLDEN "tests/golden/"
#define FSDP1  "fsdp/2.15-fsdp1_w2/"
#define FSDP2  "fsdp/2.15-fsdp2_w2/"
#define MESH(from, to)                                                                         \
    "torch/mesh_w4/model_world_size_4_rank_" from ".pt=model_world_size_4_rank_" to ".pt"

SCRATCH_EACH("torch-shard")

/* Fill the directory with copies: "golden file=name in it". */
static void make_set(const char *const *copy)
{
    scratch_at(dir);
    for (size_t i = 0; copy[i]; i++) {
        const char *equals = strchr(copy[i], '=');

        shell(text_of("cp " GOLDEN "%.*s %s/%s", (int)(equals - copy[i]), copy[i], dir,
                      equals + 1));
    }
}

TEST(sets_hold_what_torch_gathers)
{
    static const struct { const char *copy[5], *expected; size_t tensors; } rows[] = {
        {{MESH("0", "0"), MESH("1", "1"), MESH("2", "2"), MESH("3", "3")}, "torch/mesh_w4/", 10},
        {{FSDP1 "sharded_rank0.pt=rank0.pt", FSDP1 "sharded_rank1.pt=rank1.pt"}, FSDP1, 17},
        {{FSDP2 "dtensor_rank0.pt=dtensor_rank0.pt", FSDP2 "dtensor_rank1.pt=dtensor_rank1.pt"},
         FSDP2, 17},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct ckpt_source *s;

        make_set(rows[i].copy);
        s = must_open(dir, NULL);
        assert_string_equal(ckpt_source_format(s), "fsdp");
        assert_int_equal(ckpt_source_count(s), rows[i].tensors);
        assert_int_equal(assert_holds(s, text_of(GOLDEN "%sexpected.safetensors",
                                                 rows[i].expected)), rows[i].tensors);
        ckpt_source_close(s);
    }
}

TEST(moments_of_a_set)
{
    static const char *const copy[] = {
        FSDP1 "sharded_rank0.pt=model_rank_0.pt", FSDP1 "sharded_rank1.pt=model_rank_1.pt",
        FSDP1 "sharded_optim_rank0.pt=optim_rank_0.pt",
        FSDP1 "sharded_optim_rank1.pt=optim_rank_1.pt", NULL,
    };
    struct ckpt_open_opts opts = {.optimizer = true};
    struct ckpt_source *s;

    make_set(copy);
    s = must_open(dir, &opts);
    assert_int_equal(ckpt_source_count(s), 17 + 45);         /* steps too */
    /* What torch gathers of DCP, not of FSDP: the latter is another state in torch 2.15. */
    assert_int_equal(assert_holds(s, GOLDEN FSDP1 "dcp_moments.safetensors"), 30);
    assert_int_equal(ckpt_source_tensor(s, ckpt_source_find(s, "tiny|exp_avg"))->kind, CKPT_OPTIM);
    ckpt_source_close(s);
}

TEST(a_file_that_has_all_of_it)
{
    struct ckpt_source *s = must_open(GOLDEN "torch/dtensor_alone.pt", NULL);

    assert_int_equal(assert_holds(s, GOLDEN "torch/dtensor_alone.expected.safetensors"), 1);
    ckpt_source_close(s);
    s = must_open(GOLDEN FSDP1 "full.pt", NULL);
    assert_int_equal(assert_holds(s, GOLDEN FSDP1 "expected.safetensors"), 17);
    ckpt_source_close(s);
}

TEST(what_is_no_whole_set)
{
    static const struct { const char *copy[5]; int code; const char *why; } rows[] = {
        {{MESH("0", "0"), MESH("1", "1"), MESH("3", "3")}, CKPT_EFORMAT, "only 3 files"},
        {{MESH("0", "0"), MESH("1", "1"), MESH("2", "2")}, CKPT_EFORMAT, "3 files of its set are there: both: "},
        {{MESH("0", "0")}, CKPT_EFORMAT, "1 files of its set are there: "},
        {{MESH("0", "0"), MESH("1", "1"), MESH("2", "2"), MESH("1", "3")}, CKPT_EFORMAT,
         "lies in none of 3 pieces"},
        {{MESH("0", "0"), FSDP2 "dtensor_rank1.pt=model_world_size_4_rank_1.pt"},
         CKPT_EFORMAT, "written by 4 ranks, 2 files"},
        {{FSDP1 "sharded_rank0.pt=rank0.pt",
          "fsdp/2.15-fsdp2_w2_bf16/dtensor_rank1.pt=rank1.pt"},
         CKPT_EFORMAT, "not alike on all ranks"},
        {{FSDP1 "local_rank0.pt=rank0.pt", FSDP1 "local_rank1.pt=rank1.pt"},
         CKPT_EUNSUPPORTED, "flattened parameters"},
        {{"torch/state_dict.pt=rank0.pt", "torch/state_dict.pt=rank1.pt"}, CKPT_EUNSUPPORTED,
         "no sharded tensor"},
        {{"torch/state_dict.pt=a_rank0.pt", "torch/state_dict.pt=b_rank0.pt"}, CKPT_EUNSUPPORTED,
         "two sets"},
        {{"torch/state_dict.pt=rank0.pt", "torch/state_dict.pt=rank00.pt"}, CKPT_EFORMAT, "a rank twice"},
        {{"torch/dtensor_partial.pt=rank_0.pt"}, CKPT_EUNSUPPORTED, "placed by Partial"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        make_set(rows[i].copy);
        must_not_open(dir, NULL, rows[i].code, rows[i].why);
    }
}

/* One file of a set stands for all that lie beside it. */
TEST(a_part_finds_the_others)
{
    static const char *const copy[] = {FSDP2 "dtensor_rank1.pt=part_rank1.pt", NULL};
    struct ckpt_source *s = must_open(GOLDEN FSDP2 "dtensor_rank1.pt", NULL);

    assert_int_equal(assert_holds(s, GOLDEN FSDP2 "expected.safetensors"), 17);
    ckpt_source_close(s);
    make_set(copy);
    must_not_open(text_of("%s/part_rank1.pt", dir), NULL, CKPT_EFORMAT, "only 1 files");
}

TEST(every_failed_allocation_is_told)
{
    for (struct faults f = {.kinds = FAULT(ALLOC)}; faults_next(&f);) {
        struct ckpt_source *s = NULL;
        struct ckpt_err err = {0};
        int rc = ckpt_open(&s, GOLDEN "torch/mesh_w4", NULL, &err);

        faults_disarm(&f);
        faults_fail(&f, rc, CKPT_ENOMEM, &err, "mesh_w4");
        ckpt_source_close(s);
    }
}
