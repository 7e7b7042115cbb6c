/* bertscore - see bertscore.h. */
#include "tools/eval/bertscore.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/families/arch.h"
#include "libckpt/base/json.h"
#include "libckpt/file.h"
#include "libckpt/io/path.h"
#include "libckpt/log.h"
#include "libckpt/mem.h"
#include "tools/cli.h"
#include "tools/eval/score/baseline.h"
#include "tools/eval/score/words.h"
#include "trainer/run/session.h"

#define DEFAULT_POSITIONS 512
#define MOST_BASELINE     ((uint64_t)1 << 20)   /* bytes of a baseline file */

/* Blocks whose output agrees best with people, by bert_score's model2layers. */
static const struct { const char *name; int64_t layer; } layers[] = {
    {"bert-base-uncased", 9}, {"bert-large-uncased", 18}, {"bert-base-cased-finetuned-mrpc", 9},
    {"bert-base-multilingual-cased", 9}, {"bert-base-chinese", 8}, {"roberta-base", 10},
    {"roberta-large", 17}, {"roberta-large-mnli", 19}, {"roberta-base-openai-detector", 7},
    {"roberta-large-openai-detector", 15}, {"spanbert-base-cased", 8},
    {"spanbert-large-cased", 17}, {"finbert", 10},
};

/* One text as tokens. */
struct text {
    int32_t *id;
    int64_t  n;
};

struct work {
    const struct bertscore_want *w;
    struct session   s;
    struct ckpt_arena arena;
    const struct score_row *row;
    size_t           n;
    struct text     *text;      /* of every row its prediction, then its references */
    size_t           n_text;
    int64_t          most;      /* tokens that a text may have */
    int64_t          longest;   /* tokens of a text */
    int64_t          layer, D;
    int32_t          cls, sep;  /* ids around a text */
    float           *weight;    /* [V] of each id */
    double           base[3];   /* baseline of P, R, F */
    float           *state[2];  /* [longest][D] of two texts, of length 1 */
    int32_t         *positions; /* [longest] 0, 1, ... */
    double          *best;      /* [longest] largest similarity of each token of a reference */
};

/* -- settings --------------------------------------------------------------------------------- */

/* Whether a part of path is the name, or ends with it as the Hub's cache has it. */
static bool is_named(const char *path, const char *name)
{
    size_t n = strlen(name);

    for (const char *at = path; (at = strstr(at, name)); at++) {
        bool begins = at == path || at[-1] == '/' ||
                      (at - path >= 2 && strncmp(at - 2, "--", 2) == 0);

        if (begins && (at[n] == '\0' || at[n] == '/' || at[n] == '@'))
            return true;
    }
    return false;
}

static int choose_layer(struct work *w, struct ckpt_err *err)
{
    int64_t most = w->s.arch->num_hidden_layers;

    w->layer = w->w->layer;
    for (size_t i = 0; w->layer == 0 && i < sizeof layers / sizeof layers[0]; i++)
        if (is_named(w->w->model, layers[i].name))
            w->layer = layers[i].layer;
    if (w->layer == 0) {
        ckpt_fail(err, CKPT_EUSAGE, "%s: which layer's states to compare is not known for this "
                  "name", w->w->model);
        return ckpt_err_hint(err, "--bertscore-layer N, 1 to %lld", (long long)most);
    }
    return w->layer <= most ? 0
                            : ckpt_fail(err, CKPT_EUSAGE, "--bertscore-layer %lld: the model has "
                                        "%lld", (long long)w->layer, (long long)most);
}

static int read_baseline(struct work *w, struct ckpt_err *err)
{
    struct ckpt_file *f = NULL;
    char *text;
    size_t n;
    int rc;

    if (!w->w->baseline)
        return 0;
    if ((rc = ckpt_path_file(&f, w->w->baseline, CKPT_FOLLOW, err)) != 0)
        return rc;
    n = (size_t)(ckpt_file_size(f) < MOST_BASELINE ? ckpt_file_size(f) : MOST_BASELINE);
    text = ckpt_alloc(n + 1, 1);
    rc = text ? ckpt_file_read_at(f, text, n, 0, err) : ckpt_nomem(err, n);
    rc = rc ? rc : baseline_read(w->base, text, n, w->layer, err);
    if (rc)
        ckpt_err_in(err, "%s", w->w->baseline);
    ckpt_free(text);
    ckpt_file_close(f);
    return rc;
}

