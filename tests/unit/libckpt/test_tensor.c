/* tensor - lists, names, limits. */
#include "tests/unit/store.h"

#include <stdio.h>

static int add(struct ckpt_tensors *list, const char *name, size_t len, enum ckpt_dtype dtype,
               struct ckpt_shape shape, struct ckpt_err *err)
{
    return ckpt_tensors_add(list, NULL, name, len, dtype, &shape, NULL, 0, false, err);
}

TEST_ERR(add_and_find)
{
    struct ckpt_tensors list = {0};
    struct ckpt_shape shape = ckpt_shape_2d(3, 5);
    struct ckpt_tensor *t;
    char name[32];

    assert_true(ckpt_tensors_find(&list, "x") == SIZE_MAX);
    for (int i = 0; i < 1000; i++) {
        int n = snprintf(name, sizeof name, "layer.%d.weight", i);

        assert_int_equal(ckpt_tensors_add(&list, &t, name, (size_t)n, CKPT_BF16, &shape, NULL,
                                          0, false, err),
                         0);
        assert_int_equal(t->numel, 15);
        assert_int_equal(t->alias_of, i);
        assert_int_equal(t->kind, CKPT_WEIGHT);
        assert_int_equal(ckpt_tensor_bytes(t), 30);
    }
    for (int i = 0; i < 1000; i++) {
        snprintf(name, sizeof name, "layer.%d.weight", i);
        assert_int_equal(ckpt_tensors_find(&list, name), i);
        assert_string_equal(list.item[i].name, name);
    }
    assert_true(ckpt_tensors_find(&list, "layer.1000.weight") == SIZE_MAX);
    assert_true(ckpt_tensors_find(&list, "layer.1.weigh") == SIZE_MAX);
    ckpt_tensors_release(&list);
    ckpt_tensors_release(&list);
    assert_int_equal(list.n, 0);
}

TEST_ERR(add_refuses)
{
    const int64_t big[2] = {(int64_t)1 << 62, 4}, minus[1] = {-1}, bytes[1] = {INT64_MAX};
    struct ckpt_tensors list = {0};
    struct ckpt_shape ok = ckpt_shape_1d(4), rank = {.rank = CKPT_MAX_RANK + 1};
    char name[CKPT_MAX_NAME + 1];

    memset(name, 'n', sizeof name);
    assert_int_equal(add(&list, "a", 1, CKPT_F32, ok, err), 0);
    assert_int_equal(add(&list, "a", 1, CKPT_F32, ok, err), CKPT_EFORMAT);
    assert_string_equal(err->reason, "duplicate");
    assert_int_equal(add(&list, name, sizeof name, CKPT_F32, ok, err), CKPT_ELIMIT);
    assert_int_equal(add(&list, "b\0c", 3, CKPT_F32, ok, err), CKPT_EFORMAT);
    assert_int_equal(add(&list, "\xff", 1, CKPT_F32, ok, err), CKPT_EFORMAT);
    assert_int_equal(add(&list, "\xed\xa0\x80", 3, CKPT_F32, ok, err), CKPT_EFORMAT);
    assert_int_equal(add(&list, "b", 1, CKPT_DTYPE_NONE, ok, err), CKPT_EUNSUPPORTED);
    assert_int_equal(add(&list, "b", 1, CKPT_DTYPE_COUNT, ok, err), CKPT_EUNSUPPORTED);
    assert_int_equal(add(&list, "b", 1, CKPT_F32, rank, err), CKPT_EFORMAT);
    assert_int_equal(add(&list, "b", 1, CKPT_F32, ckpt_shape_of(2, big), err), CKPT_EFORMAT);
    assert_int_equal(add(&list, "b", 1, CKPT_F32, ckpt_shape_of(1, minus), err), CKPT_EFORMAT);
    assert_int_equal(add(&list, "b", 1, CKPT_F64, ckpt_shape_of(1, bytes), err), CKPT_EFORMAT);
    assert_int_equal(list.n, 1);
    assert_int_equal(add(&list, name, CKPT_MAX_NAME, CKPT_F32, ok, err), 0);
    assert_int_equal(list.n, 2);
    ckpt_tensors_release(&list);
}

/* torch and safetensors both write it. */
TEST_ERR(empty_name_is_a_name)
{
    struct ckpt_tensors list = {0};

    assert_int_equal(add(&list, "", 0, CKPT_F32, ckpt_shape_1d(4), err), 0);
    assert_int_equal(add(&list, "", 0, CKPT_F32, ckpt_shape_1d(4), err), CKPT_EFORMAT);
    assert_int_equal(ckpt_tensors_find(&list, ""), 0);
    ckpt_tensors_release(&list);
}

TEST_ERR(sub_byte_tensor_rounds_up)
{
    struct ckpt_tensors list = {0};

    assert_int_equal(add(&list, "a", 1, CKPT_F4, ckpt_shape_1d(5), err), 0);
    assert_int_equal(ckpt_tensor_bytes(&list.item[0]), 3);
    ckpt_tensors_release(&list);
}
