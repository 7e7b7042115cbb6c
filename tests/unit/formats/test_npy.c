/* npy: all kinds, orders and archives of numpy; what is no array is refused with a sentence. */
#include "tests/unit/compare.h"

#include "formats/npy.h"

#define N "tests/golden/numpy/"

TEST(archives_hold_what_numpy_reads)
{
    static const char *const path[] = {N "all.npz", N "packed.npz"};

    for (size_t i = 0; i < 2; i++) {
        struct ckpt_source *s = must_open(path[i], NULL);

        assert_string_equal(ckpt_source_format(s), "numpy");
        assert_int_equal(assert_holds(s, N "all.expected.safetensors"), ckpt_source_count(s));
        ckpt_source_close(s);
    }
}

TEST(versions_of_the_header_are_read)
{
    static const char *const name[] = {"one", "v2", "v3"};
    struct ckpt_source *wanted = must_open(N "one.expected.safetensors", NULL);

    for (size_t i = 0; i < 3; i++) {
        char path[100];
        struct ckpt_source *s;

        snprintf(path, sizeof path, N "%s.npy", name[i]);
        s = must_open(path, NULL);
        assert_same_tensor(s, name[i], wanted, 0, path);
        ckpt_source_close(s);
    }
    ckpt_source_close(wanted);
}

TEST(what_is_not_read_is_named)
{
    static const struct { const char *path; int code; const char *says; } row[] = {
        {N "object.npy", CKPT_EREFUSED, "object.npy: is an array of Python objects"},
        {N "object.npz", CKPT_EREFUSED, "b.npy: is an array of Python objects"},
        {N "void.npy", CKPT_EUNSUPPORTED, "elements of |V2 are not read"},
    };

    for (size_t i = 0; i < 3; i++) {
        struct ckpt_source *s;
        struct ckpt_err err = {0};

        if (ckpt_open(&s, row[i].path, NULL, &err) != row[i].code || !strstr(err.text, row[i].says))
            fail_msg("%s: %d %s", row[i].path, err.code, err.text);
    }
}

TEST(headers_that_lie_are_refused)
{
    static const struct { const char *header; size_t data; const char *says; } row[] = {
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", 7, "needs 8 bytes of data"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", 9, "needs 8 bytes of data"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2}", 8, "no tuple"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2 2)}", 8, "no tuple"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}", 8, "no tuple"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4)}", 8, "beyond"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}", 8, "no tuple"},
        {"{'descr': '<f4', 'fortran_order': 0, 'shape': (2,)}", 8, "neither True nor False"},
        {"{'descr': '<f4', 'shape': (2,)}", 8, "lacks"},
        {"{'descr': '<f4', 'descr': '<f8', 'shape': (2,)}", 8, "descr is there twice"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'x': 1}", 8, "x is not known"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)} import os", 8, "more than a dict"},
        {"{'descr': '<f3', 'fortran_order': False, 'shape': (2,)}", 8, "elements of <f3"},
        {"{'descr': '<f4x', 'fortran_order': False, 'shape': (2,)}", 8, "elements of <f4x"},
        {"{'descr': '', 'fortran_order': False, 'shape': (2,)}", 8, "elements of "},
        {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}", 8, "array of records"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1)}", 8,
         "more than 16 axes"},
        {"{'descr': 'i4,2O', 'fortran_order': False, 'shape': (2,)}", 8, "Python objects"},
        {"{'descr': 'object', 'fortran_order': False, 'shape': (2,)}", 8, "Python objects"},
        {"{'descr': [('a', [('b', '|O8')], (2,))], 'fortran_order': False, 'shape': (2,)}", 8,
         "Python objects"},
        {"{'descr': [('a', '<f4', 'fortran_order': False, 'shape': (2,)}", 8, "no list of fields"},
        {"[]", 8, "no dictionary"},
        {"", 8, "no dictionary"},
    };

    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        size_t n = strlen(row[i].header);
        unsigned char bytes[400] = "\x93NUMPY\x01";
        struct ckpt_tensors list = {0};
        struct ckpt_file *file;
        struct ckpt_err err = {0};

        bytes[8] = (unsigned char)n;
        memcpy(bytes + 10, row[i].header, n);
        assert_int_equal(ckpt_file_memory(&file, bytes, 10 + n + row[i].data, "x.npy", &err), 0);
        if (npy_read(&list, file, "x", &err) == 0 || !strstr(err.text, row[i].says))
            fail_msg("%s: %d %s", row[i].header, err.code, err.text);
        ckpt_tensors_release(&list);
        ckpt_file_close(file);
    }
}
