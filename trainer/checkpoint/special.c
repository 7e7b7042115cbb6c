/* checkpoint/special - see checkpoint/special.h. */
#include "trainer/checkpoint/special.h"

#include <string.h>

#include "formats/families/arch.h"
#include "formats/hf/config_text.h"
#include "libckpt/base/json.h"
#include "libckpt/log.h"

/* -- in a run --------------------------------------------------------------------------------- */

/* A setting, and what the tokenizer has. */
struct named {
    const char *setting, *token;
    int32_t     had;
    const char *fixed;          /* why another one is refused; NULL: it is not */
};

static int refuse(const struct named *w, const char *why, struct ckpt_err *err)
{
    return ckpt_fail(err, CKPT_ECONFIG, "`%s %s` %s", w->setting, w->token, why);
}

static int check(bool *changed, const struct session *s, const struct named *w,
                 struct ckpt_err *err)
{
    int32_t id = s->tokenizer ? tokenizer_id(s->tokenizer, w->token) : -1;
    const char *had = s->tokenizer ? tokenizer_token(s->tokenizer, w->had) : NULL;

    if (!s->tokenizer)
        return refuse(w, "needs a tokenizer, and the model has none", err);
    if (id < 0)
        return refuse(w, "is no token of the vocabulary, which stays as it is", err);
    if (id >= s->arch->vocab_size)
        return ckpt_fail(err, CKPT_ECONFIG, "`%s %s` has id %d, the model has %lld (vocab_size)",
                         w->setting, w->token, id, (long long)s->arch->vocab_size);
    if (id != w->had && w->fixed)
        return ckpt_fail(err, CKPT_ECONFIG, "`%s %s`: the tokenizer has %s, and %s", w->setting,
                         w->token, had ? had : "none", w->fixed);
    *changed |= id != w->had;
    return 0;
}

/* Whether the token that pads is left out: it pads nothing. */
static bool leaves_out(const struct session *s, const struct settings *set)
{
    return set->pad_token && !set->loss_on_padding && s->arch->stack != ARCH_ENCODER_DECODER &&
           (!s->tokenizer || tokenizer_id(s->tokenizer, set->pad_token) < 0);
}

struct special special_of(const struct session *s, const struct settings *set)
{
    bool pads = set->pad_token && !leaves_out(s, set);

    return (struct special){
        .eos = set->eos_token, .pad = pads ? set->pad_token : NULL,
        .eos_id = set->eos_token ? tokenizer_id(s->tokenizer, set->eos_token) : -1,
        .pad_id = pads ? tokenizer_id(s->tokenizer, set->pad_token) : -1,
    };
}

static bool has_id(const json_t *v, int32_t id)
{
    for (size_t i = 0; i < json_array_size(v); i++)
        if (has_id(json_array_get(v, i), id))
            return true;
    return json_is_integer(v) && json_integer_value(v) == id;
}

/* The ids with another one before them; yours, NULL without memory. */
static json_t *with_id(const json_t *v, int32_t id)
{
    json_t *all = json_pack("[i]", id);
    int bad = 0;

    for (size_t i = 0; all && i < json_array_size(v); i++)
        bad |= json_array_append(all, json_array_get(v, i));
    if (all && json_is_integer(v))
        bad |= json_array_append_new(all, json_integer(json_integer_value(v)));
    if (bad) {
        json_decref(all);
        all = NULL;
    }
    return all;
}

/* config.json's member: a list grows, since each of its tokens ends a text. */
static int describe(json_t *config, const char *key, int32_t id, struct ckpt_err *err)
{
    json_t *v = json_object_get(config, key);

    if (has_id(v, id))
        return 0;
    return json_object_set_new(config, key, json_is_array(v) ? with_id(v, id) : json_integer(id))
               ? ckpt_nomem(err, sizeof *v) : 0;
}

