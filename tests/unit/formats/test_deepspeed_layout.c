/* deepspeed_layout - every element lies on one rank, where a literal reading of the rule puts it. */
#include "tests/unit/unit.h"

#include "formats/deepspeed/layout.h"

#define MAX_NUMEL 64
#define N(a) (sizeof(a) / sizeof *(a))

static const int worlds[] = {1, 2, 3, 4, 8};

TEST(stage_3_parts_as_deepspeed_cuts_them)
{
    /* numel 5 on 4 ranks: part 2, ranks hold 2, 2, 1, 0 (zero_to_fp32 0.19.8). */
    static const int64_t count[] = {2, 2, 1, 0}, start[] = {0, 2, 4, 5};

    assert_int_equal(ds3_part(5, 4), 2);
    assert_int_equal(ds3_part(0, 4), 0);
    assert_int_equal(ds3_part(1, 8), 1);
    assert_int_equal(ds3_part(8, 8), 1);
    assert_int_equal(ds3_part(9, 8), 2);
    for (int r = 0; r < 4; r++) {
        struct ds_piece p = ds3_piece(5, 100, r, 4);

        assert_int_equal(p.count, count[r]);
        assert_int_equal(p.start, start[r]);
        assert_int_equal(p.at, 100);
    }
}

TEST(stage_3_element_e_lies_on_rank_e_div_part)
{
    for (size_t i = 0; i < N(worlds); i++)
        for (int64_t numel = 0; numel <= MAX_NUMEL; numel++) {
            int64_t part = ds3_part(numel, worlds[i]), seen = 0;

            for (int r = 0; r < worlds[i]; r++) {
                struct ds_piece p = ds3_piece(numel, 7, r, worlds[i]);

                assert_true(p.count >= 0 && p.count <= part);
                for (int64_t e = p.start; e < p.start + p.count; e++, seen++) {
                    assert_int_equal(e, seen);
                    assert_int_equal(e / part, r);
                    assert_int_equal(7 + e % part, p.at + (e - p.start));
                }
            }
            assert_int_equal(seen, numel);
        }
}

TEST(stage_12_parts_as_deepspeed_cuts_them)
{
    /* Sum 10 on 4 ranks: 16, parts of 4, padding 0, 0, 2, 4. */
    assert_int_equal(ds12_part(10, 4, DS_ALIGN), 4);
    assert_int_equal(ds12_padding(10, 0, 4, DS_ALIGN), 0);
    assert_int_equal(ds12_padding(10, 1, 4, DS_ALIGN), 0);
    assert_int_equal(ds12_padding(10, 2, 4, DS_ALIGN), 2);
    assert_int_equal(ds12_padding(10, 3, 4, DS_ALIGN), 4);
    assert_int_equal(ds12_part(16, 4, DS_ALIGN), 4);
    assert_int_equal(ds12_part(17, 4, DS_ALIGN), 6);
    assert_int_equal(ds12_part(0, 3, DS_ALIGN), 0);
    assert_int_equal(ds12_part(1, 1, DS_ALIGN), 2);
    assert_int_equal(ds12_padding(1, 0, 1, DS_ALIGN), 1);
}

/* A group of three parameters laid out literally: flat[e] says which element of which. */
static void check_group(const int64_t numel[3], int world)
{
    int owner[3 * MAX_NUMEL];
    int64_t element[3 * MAX_NUMEL], total = numel[0] + numel[1] + numel[2], at = 0, offset = 0;
    int64_t part = ds12_part(total, world, DS_ALIGN);

    for (int k = 0; k < 3; k++)
        for (int64_t e = 0; e < numel[k]; e++, at++) {
            owner[at] = k;
            element[at] = e;
        }
    assert_true(part * world >= total && part * world < total + 2 * world);
    for (int k = 0; k < 3; offset += numel[k++]) {
        int64_t seen = 0;

        for (int r = 0; r < world; r++) {
            struct ds_piece p = ds12_piece(offset, numel[k], total, r, world, DS_ALIGN);

            for (int64_t j = 0; j < p.count; j++, seen++) {
                int64_t flat = r * part + p.at + j;

                assert_true(p.at + j < part - ds12_padding(total, r, world, DS_ALIGN));
                assert_int_equal(owner[flat], k);
                assert_int_equal(element[flat], p.start + j);
                assert_int_equal(p.start + j, seen);
            }
        }
        assert_int_equal(seen, numel[k]);
    }
}

TEST(stage_12_element_lies_where_the_flat_group_is_cut)
{
    for (size_t i = 0; i < N(worlds); i++)
        for (int64_t a = 0; a <= 19; a++)
            for (int64_t b = 0; b <= 7; b++) {
                check_group((int64_t[]){a, b, 3}, worlds[i]);
                check_group((int64_t[]){b, a, 40}, worlds[i]);
            }
}

TEST(padding_and_elements_fill_the_parts)
{
    for (size_t i = 0; i < N(worlds); i++)
        for (int64_t total = 0; total <= MAX_NUMEL; total++) {
            int64_t padding = 0;

            for (int r = 0; r < worlds[i]; r++)
                padding += ds12_padding(total, r, worlds[i], DS_ALIGN);
            assert_int_equal(total + padding, ds12_part(total, worlds[i], DS_ALIGN) * worlds[i]);
        }
}

TEST(sizes_near_the_largest_do_not_overflow)
{
    const int64_t big = INT64_MAX / 2;
    struct ds_piece p;

    p = ds3_piece(big, 0, 7, 8);
    assert_int_equal(p.start + p.count, big);
    p = ds12_piece(big - 5, 5, big, 7, 8, DS_ALIGN);
    assert_int_equal(p.count, 5);
    assert_int_equal(p.start, 0);
}
