/*
 * parts - the files of a checkpoint directory, each with its purpose and a one-line summary; see
 * inspect.h.
 *
 * A part that cannot be read has no summary: --verify reports it.
 */
#include <fnmatch.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "formats/torch/torch.h"
#include "libckpt/base/json.h"
#include "tools/inspect/inspect.h"

#define SMALL_BYTES ((uint64_t)8 << 20)         /* larger parts are not opened for a summary */

/* A summary being written. */
struct line {
    char   text[300];
    size_t n;
};

static void add(struct line *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void add(struct line *l, const char *fmt, ...)
{
    va_list ap;
    int n;

    if (l->n && l->n + 3 < sizeof l->text) {
        memcpy(l->text + l->n, ", ", 3);
        l->n += 2;
    }
    va_start(ap, fmt);
    n = vsnprintf(l->text + l->n, sizeof l->text - l->n, fmt, ap);
    va_end(ap);
    l->n += n < 0 ? 0 : (size_t)n < sizeof l->text - l->n ? (size_t)n : sizeof l->text - l->n - 1;
}

static void add_int(struct line *l, const json_t *o, const char *key, const char *what)
{
    const json_t *v = json_object_get(o, key);

    if (json_is_integer(v))
        add(l, "%s %lld", what, (long long)json_integer_value(v));
}

static void add_real(struct line *l, const json_t *v, const char *what)
{
    if (json_is_number(v))
        add(l, "%s %.6g", what, json_number_value(v));
}

static void add_str(struct line *l, const json_t *v, const char *what)
{
    if (json_is_string(v) && *json_string_value(v))
        add(l, "%s%s%s", what, *what ? " " : "", json_string_value(v));
}

static void say_config(struct line *l, const json_t *o)
{
    static const char *const layers[] = {"num_hidden_layers", "n_layer", "num_layers"};
    static const char *const width[] = {"hidden_size", "n_embd", "d_model"};

    add_str(l, json_object_get(o, "model_type"), "");
    for (size_t i = 0; i < 3; i++)
        add_int(l, o, layers[i], "layers");
    for (size_t i = 0; i < 3; i++)
        add_int(l, o, width[i], "hidden");
    add_int(l, o, "vocab_size", "vocabulary");
}

static void say_adapter(struct line *l, const json_t *o)
{
    add_str(l, json_object_get(o, "peft_type"), "");
    add_int(l, o, "r", "rank");
    add_real(l, json_object_get(o, "lora_alpha"), "alpha");
    add_str(l, json_object_get(o, "base_model_name_or_path"), "base");
}

static void say_state(struct line *l, const json_t *o)
{
    add_int(l, o, "global_step", "step");
    add_int(l, o, "max_steps", "of");
    add_real(l, json_object_get(o, "epoch"), "epoch");
    add_real(l, json_object_get(o, "best_metric"), "best");
}

static void say_index(struct line *l, const json_t *o)
{
    add(l, "%zu tensors", json_object_size(json_object_get(o, "weight_map")));
}

static void say_manifest(struct line *l, const json_t *o)
{
    add(l, "%zu files", json_array_size(json_object_get(o, "files")));
    add_int(l, o, "step", "step");
}

/* The rate of all groups, or the least and the largest. */
static void add_rates(struct line *l, const json_t *rates)
{
    double least = 0, most = 0;
    const json_t *v;
    size_t i, n = 0;

    json_array_foreach ((json_t *)rates, i, v) {
        double rate = json_number_value(v);

        if (!json_is_number(v))
            continue;
        least = n && least < rate ? least : rate;
        most = n && most > rate ? most : rate;
        n++;
    }
    if (n && least == most)
        add(l, "lr %.6g", most);
    else if (n)
        add(l, "lr %.6g to %.6g", least, most);
}

static void say_scheduler(struct line *l, const json_t *o)
{
    add_int(l, o, "last_epoch", "step");
    add_rates(l, json_object_get(o, "_last_lr"));
}

static void say_arguments(struct line *l, const json_t *o)
{
    const json_t *state = json_object_get(o, "state");
    const char *class = json_string_value(json_object_get(o, "$object"));

    if (class)
        add(l, "%s", strrchr(class, '.') ? strrchr(class, '.') + 1 : class);
    add_real(l, json_object_get(state, "learning_rate"), "lr");
    add_int(l, state, "per_device_train_batch_size", "batch");
    add_int(l, state, "gradient_accumulation_steps", "accumulation");
    add_int(l, state, "max_steps", "steps");
}

enum part_kind { PART_OTHER, PART_JSON, PART_TORCH, PART_RNG, PART_TEXT };

static const struct part {
    const char    *glob, *what;
    enum part_kind kind;
    void         (*say)(struct line *l, const json_t *o);
} rows[] = {
    {"*.safetensors", "weights", PART_OTHER, NULL},
    {"pytorch_model*.bin", "weights", PART_OTHER, NULL},
    {"*.index.json", "index of shards", PART_JSON, say_index},
    {"optimizer.pt", "optimizer", PART_OTHER, NULL},
    {"scheduler.pt", "learning rate schedule", PART_TORCH, say_scheduler},
    {"scaler.pt", "loss scaler", PART_OTHER, NULL},
    {"optimizer*.bin", "optimizer", PART_OTHER, NULL},
    {"scheduler*.bin", "learning rate schedule", PART_TORCH, say_scheduler},
    {"sampler*.bin", "order of the data", PART_OTHER, NULL},
    {"dl_state_dict*.bin", "place in the data", PART_OTHER, NULL},
    {"random_states_*.pkl", "random states of a rank", PART_RNG, NULL},
    {"custom_checkpoint_*.pkl", "object registered by the program", PART_OTHER, NULL},
    {"rng_state*.pth", "random states of a rank", PART_RNG, NULL},
    {"trainer_state.json", "state of the run", PART_JSON, say_state},
    {"training_args.bin", "arguments of the run", PART_TORCH, say_arguments},
    {"MANIFEST.json", "digests of all files", PART_JSON, say_manifest},
    {"latest", "name of the DeepSpeed folder", PART_TEXT, NULL},
    {"config.json", "model description", PART_JSON, say_config},
    {"token*", "tokenizer", PART_OTHER, NULL},
    {"special_tokens_map.json", "tokenizer", PART_OTHER, NULL},
    {"adapter_config.json", "adapter", PART_JSON, say_adapter},
    {"adapter_*", "adapter", PART_OTHER, NULL},
    {"*_optim_states.pt", "optimizer of a rank", PART_OTHER, NULL},
    {"*_model_states.pt", "model of a rank", PART_OTHER, NULL},
    {"*", "", PART_OTHER, NULL},
};

static const struct part *part_of(const char *name)
{
    size_t i = 0;

    while (fnmatch(rows[i].glob, name, 0) != 0)
        i++;
    return &rows[i];
}

static void say_rng(struct line *l, const struct torch_archive *a)
{
    struct ckpt_err ignored = {0};
    const json_t *seed;
    json_t *all = NULL;
    struct out *o;

    if (!inspect_is_rng(a) || out_new(&o, false, &ignored))
        return;
    inspect_rng(o, NULL, a, false, &all, &ignored);
    seed = json_object_get(json_object_get(all, "cpu"), "seed");
    if (json_is_integer(seed))
        add(l, "torch seed %lld", (long long)json_integer_value(seed));
    json_decref(all);
    out_abort(o);
}

static void say_torch(struct line *l, const struct part *p, struct ckpt_file *file)
{
    struct ckpt_err ignored = {0};
    struct torch_archive *a;
    json_t *tree;

    if (torch_archive_open(&a, file, &ignored))         /* takes it */
        return;
    if (p->kind == PART_RNG) {
        say_rng(l, a);
    } else {
        tree = value_to_json(torch_archive_root(a), 10000);
        p->say(l, tree);
        json_decref(tree);
    }
    torch_archive_close(a);
}

/* The summary of a part; "" when it is large or cannot be read. */
static const char *say(struct line *l, const struct part *p, struct ckpt_dir *dir,
                       const struct ckpt_entry *e)
{
    struct ckpt_err ignored = {0};
    struct ckpt_file *file;
    json_t *doc;
    char text[100];

    memset(l, 0, sizeof *l);
    if (p->kind == PART_OTHER || e->size > SMALL_BYTES ||
        ckpt_file_open_at(&file, dir, e->name, &ignored))
        return l->text;
    if (p->kind == PART_TORCH || p->kind == PART_RNG) {
        say_torch(l, p, file);
        return l->text;
    }
    if (p->kind == PART_JSON &&
        ckpt_json_read(&doc, file, SMALL_BYTES, CKPT_JSON_PYTHON, &ignored) == 0) {
        p->say(l, doc);
        json_decref(doc);
    } else if (p->kind == PART_TEXT && e->size < sizeof text &&
               ckpt_file_read_at(file, text, e->size, 0, &ignored) == 0) {
        add(l, "%.*s", (int)e->size, text);
        l->text[strcspn(l->text, "\n")] = '\0';
    }
    ckpt_file_close(file);
    return l->text;
}

static void put(struct out *o, const char *prefix, struct ckpt_dir *dir,
                const struct ckpt_entry *e)
{
    const struct part *p = part_of(e->name);
    struct line line;
    char name[600];

    snprintf(name, sizeof name, "%s%s", prefix, e->name);
    out_cell_str(o, name);
    out_cell_str(o, p->what);
    out_cell_bytes(o, e->size);
    out_cell_str(o, say(&line, p, dir, e));
}

int inspect_run(struct out *o, struct ckpt_dir *dir, struct ckpt_err *err)
{
    static const struct out_column columns[] = {
        {"file", "file", OUT_LEFT},       {"part", "part", OUT_LEFT},
        {"bytes", "bytes", OUT_RIGHT},    {"summary", "summary", OUT_LEFT},
    };
    struct ckpt_arena a = {0};
    struct ckpt_entry *entry, *inner;
    size_t n, n_inner;
    int rc = ckpt_dir_list(dir, &a, &entry, &n, err);

    out_table(o, "parts", columns, 4);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct ckpt_dir *sub = NULL;
        char prefix[300];

        if (entry[i].name[0] == '.')
            continue;
        if (!entry[i].is_dir) {
            put(o, "", dir, &entry[i]);
            continue;
        }
        snprintf(prefix, sizeof prefix, "%s/", entry[i].name);
        rc = ckpt_dir_open_at(&sub, dir, entry[i].name, err);
        if (rc == 0)
            rc = ckpt_dir_list(sub, &a, &inner, &n_inner, err);
        for (size_t k = 0; rc == 0 && k < n_inner; k++)
            put(o, prefix, sub, &inner[k]);
        ckpt_dir_close(sub);
    }
    out_table_end(o);
    ckpt_arena_release(&a);
    return rc;
}
