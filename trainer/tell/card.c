/* card - see card.h. */
#include "trainer/tell/card.h"

#include <stdio.h>
#include <string.h>

#include "libckpt/base/buf.h"
#include "libckpt/ckpt.h"
#include "formats/hf/run_card.h"
#include "formats/hf/side_files.h"
#include "libckpt/mem.h"
#include "trainer/checkpoint/final.h"

enum { CARD_MAX = 1 << 20 };

/* The base's card, or NULL. */
static const struct ckpt_file *base_card(const struct side_files *side)
{
    for (size_t i = 0; i < side->n; i++)
        if (strcmp(side->item[i].name, "README.md") == 0)
            return side->item[i].file;
    return NULL;
}

/* Names of the training data that the Hub has. */
static json_t *datasets_of(const struct settings *s)
{
    json_t *list = json_array();
    char name[512];

    for (size_t i = 0; list && i < s->n_train; i++)
        if (run_card_name(name, sizeof name, s->train[i]))
            json_array_append_new(list, json_string(name));
    return list;
}

/* What the front matter has beside figures. */
static json_t *keys_of(const struct card_facts *f, const char *base, size_t n_figures)
{
    const struct checkpoint *c = f->checkpoint;
    const struct ckpt_file *card = base_card(c->side);
    json_t *keys = json_object(), *list;

    json_object_set_new(keys, "library_name", json_string(f->adapter ? "peft" : "transformers"));
    if (card)
        run_card_inherit(keys, card);
    if (*base)
        json_object_set_new(keys, "base_model", json_string(base));
    list = datasets_of(c->settings);
    if (json_array_size(list) > 0)
        json_object_set(keys, "datasets", list);
    json_decref(list);
    if (n_figures)
        json_object_set_new(keys, "metrics", json_pack("[s]", "perplexity"));
    json_object_set_new(keys, "tags", f->adapter ? json_pack("[s, s]", "generated_from_trainer",
                                                             "lora")
                                                 : json_pack("[s]", "generated_from_trainer"));
    return keys;
}

/* The task as the Hub calls it: what the base's card says, else by what the model generates. */
static const char *task_of(const struct card_facts *f, const json_t *keys)
{
    const char *said = json_string_value(json_object_get(keys, "pipeline_tag"));

    return said && *said ? said
           : f->encoder ? "text2text-generation" : "text-generation";
}

static int put_front(struct ckpt_buf *b, const struct card_facts *f, const char *name,
                     const char *base, struct ckpt_err *err)
{
    const struct checkpoint *c = f->checkpoint;
    const struct settings *s = c->settings;
    const json_t *eval = run_card_last(c->state->log_history, "eval_loss");
    struct model_card_result figure[16];
    char data[512] = "";
    size_t n = 0;
    json_t *keys;
    int rc;

    if (s->n_eval > 0 || s->n_train > 0)
        run_card_name(data, sizeof data, s->n_eval > 0 ? s->eval[0] : s->train[0]);
    if (eval && *data)
        n = run_card_figures(figure, sizeof figure / sizeof figure[0], eval, NULL, data);
    if (!(keys = keys_of(f, base, n)))
        return ckpt_nomem(err, 256);
    for (size_t i = 0; i < n; i++) {
        figure[i].task = task_of(f, keys);
        figure[i].split = s->eval_split && *s->eval_split ? s->eval_split : NULL;
    }
    rc = model_card_edit(b, "", 0, keys, name, figure, n, err);
    json_decref(keys);
    ckpt_buf_put_str(b, "\n" FINAL_CARD_MARK "\n\n");
    return rc;
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

int card_make(char **text, const struct card_facts *f, struct ckpt_err *err)
{
    const struct checkpoint *c = f->checkpoint;
    const json_t *log = c->state->log_history;
    int rc;
    char name[512], base[512];
    struct ckpt_buf b;

    *text = NULL;
    run_card_name(name, sizeof name, c->settings->output_dir);
    run_card_name(base, sizeof base, f->base);
    ckpt_buf_init(&b, CARD_MAX);
    if ((rc = put_front(&b, f, name, base, err)) != 0) {
        ckpt_buf_release(&b);
        return rc;
    }
    ckpt_buf_put_str(&b, "# ");
    run_card_put_text(&b, name);
    ckpt_buf_put_str(&b, "\n\n");
    if (*base) {
        ckpt_buf_printf(&b, "This model is %s of ", f->adapter ? "a LoRA adapter"
                                                                : "a fine-tuned version");
        run_card_put_text(&b, base);
        ckpt_buf_put_str(&b, ".\n\n");
    } else {
        ckpt_buf_put_str(&b, "This model was trained from scratch.\n\n");
    }
    run_card_put_last(&b, log);
    put_parameters(&b, f);
    run_card_put_table(&b, log);
    ckpt_buf_put_str(&b, "### Versions\n\n- ckpt " CKPT_VERSION "\n");
    if (!ckpt_buf_ok(&b) || !(*text = ckpt_strdup(ckpt_buf_str(&b)))) {
        ckpt_buf_release(&b);
        return ckpt_nomem(err, CARD_MAX);
    }
    ckpt_buf_release(&b);
    return 0;
}
