/* changed: what a manifest keeps of the settings is compared, whoever wrote it, and shown safely. */
#include "tests/unit/files.h"

#include <jansson.h>

#include "formats/families/arch.h"
#include "libckpt/log.h"
#include "trainer/checkpoint/changed.h"
#include "trainer/checkpoint/manifest.h"

static char told[4096];
static struct settings settings;
static struct schedule schedule;
static struct run_state state;
static struct arch arch;
static struct comm comm = {.world_size = 1};
static struct session session = {.comm = &comm, .arch = &arch};
static struct checkpoint checkpoint = {.settings = &settings, .schedule = &schedule,
                                       .state = &state};

static void hear(void *ctx, enum ckpt_log_level level, const char *line)
{
    const char *what = strstr(line, "changed from here on: ");
    size_t at = strlen(told);

    (void)ctx;
    (void)level;
    snprintf(told + at, sizeof told - at, "%s;", what ? what + 22 : line);
}

BEFORE_EACH()
{
    struct ckpt_err err = {0};

    settings_default(&settings);
    assert_int_equal(settings_schedule(&schedule, &settings, &err), 0);
    schedule_span(&schedule, 0, 10);
    state.other_rates = false;
    told[0] = '\0';
}

static json_t *keep(void)
{
    struct ckpt_err err = {0};
    json_t *kept = NULL;

    assert_int_equal(changed_keep(&kept, &session, &checkpoint, &err), 0);
    return kept;
}

/* What is told of a checkpoint whose manifest keeps these settings.  Takes kept, which may be
 * NULL. */
static const char *tell(json_t *kept)
{
    const char *dir = scratch("changed");
    json_t *manifest = json_pack("{s:s, s:o*}", "format", "ckpt-manifest", "settings", kept);
    char *text = json_dumps(manifest, 0);

    put_text(text_of("%s/%s", dir, MANIFEST_NAME), text);
    free(text);
    json_decref(manifest);
    ckpt_log_hook(hear, NULL);
    changed_tell(dir, &session, &checkpoint);
    ckpt_log_hook(NULL, NULL);
    return told;
}

TEST(the_same_settings_say_nothing)
{
    assert_string_equal(tell(keep()), "");
}

TEST(a_manifest_without_settings_says_nothing)
{
    assert_string_equal(tell(NULL), "");
}

TEST(each_setting_that_differs)
{
    json_t *kept = keep();
    static const char *const lr_for[] = {"mlp=1e-4", "norm=1e-5"};

    settings.data.max_seq_length = 128;
    settings.z_loss = 0.5;
    settings.packing = true;
    settings.data.text_field = "body";
    settings.data.rows.delimiter = '\t';
    settings.lr_for = lr_for;
    settings.n_lr_for = 2;
    assert_string_equal(tell(kept), "`csv_delimiter` none -> \\t;`text_field` none -> body;"
                        "`max_seq_length` 512 -> 128;`packing` false -> true;`z_loss` 0 -> 0.5;"
                        "`lr_for` none -> mlp=1e-4,norm=1e-5;");
}

TEST(a_setting_of_an_older_version_or_of_a_later_one_is_not_compared)
{
    json_t *kept = keep();

    json_object_del(kept, "z_loss");
    json_object_set_new(kept, "of_tomorrow", json_integer(1));
    settings.z_loss = 0.5;
    assert_string_equal(tell(kept), "");
}

TEST(rates_by_pattern_that_the_schedule_has_told_are_not_told_twice)
{
    json_t *kept = keep();

    settings.loraplus_lr_ratio = 16;
    state.other_rates = true;
    assert_string_equal(tell(kept), "");
}

TEST(any_value_is_shown_safely_and_short)
{
    json_t *kept = keep(), *deep = json_array();
    char *big = malloc(1 << 20);

    memset(big, 'x', (1 << 20) - 1);
    big[(1 << 20) - 1] = '\0';
    for (int i = 0; i < 40; i++) {
        json_t *outer = json_array();

        json_array_append_new(outer, deep);
        deep = outer;
    }
    json_object_set_new(kept, "text_field", json_string("a\n\x1b[31mb"));
    json_object_set_new(kept, "prompt_template", json_string(big));
    json_object_set_new(kept, "z_loss", deep);
    json_object_set_new(kept, "packing", json_pack("{s:[i,n]}", "a", 1));
    json_object_set_new(kept, "data_seed", json_string(""));
    json_object_set_new(kept, "optim", json_real(2.5));
    json_object_set_new(kept, "optim_args", json_true());
    json_object_set_new(kept, "lr_scheduler_type", json_array());
    json_object_set_new(kept, "lr_scheduler_kwargs", json_string("min_lr=1"));
    free(big);
    assert_string_equal(tell(kept), "`text_field` a\\n\\x1b[31mb -> none;"
                        "`prompt_template` xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
                        "... -> none;`data_seed` \"\" -> 42;`packing` {\"a\":[1,null]} -> false;"
                        "`z_loss` none -> 0;`optim` 2.5 -> adamw_torch;");
}

TEST(a_member_of_any_other_type_says_nothing)
{
    json_t *const kept[] = {json_array(), json_string("settings"), json_integer(3), json_null()};

    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++)
        assert_string_equal(tell(kept[i]), "");
}

TEST(long_texts_are_cut_between_characters)
{
    json_t *kept;

    settings.data.prompt_template = "\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4"
        "\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4"
        "x\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4"
        "\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4";
    kept = keep();
    settings.data.prompt_template = "short";
    assert_string_equal(tell(kept), "`prompt_template` \u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4"
                        "\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4"
                        "\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4x\u00e4\u00e4\u00e4\u00e4... -> "
                        "short;");
}

TEST(numbers_of_an_optimizer_are_compared_one_by_one)
{
    json_t *kept;

    settings.optim = "muon";
    settings.optim_args = "momentum=0.9,adjust_lr_fn=original";
    kept = keep();
    settings.optim_args = "{\"momentum\": 0.90, \"ns_steps\": 6, \"adam_lr\": 0.001, "
                          "\"ns_coefficients\": [1, 2, 3.5], \"adjust_lr_fn\": "
                          "\"match_rms_adamw\", \"nesterov\": false}";
    assert_string_equal(tell(kept), "`optim_args` nesterov=True -> nesterov=False;"
                        "`optim_args` ns_steps=5 -> ns_steps=6;"
                        "`optim_args` ns_coefficients=3.4445:-4.775:2.0315 -> "
                        "ns_coefficients=1:2:3.5;"
                        "`optim_args` adjust_lr_fn=original -> adjust_lr_fn=match_rms_adamw;"
                        "`optim_args` adam_lr=none -> adam_lr=0.001;");
}

TEST(optimizers_that_step_alike_are_one)
{
    static const struct { const char *was, *is, *says; } rows[] = {
        {"adamw_torch", "paged_adamw_32bit", ""},
        {"adamw_bnb_8bit", "paged_adamw_8bit", ""},
        {"adamw_torch", "adamw_anyprecision", "`optim` adamw_torch -> adamw_anyprecision;"},
        {"lion_32bit", "sgd", "`optim` lion_32bit -> sgd;"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        json_t *kept;

        settings.optim = rows[i].was;
        kept = keep();
        settings.optim = rows[i].is;
        told[0] = '\0';
        assert_string_equal(tell(kept), rows[i].says);
    }
}
