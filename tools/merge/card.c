/* merge/card - see card.h. */
#include "tools/merge/card.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/formats.h"
#include "formats/hf/run_card.h"
#include "formats/hf/side_files.h"
#include "libckpt/base/json.h"
#include "libckpt/err.h"
#include "libckpt/io/pack.h"
#include "libckpt/views/extra.h"
#include "tools/inspect/inspect.h"
#include "tools/merge/parts.h"
#include "trainer/checkpoint/manifest.h"

#define CARD    "README.md"

/* What is known of the run. */
struct facts {
    json_t *state, *args, *config;      /* config: adapter_config.json, or config.json */
    bool    adapter;                    /* the checkpoint is one */
    const char *base;                   /* that is given for it, or NULL: its own */
};

static void release(struct facts *f)
{
    json_decref(f->state);
    json_decref(f->args);
    json_decref(f->config);
}

/* A JSON file of the checkpoint; NULL when it is not there, or cannot be read. */
static json_t *read_json(struct ckpt_dir *dir, const char *name)
{
    struct ckpt_err ignored = {0};
    struct ckpt_file *file;
    json_t *json = NULL;

    if (!ckpt_dir_has(dir, name) || ckpt_file_open_at(&file, dir, name, &ignored))
        return NULL;
    ckpt_json_read(&json, file, CKPT_JSON_MAX_BYTES, CKPT_JSON_PYTHON, &ignored);
    ckpt_file_close(file);
    return json;
}

/* False where the folder is no checkpoint of a run. */
static bool gather(struct facts *f, struct ckpt_dir *dir)
{
    struct ckpt_err ignored = {0};
    struct ckpt_file *file;

    *f = (struct facts){.state = read_json(dir, "trainer_state.json")};
    if (!json_is_array(json_object_get(f->state, "log_history"))) {
        release(f);
        return false;
    }
    f->config = read_json(dir, "adapter_config.json");
    f->adapter = f->config != NULL;
    if (!f->config)
        f->config = read_json(dir, "config.json");
    if (ckpt_dir_has(dir, "training_args.bin") &&
        ckpt_file_open_at(&file, dir, "training_args.bin", &ignored) == 0)
        inspect_arguments(&f->args, file, &ignored);    /* takes the file */
    return true;
}

/* owner/name, which the Hub may have. */
static bool is_hub_name(const char *name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789_.-";
    size_t n = strspn(name, letters), k = name[n] == '/' ? strspn(name + n + 1, letters) : 0;

    return n > 0 && k > 0 && !name[n + 1 + k] && *name != '.' && !ckpt_path_is_dir(name);
}

/* What the model was trained from, as it may be told; true: the Hub has it. */
static bool base_of(char name[512], const struct facts *f)
{
    const char *said = json_string_value(json_object_get(f->config, f->adapter
                                                         ? "base_model_name_or_path"
                                                         : "_name_or_path"));

    if (f->adapter && f->base)
        said = f->base;
    *name = '\0';
    if (!said || !*said)
        return false;
    if (is_hub_name(said)) {
        snprintf(name, 512, "%s", said);
        return true;
    }
    return run_card_name(name, 512, said);
}

static void put_argument(struct ckpt_buf *b, const char *label, const json_t *args, const char *key)
{
    const json_t *v = json_object_get(args, key);
    char *text = json_is_string(v) || json_is_number(v) || json_is_boolean(v)
                     ? json_dumps(v, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6)) : NULL;

    if (json_is_string(v))
        ckpt_buf_printf(b, "- %s: %s\n", label, json_string_value(v));
    else if (text)
        ckpt_buf_printf(b, "- %s: %s\n", label, text);
    free(text);
}

static void put_arguments(struct ckpt_buf *b, const struct facts *f)
{
    static const char *const rows[][2] = {
        {"learning_rate", "learning_rate"}, {"train_batch_size", "per_device_train_batch_size"},
        {"eval_batch_size", "per_device_eval_batch_size"}, {"seed", "seed"},
        {"gradient_accumulation_steps", "gradient_accumulation_steps"}, {"optimizer", "optim"},
        {"lr_scheduler_type", "lr_scheduler_type"}, {"lr_scheduler_warmup_steps", "warmup_steps"},
    };
    const json_t *step = json_object_get(f->state, "global_step");
    const json_t *epoch = json_object_get(f->state, "epoch");

    ckpt_buf_put_str(b, "## Training procedure\n\n### Training hyperparameters\n\n");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        put_argument(b, rows[i][0], f->args, rows[i][1]);
    if (json_is_integer(step))
        ckpt_buf_printf(b, "- training_steps: %lld\n", (long long)json_integer_value(step));
    if (json_is_number(epoch))
        ckpt_buf_printf(b, "- epochs: %.4g\n", json_number_value(epoch));
    ckpt_buf_put_u8(b, '\n');
}

/* The front matter: no figures, since the state does not say of which data they are. */
static int put_front(struct ckpt_buf *b, const struct facts *f, const char *base, bool on_hub,
                     const struct ckpt_file *card, struct ckpt_err *err)
{
    json_t *keys = json_object();
    int rc = keys ? 0 : ckpt_nomem(err, 256);

    json_object_set_new(keys, "library_name", json_string("transformers"));
    if (card)
        run_card_inherit(keys, card);
    if (on_hub)
        json_object_set_new(keys, "base_model", json_string(base));
    json_object_set_new(keys, "tags", f->adapter ? json_pack("[s, s]", "generated_from_trainer",
                                                             "lora")
                                                 : json_pack("[s]", "generated_from_trainer"));
    if (rc == 0)
        rc = model_card_edit(b, "", 0, keys, "", NULL, 0, err);
    json_decref(keys);
    return rc;
}