int special_use(struct session *s, const struct settings *set, struct ckpt_err *err)
{
    const struct tokenizer *t = s->tokenizer;
    bool without = leaves_out(s, set), changed = false;
    const struct named all[] = {
        {"eos_token", set->eos_token, t ? tokenizer_eos(t) : -1, NULL},
        {"pad_token", without ? NULL : set->pad_token, t ? tokenizer_pad(t) : -1, NULL},
        {"bos_token", set->bos_token, t ? tokenizer_bos(t) : -1, "texts begin as its files say"},
        {"unk_token", set->unk_token, t ? tokenizer_unk(t) : -1,
         "what is unknown is what its files say"},
    };
    struct special to;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < sizeof all / sizeof all[0]; i++)
        if (all[i].token)
            rc = check(&changed, s, &all[i], err);
    if (rc)
        return rc;
    if (without && s->comm->rank == 0)
        ckpt_log(CKPT_LOG_WARNING, "`pad_token %s` is left out: it is no token of the vocabulary, "
                 "and nothing is padded", set->pad_token);
    to = special_of(s, set);
    if (changed) {
        tokenizer_close(s->tokenizer);
        s->tokenizer = NULL;
        rc = tokenizer_open_dir_as(&s->tokenizer, s->tokenizer_dir,
                                   &(struct tokenizer_special){.eos = to.eos, .pad = to.pad}, err);
    }
    if (rc == 0 && to.eos)
        rc = describe(arch_config(s->arch), "eos_token_id", to.eos_id, err);
    if (rc == 0 && to.pad) {
        s->arch->label_pad_token_id = to.pad_id;
        rc = describe(arch_config(s->arch), "pad_token_id", to.pad_id, err);
    }
    return rc;
}

/* -- in files --------------------------------------------------------------------------------- */

enum member { TOKEN, ID, IDS };

static const struct row {
    const char *file, *key;
    enum member kind;
    bool        pad;
} rows[] = {
    {"tokenizer_config.json", "eos_token", TOKEN, false},
    {"tokenizer_config.json", "pad_token", TOKEN, true},
    {"special_tokens_map.json", "eos_token", TOKEN, false},
    {"special_tokens_map.json", "pad_token", TOKEN, true},
    {"generation_config.json", "eos_token_id", IDS, false},
    {"generation_config.json", "pad_token_id", ID, true},
};

/* The member's new text; empty: it stays. */
static int value_of(struct ckpt_buf *b, const struct row *r, const json_t *v,
                    const struct special *special, struct ckpt_err *err)
{
    const char *token = r->pad ? special->pad : special->eos, *has;
    int32_t id = r->pad ? special->pad_id : special->eos_id;
    json_t *all = NULL;
    int rc = 0;

    has = json_string_value(json_is_object(v) ? json_object_get(v, "content") : v);
    if (!token || (r->kind == TOKEN ? has && strcmp(has, token) == 0 : has_id(v, id)))
        return 0;
    if (r->kind == TOKEN)
        ckpt_json_put_string(b, token, strlen(token));
    else if (r->kind == ID)
        ckpt_buf_printf(b, "%d", id);
    else if (!(all = with_id(v, id)))
        rc = ckpt_nomem(err, sizeof *all);
    else
        rc = ckpt_json_write(b, all, 0, false, err);
    json_decref(all);
    return rc == 0 && !ckpt_buf_ok(b) ? ckpt_nomem(err, b->len) : rc;
}

int special_say(struct ckpt_buf *out, const char *name, const char *text, size_t n,
                const struct special *special, struct ckpt_err *err)
{
    struct ckpt_err ignored = {0};
    json_t *root = NULL;
    int rc = 0;

    if (!special->eos && !special->pad)
        return 0;
    for (size_t i = 0; rc == 0 && i < sizeof rows / sizeof rows[0]; i++) {
        struct ckpt_buf value, next;

        if (strcmp(rows[i].file, name) != 0)
            continue;
        if (!root && (ckpt_json_parse(&root, text, n, CKPT_JSON_PYTHON, &ignored) ||
                      !json_is_object(root)))
            break;
        ckpt_buf_init(&value, (size_t)1 << 20);
        ckpt_buf_init(&next, out->limit);
        rc = value_of(&value, &rows[i], json_object_get(root, rows[i].key), special, err);
        if (rc == 0 && value.len)
            rc = config_set(&next, out->len ? (const char *)out->data : text,
                            out->len ? out->len : n, rows[i].key, ckpt_buf_str(&value), err);
        if (rc == 0 && next.len) {
            struct ckpt_buf before = *out;

            *out = next;
            next = before;
        }
        ckpt_buf_release(&next);
        ckpt_buf_release(&value);
    }
    json_decref(root);
    return rc;
}
