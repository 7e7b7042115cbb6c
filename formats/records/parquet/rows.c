/*
 * parquet/rows - see parquet/rows.h.
 *
 * The levels of the first wanted leaf below a node tell what is present; all other leaves below
 * the node must agree.  Functions call each other as deep as the schema is nested, at most
 * PQ_MAX_DEPTH.
 */
#include "formats/records/parquet/rows.h"

#include <string.h>

#include "formats/records/parquet/text.h"

struct pq_rows {
    const struct pq_file *file;
    struct pq_column     *column;       /* [n_leaf] */
    bool                 *want;         /* [n_leaf] */
    size_t               *first;        /* [n_node] first wanted leaf below, or n_leaf */
    uint64_t              memory;
    struct ckpt_buf      *out;
    struct ckpt_err      *err;          /* of the row being read */
};

static int put_field(struct pq_rows *r, size_t i, uint8_t above);

static int disagree(struct pq_rows *r, const struct pq_node *n)
{
    return ckpt_fail(r->err, CKPT_EFORMAT, "column \"%s\" does not fit those beside it", n->name);
}

/* Look at the entry in front of a leaf, which must have one. */
static int peek(struct pq_rows *r, size_t leaf)
{
    bool end;
    int rc;

    if ((rc = pq_column_peek(&r->column[leaf], &end, r->err)) != 0)
        return rc;
    return end ? disagree(r, r->column[leaf].leaf) : 0;
}

/* Take an absent node: an entry of each leaf below it says so, at the same level. */
static int take_absent(struct pq_rows *r, const struct pq_node *n, uint32_t def)
{
    struct pq_value v;
    int rc;

    for (size_t i = n->leaf; i < n->leaf_end; i++) {
        if (!r->want[i])
            continue;
        if ((rc = peek(r, i)) != 0)
            return rc;
        if (r->column[i].def != def)
            return disagree(r, r->column[i].leaf);
        if ((rc = pq_column_take(&r->column[i], &v, r->err)) != 0)
            return rc;
    }
    return 0;
}

/* Put the value of a leaf that is present. */
static int put_leaf(struct pq_rows *r, const struct pq_node *n)
{
    struct pq_column *c = &r->column[n->leaf];
    struct pq_value v;
    int rc;

    if ((rc = pq_column_take(c, &v, r->err)) != 0)
        return rc;
    /* An escape turns a byte into six at most. */
    if (v.len > (r->out->limit - r->out->len) / 6)
        return ckpt_fail(r->err, CKPT_ELIMIT, "a row of more than %zu bytes", r->out->limit);
    pq_text(r->out, n, &v);
    return ckpt_buf_ok(r->out) ? 0 : ckpt_nomem(r->err, r->out->len + v.len);
}

static int put_struct(struct pq_rows *r, size_t i)
{
    const struct pq_node *node = r->file->node;
    const char *comma = "";
    int rc;

    ckpt_buf_put_u8(r->out, '{');
    for (size_t k = i + 1; k < node[i].end; k = node[k].end) {
        if (r->first[k] == r->file->n_leaf)
            continue;
        ckpt_buf_put_str(r->out, comma);
        ckpt_buf_put_str(r->out, node[k].key);
        if ((rc = put_field(r, k, node[i].def)) != 0)
            return rc;
        comma = ",";
    }
    ckpt_buf_put_u8(r->out, '}');
    return 0;
}

static int put_list(struct pq_rows *r, size_t rep, size_t element);

/* [key, value], of the fields of the repeated node i. */
static int put_pair(struct pq_rows *r, size_t i)
{
    const struct pq_node *node = r->file->node;
    const char *comma = "";
    int rc;

    ckpt_buf_put_u8(r->out, '[');
    for (size_t k = i + 1; k < node[i].end; k = node[k].end) {
        ckpt_buf_put_str(r->out, comma);
        if (r->first[k] == r->file->n_leaf)
            ckpt_buf_put_str(r->out, "null");
        else if ((rc = put_field(r, k, node[i].def)) != 0)
            return rc;
        comma = ",";
    }
    ckpt_buf_put_u8(r->out, ']');
    return 0;
}

/* Put a node that is present, whatever its own repetition. */
static int put_present(struct pq_rows *r, size_t i)
{
    const struct pq_node *n = &r->file->node[i];

    switch (n->kind) {
    case PQ_LEAF: return put_leaf(r, n);
    case PQ_STRUCT: return put_struct(r, i);
    case PQ_LIST: case PQ_MAP: return put_list(r, i + 1, n->element);
    }
    return 0;
}

/* An element of the list that node `rep` repeats. */
static int put_element(struct pq_rows *r, size_t rep, size_t element)
{
    const struct pq_node *node = r->file->node;

    if (element != rep)
        return put_field(r, element, node[rep].def);
    if (rep > 0 && node[rep - 1].kind == PQ_MAP && node[rep - 1].element == rep)
        return put_pair(r, rep);
    return put_present(r, rep);
}