/* The same run gives the same bytes, wherever it lies and wherever they go: no path is in them. */
static int put_card(struct ckpt_buf *b, const struct facts *f, const struct ckpt_file *card,
                    struct ckpt_err *err)
{
    const json_t *log = json_object_get(f->state, "log_history");
    char base[512];
    bool on_hub = base_of(base, f);
    int rc = put_front(b, f, base, on_hub, card, err);

    ckpt_buf_put_str(b, "\n# ");
    run_card_put_text(b, *base ? base : "Model");
    ckpt_buf_put_str(b, ", fine-tuned\n\n");
    if (*base) {
        ckpt_buf_put_str(b, "This model is a fine-tuned version of ");
        run_card_put_text(b, base);
        ckpt_buf_put_str(b, ".\n\n");
    }
    run_card_put_last(b, log);
    put_arguments(b, f);
    run_card_put_table(b, log);
    ckpt_buf_put_str(b, "### Versions\n\n- ckpt " CKPT_VERSION "\n");
    return rc || ckpt_buf_ok(b) ? rc : ckpt_nomem(err, b->len);
}

/* The side file of that name, or NULL. */
static struct ckpt_file *side(const struct ckpt_source *src, const char *name)
{
    const struct ckpt_extra *e = ckpt_source_extra(src, name);

    return e ? e->file : NULL;
}

/* *src with the card, and with the base's under another name. */
static int add(struct ckpt_source **src, const struct ckpt_buf *card, struct ckpt_err *err)
{
    struct ckpt_file *base = side(*src, CARD);
    struct ckpt_arena a = {0};
    struct ckpt_source *below = *src;
    char *text = NULL;
    size_t n = 0;
    int rc = base && !side(*src, "BASE_" CARD)
                 ? ckpt_file_slurp(base, &a, MODEL_CARD_MAX, &text, &n, err) : 0;

    if (rc) {                           /* a base's card of such a size: leave it as it is */
        ckpt_err_clear(err);
        ckpt_arena_release(&a);
        return 0;
    }
    *src = NULL;
    if (text && (rc = ckpt_view_extra(src, below, "BASE_" CARD, text, n, NULL, err)) == 0)
        below = *src;
    if (rc == 0)
        rc = ckpt_view_extra(src, below, CARD, card->data, card->len, NULL, err);
    if (rc)
        *src = NULL;
    ckpt_arena_release(&a);
    return rc;
}

/* The folder that may be the run's: the only adapter's, or the only input. */
static const char *run_folder(char path[4096], const struct merge_want *w,
                              const struct merge_job *job)
{
    const char *item = w->adapter.n == 1 ? w->adapter.item[0] : job->input[0];
    const char *weight = w->adapter.n == 1 ? merge_adapter_weight(item) : NULL;

    if (job->n != 1 || w->adapter.n > 1 || w->extract)
        return NULL;
    snprintf(path, 4096, "%.*s", (int)(weight ? (size_t)(weight - 1 - item) : strlen(item)), item);
    return strcmp(path, "-") == 0 || ckpt_pack_of(path) != CKPT_PACK_NONE ? NULL : path;
}

/* Whether someone wrote a card for this checkpoint.  One that its manifest has was copied from the
 * base when it was saved, and is about that. */
static bool has_own_card(struct ckpt_dir *dir)
{
    struct ckpt_err ignored = {0};
    json_t *manifest = NULL, *row;
    bool own = ckpt_dir_has(dir, CARD);
    size_t i;

    if (own && manifest_read(&manifest, dir, &ignored) == 0)
        json_array_foreach (json_object_get(manifest, "files"), i, row) {
            const char *name = json_string_value(json_object_get(row, "name"));

            if (name && strcmp(name, CARD) == 0 &&
                manifest_check_file(row, dir, MANIFEST_DIGESTS, &ignored) == 0)
                own = false;
        }
    json_decref(manifest);
    return own;
}

int merge_card(struct ckpt_source **src, const struct merge_want *w, const struct merge_job *job,
               const char *format, bool follow, struct ckpt_err *err)
{
    struct ckpt_open_opts opts = {.tag = w->tag, .follow = follow, .spool = cli_spool()};
    struct ckpt_err ignored = {0};
    struct ckpt_dir *dir = NULL;
    struct facts f = {0};
    struct ckpt_buf b;
    char path[4096];
    int rc = 0;

    if (strcmp(format, "hf") != 0 || !run_folder(path, w, job) ||
        formats_open_dir(&dir, path, &opts, &ignored) || !dir)
        return 0;
    if (!has_own_card(dir) && gather(&f, dir)) {
        f.base = w->adapter.n ? job->input[0] : w->base;
        ckpt_buf_init(&b, MODEL_CARD_MAX);
        rc = put_card(&b, &f, side(*src, CARD), err);
        rc = rc ? rc : add(src, &b, err);
        ckpt_buf_release(&b);
        release(&f);
    }
    ckpt_dir_close(dir);
    return rc;
}
