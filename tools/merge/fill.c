/* fill - take weights that a checkpoint was saved without from its base; see parts.h. */
#include "tools/merge/parts.h"

/* Indices of base's tensors that src lacks; tensors that both have must agree in shape. */
static int find_absent(size_t *keep, size_t *n, const struct ckpt_source *src,
                       const struct ckpt_source *base, const char *path, struct ckpt_err *err)
{
    size_t common = 0;

    for (size_t i = 0; i < ckpt_source_count(base); i++) {
        const struct ckpt_tensor *b = ckpt_source_tensor(base, i), *s;
        size_t k = ckpt_source_find(src, b->name);
        char have[96], want[96];

        if (k == SIZE_MAX) {
            keep[(*n)++] = i;
            continue;
        }
        common++;
        s = ckpt_source_tensor(src, k);
        if (!ckpt_shape_equal(&s->shape, &b->shape))
            return ckpt_fail(err, CKPT_EMISMATCH, "--base %s: %s is %s there, %s in the input",
                             path, b->name, ckpt_shape_text(want, sizeof want, &b->shape),
                             ckpt_shape_text(have, sizeof have, &s->shape));
    }
    if (common == 0)
        return ckpt_fail(err, CKPT_EMISMATCH, "--base %s: has no tensor of the input's names",
                         path);
    return 0;
}

int merge_fill(struct ckpt_source **src, const struct merge_want *w, bool follow,
               struct provenance *p, struct ckpt_err *err)
{
    struct ckpt_open_opts opts = {.follow = follow, .prove = w->checksums};
    struct ckpt_source *part[2] = {*src, NULL}, *base = NULL;
    size_t *keep, n = 0;
    int rc = merge_open_one(&base, NULL, "base", w->base, &opts, p, err);

    if (rc) {
        ckpt_source_close(base);
        return rc;
    }
    keep = ckpt_alloc(ckpt_source_count(base), sizeof *keep);
    rc = keep ? find_absent(keep, &n, *src, base, w->base, err)
              : ckpt_nomem(err, ckpt_source_count(base) * sizeof *keep);
    for (size_t i = 0; rc == 0 && i < n; i++)
        ckpt_log(CKPT_LOG_NOTE, "%s: absent, taken from %s",
                 ckpt_source_tensor(base, keep[i])->name, w->base);
    if (rc == 0 && n == 0) {
        ckpt_log(CKPT_LOG_NOTE, "%s: the input lacks none of its weights, nothing is taken "
                 "from it", w->base);
        provenance_forget(p);
    }
    if (rc || n == 0) {
        ckpt_source_close(base);
    } else {
        rc = ckpt_view_select(&part[1], base, keep, n, err);
        if (rc == 0) {
            *src = NULL;
            rc = ckpt_view_join(src, part, 2, err);
        }
    }
    ckpt_free(keep);
    return rc;
}
