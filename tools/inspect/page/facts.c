/* facts - see facts.h. */
#include "tools/inspect/page/facts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/mem.h"
#include "tools/inspect/page/text.h"

#define FACT_BYTES 200          /* of a text in a card */

enum unit { PLAIN, SHORT, PATH };

/* Where a fact is found: in an object of the document, or among its own fields ("").  Of rows with
 * the same card and label the first that the document has is shown. */
static const struct fact {
    const char *card, *label, *from, *key;
    enum unit   unit;
} facts[] = {
    {"Run", "Steps", "", "global_step", PLAIN},
    {"Run", "Planned steps", "", "max_steps", PLAIN},
    {"Run", "Epoch", "", "epoch", PLAIN},
    {"Run", "Epoch", "results", "epoch", PLAIN},
    {"Run", "Run time", "", "train_runtime", PLAIN},
    {"Run", "Run time", "results", "train_runtime", PLAIN},
    {"Run", "Train loss, last", "", "loss", PLAIN},
    {"Run", "Eval loss, last", "", "eval_loss", PLAIN},
    {"Run", "Best metric", "", "best_metric", PLAIN},
    {"Run", "Best checkpoint", "", "best_model_checkpoint", PATH},
    {"Run", "Written by", "manifest", "tool", PLAIN},
    {"Model", "Family", "config", "model_type", PLAIN},
    {"Model", "Architecture", "config", "architectures", PLAIN},
    {"Model", "Parameters", "", "parameters", PLAIN},
    {"Model", "Layers", "config", "num_hidden_layers", PLAIN},
    {"Model", "Layers", "config", "n_layer", PLAIN},
    {"Model", "Layers", "config", "num_layers", PLAIN},
    {"Model", "Hidden size", "config", "hidden_size", PLAIN},
    {"Model", "Hidden size", "config", "n_embd", PLAIN},
    {"Model", "Hidden size", "config", "d_model", PLAIN},
    {"Model", "Attention heads", "config", "num_attention_heads", PLAIN},
    {"Model", "Attention heads", "config", "n_head", PLAIN},
    {"Model", "Attention heads", "config", "num_heads", PLAIN},
    {"Model", "Key and value heads", "config", "num_key_value_heads", PLAIN},
    {"Model", "Vocabulary", "config", "vocab_size", PLAIN},
    {"Model", "Tensors", "", "tensors", PLAIN},
    {"Model", "Size", "", "bytes", PLAIN},
    {"Model", "Weights", "", "weights", PLAIN},
    {"Optimizer", "Optimizer", "arguments", "optim", PLAIN},
    {"Optimizer", "Learning rate", "arguments", "learning_rate", PLAIN},
    {"Optimizer", "Schedule", "arguments", "lr_scheduler_type", PLAIN},
    {"Optimizer", "Warm-up steps", "arguments", "warmup_steps", PLAIN},
    {"Optimizer", "Weight decay", "arguments", "weight_decay", PLAIN},
    {"Optimizer", "Beta 1", "arguments", "adam_beta1", PLAIN},
    {"Optimizer", "Beta 2", "arguments", "adam_beta2", PLAIN},
    {"Optimizer", "Epsilon", "arguments", "adam_epsilon", PLAIN},
    {"Optimizer", "Gradient clipping", "arguments", "max_grad_norm", PLAIN},
    {"Data and batches", "Samples a device", "arguments", "per_device_train_batch_size", PLAIN},
    {"Data and batches", "Gradient accumulation", "arguments", "gradient_accumulation_steps",
     PLAIN},
    {"Data and batches", "Ranks", "manifest", "world_size", PLAIN},
    {"Data and batches", "ZeRO stage", "manifest", "zero_stage", PLAIN},
    {"Data and batches", "Samples read", "manifest", "data_position", PLAIN},
    {"Data and batches", "Digest of the data", "manifest", "data", PLAIN},
    {"Data and batches", "Planned epochs", "arguments", "num_train_epochs", PLAIN},
    {"Data and batches", "Seed", "arguments", "seed", PLAIN},
    {"Data and batches", "Seed", "manifest", "seed", PLAIN},
    {"Data and batches", "bf16", "arguments", "bf16", PLAIN},
    {"Data and batches", "fp16", "arguments", "fp16", PLAIN},
};
#define N_FACTS (sizeof facts / sizeof facts[0])

