/* train/names - see train/names.h. */
#include "tools/train/names.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "libckpt/err.h"
#include "libckpt/log.h"
#include "libckpt/mem.h"
#include "trainer/comm/ranks.h"

#define OPT_VALUES struct train_names
static const struct opt rows[] = {
    OPT_HEADING("Names and files of other programs"),
    OPT_FLAG("print-config", print_config,
             "print all options as a run file, each with the place that set it and defaults as "
             "comments, and exit",
             .no_config = true),
    OPT_FLAG("print-fields", print_fields,
             "print the fields of other programs with what becomes of each, and exit",
             .no_config = true),
};
#undef OPT_VALUES

struct opt_section train_names_rows(struct train_names *n)
{
    return (struct opt_section)OPT_SECTION(rows, n);
}

const struct opt_dialect *const train_dialects[] = {
    &train_fields, &train_scripts, &train_trl, &train_factory, &train_axolotl, &train_accelerate,
    &train_deepspeed, NULL};

/* Whether a name looks like one of the Hub, "owner/name", and nothing has it here. */
static bool is_of_hub(const char *name)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  "-_./";
    const char *slash = strchr(name, '/');

    return slash && slash != name && slash[1] && !strchr(slash + 1, '/') && name[0] != '.' &&
           !name[strspn(name, allowed)] && access(name, F_OK) != 0;
}

/* The name itself, or its address at the Hub. */
static const char *address(struct ckpt_arena *a, const char *prefix, const char *name)
{
    return is_of_hub(name) ? ckpt_arena_printf(a, "%s%s", prefix, name) : name;
}

static int put(struct opt_put *put, const char *option, const char *prefix, const char *name,
               struct ckpt_err *err)
{
    const char *at = address(opt_put_arena(put), prefix, name);

    return at ? opt_put_option(put, option, at, err) : ckpt_nomem(err, strlen(name));
}

int train_names_model(struct opt_put *p, const char *const *value, size_t n, struct ckpt_err *err)
{
    (void)n;
    return put(p, "model", "hf://", value[0], err);
}

int train_names_data(struct opt_put *p, const char *const *value, size_t n, struct ckpt_err *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = put(p, "train-file", "hf://datasets/", value[i], err);
    return rc;
}

/* One line for all names without effect, from the first process alone: of other programs, and of
 * ours those that another option leaves idle, as files of HF Trainer have them side by side. */
int train_names_tell(const struct cli *cli, const struct settings *s, struct ckpt_err *err)
{
    const struct { const char *name; bool idle; } ours[] = {
        {"logging_steps", strcmp(s->logging_strategy, "steps") != 0},
        {"eval_steps", strcmp(s->eval_strategy, "no") == 0},
        {"logging_dir", !settings_reports(s, "tensorboard")},
        {"run_name", !settings_reports(s, "wandb")},
    };
    struct opt_list names = opt_harmless(cli);
    struct ckpt_arena a = {0};
    const char *line = "";

    if (ranks_found().rank > 0)
        return 0;
    for (size_t i = 0; line && i < names.n; i++)
        line = ckpt_arena_printf(&a, "%s%s%s", line, i ? ", " : "", names.item[i]);
    for (size_t i = 0; line && i < sizeof ours / sizeof ours[0]; i++)
        if (ours[i].idle && settings_given(s, ours[i].name))
            line = ckpt_arena_printf(&a, "%s%s%s", line, *line ? ", " : "", ours[i].name);
    if (line && *line)
        ckpt_log(CKPT_LOG_NOTE, "accepted, without effect here: %s", line);
    ckpt_arena_release(&a);
    return line ? 0 : ckpt_nomem(err, names.n);
}

int train_names_finish(const struct train_names *n, struct settings *s, struct cli *cli,
                       struct ckpt_err *err)
{
    if (n->print_fields)
        return 0;
    if (s->n_train == 0 && s->dataset_name) {
        const char **item = ckpt_arena_alloc(&cli->arena, 1, sizeof *item);

        if (!item || !(item[0] = address(&cli->arena, "hf://datasets/", s->dataset_name)))
            return ckpt_nomem(err, sizeof *item);
        s->train = item;
        s->n_train = 1;
    } else if (s->dataset_name && s->train_split_ratio <= 0)
        return ckpt_fail(err, CKPT_EUSAGE, "--dataset-name has no effect with --train-file and "
                         "without --train-split-ratio");
    return 0;
}

bool train_names_print(const struct train_names *n, const struct cli *cli)
{
    if (n->print_fields)
        opt_print_fields(cli);
    else if (n->print_config)
        opt_print_values(cli);
    return n->print_fields || n->print_config;
}
