/* settings_saved - see settings_saved.h. */
#include "trainer/run/settings_saved.h"

#include <math.h>
#include <string.h>

#include "libckpt/base/json.h"
#include "libckpt/err.h"
#include "trainer/optim/keys.h"
#include "trainer/optim/table.h"

enum kind { TEXT, CHAR, INT, REAL, FLAG, LIST };

struct row {
    const char *name;
    enum kind   kind;
    size_t      at, at_n;               /* offsets in struct settings; of a LIST's length too */
};

#define AT(field) offsetof(struct settings, field)
/* A setting that has its field's name. */
#define OWN(kind, field)  {#field, kind, AT(field), 0}
#define DATA(kind, field) {#field, kind, AT(data.field), 0}
#define NAMES(field)      {#field, LIST, AT(field), AT(n_##field)}

/* What makes samples of the data. */
static const struct row samples[] = {
    OWN(TEXT, train_split), OWN(INT, start_idx), OWN(INT, end_idx), OWN(INT, num_shards),
    OWN(INT, shard_index), OWN(FLAG, shard_strided), OWN(INT, max_train_samples),
    OWN(REAL, train_split_ratio),
    {"dataset_config", TEXT, AT(data.rows.config), 0},
    {"data_field", TEXT, AT(data.rows.field), 0},
    {"csv_delimiter", CHAR, AT(data.rows.delimiter), 0},
    {"csv_columns", TEXT, AT(data.rows.columns), 0},
    {"csv_literal", FLAG, AT(data.rows.literal), 0},
    DATA(TEXT, field_mapping), DATA(TEXT, text_field), DATA(TEXT, messages_field),
    DATA(FLAG, mask_history), DATA(TEXT, prompt_template), DATA(TEXT, completion_template),
    DATA(FLAG, chat_prompts), DATA(FLAG, train_on_prompt), DATA(FLAG, assistant_only_loss),
    DATA(INT, max_seq_length), DATA(INT, max_target_length), DATA(TEXT, truncation_side),
    DATA(FLAG, add_eos_token), OWN(TEXT, excess_length_strategy), OWN(FLAG, loss_on_padding),
    OWN(TEXT, padding_side),
};

/* What makes updates of samples. */
static const struct row updates[] = {
    OWN(TEXT, train_sampling_strategy), OWN(FLAG, dataloader_drop_last), OWN(FLAG, packing),
    OWN(REAL, z_loss), NAMES(lr_for), NAMES(weight_decay_for), OWN(REAL, loraplus_lr_ratio),
    OWN(REAL, loraplus_lr_embedding), OWN(FLAG, master_weights), OWN(FLAG, tf32), OWN(FLAG, fp8),
    OWN(TEXT, fp8_format), OWN(TEXT, reduce_dtype),
    {"loss_scale", REAL, AT(scaler.loss_scale), 0},
    {"loss_scale_window", INT, AT(scaler.loss_scale_window), 0},
    {"hysteresis", INT, AT(scaler.hysteresis), 0},
    {"min_loss_scale", REAL, AT(scaler.min_loss_scale), 0},
};

static json_t *text_of(const char *s) { return s ? ckpt_json_text(s, strlen(s)) : json_null(); }

static json_t *list_of(const char *const *item, size_t n)
{
    json_t *list = json_array();

    for (size_t i = 0; list && i < n; i++)
        if (json_array_append_new(list, text_of(item[i]))) {
            json_decref(list);
            list = NULL;
        }
    return list;
}

static json_t *value_of(const struct row *r, const struct settings *s)
{
    const void *at = (const char *)s + r->at, *at_n = (const char *)s + r->at_n;
    double real;
    char byte;

    switch (r->kind) {
    case CHAR:
        byte = *(const char *)at;
        return byte ? ckpt_json_text(&byte, 1) : json_null();
    case INT:
        return json_integer(*(const int64_t *)at);
    case REAL:
        real = *(const double *)at;
        return isfinite(real) ? json_real(real) : json_null();
    case FLAG:
        return json_boolean(*(const bool *)at);
    case LIST:
        return list_of(*(const char *const *const *)at, *(const size_t *)at_n);
    default:
        return text_of(*(const char *const *)at);
    }
}

/* Whether that failed. */
static bool put_rows(json_t *all, const struct row *row, size_t n, const struct settings *s)
{
    bool bad = false;

    for (size_t i = 0; i < n; i++)
        bad |= json_object_set_new(all, row[i].name, value_of(&row[i], s)) != 0;
    return bad;
}

json_t *settings_saved_keys(const struct schedule *s)
{
    json_t *keys = json_object();
    struct schedule_value key;
    bool bad = !keys;

    for (size_t i = 0; !bad && schedule_key(&key, s, i); i++)
        bad = json_object_set_new(keys, key.name, json_string(key.text)) != 0;
    if (bad) {
        json_decref(keys);
        keys = NULL;
    }
    return keys;
}

static json_t *optim_args(const struct optim_row *row, const struct optim_keys *keys)
{
    json_t *args = json_object();
    char text[KEYS_TEXT];
    const char *name;
    bool bad = !args;

    for (size_t i = 0; !bad && (name = optim_key(text, row, keys, i)) != NULL; i++)
        bad = json_object_set_new(args, name, json_string(text)) != 0;
    if (bad) {
        json_decref(args);
        args = NULL;
    }
    return args;
}

int settings_saved_make(json_t **out, const struct settings *s, struct ckpt_err *err)
{
    const struct optim_row *row = optim_find(s->optim);
    json_t *all = json_object();
    struct optim_keys keys = {0};
    struct schedule schedule;
    int rc = settings_schedule(&schedule, s, err);

    *out = NULL;
    if (rc == 0 && row)
        rc = optim_keys(&keys, row, s->optim_args, err);
    if (rc == 0 &&
        (!all || put_rows(all, samples, sizeof samples / sizeof samples[0], s) ||
         json_object_set_new(all, "data_seed", json_integer(s->data_seed < 0 ? (json_int_t)s->seed
                                                                             : s->data_seed)) ||
         put_rows(all, updates, sizeof updates / sizeof updates[0], s) ||
         json_object_set_new(all, "optim", text_of(s->optim)) ||
         (row && json_object_set_new(all, "optim_args", optim_args(row, &keys))) ||
         json_object_set_new(all, "lr_scheduler_type", text_of(s->lr_scheduler_type)) ||
         json_object_set_new(all, "lr_scheduler_kwargs", settings_saved_keys(&schedule))))
        rc = ckpt_nomem(err, sizeof *all);
    if (rc)
        json_decref(all);
    else
        *out = all;
    return rc;
}

bool settings_saved_of_samples(const char *name)
{
    for (size_t i = 0; i < sizeof samples / sizeof samples[0]; i++)
        if (strcmp(samples[i].name, name) == 0)
            return true;
    return false;
}