/* The values of repeated node rep as a list. */
static int put_list(struct pq_rows *r, size_t rep, size_t element)
{
    const struct pq_node *n = &r->file->node[rep];
    struct pq_column *c = &r->column[r->first[rep]];
    const char *comma = "";
    bool end = false;
    int rc;

    if ((rc = peek(r, r->first[rep])) != 0)
        return rc;
    ckpt_buf_put_u8(r->out, '[');
    if (c->def < n->def) {
        ckpt_buf_put_u8(r->out, ']');
        return take_absent(r, n, c->def);
    }
    do {
        ckpt_buf_put_str(r->out, comma);
        if ((rc = put_element(r, rep, element)) != 0)
            return rc;
        comma = ",";
        if ((rc = pq_column_peek(c, &end, r->err)) != 0)
            return rc;
    } while (!end && c->rep == n->rep && c->def >= n->def);
    ckpt_buf_put_u8(r->out, ']');
    return 0;
}

/* Put node i as a field of a node that is present, whose level is above. */
static int put_field(struct pq_rows *r, size_t i, uint8_t above)
{
    const struct pq_node *n = &r->file->node[i];
    const struct pq_column *c = &r->column[r->first[i]];
    int rc;

    if ((rc = peek(r, r->first[i])) != 0)
        return rc;
    if (c->def < above)
        return disagree(r, c->leaf);
    if (n->repeated)
        return put_list(r, i, i);
    if (c->def < n->def) {
        ckpt_buf_put_str(r->out, "null");
        return take_absent(r, n, c->def);
    }
    return put_present(r, i);
}

/* Check that all columns begin a row here. */
static int check_row(struct pq_rows *r)
{
    bool end;
    int rc;

    for (size_t i = 0; i < r->file->n_leaf; i++) {
        if (!r->want[i])
            continue;
        if ((rc = pq_column_peek(&r->column[i], &end, r->err)) != 0)
            return rc;
        if (!end && r->column[i].rep != 0)
            return disagree(r, r->column[i].leaf);
    }
    return 0;
}

static void find_first(struct pq_rows *r)
{
    const struct pq_file *f = r->file;

    for (size_t i = 0; i < f->n_node; i++) {
        r->first[i] = f->node[i].leaf;
        while (r->first[i] < f->node[i].leaf_end && !r->want[r->first[i]])
            r->first[i]++;
        if (r->first[i] == f->node[i].leaf_end)
            r->first[i] = f->n_leaf;
    }
}

int pq_rows_open(struct pq_rows **out, const struct pq_file *file, size_t g, const bool *want,
                 struct ckpt_err *err)
{
    struct pq_rows *r = ckpt_alloc(1, sizeof *r);

    *out = NULL;
    if (!r)
        return ckpt_nomem(err, sizeof *r);
    r->file = file;
    r->column = ckpt_alloc(file->n_leaf + 1, sizeof *r->column);
    r->want = ckpt_alloc(file->n_leaf + 1, sizeof *r->want);
    r->first = ckpt_alloc(file->n_node, sizeof *r->first);
    if (!r->column || !r->want || !r->first) {
        ckpt_free(r->column);
        r->column = NULL;
        pq_rows_close(r);
        return ckpt_nomem(err, file->n_leaf * sizeof *r->column);
    }
    for (size_t i = 0; i < file->n_leaf; i++) {
        r->want[i] = !want || want[i];
        pq_column_open(&r->column[i], file, &file->group[g], i, &r->memory);
    }
    find_first(r);
    *out = r;
    return 0;
}

int pq_rows_next(struct pq_rows *r, struct ckpt_buf *out, struct ckpt_err *err)
{
    int rc;

    r->out = out;
    r->err = err;
    if ((rc = check_row(r)) != 0 || (rc = put_struct(r, 0)) != 0)
        return rc;
    return ckpt_buf_ok(out) ? 0 : ckpt_nomem(err, out->len);
}

int pq_rows_skip(struct pq_rows *r, int64_t n, struct ckpt_err *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && n > 0 && i < r->file->n_leaf; i++)
        if (r->want[i])
            rc = pq_column_skip(&r->column[i], (uint64_t)n, err);
    return rc;
}

int pq_rows_end(struct pq_rows *r, struct ckpt_err *err)
{
    bool end;
    int rc;

    for (size_t i = 0; i < r->file->n_leaf; i++) {
        if (!r->want[i])
            continue;
        if ((rc = pq_column_peek(&r->column[i], &end, err)) != 0)
            return rc;
        if (!end)
            return ckpt_fail(err, CKPT_EFORMAT, "column \"%s\" has more values than rows",
                             r->column[i].leaf->name);
    }
    return 0;
}

void pq_rows_close(struct pq_rows *r)
{
    if (!r)
        return;
    for (size_t i = 0; r->column && i < r->file->n_leaf; i++)
        pq_column_close(&r->column[i]);
    ckpt_free(r->column);
    ckpt_free(r->want);
    ckpt_free(r->first);
    ckpt_free(r);
}