/* -- tokens ----------------------------------------------------------------------------------- */

/* Tokenise without white space around it; what is too long loses its end, not the last token. */
static int encode(struct work *w, struct text *t, const char *text, struct ckpt_err *err)
{
    int64_t n;
    struct encoding enc = {0};
    size_t len;
    const char *s = words_strip(text, &len);
    /* Byte-level tokenizers take a word after a blank for another than one at a text's start. */
    bool blank = len > 0 && w->s.arch->pos_from_ids;   /* RoBERTa */
    char *copy = ckpt_arena_printf(&w->arena, "%s%.*s", blank ? " " : "", (int)len, s);
    int rc = copy ? tokenizer_encode(w->s.tokenizer, &enc, copy, strlen(copy), true, err)
                  : ckpt_nomem(err, len);

    n = (int64_t)enc.n < w->most ? (int64_t)enc.n : w->most;
    if (rc == 0 && n == 0)
        rc = ckpt_fail(err, CKPT_EFORMAT, "an empty text has no token");
    t->id = rc ? NULL : ckpt_arena_alloc(&w->arena, (size_t)n, sizeof *t->id);
    if (rc == 0 && !t->id)
        rc = ckpt_nomem(err, enc.n * sizeof *t->id);
    if (rc == 0) {
        memcpy(t->id, enc.id, (size_t)n * sizeof *t->id);
        t->id[n - 1] = enc.id[enc.n - 1];
        t->n = n;
        w->longest = n > w->longest ? n : w->longest;
    }
    for (int64_t i = 0; rc == 0 && i < n; i++)
        if (t->id[i] < 0 || t->id[i] >= w->s.arch->vocab_size)
            rc = ckpt_fail(err, CKPT_EMISMATCH, "token %d, the encoder has %lld (vocab_size)",
                           t->id[i], (long long)w->s.arch->vocab_size);
    encoding_release(&enc);
    return rc;
}

static int encode_all(struct work *w, struct ckpt_err *err)
{
    struct text empty;
    size_t at = 0;
    int rc = encode(w, &empty, "", err);

    if (rc == 0 && empty.n != 2)
        rc = ckpt_fail(err, CKPT_EUNSUPPORTED, "%s: the tokenizer puts %lld tokens around a text, "
                       "two are wanted", w->w->model, (long long)empty.n);
    if (rc)
        return rc;
    w->cls = empty.id[0];
    w->sep = empty.id[1];
    for (size_t i = 0; i < w->n; i++)
        w->n_text += 1 + w->row[i].n_references;
    w->text = ckpt_arena_alloc(&w->arena, w->n_text, sizeof *w->text);
    if (!w->text)
        return ckpt_nomem(err, w->n_text * sizeof *w->text);
    for (size_t i = 0; rc == 0 && i < w->n; i++) {
        rc = encode(w, &w->text[at++], w->row[i].prediction, err);
        for (size_t k = 0; rc == 0 && k < w->row[i].n_references; k++)
            rc = encode(w, &w->text[at++], w->row[i].reference[k], err);
        if (rc)
            ckpt_err_in(err, "row %zu", i + 1);
    }
    return rc;
}

/* Weights of ids: 1, or by how few references have them, as floats; 0 of those around a text. */
static int weigh(struct work *w, struct ckpt_err *err)
{
    size_t V = (size_t)w->s.arch->vocab_size, at = 0;
    double docs = (double)(w->n_text - w->n);
    int32_t *seen = ckpt_arena_alloc(&w->arena, V, sizeof *seen);
    double *count = ckpt_arena_alloc(&w->arena, V, sizeof *count);

    w->weight = ckpt_arena_alloc(&w->arena, V, sizeof *w->weight);
    if (!seen || !count || !w->weight)
        return ckpt_nomem(err, V * sizeof *count);
    for (size_t i = 0; i < w->n; i++)
        for (size_t k = 0; k <= w->row[i].n_references; k++, at++)
            for (int64_t t = 0; k > 0 && t < w->text[at].n; t++) {
                int32_t id = w->text[at].id[t];

                count[id] += seen[id] != (int32_t)at + 1;
                seen[id] = (int32_t)at + 1;
            }
    for (size_t id = 0; id < V; id++)
        w->weight[id] = w->w->idf ? (float)log((docs + 1) / (count[id] + 1)) : 1;
    if (!w->w->idf)
        w->weight[w->cls] = w->weight[w->sep] = 0;
    return 0;
}

