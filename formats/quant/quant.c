/* quant - see quant.h. */
#include "formats/quant/quant.h"

#include <stdio.h>
#include <string.h>

#include "formats/quant/kinds.h"
#include "formats/quant/read.h"
#include "formats/bnb/bnb.h"
#include "formats/bnb/parts.h"

/* -- what it is ------------------------------------------------------------------------------ */

/* Whether it is a matrix of a dtype that no model computes with. */
static bool has_codes(const struct ckpt_tensor *t)
{
    static const enum ckpt_dtype codes[] = {
        CKPT_U8, CKPT_I8, CKPT_U16, CKPT_I16, CKPT_U32, CKPT_I32, CKPT_F8_E4M3, CKPT_F8_E5M2,
        CKPT_F8_E4M3FNUZ, CKPT_F8_E5M2FNUZ, CKPT_F4, CKPT_F6_E2M3, CKPT_F6_E3M2,
    };

    for (size_t k = 0; t->shape.rank >= 2 && k < sizeof codes / sizeof codes[0]; k++)
        if (t->dtype == codes[k])
            return true;
    return false;
}

/* The row of the table, and the number of packed tensors. */
static int find(const struct quant_kind **kind, size_t *n, struct quant_config *config,
                const struct ckpt_source *src, struct ckpt_err *err)
{
    static const struct quant_config bnb = {.method = "bitsandbytes"};
    const struct quant_kind *seen = NULL;
    size_t n_shown = 0, n_codes = 0;
    const char *what;
    int rc;

    *kind = NULL;
    *n = 0;
    if ((rc = quant_config_read(config, src, err)) != 0)
        return rc;
    for (size_t i = 0; i < ckpt_source_count(src); i++) {
        const struct quant_kind *k = quant_kind_shown(src, i);

        n_shown += k != NULL;
        n_codes += has_codes(ckpt_source_tensor(src, i));
        if (k && (!seen || seen->is_read))
            seen = k;                   /* one that is not read decides */
    }
    *n = bnb_count(src, &what);
    if (*n) {
        *kind = quant_kind_of(&bnb);
        return 0;
    }
    *n = n_shown ? n_shown : n_codes;
    if (config->method[0] && *n)
        *kind = seen && !seen->is_read ? seen : quant_kind_of(config);
    else
        *kind = seen;
    *n = *kind ? *n : 0;
    return 0;
}

int quant_tell(struct quant_told *out, const struct ckpt_source *src, struct ckpt_err *err)
{
    struct quant_config config;
    const struct quant_kind *kind;
    const char *what;
    int rc;

    memset(out, 0, sizeof *out);
    if ((rc = find(&kind, &out->n, &config, src, err)) != 0)
        return rc;
    if (!kind)
        return 0;
    bnb_count(src, &what);
    snprintf(out->what, sizeof out->what, "%s%s%s%s", kind->name, what ? " (" : "",
             what ? what : "", what ? ")" : "");
    if (!kind->method[0])
        snprintf(out->what, sizeof out->what, "%s (%s)", kind->name, config.method);
    out->is_read = kind->is_read;
    out->hint = kind->hint;
    return 0;
}

/* -- the view -------------------------------------------------------------------------------- */

/* Refuse, naming the library and its layout. */
static int refuse(const struct quant_kind *kind, const struct quant_config *config,
                  struct ckpt_err *err)
{
    bool named = kind->method[0] != '\0';

    ckpt_fail_as(err, CKPT_EUNSUPPORTED, "quantised", "weights are quantised by %s%s%s%s, which is "
                 "not read", kind->name, named ? "" : " (", named ? "" : config->method,
                 named ? "" : ")");
    return kind->hint ? ckpt_err_hint(err, "%s", kind->hint) : ckpt_err_code(err);
}

bool quant_is_packed(const struct ckpt_source *src, size_t i)
{
    return bnb_kind(src, i) || quant_kind_shown(src, i);
}

int quant_check_config(const json_t *config, struct ckpt_err *err)
{
    const struct quant_kind *kind;
    struct quant_config c;
    int rc;

    if ((rc = quant_config_of(&c, config, err)) != 0)
        return rc;
    kind = c.method[0] ? quant_kind_of(&c) : NULL;
    return kind && !kind->is_read ? refuse(kind, &c, err) : 0;
}

int quant_view(struct ckpt_source **out, struct ckpt_source *src, struct ckpt_err *err)
{
    const struct quant_kind *kind;
    struct quant_config config;
    struct quant_seen_list list = {.size = sizeof(struct quant_part), .read = quant_read};
    const char *what;
    size_t n;
    int rc = find(&kind, &n, &config, src, err);

    *out = rc || kind ? NULL : src;
    if (rc == 0 && !kind)
        return 0;
    if (rc == 0 && !kind->is_read)
        rc = refuse(kind, &config, err);
    if (rc) {
        ckpt_source_close(src);
        return rc;
    }
    if (bnb_count(src, &what)) {
        rc = bnb_view(out, src, err);
    } else {
        rc = quant_parts(&list, src, &config, err);
        rc = quant_seen_view(out, src, &list, rc, err);
    }
    return rc ? rc : quant_config_drop(out, err);
}