/* The cards in the order of the page; keys of the object `rest` are shown in it too. */
static const struct card {
    const char *name, *rest;
} cards[] = {
    {"Run", NULL}, {"Results", "results"}, {"Model", NULL}, {"Optimizer", NULL},
    {"Data and batches", NULL}, {"Hardware", "hardware"}, {"Checkpoint", ""},
};

/* Fields of the document that the page shows elsewhere. */
static const char *const elsewhere[] = {"path", "compared_with", "refused", "class", "equal",
                                        "unequal"};

/* The value of {"name": key, "value": v} in the table of arguments. */
static const json_t *argument(const json_t *rows, const char *key)
{
    json_t *row;
    size_t i;

    json_array_foreach ((json_t *)rows, i, row) {
        const char *name = json_string_value(json_object_get(row, "name"));

        if (name && strcmp(name, key) == 0)
            return json_object_get(row, "value");
    }
    return NULL;
}

static const json_t *find(const json_t *doc, const char *from, const char *key)
{
    const json_t *in = *from ? json_object_get(doc, from) : doc, *v;

    v = json_is_array(in) ? argument(in, key) : json_object_get(in, key);
    if (json_array_size(v) == 1)
        v = json_array_get(v, 0);
    return json_is_null(v) || json_is_object(v) || json_is_array(v) ? NULL : v;
}

static void put_unit(struct ckpt_buf *b, const char *key, const json_t *v, enum unit unit)
{
    char number[PAGE_NUMBER];

    const char *path = unit == PATH ? json_string_value(v) : NULL;

    if (path && strrchr(path, '/') && strrchr(path, '/')[1])
        page_text(b, strrchr(path, '/') + 1, FACT_BYTES);
    else if (!json_is_number(v) || unit == PLAIN)
        page_value(b, key, v, FACT_BYTES);
    else
        ckpt_buf_put_str(b, page_short(number, json_number_value(v)));
}

/* A card that is opened with its first fact. */
struct open_card {
    const char *name;
    size_t      n;
};

static void put_fact(struct ckpt_buf *b, struct open_card *card, const char *label,
                     const char *key, const json_t *v, enum unit unit)
{
    if (card->n++ == 0) {
        ckpt_buf_put_str(b, "<section class=\"card\">\n<h2>");
        page_text(b, card->name, 0);
        ckpt_buf_put_str(b, "</h2>\n<dl>\n");
    }
    ckpt_buf_put_str(b, "<div><dt>");
    if (label)
        page_text(b, label, 0);
    else
        page_words(b, key);
    ckpt_buf_put_str(b, "</dt><dd>");
    put_unit(b, key, v, unit);
    ckpt_buf_put_str(b, "</dd></div>\n");
}

/* Whether the key of the object `from` has a row above, or a place of its own. */
static bool is_known(const char *from, const char *key)
{
    for (size_t i = 0; i < N_FACTS; i++)
        if (strcmp(facts[i].from, from) == 0 && strcmp(facts[i].key, key) == 0)
            return true;
    for (size_t i = 0; !*from && i < sizeof elsewhere / sizeof elsewhere[0]; i++)
        if (strcmp(elsewhere[i], key) == 0)
            return true;
    return false;
}

static void put_rest(struct ckpt_buf *b, struct open_card *card, const json_t *doc,
                     const char *from)
{
    const char *key;
    json_t *v;

    json_object_foreach (*from ? json_object_get(doc, from) : (json_t *)doc, key, v)
        if (!is_known(from, key) && (json_is_string(v) || json_is_number(v) || json_is_boolean(v)))
            put_fact(b, card, NULL, key, v, PLAIN);
}

