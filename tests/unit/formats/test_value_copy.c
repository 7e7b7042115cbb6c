/* value_copy: sharing and cycles stay, tensors are replaced, depth is bounded. */
#include "tests/unit/unit.h"

#include "formats/container/value_copy.h"

struct seen { struct ckpt_arena *a; int n; };

/* A text that tells which storage stood here. */
static struct value *replaced(void *ctx, const struct value_tensor *t, struct ckpt_err *err)
{
    struct seen *s = ctx;
    char text[32];

    s->n++;
    if (t->storage == 99) {
        ckpt_fail(err, CKPT_EUNSUPPORTED, "no such storage");
        return NULL;
    }
    snprintf(text, sizeof text, "storage %zu", t->storage);
    return value_str(s->a, text);
}

static struct value *tensor(struct ckpt_arena *a, size_t storage)
{
    return value_tensor_new(a, &(struct value_tensor){
        .dtype = CKPT_F32, .storage = storage, .stride = {1}, .shape = ckpt_shape_1d(1)});
}

TEST(everything_is_there_once)
{
    struct ckpt_arena a = {0}, b = {0};
    struct value *root = value_dict(&a, true), *list = value_list(&a), *args = value_tuple(&a);
    struct value *t = tensor(&a, 7), *out, *copied;
    struct seen s = {.a = &b};
    struct ckpt_err err = {0};

    assert_int_equal(value_append(&a, list, t) | value_append(&a, list, value_int(&a, 3)) |
                     value_append(&a, list, root), 0);
    assert_int_equal(value_append(&a, args, list), 0);
    assert_int_equal(value_set_str(&a, root, "list", list) |
                     value_set_str(&a, root, "again", list) |
                     value_set_str(&a, root, "tensor", t) |
                     value_set_str(&a, root, "object", value_object(&a, "m", "C", args, t, true)),
                     0);
    root->u.dict.state = value_str(&a, "metadata");
    assert_int_equal(value_copy(&out, &b, root, replaced, &s, &err), 0);
    assert_int_equal(s.n, 1);
    copied = value_get(out, "list");
    assert_ptr_not_equal(copied, list);
    assert_ptr_equal(value_get(out, "again"), copied);
    assert_ptr_equal(copied->u.seq.item[2], out);
    assert_string_equal(value_as_str(copied->u.seq.item[0]), "storage 7");
    assert_ptr_equal(copied->u.seq.item[0], value_get(out, "tensor"));
    assert_ptr_equal(value_get(out, "object")->u.obj.args->u.seq.item[0], copied);
    assert_ptr_equal(value_get(out, "object")->u.obj.state, copied->u.seq.item[0]);
    assert_true(out->ordered && value_get(out, "object")->u.obj.newobj);
    assert_string_equal(value_as_str(out->u.dict.state), "metadata");
    /* The original is as it was. */
    assert_ptr_equal(list->u.seq.item[0], t);
    assert_int_equal(t->kind, VALUE_TENSOR);
    ckpt_arena_release(&a);
    ckpt_arena_release(&b);
}

TEST(refusals_pass_through)
{
    struct ckpt_arena a = {0};
    struct value *deep = value_list(&a), *list = value_list(&a), *out;
    struct seen s = {.a = &a};
    struct ckpt_err err = {0};

    assert_int_equal(value_append(&a, list, tensor(&a, 99)), 0);
    assert_int_equal(value_copy(&out, &a, list, replaced, &s, &err), CKPT_EUNSUPPORTED);
    for (int i = 0; i < 600; i++) {
        struct value *outer = value_list(&a);

        assert_int_equal(value_append(&a, outer, deep), 0);
        deep = outer;
    }
    memset(&err, 0, sizeof err);
    assert_int_equal(value_copy(&out, &a, deep, replaced, &s, &err), CKPT_ELIMIT);
    ckpt_arena_release(&a);
}
