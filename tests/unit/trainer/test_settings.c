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
        {"min_lr", "`min_lr` is not used by linear, only by cosine_with_min_lr and polynomial"},
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

TEST(the_sentence_has_the_values)
{
    static const char *const stage = "zero_stage", *const reshard = "reshard_after_forward";
    struct settings s = with(NULL);

    s.start_idx = 5;
    s.end_idx = 3;
    refused(&s, "`end_idx 3` is not after `start_idx 5`");
    s = with(NULL);
    s.zero_stage = 3;
    s.optim = "adamw_anyprecision";
    refused(&s, "`optim adamw_anyprecision` needs `zero_stage 0`: DeepSpeed's shards hold moments "
                "in float32");
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