static void put_card(struct ckpt_buf *b, const struct card *c, const json_t *doc)
{
    struct open_card card = {c->name, 0};
    const char *shown = "";

    for (size_t i = 0; i < N_FACTS; i++) {
        const json_t *v = strcmp(facts[i].card, c->name) == 0
                              ? find(doc, facts[i].from, facts[i].key) : NULL;

        if (!v || strcmp(facts[i].label, shown) == 0 ||
            (json_is_string(v) && !*json_string_value(v)))
            continue;
        shown = facts[i].label;
        put_fact(b, &card, facts[i].label, facts[i].key, v, facts[i].unit);
    }
    if (c->rest)
        put_rest(b, &card, doc, c->rest);
    if (card.n)
        ckpt_buf_put_str(b, "</dl>\n</section>\n");
}

void page_cards(struct ckpt_buf *b, const json_t *doc)
{
    ckpt_buf_put_str(b, "<div class=\"cards\">\n");
    for (size_t i = 0; i < sizeof cards / sizeof cards[0]; i++)
        put_card(b, &cards[i], doc);
    ckpt_buf_put_str(b, "</div>\n");
}

/* -- figures --------------------------------------------------------------------------------- */

static const struct figure {
    const char *label, *from, *key;
    enum unit   unit;
} figures[] = {
    {"Train loss", "", "loss", PLAIN},
    {"Eval loss", "", "eval_loss", PLAIN},
    {"Eval loss", "results", "eval_loss", PLAIN},
    {"Perplexity", "results", "perplexity", PLAIN},
    {"Steps", "", "global_step", PLAIN},
    {"Run time", "", "train_runtime", PLAIN},
    {"Run time", "results", "train_runtime", PLAIN},
    {"Peak memory", "results", "device_memory_peak", PLAIN},
    {"Parameters", "", "parameters", SHORT},
    {"Size", "", "bytes", PLAIN},
    {"Equal tensors", "", "equal", PLAIN},
    {"Unequal tensors", "", "unequal", PLAIN},
};

static void put_figure(struct ckpt_buf *b, size_t *n, const char *label)
{
    ckpt_buf_put_str(b, (*n)++ ? "" : "<dl class=\"figures\">\n");
    ckpt_buf_printf(b, "<div><dt>%s</dt><dd>", label);
}

static int by_value(const void *a, const void *b)
{
    const double *p = a, *q = b;

    return (*p > *q) - (*p < *q);
}

/* The middle of a curve's finite values; NaN when it has none. */
static double median_of(const struct curves_curve *c)
{
    double *all = ckpt_alloc(c->n + 1, sizeof *all), middle;
    size_t n = 0;

    for (size_t i = 0; all && i < c->n; i++)
        if (isfinite(c->point[i].y))
            all[n++] = c->point[i].y;
    if (n)
        qsort(all, n, sizeof *all, by_value);
    middle = n ? all[n / 2] : NAN;
    ckpt_free(all);
    return middle;
}

void page_figures(struct ckpt_buf *b, const json_t *doc, const struct page_curves *curves)
{
    const struct curves_chart *speed = page_curves_find(curves, "Tokens per second");
    double median = speed && speed->n == 1 ? median_of(&speed->curve[0]) : NAN;
    const char *shown = "";
    char number[PAGE_NUMBER];
    size_t n = 0;

    for (size_t i = 0; i < sizeof figures / sizeof figures[0]; i++) {
        const json_t *v = find(doc, figures[i].from, figures[i].key);

        if (!json_is_number(v) || strcmp(figures[i].label, shown) == 0)
            continue;
        shown = figures[i].label;
        put_figure(b, &n, shown);
        put_unit(b, figures[i].key, v, figures[i].unit);
        ckpt_buf_put_str(b, "</dd></div>\n");
        if (isfinite(median) && strcmp(shown, "Steps") == 0) {
            put_figure(b, &n, "Tokens per second");
            ckpt_buf_printf(b, "%s</dd></div>\n", page_short(number, median));
        }
    }
    ckpt_buf_put_str(b, n ? "</dl>\n" : "");
}
