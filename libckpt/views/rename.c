/* views/rename - a source seen under other names; see view.h. */
#include <assert.h>
#include <string.h>

#include "libckpt/views/views.h"

const struct ckpt_rename_rule *ckpt_view_rename_rule(const char *name,
                                                     const struct ckpt_rename_rule *rule,
                                                     size_t n_rule)
{
    for (size_t k = 0; k < n_rule; k++)
        if (strncmp(name, rule[k].from, strlen(rule[k].from)) == 0)
            return &rule[k];
    return NULL;
}

int ckpt_view_rename(struct ckpt_source **out, struct ckpt_source *src,
                     const struct ckpt_rename_rule *rule, size_t n_rule, struct ckpt_err *err)
{
    struct ckpt_tensors list = {0};
    struct view *v;
    int rc = view_new(&v, sizeof *v, src, ckpt_source_count(src), err);

    *out = NULL;
    if (rc)
        return rc;
    for (size_t i = 0; rc == 0 && i < ckpt_source_count(src); i++) {
        const struct ckpt_tensor *t = ckpt_source_tensor(src, i);
        const struct ckpt_rename_rule *how = ckpt_view_rename_rule(t->name, rule, n_rule);
        const char *name = t->name;

        assert(name);
        if (how)
            name = ckpt_arena_printf(&list.arena, "%s%s", how->to, t->name + strlen(how->from));
        rc = name ? view_add(v, &list, i, name, t->dtype, err)
                  : ckpt_nomem(err, strlen(t->name));
    }
    if (rc == 0)
        rc = view_tie(v, &list, err);
    return view_finish(out, &view_plain_ops, v, &list, rc, err);
}
