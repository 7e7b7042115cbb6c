/* row_keys - see row_keys.h. */
#include "tools/eval/row_keys.h"

#include <string.h>

#include "libckpt/base/map.h"

int row_keys_init(struct row_keys *k, struct answers *a, struct ckpt_err *err)
{
    k->n = a->n;
    k->key = ckpt_arena_alloc(&a->arena, a->n + 1, sizeof *k->key);
    return k->key ? 0 : ckpt_nomem(err, a->n * sizeof *k->key);
}

void row_keys_release(struct row_keys *k)
{
    ckpt_map_free(k->map);
    memset(k, 0, sizeof *k);
}

int row_keys_note(struct row_keys *k, struct answers *a, size_t i, const json_t *record,
                  struct ckpt_err *err)
{
    static const char *const fields[] = {"index", "id"};
    const json_t *v = NULL;
    const char *field = NULL;

    for (size_t f = 0; !v && f < sizeof fields / sizeof fields[0]; f++) {
        if (k->field && strcmp(k->field, fields[f]) != 0)
            continue;                   /* the rows before this one have the other */
        v = json_object_get(record, fields[f]);
        v = json_is_integer(v) || json_is_string(v) ? v : NULL;
        field = fields[f];
    }
    if (!v)
        return 0;
    k->field = field;
    k->n_keys++;
    return (k->key[i] = answers_text(a, v)) ? 0 : ckpt_nomem(err, 64);
}

/* Whether every row has a key. */
static bool all_keyed(const struct row_keys *k) { return k->n > 0 && k->n_keys == k->n; }

int row_keys_end(struct row_keys *k, struct ckpt_err *err)
{
    int rc = ckpt_map_new(&k->map, k->n, err);

    for (size_t i = 0; rc == 0 && all_keyed(k) && i < k->n; i++) {
        size_t len = strlen(k->key[i]);

        if (ckpt_map_get(k->map, k->key[i], len) == CKPT_MAP_NONE) {
            rc = ckpt_map_add(k->map, k->key[i], len, i, err);
            continue;
        }
        k->again = k->n_again ? k->again : i;
        k->n_again++;
    }
    return rc;
}

/* Whether keys tell all rows apart. */
static bool tells(const struct row_keys *k) { return all_keyed(k) && k->n_again == 0; }

int row_keys_pair(struct answers *b, const struct row_keys *of_b, const struct row_keys *of_a,
                  struct ckpt_err *err)
{
    struct score_row *row;

    if (!tells(of_a) || !tells(of_b) || strcmp(of_a->field, of_b->field) != 0 || b->n != of_a->n)
        return 0;
    row = ckpt_arena_alloc(&b->arena, b->n, sizeof *row);
    if (!row)
        return ckpt_nomem(err, b->n * sizeof *row);
    for (size_t i = 0; i < b->n; i++) {
        size_t at = ckpt_map_get(of_b->map, of_a->key[i], strlen(of_a->key[i]));

        if (at == CKPT_MAP_NONE)
            return ckpt_fail(err, CKPT_EFORMAT, "no row with the %s %.100s", of_a->field,
                             of_a->key[i]);
        row[i] = b->row[at];
    }
    b->row = row;
    return 0;
}
