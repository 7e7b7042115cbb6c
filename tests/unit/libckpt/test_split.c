/* split - cuts as huggingface_hub makes them. */
#include "tests/unit/store.h"

#include "libckpt/split.h"

/* sizes in bytes, max, the shard of each, how many */
static void cut(const char *sizes, uint64_t max, const char *want, size_t n_want)
{
    struct ckpt_tensors list = {0};
    struct ckpt_err err = {0};
    size_t shard[16], n = strlen(sizes);

    for (size_t i = 0; i < n; i++) {
        struct ckpt_shape shape = ckpt_shape_1d(sizes[i] - '0');
        char name[2] = {(char)('a' + i), 0};

        assert_int_equal(ckpt_tensors_add(&list, NULL, name, 1, CKPT_U8, &shape, NULL, 0, false,
                                          &err), 0);
    }
    assert_int_equal(ckpt_split(shard, &list, max), n_want);
    for (size_t i = 0; i < n; i++)
        if (shard[i] != (size_t)(want[i] - '0'))
            fail_msg("%s by %d: tensor %zu in shard %zu, %c wanted", sizes, (int)max, i,
                     shard[i], want[i]);
    ckpt_tensors_release(&list);
}

/* Expected values are those of huggingface_hub 2.4 for the same sizes. */
TEST(split_as_huggingface_hub)
{
    cut("", 5, "", 1);
    cut("5", 5, "0", 1);
    cut("123", 6, "000", 1);
    cut("1234", 6, "0001", 2);
    cut("333", 5, "012", 3);
    cut("9", 5, "0", 1);
    cut("99", 5, "01", 2);
    cut("1919", 5, "2021", 3);          /* the shard being filled goes on behind large ones */
    cut("29331", 5, "10122", 3);
    cut("0500", 5, "0000", 1);
    cut("111", 0, "012", 3);
    cut("010", 0, "101", 2);
}
