/* push/card - see card.h. */
#include "tools/push/card.h"

#include <math.h>
#include <string.h>

#include "formats/hf/run_card.h"
#include "libckpt/base/json.h"
#include "libckpt/err.h"
#include "libckpt/io/path.h"

#define CARD    "README.md"
#define FIGURES 256             /* of all files together */

/* -- results ---------------------------------------------------------------------------------- */

/* The results of one file, as they come. */
struct figures {
    struct model_card_result row[FIGURES];
    size_t                   n;
    const char              *task, *dataset, *config, *split;
};

static void add(struct figures *f, const char *metric, const char *name, const json_t *value)
{
    double v = json_number_value(value);

    if (f->n < FIGURES && metric && *metric && json_is_number(value) && isfinite(v))
        f->row[f->n++] = (struct model_card_result){
            .task = f->task, .dataset = f->dataset, .config = f->config, .split = f->split,
            .metric = metric, .name = name, .value = v};
}

/* Of ckpt-eval: losses, of which the last row is the model's, and figures of predictions. */
static void add_eval(struct figures *f, const json_t *doc)
{
    const json_t *scores = json_object_get(doc, "scores");
    const json_t *figures = json_object_get(doc, "figures");
    const json_t *last = json_array_get(scores, json_array_size(scores) - 1);
    json_t *row;
    size_t i;

    add(f, "loss", NULL, json_object_get(last, "loss"));
    add(f, "perplexity", NULL, json_object_get(last, "perplexity"));
    json_array_foreach (figures, i, row) {
        const char *name = json_string_value(json_object_get(row, "figure"));
        const char *metric = json_string_value(json_object_get(row, "metric"));
        bool of_loss = name && metric && strcmp(metric, "loss") == 0;

        /* Figures of the loss are metrics of their own; two of them are in scores. */
        if (of_loss && last && (strcmp(name, "loss") == 0 || strcmp(name, "perplexity") == 0))
            continue;
        add(f, metric && !of_loss ? metric : name, name, json_object_get(row, "value"));
    }
}

/* A row with "eval_...": the file itself, or the last one of a run's log. */
static const json_t *trainer_row(const json_t *doc)
{
    const json_t *log = json_object_get(doc, "log_history");

    return json_is_array(log) ? run_card_last(log, "eval_loss")
           : json_is_number(json_object_get(doc, "eval_loss")) ? doc : NULL;
}

static bool is_results(const json_t *doc)
{
    return json_is_array(json_object_get(doc, "scores")) ||
           json_is_array(json_object_get(doc, "figures")) || trainer_row(doc);
}

static void add_doc(struct figures *f, const json_t *doc)
{
    const json_t *row = trainer_row(doc);
    size_t from = f->n;

    if (!row) {
        add_eval(f, doc);
        return;
    }
    f->n += run_card_figures(f->row + f->n, FIGURES - f->n, row, f->task, f->dataset);
    for (size_t i = from; i < f->n; i++) {
        f->row[i].config = f->config;
        f->row[i].split = f->split;
    }
}

int push_card_open(struct push_card *c, const struct opt_list *path, const char *dataset,
                   struct ckpt_err *err)
{
    int rc = 0;

    *c = (struct push_card){.path = path, .dataset = dataset, .results = json_array()};
    if (!c->results)
        return ckpt_nomem(err, 64);
    if (dataset && path->n == 0)
        return ckpt_fail(err, CKPT_EUSAGE, "--card-dataset has an effect with --card-metrics only");
    for (size_t i = 0; rc == 0 && i < path->n; i++) {
        struct ckpt_file *file = NULL;
        json_t *doc = NULL;

        rc = ckpt_path_file(&file, path->item[i], CKPT_FOLLOW, err);
        if (rc == 0 && (rc = ckpt_json_read(&doc, file, CKPT_JSON_MAX_BYTES, CKPT_JSON_PYTHON,
                                            err)) != 0)
            ckpt_err_in(err, "%s", path->item[i]);
        ckpt_file_close(file);
        if (rc == 0 && !is_results(doc)) {
            ckpt_fail(err, CKPT_EFORMAT, "%s: no results of an evaluation", path->item[i]);
            rc = ckpt_err_hint(err, "ckpt-eval --json prints some; eval_results.json and "
                               "trainer_state.json of a run are read too");
        }
        if (rc == 0 && json_array_append(c->results, doc))
            rc = ckpt_nomem(err, 64);
        json_decref(doc);
    }
    return rc;
}

void push_card_release(struct push_card *c)
{
    json_decref(c->results);
    c->results = NULL;
}

/* -- the card --------------------------------------------------------------------------------- */

