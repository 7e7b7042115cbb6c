/* views/select - some of a source's tensors, or all in another order; see view.h. */
#include <fnmatch.h>

#include "libckpt/views/views.h"

int ckpt_view_select(struct ckpt_source **out, struct ckpt_source *src, const size_t *keep,
                     size_t n_keep, struct ckpt_err *err)
{
    struct ckpt_tensors list = {0};
    struct view *v;
    int rc = view_new(&v, sizeof *v, src, n_keep, err);

    *out = NULL;
    if (rc)
        return rc;
    for (size_t i = 0; rc == 0 && i < n_keep; i++) {
        const struct ckpt_tensor *t = ckpt_source_tensor(src, keep[i]);

        rc = t ? view_add(v, &list, keep[i], t->name, t->dtype, err)
               : ckpt_fail(err, CKPT_ESTATE, "select: tensor %zu is not there", keep[i]);
    }
    if (rc == 0)
        rc = view_tie(v, &list, err);
    return view_finish(out, &view_plain_ops, v, &list, rc, err);
}

/* Whether some glob matches name; counts hits per glob when hit is given. */
static bool any(const char *const *glob, size_t n, const char *name, size_t *hit)
{
    bool yes = false;

    for (size_t i = 0; i < n; i++)
        if (fnmatch(glob[i], name, 0) == 0) {
            yes = true;
            if (hit)
                hit[i]++;
        }
    return yes;
}

int ckpt_view_filter(struct ckpt_source **out, struct ckpt_source *src,
                     const char *const *include, size_t n_include, const char *const *exclude,
                     size_t n_exclude, struct ckpt_err *err)
{
    size_t n = ckpt_source_count(src), kept = 0;
    size_t *keep = ckpt_alloc(n, sizeof *keep), *hit = ckpt_alloc(n_include, sizeof *hit);
    int rc = keep && hit ? 0 : ckpt_nomem(err, n * sizeof *keep);

    *out = NULL;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        const char *name = ckpt_source_tensor(src, i)->name;

        if ((n_include == 0 || any(include, n_include, name, hit)) &&
            !any(exclude, n_exclude, name, NULL))
            keep[kept++] = i;
    }
    for (size_t i = 0; rc == 0 && i < n_include; i++)
        if (hit[i] == 0)
            rc = ckpt_fail(err, CKPT_ENOTFOUND, "no tensor matches %s", include[i]);
    if (rc)
        ckpt_source_close(src);
    else
        rc = ckpt_view_select(out, src, keep, kept, err);
    ckpt_free(keep);
    ckpt_free(hit);
    return rc;
}