/* -- matching --------------------------------------------------------------------------------- */

/* The hidden states of a text, each divided by its length. */
static int embed(struct work *w, float *state, const struct text *t, struct ckpt_err *err)
{
    const int32_t start[2] = {0, (int32_t)t->n};
    struct batch b = {.n_tokens = t->n, .n_docs = 1, .ids = t->id, .positions = w->positions,
                      .doc_start = start};
    int rc = model_hidden(w->s.model, zero_weights(w->s.zero), &b, w->layer, state, err);

    for (int64_t i = 0; rc == 0 && i < t->n; i++) {
        float *x = state + i * w->D;
        double sum = 0;

        for (int64_t k = 0; k < w->D; k++)
            sum += (double)x[k] * (double)x[k];
        for (int64_t k = 0; k < w->D; k++)
            x[k] = (float)((double)x[k] / sqrt(sum));
    }
    return rc;
}

/* P, R, F of a prediction, whose states are state[0], and a reference, of state[1]. */
static void match(double prf[3], struct work *w, const struct text *a, const struct text *b)
{
    double p = 0, r = 0, all_a = 0, all_b = 0;

    for (int64_t j = 0; j < b->n; j++)
        w->best[j] = -INFINITY;
    for (int64_t i = 0; i < a->n; i++) {
        const float *x = w->state[0] + i * w->D;
        double most = -INFINITY;

        for (int64_t j = 0; j < b->n; j++) {
            const float *y = w->state[1] + j * w->D;
            float dot = 0;

            for (int64_t k = 0; k < w->D; k++)
                dot += x[k] * y[k];
            most = (double)dot > most ? (double)dot : most;
            w->best[j] = (double)dot > w->best[j] ? (double)dot : w->best[j];
        }
        p += most * (double)w->weight[a->id[i]];
        all_a += (double)w->weight[a->id[i]];
    }
    for (int64_t j = 0; j < b->n; j++) {
        r += w->best[j] * (double)w->weight[b->id[j]];
        all_b += (double)w->weight[b->id[j]];
    }
    prf[0] = a->n > 2 && b->n > 2 && all_a > 0 ? p / all_a : 0;
    prf[1] = a->n > 2 && b->n > 2 && all_b > 0 ? r / all_b : 0;
    prf[2] = prf[0] + prf[1] != 0 ? 2 * prf[0] * prf[1] / (prf[0] + prf[1]) : 0;
}

static int match_all(struct work *w, double *stat, struct ckpt_err *err)
{
    size_t at = 0;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < w->n; i++) {
        const struct text *a = &w->text[at++];

        rc = cli_stop ? cli_stopped(err) : embed(w, w->state[0], a, err);
        for (size_t k = 0; rc == 0 && k < w->row[i].n_references; k++, at++) {
            double prf[3];

            if ((rc = embed(w, w->state[1], &w->text[at], err)) != 0)
                break;
            match(prf, w, a, &w->text[at]);
            for (size_t j = 0; j < 3; j++)
                if (k == 0 || prf[j] > stat[3 * i + j])
                    stat[3 * i + j] = prf[j];
        }
        for (size_t j = 0; rc == 0 && j < 3; j++) {
            stat[3 * i + j] = (stat[3 * i + j] - w->base[j]) / (1 - w->base[j]);
            if (!isfinite(stat[3 * i + j]))
                rc = ckpt_fail_as(err, CKPT_EFORMAT, "not-finite", "row %zu: BERTScore is not a "
                                  "number", i + 1);
        }
        ckpt_log_progress("BERTScore", "rows", (uint64_t)i + 1, (uint64_t)w->n);
    }
    return rc;
}

/* -- the whole -------------------------------------------------------------------------------- */

