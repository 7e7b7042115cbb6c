/*
 * fuzz_scan: any bytes before the walks that look for danger.  Whatever the strict machine makes
 * of a pickle, the walk has every name that it had; pieces lie in the file.
 */
#include "formats/container/npy.h"
#include "formats/container/pickle/pickle.h"
#include "formats/container/pickle/danger.h"
#include "formats/container/pickle/walk.h"
#include "formats/container/tar_walk.h"
#include "formats/container/zip_walk.h"
#include "tests/fuzz/lib/target.h"

static bool has_name(const struct pickle_walk *w, const struct value *v)
{
    for (size_t i = 0; i < w->n_use; i++)
        if (strcmp(w->use[i].module, v->u.obj.module) == 0 &&
            strcmp(w->use[i].name, v->u.obj.name) == 0)
            return true;
    return false;
}

static void walk_pickle(const uint8_t *data, size_t size)
{
    struct ckpt_arena a = {.limit = (uint64_t)256 << 20};
    struct value_seq names = {0};
    struct pickle_walk w = {0};
    struct ckpt_err err = {0};
    struct ckpt_cursor c;
    struct value *v;
    int rc = pickle_walk(&w, data, size, &err);

    must(w.end <= size && (rc == 0 || err.text[0]));
    for (size_t i = 0; i < w.n_use; i++) {
        must(w.use[i].at < size);
        pickle_danger(w.use[i].module, w.use[i].name);
        pickle_name_is_plain(w.use[i].name);
    }
    ckpt_cursor_init(&c, data, size);
    if (rc == 0 && !w.arrays) {
        int strict = pickle_read(&v, &c, &a, &names, &err);

        for (size_t i = 0; i < names.n && i < 100; i++)
            must(has_name(&w, names.item[i]));
        must(strict || (w.stopped && !w.broken));   /* what is read is walked to its end */
    }
    pickle_walk_release(&w);
    ckpt_arena_release(&a);
}

static void walk_zip(struct ckpt_file *file, size_t size)
{
    struct ckpt_arena a = {0};
    struct ckpt_err err = {0};
    struct zip_piece *p;
    size_t n;

    must(zip_front(file) <= size);
    zip_ends_here(file);
    if (zip_walk(&p, &n, file, &a, &err) == 0) {
        for (size_t i = 0; i < n; i++)
            must(p[i].offset <= size && p[i].size <= size - p[i].offset);
    } else {
        must(err.text[0]);
    }
    ckpt_arena_release(&a);
}

static void walk_tar(struct ckpt_file *file, size_t size)
{
    static struct tar_piece p;
    struct tar_walk w = {.file = file};
    struct ckpt_err err = {0};

    while (tar_walk_next(&w, &p, &err) == 1)
        must(p.offset <= size && p.size <= size - p.offset && w.at <= size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ckpt_file *file = file_of(data, size, "fuzz");
    struct ckpt_err err = {0};
    struct npy npy;

    walk_pickle(data, size);
    walk_zip(file, size);
    walk_tar(file, size);
    if (npy_header(&npy, file, &err) == 0)
        must(npy.data <= size);
    else
        must(err.text[0]);
    ckpt_file_close(file);
    return 0;
}
