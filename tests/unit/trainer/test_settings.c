/* settings: what goes together goes by what was given, also when it is the default. */
#include "tests/unit/unit.h"
#include "trainer/run/settings.h"

/* Settings of a run that would start, with one name given. */
static struct settings with(const char *const *given)
{
    static const char *const train[] = {"rows.jsonl"};
    struct settings s;

    settings_default(&s);
    s.model = "model";
    s.train = train;
    s.n_train = 1;
    s.given = given;
    s.n_given = given ? 1 : 0;
    return s;
}

static void refused(const struct settings *s, const char *says)
{
    struct ckpt_err err = {0};

    assert_int_equal(settings_check(s, &err), CKPT_ECONFIG);
    assert_string_equal(err.text, says);
}

TEST(a_default_that_is_given_counts)
{
    static const struct { const char *name, *says; } rows[] = {
        {"lora_alpha", "`lora_alpha` needs `lora_rank N`"},
        {"lora_dropout", "`lora_dropout` needs `lora_rank N`"},
        {"lora_bias", "`lora_bias` needs `lora_rank N`"},
        {"init_lora_weights", "`init_lora_weights` needs `lora_rank N`"},
        {"initial_scale_power", "`initial_scale_power` needs `fp16`: other losses are not scaled"},
        {"loss_scale_window", "`loss_scale_window` needs `fp16`: other losses are not scaled"},
        {"hysteresis", "`hysteresis` needs `fp16`: other losses are not scaled"},
        {"min_loss_scale", "`min_loss_scale` needs `fp16`: other losses are not scaled"},
        {"loss_scale", "`loss_scale` needs `fp16`: other losses are not scaled"},
        {"fp8_format", "`fp8_format` needs `fp8`"},
        {"shard_index", "`shard_index` needs `num_shards N`"},
    };
    struct ckpt_err err = {0};
    struct settings s = with(NULL);

    assert_int_equal(settings_check(&s, &err), 0);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        s = with(&rows[i].name);
        refused(&s, rows[i].says);
    }
    s = with(&rows[0].name);
    s.lora_rank = 4;
    assert_int_equal(settings_check(&s, &err), 0);
}

TEST(recompute_beside_gradient_checkpointing)
{
    static const char *const name[] = {"recompute"};
    struct ckpt_err err = {0};
    struct settings s = with(name);

    s.gradient_checkpointing = true;
    refused(&s, "`gradient_checkpointing` is `recompute full`: `recompute auto` excludes it");
    s.recompute = "full";
    assert_int_equal(settings_check(&s, &err), 0);
    s = with(NULL);                             /* nobody said auto */
    s.gradient_checkpointing = true;
    assert_int_equal(settings_check(&s, &err), 0);
}

TEST(hybrid_sharding_by_either_name)
{
    static const struct { const char *fsdp; int64_t stage, size; int is_stage, is_size; } rows[] = {
        {NULL, 3, 0, 3, 0},
        {NULL, 1, 4, 1, 4},
        {"full_shard", 0, 0, 3, 0},
        {"hybrid_shard", 0, 0, 3, SETTINGS_NODE},
        {"hybrid_shard_zero2", 0, 0, 2, SETTINGS_NODE},
        {"hybrid_shard_zero2", 0, 2, 2, 2},
    };
    struct ckpt_err err = {0};
    struct settings s;

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        s = with(NULL);
        s.fsdp = rows[i].fsdp;
        s.zero_stage = rows[i].stage;
        s.hybrid_shard_size = rows[i].size;
        assert_int_equal(settings_check(&s, &err), 0);
        assert_int_equal(settings_stage(&s), rows[i].is_stage);
        assert_int_equal(settings_hybrid(&s), rows[i].is_size);
    }
    s = with(NULL);
    s.hybrid_shard_size = 2;
    refused(&s, "`hybrid_shard_size` needs `zero_stage` 1, 2 or 3");
    s.fsdp = "full_shard";
    refused(&s, "`fsdp full_shard` shards over all ranks: `hybrid_shard_size` excludes it");
    s.fsdp = "hybrid_shard";
    s.reduce_dtype = "bfloat16";
    s.hybrid_shard_size = 1;
    refused(&s, "`reduce_dtype bfloat16` needs groups of 2 ranks at least: `hybrid_shard_size 1` "
            "shards nothing");
    s = with(NULL);
    s.bf16 = true;
    s.fsdp = "hybrid_shard";
    s.offload_param = "cpu";
    refused(&s, "`offload_param cpu` and hybrid sharding exclude each other");
}

TEST(a_node_of_ranks_that_are_planned)
{
    struct settings s = with(NULL);

    s.dry_run = true;
    s.nproc = 8;
    assert_int_equal(settings_node_ranks(&s), 8);
    s.node_ranks = 4;                           /* of each host in a hostfile */
    assert_int_equal(settings_node_ranks(&s), 4);
    s = with(NULL);
    s.simulate_world = 64;
    assert_int_equal(settings_node_ranks(&s), 8);
    s.simulate_world = 4;
    assert_int_equal(settings_node_ranks(&s), 4);
}

