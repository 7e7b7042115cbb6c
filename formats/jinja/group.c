/* jinja/group - filters that cut lists, loop.cycle and loop.changed: jinja2's filters.py and
 * runtime.py. */
#include <string.h>
#include <utf8proc.h>

#include "formats/jinja/parts.h"

/* The name of a loop's member that holds the last arguments of loop.changed.  Only a template that
 * asks for loop["changed last"] would see it. */
#define LAST "changed last"

/* A number of items, or of lists. */
static int64_t count_arg(struct run *r, const struct args *args, const char *name)
{
    struct jv v = jinja_arg(args, 0, name, (struct jv){0});

    if (v.kind != V_INT)
        jinja_fail(r, CKPT_EFORMAT, "%s: %s where an integer is wanted", name, jv_type(&v));
    return v.kind == V_INT ? v.i : 0;
}

static void add(struct run *r, struct jv_list *list, struct jv v)
{
    jv_work(r, 0);
    if (!r->rc)
        jv_append(r, list, v);
}

/* batch(linecount, fill_with): lists of so many items, the last one filled up. */
struct jv jinja_batch(struct run *r, const struct jv_list *items, const struct args *args)
{
    int64_t n = count_arg(r, args, "linecount");
    struct jv fill = jinja_arg(args, 1, "fill_with", jv_none()), out = jv_list_new(r, 0),
                 one = jv_list_new(r, 0);

    for (size_t i = 0; i < items->n && !r->rc; i++) {
        if ((int64_t)one.list->n == n) {
            add(r, out.list, one);
            one = jv_list_new(r, 0);
        }
        if (!r->rc)
            add(r, one.list, items->item[i]);
    }
    if (r->rc || one.list->n == 0)
        return out;
    while (fill.kind != V_NONE && (int64_t)one.list->n < n && !r->rc)
        add(r, one.list, fill);
    add(r, out.list, one);
    return out;
}

/* slice(slices, fill_with): so many lists; the first ones have the items that are over, the others
 * are filled up. */
struct jv jinja_slice(struct run *r, const struct jv_list *items, const struct args *args)
{
    int64_t n = count_arg(r, args, "slices"), each, over, at = 0;
    struct jv fill = jinja_arg(args, 1, "fill_with", jv_none()), out = jv_list_new(r, 0);

    if (n == 0)
        jinja_fail(r, CKPT_EFORMAT, "slice: division by zero");
    if (r->rc || n < 0)
        return out;
    each = (int64_t)items->n / n;
    over = (int64_t)items->n % n;
    for (int64_t k = 0; k < n && !r->rc; k++) {
        struct jv one = jv_list_new(r, 0);
        int64_t end = at + each + (k < over);

        while (at < end && !r->rc)
            add(r, one.list, items->item[at++]);
        if (fill.kind != V_NONE && k >= over && !r->rc)
            add(r, one.list, fill);
        add(r, out.list, one);
    }
    return out;
}

static bool is_word(utf8proc_int32_t c)
{
    utf8proc_category_t kind = utf8proc_category(c);

    return c == '_' || (kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO) ||
           (kind >= UTF8PROC_CATEGORY_ND && kind <= UTF8PROC_CATEGORY_NO);
}

/* The number of matches of Python's \w+. */
struct jv jinja_word_count(const struct jv *v)
{
    utf8proc_int32_t c;
    utf8proc_ssize_t width;
    bool inside = false;
    int64_t n = 0;

    for (size_t i = 0; i < v->str.n; i += (size_t)width) {
        width = utf8proc_iterate((const utf8proc_uint8_t *)v->str.s + i,
                                 (utf8proc_ssize_t)(v->str.n - i), &c);
        if (width <= 0)
            break;
        n += !inside && is_word(c);
        inside = is_word(c);
    }
    return jv_int(n);
}

void jinja_loop_methods(struct run *r, struct jv *loop)
{
    static const char *const names[] = {"cycle", "changed"};
    struct jv *self = ckpt_arena_alloc(&r->arena, 1, sizeof *self);

    if (!self) {
        jinja_no_memory(r, sizeof *self);
        return;
    }
    *self = *loop;
    for (size_t i = 0; i < 2 && !r->rc; i++)
        jv_put(r, loop->map, jv_str(names[i], strlen(names[i])),
               (struct jv){.kind = V_METHOD, .method = {self, names[i]}});
}

struct jv jinja_loop_method(struct run *r, const struct jv *loop, const char *name,
                            const struct args *args)
{
    const struct jv *last;
    struct jv now;

    if (strcmp(name, "cycle") == 0) {
        last = jv_get(r, loop->map, "index0", 6);
        if (args->n == 0 || !last)
            jinja_fail(r, CKPT_EFORMAT, "loop.cycle without items");
        return r->rc ? jv_none() : args->item[(size_t)last->i % args->n];
    }
    last = jv_get(r, loop->map, LAST, sizeof LAST - 1);
    now = jv_list_new(r, args->n);
    for (size_t i = 0; i < args->n && !r->rc; i++)
        jv_append(r, now.list, args->item[i]);
    if (r->rc || (last && jv_equal(r, last, &now)))
        return jv_bool(false);
    jv_put(r, loop->map, STR(LAST), now);
    return jv_bool(true);
}
