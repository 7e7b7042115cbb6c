/* value: building, asking, and showing as JSON, of trees and of graphs. */
#include "tests/unit/unit.h"

#include <math.h>

#include "formats/container/value.h"

static void assert_json(json_t *found, const char *wanted)
{
    char *text = json_dumps(found, JSON_COMPACT | JSON_ENCODE_ANY);

    assert_string_equal(text, wanted);
    free(text);
    json_decref(found);
}

TEST(builders_and_questions)
{
    struct ckpt_arena a = {0};
    struct value *d = value_dict(&a, true), *l = value_list(&a), *o;
    int64_t i;
    double f;

    for (int k = 0; k < 100; k++)
        assert_int_equal(value_append(&a, l, value_int(&a, k)), 0);
    assert_int_equal(l->u.seq.n, 100);
    assert_int_equal(l->u.seq.item[99]->u.i, 99);
    assert_int_equal(value_set_str(&a, d, "list", l), 0);
    assert_int_equal(value_set_str(&a, d, "x", value_float(&a, 0.5)), 0);
    assert_int_equal(value_set_str(&a, d, "x", value_bool(&a, true)), 0);
    assert_ptr_equal(value_get(d, "list"), l);
    assert_null(value_get(d, "absent"));
    assert_null(value_get(l, "list"));
    assert_null(value_get(NULL, "list"));
    assert_true(value_as_int(value_get(d, "x"), &i) && i == 1);     /* the last one wins */
    assert_false(value_as_int(l, &i));
    assert_true(value_as_float(value_int(&a, -3), &f) && f == -3.0);
    assert_false(value_as_float(value_str(&a, "1"), &f));
    o = value_object(&a, "m", "n", value_tuple(&a), NULL, false);
    assert_true(value_names(o, "m", "n"));
    assert_true(value_names(value_global(&a, "m", "n"), "m", "n"));
    assert_false(value_names(o, "m", "x"));
    assert_false(value_names(d, "m", "n"));
    ckpt_arena_release(&a);
}

/* "a" and "a\0b" are two keys. */
TEST(a_nul_is_no_end)
{
    struct ckpt_arena a = {0};
    struct value *d = value_dict(&a, false), *key = value_bytes(&a, "a\0b", 3);

    key->kind = VALUE_STR;
    value_set_str(&a, d, "a", value_int(&a, 1));
    value_set(&a, d, key, value_int(&a, 2));
    assert_int_equal(value_get(d, "a")->u.i, 1);
    assert_null(value_as_str(key));
    ckpt_arena_release(&a);
}

TEST(refused_memory_shows_at_the_end)
{
    struct ckpt_arena a = {.limit = 512};
    struct value *l = value_list(&a), *o;
    int rc = 0;

    for (int k = 0; k < 100; k++)
        rc |= value_append(&a, l, value_int(&a, k));
    assert_int_equal(rc, CKPT_ENOMEM);
    assert_null(value_tuple(&a));
    o = value_object(&a, "m", "n", value_tuple(&a), NULL, false);
    assert_null(o);
    assert_int_equal(value_append(&a, o, l), CKPT_ENOMEM);
    assert_int_equal(value_set_str(&a, NULL, "k", l), CKPT_ENOMEM);
    ckpt_arena_release(&a);
}

TEST(json_both_ways)
{
    static const char text[] =
        "{\"a\":[1,-2.5,true,false,null],\"b\":{\"c\":\"\xc3\xa4\"},\"d\":9007199254740993}";
    struct ckpt_arena a = {0};
    json_t *json = json_loads(text, 0, NULL), *deep = json_integer(1);

    assert_json(value_to_json(value_of_json(&a, json), 100), text);
    json_decref(json);
    assert_null(value_of_json(&a, NULL));
    for (int i = 0; i < 100; i++)
        deep = json_pack("[o]", deep);
    assert_null(value_of_json(&a, deep));
    json_decref(deep);
    ckpt_arena_release(&a);
}

TEST(json_of_what_json_has_not)
{
    struct ckpt_arena a = {0};
    struct value_tensor t = {.dtype = CKPT_BF16, .shape = {2, {3, 4}}, .requires_grad = true};
    struct value *l = value_list(&a), *o, *args = value_tuple(&a), *text;

    value_append(&a, l, value_float(&a, NAN));
    value_append(&a, l, value_float(&a, -INFINITY));
    value_append(&a, l, value_bytes(&a, "\x01\xff", 2));
    value_append(&a, l, value_tensor_new(&a, &t));
    value_append(&a, l, value_global(&a, "torch", "float32"));
    value_append(&a, args, value_int(&a, 7));
    o = value_object(&a, "enum", "Stage", args, value_none(&a), false);
    value_append(&a, l, o);
    text = value_bytes(&a, "x\xff", 2);
    text->kind = VALUE_STR;
    value_append(&a, l, text);
    assert_json(value_to_json(l, 100),
                "[\"NaN\",\"-Infinity\",{\"$bytes\":2,\"hex\":\"01ff\"},"
                "{\"$tensor\":{\"dtype\":\"BF16\",\"shape\":[3,4],\"requires_grad\":true}},"
                "{\"$object\":\"torch.float32\"},"
                "{\"$object\":\"enum.Stage\",\"args\":[7],\"state\":null},\"x\\\\xff\"]");
    ckpt_arena_release(&a);
}

/* A list of itself, 4^30 leaves in 30 lists, and a long text named often. */
TEST(json_of_graphs)
{
    struct ckpt_arena a = {0};
    struct value *l = value_list(&a), *d = value_dict(&a, false), *bomb = value_list(&a), *text;
    char *shown, *long_text = malloc(1 << 20);
    json_t *json;

    value_append(&a, l, l);
    value_set_str(&a, d, "self", d);
    assert_json(value_to_json(l, 100), "[{\"$ref\":1}]");
    assert_json(value_to_json(d, 100), "{\"self\":{\"$ref\":1}}");
    for (int i = 0; i < 30; i++) {
        struct value *next = value_list(&a);

        for (int k = 0; k < 4; k++)
            value_append(&a, next, bomb);
        bomb = next;
    }
    json = value_to_json(bomb, 1000);
    shown = json_dumps(json, JSON_COMPACT);
    assert_true(strlen(shown) < 10000);
    assert_non_null(strstr(shown, "..."));
    free(shown);
    json_decref(json);
    memset(long_text, 'x', 1 << 20);
    text = value_bytes(&a, long_text, 1 << 20);
    text->kind = VALUE_STR;
    l = value_list(&a);
    for (int i = 0; i < 1000; i++)
        value_append(&a, l, text);
    json = value_to_json(l, 10000);
    shown = json_dumps(json, JSON_COMPACT);
    assert_true(strlen(shown) < 20u << 20);
    free(shown);
    json_decref(json);
    free(long_text);
    ckpt_arena_release(&a);
}

TEST(json_says_what_it_leaves_out)
{
    struct ckpt_arena a = {0};
    struct value *l = value_list(&a), *d = value_dict(&a, false);

    for (int i = 0; i < 5; i++)
        value_append(&a, l, value_int(&a, i));
    value_set_str(&a, d, "a", value_int(&a, 1));
    value_set_str(&a, d, "b", value_int(&a, 2));
    assert_json(value_to_json(l, 3), "[0,1,\"...\"]");
    assert_json(value_to_json(l, 6), "[0,1,2,3,4]");
    assert_json(value_to_json(d, 2), "{\"a\":1,\"...\":\"...\"}");
    ckpt_arena_release(&a);
}
