/* peft/head - see peft/head.h.  Source: peft 0.21 utils/other.py, tuners/tuners_utils.py. */
#include "formats/peft/head.h"

#include <string.h>

#include "formats/peft/names.h"
#include "formats/peft/tied.h"

#define NONE PEFT_NONE

bool peft_is_head(const struct peft_updates *m, size_t i)
{
    return strncmp(peft_of_adapter(m, i)->name, "base_model.model.lm_head.", 25) == 0;
}

bool peft_is_tied_head(const struct peft_updates *m, const char *module, const char *suffix)
{
    return m->embedding != NONE && peft_module_ends(module, "lm_head") &&
           strcmp(suffix, ".weight") == 0;
}

struct ckpt_lora_update *peft_new_head(struct peft_updates *m, const char *module)
{
    char *as = ckpt_arena_printf(&m->arena, "%s.weight", module);

    if (!as) {
        ckpt_nomem(m->err, strlen(module));
        return NULL;
    }
    m->untied = true;
    return peft_update_new(m, m->embedding, as);
}

/* Without factors of the head, none were trained as one with the embedding's: of GPT-2, BLOOM and
 * T5 peft finds no tied module, whatever was wished. */
void peft_skip_head(struct peft_updates *m)
{
    size_t n = ckpt_source_count(m->adapter);
    bool any = false;

    for (size_t i = 0; i < n; i++)
        any |= peft_is_head(m, i) && strstr(peft_of_adapter(m, i)->name, ".lora_");
    m->config.keeps_ties &= any;
    for (size_t i = 0; i < n; i++)
        if (m->config.keeps_ties && m->embedding != NONE && peft_is_head(m, i))
            m->taken[i] = true;
}

/* The embedding's update by the current adapter, or NULL. */
static const struct ckpt_lora_update *of_embedding(const struct peft_updates *m)
{
    return m->embedding == NONE || m->of_base[m->embedding] == NONE
               ? NULL : &m->update[m->of_base[m->embedding]];
}

int peft_take_head_copy(bool *took, struct peft_updates *m, size_t i, const char *module,
                        const char *suffix)
{
    const struct ckpt_lora_update *e = of_embedding(m);
    int rc;

    *took = false;
    if (!e || e->own == NONE || !peft_is_tied_head(m, module, suffix))
        return 0;
    if ((rc = peft_same_bytes(took, m->adapter, i, e->own, m->err)) != 0)
        return rc;
    m->taken[i] = *took;
    m->tied_copy |= *took;
    return 0;
}

int peft_take_head_rows(bool *took, struct peft_updates *m, size_t i, const int64_t *row, size_t n)
{
    const struct ckpt_lora_update *e = of_embedding(m);
    int rc;

    *took = false;
    if (!e || e->rows == NONE || e->n_row != n || memcmp(e->row, row, n * sizeof *row) != 0)
        return 0;
    rc = peft_same_bytes(took, m->adapter, i, e->rows, m->err);
    m->taken[i] |= rc == 0 && *took;
    return rc;
}

/* Whether the same adapter has rows for the head itself. */
static bool has_rows(const struct peft_updates *m, size_t n, const char *as, size_t from)
{
    for (size_t k = 0; k < n; k++)
        if (m->update[k].as && strcmp(m->update[k].as, as) == 0 && m->update[k].from == from &&
            m->update[k].rows != NONE)
            return true;
    return false;
}

int peft_follow(struct peft_updates *m)
{
    const char *as = NULL;
    size_t n = m->n;

    for (size_t k = 0; k < n; k++)
        as = m->update[k].as ? m->update[k].as : as;
    for (size_t k = 0; as && k < n; k++) {
        struct ckpt_lora_update u = m->update[k], *to;
        bool rows_alone = u.rows != NONE && u.a == NONE && u.own == NONE;

        if (u.as || u.base != m->embedding || !(rows_alone || m->both[u.from]) ||
            has_rows(m, n, as, u.from))
            continue;
        to = peft_update_new(m, u.base, as);
        if (!to)
            return ckpt_err_code(m->err);
        *to = u;
        to->as = as;
    }
    return 0;
}

/* Rows of the base's tensor, or of the update's copy of it; a copy of another width has its own
 * message. */
static int64_t rows_of(const struct peft_updates *m, size_t base, const struct ckpt_lora_update *u)
{
    const struct ckpt_shape *w = &ckpt_source_tensor(m->base, base)->shape;
    const struct ckpt_shape *s = u && u->own != NONE && u->resized
                                     ? &peft_of_adapter(m, u->own)->shape : w;

    return w->rank != 2 ? 0 : s->rank == 2 && s->dim[1] == w->dim[1] ? s->dim[0] : w->dim[0];
}

int peft_check_rows(const struct peft_updates *m)
{
    size_t e = peft_find_embedding(m->base), head = ckpt_source_find(m->base, "lm_head.weight");
    const struct ckpt_lora_update *ue = NULL, *uh = NULL;
    int64_t ne, nh;

    for (size_t k = 0; k < m->n; k++) {
        const struct ckpt_lora_update *u = &m->update[k];

        if (u->from != m->from)
            continue;
        if (u->as || (u->base == head && head != SIZE_MAX))
            uh = u;
        else if (u->base == e)
            ue = u;
    }
    if (e == SIZE_MAX || (head == SIZE_MAX && !uh))
        return 0;
    ne = rows_of(m, e, ue);
    nh = rows_of(m, head == SIZE_MAX ? e : head, uh);
    if (ne == nh || rows_of(m, e, NULL) != rows_of(m, head == SIZE_MAX ? e : head, NULL))
        return 0;
    ckpt_fail_as(m->err, CKPT_EMISMATCH, "shape",
                 "%s has %lld rows with the adapter, the head %lld: the adapter was saved without "
                 "the other's new rows", ckpt_source_tensor(m->base, e)->name, (long long)ne,
                 (long long)nh);
    return ckpt_err_hint(m->err, "resize the base as it was for training, and merge into that");
}