TEST(the_sentence_has_the_values)
{
    static const char *const stage = "zero_stage", *const reshard = "reshard_after_forward";
    struct settings s = with(NULL);

    s.start_idx = 5;
    s.end_idx = 3;
    refused(&s, "`end_idx 3` is not after `start_idx 5`");
    s = with(NULL);
    s.zero_stage = 3;
    s.bf16 = true;
    s.offload_param = "cpu";
    s.reshard_after_forward = "false";
    refused(&s, "`reshard_after_forward false` keeps on the device what `offload_param cpu` has on "
                "the host");
    s = with(&stage);
    s.zero_stage = 1;
    s.fsdp = "full_shard";
    refused(&s, "`fsdp full_shard` is not `zero_stage 1`");
    s = with(&reshard);
    s.zero_stage = 2;
    refused(&s, "`reshard_after_forward` needs `zero_stage 3`");
    s = with(NULL);
    s.lr_scheduler_type = "polynomial";
    s.min_lr = 1;
    refused(&s, "polynomial ends at `min_lr 1`: it must be smaller than `learning_rate 5e-05`");
    s = with(NULL);
    s.lr_scheduler_type = "reduce_lr_on_plateau";
    refused(&s, "reduce_lr_on_plateau looks at evaluations: it needs `eval_steps N`");
    s.eval_steps = 1;                   /* of nothing */
    refused(&s, "`eval_steps` needs `eval_file PATH`, or a part of the data by "
            "`train_split_ratio X`");
}

TEST(a_simulated_world_has_ranks_and_a_gpu)
{
    struct settings s = with(NULL);

    assert_true(settings_write(&s) && settings_planned(&s) == 0 && settings_net(&s).node == 0);
    s.simulate_world = 1;
    refused(&s, "`simulate_world 1` has no collectives: 2 ranks at least");
    s.simulate_world = 1024;
    s.device = "cpu";
    refused(&s, "`simulate_world` needs a GPU, the device is the CPU");
    s.device = "cuda:1";
    assert_int_equal(settings_check(&s, &(struct ckpt_err){0}), 0);
    assert_true(!settings_write(&s) && settings_planned(&s) == 1024);
    assert_true(settings_net(&s).node == 8 && settings_net(&s).network == 50e9 &&
                settings_net(&s).link == 136e9);
}

/* DeepSpeed's triad: what is not given follows from train_batch_size. */
TEST(samples_of_a_step)
{
    static const char *const names[] = {"per_device_train_batch_size",
                                        "gradient_accumulation_steps"};
    static const struct {
        int64_t all, micro, steps, ranks;
        size_t  from, n;                /* which of the names are given */
        int64_t to_micro, to_steps;     /* 0: refused */
    } rows[] = {
        {0, 8, 1, 3, 0, 0, 8, 1},    {12, 8, 1, 2, 0, 0, 6, 1},   {12, 3, 1, 2, 0, 1, 3, 2},
        {12, 8, 2, 2, 1, 1, 3, 2},   {12, 3, 2, 2, 0, 2, 3, 2},   {13, 8, 1, 2, 0, 0, 0, 0},
        {12, 5, 1, 2, 0, 1, 0, 0},   {12, 8, 5, 2, 1, 1, 0, 0},   {12, 3, 3, 2, 0, 2, 0, 0},
        {1, 8, 1, 2, 0, 0, 0, 0},    {12, 8, 1, 2, 0, 1, 0, 0},
    };
    struct ckpt_err err = {0};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct settings s = with(NULL);
        int rc;

        s.given = names + rows[i].from;
        s.n_given = rows[i].n;
        s.train_batch_size = rows[i].all;
        s.per_device_train_batch_size = rows[i].micro;
        s.gradient_accumulation_steps = rows[i].steps;
        rc = settings_batch(&s, rows[i].ranks, &err);
        assert_int_equal(rc, rows[i].to_micro ? 0 : CKPT_ECONFIG);
        if (rc == 0) {
            assert_int_equal(s.per_device_train_batch_size, rows[i].to_micro);
            assert_int_equal(s.gradient_accumulation_steps, rows[i].to_steps);
        }
    }
}

/* Smaller micro-batches, down to one, and steps of as many samples where their number is said. */
TEST(smaller_batches)
{
    static const char *const given[] = {"gradient_accumulation_steps"};
    struct settings s = with(NULL);

    s.per_device_train_batch_size = 5;
    s.gradient_accumulation_steps = 3;
    assert_true(settings_smaller_batch(&s, 2) && s.per_device_train_batch_size == 2);
    assert_true(settings_smaller_batch(&s, 2) && s.per_device_train_batch_size == 1);
    assert_false(settings_smaller_batch(&s, 2));
    assert_int_equal(s.gradient_accumulation_steps, 3);
    s.train_batch_size = 18;
    s.per_device_train_batch_size = 9;
    s.gradient_accumulation_steps = 1;
    assert_true(settings_smaller_batch(&s, 2) && s.per_device_train_batch_size == 3);
    assert_int_equal(s.gradient_accumulation_steps, 3);
    s.given = given;
    s.n_given = 1;
    assert_false(settings_smaller_batch(&s, 2));
}
