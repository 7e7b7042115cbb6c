/* card - see card.h. */
#include "trainer/tell/card.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/base/buf.h"
#include "libckpt/ckpt.h"
#include "formats/hf/side_files.h"
#include "libckpt/mem.h"
#include "trainer/checkpoint/final.h"

enum { CARD_MAX = 1 << 20, HEAD_MAX = 1 << 16 };

/* What of a path or an address may be told: owner/name of one on the Hub, else the last part. */
static void public_name(char *to, size_t size, const char *path)
{
    const char *hub = strncmp(path, "hf://", 5) == 0 ? path + 5 : NULL, *at = hub ? hub : path;
    size_t n = strlen(at);

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
}

/* A scalar of YAML in double quotes, which are JSON's. */
static void put_quoted(struct ckpt_buf *b, const char *s)
{
    ckpt_buf_put_u8(b, '"');
    for (; *s; s++) {
        if (*s == '"' || *s == '\\')
            ckpt_buf_put_u8(b, '\\');
        ckpt_buf_put_u8(b, (unsigned char)*s < 0x20 ? ' ' : (uint8_t)*s);
    }
    ckpt_buf_put_u8(b, '"');
}

/* Text within Markdown: no line ends, and no markup. */
static void put_text(struct ckpt_buf *b, const char *s)
{
    for (; *s; s++) {
        if (strchr("\\`*_{}[]<>#|", *s))
            ckpt_buf_put_u8(b, '\\');
        ckpt_buf_put_u8(b, (unsigned char)*s < 0x20 ? ' ' : (uint8_t)*s);
    }
}

/* The value of "license:" in the front matter of the base's card, if it is a plain word. */
static void base_license(char license[64], const struct side_files *side)
{
    struct ckpt_err ignored = {0};
    char *text = ckpt_alloc(HEAD_MAX + 1, 1), *line, *end;

    license[0] = '\0';
    for (size_t i = 0; text && i < side->n; i++) {
        const struct ckpt_file *f = side->item[i].file;
        size_t n;

        if (strcmp(side->item[i].name, "README.md") != 0)
            continue;
        n = ckpt_file_size(f) < HEAD_MAX ? (size_t)ckpt_file_size(f) : HEAD_MAX;
        if (ckpt_file_read_at(f, text, n, 0, &ignored) || strncmp(text, "---\n", 4) != 0)
            continue;
        if ((end = strstr(text + 4, "\n---")) != NULL)
            *end = '\0';
        line = end ? strstr(text + 3, "\nlicense:") : NULL;
        if (!line)
            continue;
        line += strlen("\nlicense:");
        line += strspn(line, " \"'");
        for (n = 0; n < 63; n++) {
            if (!isalnum((unsigned char)line[n]) && (!line[n] || !strchr(".-_", line[n])))
                break;
            license[n] = line[n];
        }
        license[n] = '\0';
    }
    ckpt_free(text);
}

/* Names of the training data that the Hub has, or the given name of the data. */
static void put_datasets(struct ckpt_buf *b, const struct settings *s)
{
    char name[512];
    bool any = false;

    for (size_t i = 0; i < s->n_train; i++) {
        if (strncmp(s->train[i], "hf://datasets/", 14) != 0)
            continue;
        public_name(name, sizeof name, s->train[i]);
        ckpt_buf_put_str(b, any ? "- " : "datasets:\n- ");
        put_quoted(b, name);
        ckpt_buf_put_u8(b, '\n');
        any = true;
    }
}

static const json_t *last_with(const json_t *log, const char *key)
{
    const json_t *row = NULL;

    for (size_t i = json_array_size(log); i-- > 0 && !row;)
        if (json_is_number(json_object_get(json_array_get(log, i), key)))
            row = json_array_get(log, i);
    return row;
}

static double number(const json_t *row, const char *key)
{
    return json_number_value(json_object_get(row, key));
}