/* The positions of the model, or fewer if the tokenizer has model_max_length. */
static int read_most(struct work *w, struct ckpt_err *err)
{
    static const char name[] = "tokenizer_config.json";
    int64_t most = arch_max_positions(w->s.arch);
    struct ckpt_file *file = NULL;
    json_t *config = NULL, *v;
    int rc = 0;

    w->most = most > 0 ? most : DEFAULT_POSITIONS;
    if (!w->s.tokenizer_dir || !ckpt_dir_has(w->s.tokenizer_dir, name))
        return 0;
    rc = ckpt_file_open_at(&file, w->s.tokenizer_dir, name, err);
    if (rc == 0)
        rc = ckpt_json_read(&config, file, CKPT_JSON_MAX_BYTES, CKPT_JSON_PYTHON, err);
    v = json_object_get(config, "model_max_length");
    if (json_is_integer(v) && json_integer_value(v) > 2 && json_integer_value(v) < w->most)
        w->most = json_integer_value(v);
    json_decref(config);
    ckpt_file_close(file);
    return rc;
}

static int open_encoder(struct work *w, struct ckpt_err *err)
{
    struct device_opts device = {.name = w->w->device, .threads = (int)w->w->threads,
                                 .weights = CKPT_F32};
    int rc = session_open(&w->s, w->w->model, NULL, &device, 1, err);

    if (rc)
        return rc;
    w->s.dev->stop = &cli_stop;
    if (w->s.arch->stack != ARCH_ENCODER)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "%s: BERTScore is by an encoder, such as BERT",
                         w->w->model);
    if (!w->s.tokenizer)
        return ckpt_fail(err, CKPT_ENOTFOUND, "%s: there is no tokenizer in it", w->w->model);
    rc = read_most(w, err);
    return rc ? rc : choose_layer(w, err);
}

static int load_encoder(struct work *w, struct ckpt_err *err)
{
    struct model_opts opts = {.max_tokens = w->longest, .max_docs = 1, .max_rows = 1};
    size_t n = (size_t)w->longest;
    int rc = session_plan(&w->s, &opts, &(struct zero_opts){.stage = 0}, err);

    rc = rc ? rc : session_load(&w->s, w->w->model, NULL, err);
    w->D = w->s.arch->hidden_size;
    for (size_t k = 0; k < 2; k++)
        w->state[k] = ckpt_arena_alloc(&w->arena, n * (size_t)w->D, sizeof **w->state);
    w->positions = ckpt_arena_alloc(&w->arena, n, sizeof *w->positions);
    w->best = ckpt_arena_alloc(&w->arena, n, sizeof *w->best);
    if (rc == 0 && (!w->state[0] || !w->state[1] || !w->positions || !w->best))
        rc = ckpt_nomem(err, n * (size_t)w->D * sizeof **w->state);
    for (size_t i = 0; rc == 0 && i < n; i++)
        w->positions[i] = (int32_t)i;
    return rc;
}

int bertscore_new(struct score **out, const struct bertscore_want *want,
                  const struct score_row *row, size_t n, struct ckpt_err *err)
{
    struct work w = {.w = want, .row = row, .n = n};
    double *stat = NULL;
    char sign[160];
    const char *name;
    int rc;

    *out = NULL;
    if (!want->model)
        return ckpt_fail(err, CKPT_EUSAGE, "--metric bertscore needs --bertscore-model DIR, an "
                         "encoder");
    stat = ckpt_alloc(n, 3 * sizeof *stat);
    rc = stat ? open_encoder(&w, err) : ckpt_nomem(err, n * sizeof *stat);
    rc = rc ? rc : read_baseline(&w, err);
    rc = rc ? rc : encode_all(&w, err);
    rc = rc ? rc : weigh(&w, err);
    rc = rc ? rc : load_encoder(&w, err);
    rc = rc ? rc : match_all(&w, stat, err);
    rc = cli_told_stop(rc, err);
    name = strrchr(want->model, '/') ? strrchr(want->model, '/') + 1 : want->model;
    snprintf(sign, sizeof sign, "model:%.80s|layer:%lld|idf:%s|rescaled:%s", name,
             (long long)w.layer, want->idf ? "yes" : "no",
             want->baseline ? "yes" : "no");
    session_close(&w.s, rc, err);
    ckpt_arena_release(&w.arena);
    rc = rc ? rc : score_of(out, "bertscore", stat, n, err);
    if (rc == 0)
        score_sign(*out, sign);
    ckpt_free(stat);
    return rc;
}
