/* run_card - see run_card.h. */
#include "formats/hf/run_card.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/err.h"
#include "libckpt/mem.h"

/* -- names ------------------------------------------------------------------------------------ */

/* "models--owner--name" in a path into the cache of the Hub's client; *len gets its length. */
static const char *in_cache(const char *path, size_t *len)
{
    static const char *const kinds[] = {"models--", "datasets--"};

    for (size_t i = 0; i < 2; i++)
        for (const char *at = path; (at = strstr(at, kinds[i])) != NULL; at++) {
            size_t n = strcspn(at, "/");

            if ((at == path || at[-1] == '/') && strncmp(at + n, "/snapshots/", 11) == 0) {
                *len = n - strlen(kinds[i]);
                return at + strlen(kinds[i]);
            }
        }
    return NULL;
}

bool run_card_name(char *to, size_t size, const char *path)
{
    const char *hub = strncmp(path, "hf://", 5) == 0 ? path + 5 : NULL, *at = hub ? hub : path;
    size_t n, len;
    const char *cached = hub ? NULL : in_cache(path, &len);
    char *dashes;

    if (cached) {                       /* "--" is the "/" of the name */
        snprintf(to, size, "%.*s", (int)len, cached);
        if ((dashes = strstr(to, "--")) != NULL) {
            *dashes = '/';
            memmove(dashes + 1, dashes + 2, strlen(dashes + 2) + 1);
        }
        return true;
    }
    if (hub && strncmp(hub, "datasets/", 9) == 0)
        at += 9;
    n = strcspn(at, hub ? "@" : "");
    while (n > 1 && at[n - 1] == '/')
        n--;
    for (size_t i = n; !hub && i > 0; i--)
        if (at[i - 1] == '/') {
            n -= i;
            at += i;
            break;
        }
    snprintf(to, size, "%.*s", (int)n, at);
    return hub != NULL;
}

void run_card_inherit(json_t *keys, const struct ckpt_file *card)
{
    static const char *const kept[] = {"license", "license_name", "license_link", "language",
                                       "pipeline_tag"};
    struct ckpt_err ignored = {0};
    uint64_t size = ckpt_file_size(card);
    char *text = size <= MODEL_CARD_MAX ? ckpt_alloc((size_t)size + 1, 1) : NULL;
    json_t *all = NULL;

    if (text && ckpt_file_read_at(card, text, (size_t)size, 0, &ignored) == 0)
        model_card_read(&all, text, (size_t)size, &ignored);
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
        json_t *value = json_object_get(all, kept[i]);

        if (value && (!json_is_string(value) || *json_string_value(value)))
            json_object_set(keys, kept[i], value);
    }
    json_decref(all);
    ckpt_free(text);
}

/* -- figures ---------------------------------------------------------------------------------- */

static double number(const json_t *row, const char *key)
{
    return json_number_value(json_object_get(row, key));
}

const json_t *run_card_last(const json_t *log, const char *key)
{
    const json_t *row = NULL;

    for (size_t i = json_array_size(log); i-- > 0 && !row;)
        if (json_is_number(json_object_get(json_array_get(log, i), key)))
            row = json_array_get(log, i);
    return row;
}

static bool ends(const char *s, const char *with)
{
    size_t n = strlen(s), k = strlen(with);

    return n >= k && strcmp(s + n - k, with) == 0;
}

/* What HF Trainer logs of an evaluation that is no figure of the model. */
static bool is_speed(const char *name)
{
    return ends(name, "_per_second") || ends(name, "runtime") || ends(name, "_time") ||
           ends(name, "samples") || ends(name, "tokens") || ends(name, "mem_cpu_alloc_delta");
}

size_t run_card_figures(struct model_card_result *to, size_t max, const json_t *row,
                        const char *task, const char *dataset)
{
    const char *key;
    json_t *value;
    size_t n = 0;

    json_object_foreach ((json_t *)row, key, value) {
        double v = json_number_value(value);

        if (n == max || strncmp(key, "eval_", 5) != 0 || !key[5] || is_speed(key) ||
            !json_is_number(value) || !isfinite(v))
            continue;
        to[n++] = (struct model_card_result){.task = task, .dataset = dataset, .metric = key + 5,
                                             .value = v};
        if (strcmp(key, "eval_loss") == 0 && n < max && isfinite(exp(v)) &&
            !json_object_get(row, "eval_perplexity"))
            to[n++] = (struct model_card_result){.task = task, .dataset = dataset,
                                                 .metric = "perplexity", .value = exp(v)};
    }
    return n;
}

/* -- Markdown --------------------------------------------------------------------------------- */

void run_card_put_text(struct ckpt_buf *b, const char *s)
{
    for (; *s; s++) {
        if (strchr("\\`*_{}[]<>#|", *s))
            ckpt_buf_put_u8(b, '\\');
        ckpt_buf_put_u8(b, (unsigned char)*s < 0x20 ? ' ' : (uint8_t)*s);
    }
}

void run_card_put_last(struct ckpt_buf *b, const json_t *log)
{
    const json_t *eval = run_card_last(log, "eval_loss");

    if (eval)
        ckpt_buf_printf(b, "It achieves the following results on the evaluation set:\n"
                        "- Loss: %.4f\n- Perplexity: %.4f\n\n", number(eval, "eval_loss"),
                        exp(number(eval, "eval_loss")));
}

void run_card_put_table(struct ckpt_buf *b, const json_t *log)
{
    const json_t *row, *trained = NULL;
    size_t i;

    if (!run_card_last(log, "eval_loss"))
        return;
    ckpt_buf_put_str(b, "### Training results\n\n| Training Loss | Epoch | Step | Validation Loss "
                     "|\n|:---:|:---:|:---:|:---:|\n");
    json_array_foreach(log, i, row) {
        char loss[32] = "No log";

        if (json_is_number(json_object_get(row, "loss")))
            trained = row;
        if (!json_is_number(json_object_get(row, "eval_loss")))
            continue;
        if (trained)
            snprintf(loss, sizeof loss, "%.4f", number(trained, "loss"));
        ckpt_buf_printf(b, "| %s | %.4f | %lld | %.4f |\n", loss, number(row, "epoch"),
                        (long long)json_integer_value(json_object_get(row, "step")),
                        number(row, "eval_loss"));
    }
    ckpt_buf_put_u8(b, '\n');
}