static void put_front(struct ckpt_buf *b, const struct card_facts *f, const char *name,
                      const char *base)
{
    const struct checkpoint *c = f->checkpoint;
    char license[64];

    base_license(license, c->side);
    ckpt_buf_printf(b, "---\nlibrary_name: %s\n", f->adapter ? "peft" : "transformers");
    if (*license)
        ckpt_buf_printf(b, "license: %s\n", license);
    if (*base) {
        ckpt_buf_put_str(b, "base_model: ");
        put_quoted(b, base);
        ckpt_buf_put_u8(b, '\n');
    }
    put_datasets(b, c->settings);
    ckpt_buf_printf(b, "tags:\n- generated_from_trainer\n%s", f->adapter ? "- lora\n" : "");
    ckpt_buf_put_str(b, "model-index:\n- name: ");
    put_quoted(b, name);
    ckpt_buf_put_str(b, "\n  results: []\n---\n\n" FINAL_CARD_MARK "\n\n");
}

static void put_parameters(struct ckpt_buf *b, const struct card_facts *f)
{
    const struct settings *s = f->checkpoint->settings;
    int64_t each = s->per_device_train_batch_size, accumulate = s->gradient_accumulation_steps;

    ckpt_buf_printf(b, "## Training procedure\n\n### Training hyperparameters\n\n"
                    "- learning_rate: %g\n- train_batch_size: %lld\n- eval_batch_size: %lld\n"
                    "- seed: %llu\n- num_devices: %d\n- gradient_accumulation_steps: %lld\n"
                    "- total_train_batch_size: %lld\n", s->learning_rate, (long long)each,
                    (long long)s->per_device_eval_batch_size, (unsigned long long)s->seed,
                    f->world_size, (long long)accumulate,
                    (long long)(each * accumulate * f->world_size));
    ckpt_buf_printf(b, "- optimizer: %s with betas=(%g,%g) and epsilon=%g\n"
                    "- lr_scheduler_type: %s\n- lr_scheduler_warmup_steps: %lld\n"
                    "- training_steps: %lld\n- epochs: %.4g\n- precision: %s\n", s->optim,
                    s->adam_beta1, s->adam_beta2, s->adam_epsilon, s->lr_scheduler_type,
                    (long long)f->checkpoint->schedule->warmup_steps,
                    (long long)f->checkpoint->state->global_step, f->checkpoint->state->epoch,
                    s->bf16 ? "bfloat16" : s->fp16 ? "float16" : "float32");
    if (f->adapter && s->lora_rank > 0)
        ckpt_buf_printf(b, "- lora_rank: %lld, lora_alpha: %g, lora_dropout: %g\n",
                        (long long)s->lora_rank, s->lora_alpha, s->lora_dropout);
    ckpt_buf_put_u8(b, '\n');
}

/* A row for each evaluation, with the last logged loss before it. */
static void put_results(struct ckpt_buf *b, const json_t *log)
{
    const json_t *row, *trained = NULL;
    size_t i;

    if (!last_with(log, "eval_loss"))
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

int card_make(char **text, const struct card_facts *f, struct ckpt_err *err)
{
    const struct checkpoint *c = f->checkpoint;
    const json_t *log = c->state->log_history, *eval = last_with(log, "eval_loss");
    char name[512], base[512];
    struct ckpt_buf b;

    *text = NULL;
    public_name(name, sizeof name, c->settings->output_dir);
    public_name(base, sizeof base, f->base);
    ckpt_buf_init(&b, CARD_MAX);
    put_front(&b, f, name, base);
    ckpt_buf_put_str(&b, "# ");
    put_text(&b, name);
    ckpt_buf_put_str(&b, "\n\n");
    if (*base) {
        ckpt_buf_printf(&b, "This model is %s of ", f->adapter ? "a LoRA adapter"
                                                                : "a fine-tuned version");
        put_text(&b, base);
        ckpt_buf_put_str(&b, ".\n\n");
    } else {
        ckpt_buf_put_str(&b, "This model was trained from scratch.\n\n");
    }
    if (eval)
        ckpt_buf_printf(&b, "It achieves the following results on the evaluation set:\n"
                        "- Loss: %.4f\n- Perplexity: %.4f\n\n", number(eval, "eval_loss"),
                        exp(number(eval, "eval_loss")));
    put_parameters(&b, f);
    put_results(&b, log);
    ckpt_buf_put_str(&b, "### Versions\n\n- ckpt " CKPT_VERSION "\n");
    if (!ckpt_buf_ok(&b) || !(*text = ckpt_strdup(ckpt_buf_str(&b)))) {
        ckpt_buf_release(&b);
        return ckpt_nomem(err, CARD_MAX);
    }
    ckpt_buf_release(&b);
    return 0;
}
