/* gate - see gate.h. */
#include "tools/eval/gate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/buf.h"

enum kind { ABOVE, BELOW, WORSE };

static const char *const options[] = {"fail-above", "fail-below", "fail-worse-than-base"};

struct bound {
    const char *text;
    enum kind   kind;
    size_t      n_name;         /* bytes of the figure's name, text's first; 0: every figure */
    double      limit;
    bool        percent;        /* of the base's value */
};

static int parse(struct bound *b, enum kind kind, const char *text, struct ckpt_err *err)
{
    const char *sign = strchr(text, '=');
    char *end;

    *b = (struct bound){.text = text, .kind = kind, .n_name = sign ? (size_t)(sign - text) : 0};
    b->limit = strtod(sign ? sign + 1 : text, &end);
    b->percent = kind == WORSE && *end == '%';
    if (*end == '%' && kind == WORSE)
        end++;
    if (*end || end == (sign ? sign + 1 : text) || !isfinite(b->limit) ||
        (kind == WORSE && b->limit < 0) || (kind != WORSE && b->n_name == 0))
        return ckpt_fail(err, CKPT_EUSAGE, "--%s %.80s: %s", options[kind], text,
                         kind == WORSE ? "wanted is a share or a difference, such as 1% or "
                                         "f1=0.5"
                                       : "wanted is a figure and its bound, such as loss=3.2");
    return 0;
}

static const struct opt_list *list_of(const struct gate_want *w, enum kind kind)
{
    return kind == ABOVE ? &w->above : kind == BELOW ? &w->below : &w->worse;
}

int gate_check(const struct gate_want *w, struct ckpt_err *err)
{
    struct bound b;
    int rc;

    for (enum kind kind = ABOVE; kind <= WORSE; kind++)
        for (size_t i = 0; i < list_of(w, kind)->n; i++)
            if ((rc = parse(&b, kind, list_of(w, kind)->item[i], err)) != 0)
                return rc;
    return 0;
}

/* Say why a figure is beyond its bound, if it is. */
static void compare(struct ckpt_buf *why, const struct bound *b, const struct figure *g)
{
    double worse = score_falls(g->name) ? g->value - g->base : g->base - g->value;
    double most = b->percent ? fabs(g->base) * b->limit / 100 : b->limit;
    const char *comma = why->len ? "; " : "";

    if (b->kind == ABOVE && !(g->value <= b->limit))
        ckpt_buf_printf(why, "%s%s is %.6g, above %.6g", comma, g->name, g->value, b->limit);
    else if (b->kind == BELOW && !(g->value >= b->limit))
        ckpt_buf_printf(why, "%s%s is %.6g, below %.6g", comma, g->name, g->value, b->limit);
    else if (b->kind == WORSE && isnan(worse))
        ckpt_buf_printf(why, "%s%s is %.6g, not to be compared with the base's %.6g", comma,
                        g->name, g->value, g->base);
    else if (b->kind == WORSE && !(worse <= most)) {
        bool percent = b->percent && g->base != 0;      /* no share of 0 */
        double told = percent ? 100 * worse / fabs(g->base) : worse;

        ckpt_buf_printf(why, "%s%s is %.6g, %.*g%s worse than the base's %.6g", comma, g->name,
                        g->value, told >= 1000 && told < 1e6 ? 6 : 3, told, percent ? "%" : "",
                        g->base);
    }
}

static bool is_named(const struct bound *b, const char *figure)
{
    return strncmp(figure, b->text, b->n_name) == 0 && figure[b->n_name] == '\0';
}

/* names: of the figures that there are, parted by blanks. */
static int unknown(const struct bound *b, struct ckpt_buf *names, struct ckpt_err *err)
{
    const char *metric = score_metric_with(b->text, b->n_name);
    const char *have = ckpt_buf_ok(names) ? ckpt_buf_str(names) : "";

    ckpt_fail(err, CKPT_EUSAGE, "--%s %.80s: there is no such figure", options[b->kind], b->text);
    if (metric && strcmp(metric, "choices") == 0)
        ckpt_err_hint(err, "figures: %.200s; --task multiple-choice gives it", have);
    else if (metric && strcmp(metric, "loss") != 0)
        ckpt_err_hint(err, "figures: %.200s; --metric %s gives it", have, metric);
    else
        ckpt_err_hint(err, "figures: %.200s", *have ? have : "none");
    return CKPT_EUSAGE;
}

int gate_check_figures(const struct gate_want *w, const struct opt_list *metrics,
                       struct ckpt_err *err)
{
    struct bound b;
    int rc = 0;

    for (enum kind kind = ABOVE; kind <= WORSE; kind++)
        for (size_t i = 0; rc == 0 && i < list_of(w, kind)->n; i++) {
            struct ckpt_buf names;
            bool any;

            if ((rc = parse(&b, kind, list_of(w, kind)->item[i], err)) != 0)
                break;
            any = b.n_name == 0;
            ckpt_buf_init(&names, SIZE_MAX);
            for (size_t m = 0, n; m < metrics->n; m++) {
                const char *const *figure = score_figures_of(&n, metrics->item[m]);

                for (size_t k = 0; k < n; k++) {
                    any |= is_named(&b, figure[k]);
                    ckpt_buf_printf(&names, "%s%s", names.len ? " " : "", figure[k]);
                }
            }
            rc = any ? 0 : unknown(&b, &names, err);
            ckpt_buf_release(&names);
        }
    return rc;
}

/* A figure that there was none of, such as bits of no bytes. */
static int absent(const struct bound *b, const struct figures *f, struct ckpt_err *err)
{
    struct ckpt_buf names;

    ckpt_buf_init(&names, SIZE_MAX);
    for (size_t i = 0; i < f->n; i++)
        ckpt_buf_printf(&names, "%s%s", i ? " " : "", f->of[i].name);
    unknown(b, &names, err);
    ckpt_buf_release(&names);
    return CKPT_EUSAGE;
}

int gate_pass(const struct gate_want *w, const struct figures *f, const char *who,
              struct ckpt_err *err)
{
    struct ckpt_buf why;
    struct bound b;
    int rc = 0;

    ckpt_buf_init(&why, SIZE_MAX);
    for (enum kind kind = ABOVE; rc == 0 && kind <= WORSE; kind++)
        for (size_t i = 0; rc == 0 && i < list_of(w, kind)->n; i++) {
            bool any = false;

            rc = parse(&b, kind, list_of(w, kind)->item[i], err);
            for (size_t k = 0; rc == 0 && k < f->n; k++)
                if (b.n_name == 0 || is_named(&b, f->of[k].name)) {
                    any = true;
                    compare(&why, &b, &f->of[k]);
                }
            if (rc == 0 && !any)
                rc = absent(&b, f, err);
        }
    if (rc == 0 && why.len)
        rc = ckpt_fail_as(err, CKPT_ENO, "gate", "%s: %s", who,
                          ckpt_buf_ok(&why) ? ckpt_buf_str(&why) : "beyond a bound");
    ckpt_buf_release(&why);
    return rc;
}