/* The data set that results are of: as is asked for, else by themselves, else by the card. */
static int name_data(struct figures *f, const struct push_card *c, const json_t *doc,
                     const json_t *keys, size_t i, struct ckpt_err *err)
{
    const json_t *data = json_object_get(doc, "dataset");
    json_t *of_card = json_object_get(keys, "datasets");

    f->config = f->split = NULL;
    f->dataset = c->dataset ? c->dataset : json_string_value(data);
    if (!f->dataset && json_is_object(data)) {
        f->dataset = json_string_value(json_object_get(data, "name"));
        f->config = json_string_value(json_object_get(data, "config"));
        f->split = json_string_value(json_object_get(data, "split"));
    }
    if (!f->dataset)
        f->dataset = json_string_value(json_is_array(of_card) ? json_array_get(of_card, 0)
                                                              : of_card);
    if (f->dataset && *f->dataset)
        return 0;
    ckpt_fail(err, CKPT_EUSAGE, "%s: which data it is of is not known", c->path->item[i]);
    return ckpt_err_hint(err, "--card-dataset owner/name tells it");
}

static bool has_file(const struct push_plan *p, const char *from)
{
    for (size_t i = 0; i < p->n; i++)
        if (strcmp(p->file[i].from, from) == 0)
            return true;
    return false;
}

/* The text of the plan's card; NULL and 0 bytes where it has none. */
static int read_card(char **text, size_t *n, struct ckpt_arena *arena, const struct push_plan *p,
                     bool follow, struct ckpt_err *err)
{
    *text = NULL;
    *n = 0;
    for (size_t i = 0; i < p->n; i++) {
        struct ckpt_file *file;
        int rc;

        if (strcmp(p->file[i].from, CARD) != 0)
            continue;
        if ((rc = push_plan_open(&file, p, i, follow, err)) != 0)
            return rc;
        rc = ckpt_file_slurp(file, arena, MODEL_CARD_MAX, text, n, err);
        ckpt_file_close(file);
        return rc;
    }
    return 0;
}

/* What a card gets beside results: their metrics, and without a card what the files show. */
static json_t *new_keys(const struct push_plan *p, bool card, const struct figures *f)
{
    json_t *keys = json_object(), *metrics = json_array();

    if (!card && has_file(p, "adapter_config.json"))
        json_object_set_new(keys, "library_name", json_string("peft"));
    else if (!card && has_file(p, "config.json"))
        json_object_set_new(keys, "library_name", json_string("transformers"));
    for (size_t i = 0; i < f->n; i++) {
        bool there = strcmp(f->row[i].metric, "loss") == 0;
        json_t *one;
        size_t k;

        json_array_foreach (metrics, k, one)
            there = there || strcmp(json_string_value(one), f->row[i].metric) == 0;
        if (!there)
            json_array_append_new(metrics, json_string(f->row[i].metric));
    }
    if (json_array_size(metrics) > 0)
        json_object_set(keys, "metrics", metrics);
    json_decref(metrics);
    return keys;
}

/* All results, each with its task and data. */
static int gather(struct figures *f, const struct push_card *c, const json_t *keys,
                  struct ckpt_err *err)
{
    const char *task = json_string_value(json_object_get(keys, "pipeline_tag"));
    json_t *doc;
    size_t i;
    int rc = 0;

    f->task = task && *task ? task : "text-generation";
    json_array_foreach (c->results, i, doc) {
        if ((rc = name_data(f, c, doc, keys, i, err)) != 0)
            break;
        add_doc(f, doc);
    }
    if (rc == 0 && f->n == FIGURES)
        rc = ckpt_fail(err, CKPT_ELIMIT, "more than %d figures for one card", FIGURES - 1);
    return rc;
}

int push_card(struct push_plan *p, const struct push_card *c, bool follow, struct ckpt_err *err)
{
    struct figures *f = ckpt_alloc(1, sizeof *f);
    json_t *keys = NULL, *more = NULL;
    struct ckpt_arena arena = {0};
    struct ckpt_buf b;
    char *text, name[512];
    size_t n;
    int rc = f ? 0 : ckpt_nomem(err, sizeof *f);

    ckpt_buf_init(&b, MODEL_CARD_MAX);
    if (rc == 0 && json_array_size(c->results) > 0) {
        rc = read_card(&text, &n, &arena, p, follow, err);
        rc = rc ? rc : model_card_read(&keys, text ? text : "", n, err);
        rc = rc ? rc : gather(f, c, keys, err);
        if (rc == 0 && !(more = new_keys(p, text != NULL, f)))
            rc = ckpt_nomem(err, 256);
        run_card_name(name, sizeof name, p->source);
        rc = rc ? rc : model_card_edit(&b, text ? text : "", n, more, name, f->row, f->n, err);
        rc = rc ? rc : push_plan_put(p, CARD, b.data, b.len, err);
    }
    json_decref(more);
    json_decref(keys);
    ckpt_buf_release(&b);
    ckpt_arena_release(&arena);
    ckpt_free(f);
    return rc;
}
