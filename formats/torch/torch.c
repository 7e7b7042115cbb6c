/* torch - see torch.h. */
#include "formats/torch/torch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/container/pickle/pickle.h"
#include "formats/container/zip.h"
#include "formats/place.h"
#include "formats/torch/export.h"
#include "formats/torch/legacy.h"
#include "formats/torch/list.h"
#include "formats/torch/tar.h"
#include "formats/torch/sink.h"
#include "formats/torch/value.h"
#include "libckpt/base/buf.h"
#include "libckpt/base/map.h"
#include "libckpt/err.h"
#include "libckpt/io/guard.h"

#define MAX_PICKLE ((uint64_t)256 << 20)

/*
 * Memory for values, by the pickle's size: a one-byte opcode makes a value of 130 bytes, and
 * names built from memoised texts cost most.  Real files take a tenth of this.
 */
#define VALUE_BYTES_MIN ((uint64_t)16 << 20)
#define VALUE_BYTES_PER 256

struct torch_archive {
    struct ckpt_file      *file;
    struct zip             zip;
    struct ckpt_arena      arena;       /* of the values */
    struct value          *root;
    struct torch_storages  storages;
    struct ckpt_sum       *sum;         /* for the file's guard, or NULL */
    bool                   big_endian;
    const char            *container;
};

void torch_archive_close(struct torch_archive *a)
{
    if (!a)
        return;
    torch_storages_release(&a->storages);
    zip_release(&a->zip);
    ckpt_arena_release(&a->arena);
    ckpt_file_close(a->file);
    ckpt_free(a->sum);
    ckpt_free(a);
}

const struct value *torch_archive_root(const struct torch_archive *a) { return a->root; }
struct ckpt_file *torch_archive_file(const struct torch_archive *a) { return a->file; }
const char *torch_archive_container(const struct torch_archive *a) { return a->container; }
size_t torch_archive_values(const struct torch_archive *a) { return a->storages.values; }

size_t torch_archive_storages(const struct torch_archive *a, const struct torch_storage **out)
{
    *out = a->storages.item;
    return a->storages.n;
}

/* A small text member, or "" when it is absent. */
static int small(struct torch_archive *a, const char *name, char **out, struct ckpt_err *err)
{
    static char none[1];
    const struct zip_entry *e = zip_find(&a->zip, name);

    *out = none;
    return e ? zip_slurp(&a->zip, e, &a->arena, 64, out, err) : 0;
}

static int read_facts(struct torch_archive *a, struct ckpt_err *err)
{
    char *version, *order, *end;
    long n;
    int rc;

    a->container = zip_find(&a->zip, "constants.pkl") ? "TorchScript" : "zip";
    if ((rc = small(a, zip_find(&a->zip, "version") ? "version" : ".data/version", &version,
                    err)) != 0 ||
        (rc = small(a, "byteorder", &order, err)) != 0)
        return rc;
    if (!*version)
        return ckpt_fail(err, CKPT_EFORMAT, "no version member: not what torch writes");
    n = strtol(version, &end, 10);
    if (end == version || (*end && *end != '\n') || n < 1 || n > 10)
        return ckpt_fail(err, CKPT_EFORMAT, "version is \"%.20s\", 1 to 10 wanted", version);
    if (*order && strcmp(order, "little") != 0 && strcmp(order, "big") != 0)
        return ckpt_fail(err, CKPT_EFORMAT, "byteorder is \"%s\", little or big wanted", order);
    a->big_endian = strcmp(order, "big") == 0;
    return 0;
}

/* Place each storage, and check that its record has the size in the pickle. */
static int place_storages(struct torch_archive *a, struct ckpt_err *err)
{
    for (size_t i = 0; i < a->storages.n; i++) {
        struct torch_storage *s = &a->storages.item[i];
        const struct zip_entry *e;
        uint64_t bytes;
        char name[80];

        snprintf(name, sizeof name, "data/%s", s->key);
        e = zip_find(&a->zip, name);
        if (!e)
            return ckpt_fail_as(err, CKPT_EFORMAT, "missing", "storage %s: no record %s", s->key,
                                name);
        if (!ckpt_mul(&bytes, (uint64_t)s->numel, ckpt_dtype_size(s->dtype)) || bytes != e->size)
            return ckpt_fail(err, CKPT_EFORMAT,
                             "storage %s: the pickle says %lld elements of %s, its record has %llu "
                             "bytes", s->key, (long long)s->numel, ckpt_dtype_name(s->dtype),
                             (unsigned long long)e->size);
        s->offset = e->offset;
    }
    return 0;
}

static int by_offset(const void *a, const void *b)
{
    uint64_t x = ((const struct ckpt_sum *)a)->offset, y = ((const struct ckpt_sum *)b)->offset;

    return x < y ? -1 : x > y ? 1 : 0;
}

/* From now on reading a member's bytes verifies its checksum. */
static int guard(struct torch_archive *a, struct ckpt_err *err)
{
    size_t n = 0;

    if (a->zip.no_sums || !(ckpt_file_flags(a->file) & CKPT_PROVE))
        return 0;
    a->sum = ckpt_alloc(a->zip.n, sizeof *a->sum);
    if (!a->sum)
        return ckpt_nomem(err, a->zip.n * sizeof *a->sum);
    for (size_t i = 0; i < a->zip.n; i++) {
        const struct zip_entry *e = &a->zip.entry[i];

        if (e->size > 0 && !e->deflated)
            a->sum[n++] = (struct ckpt_sum){e->name, e->offset, e->size, e->crc};
    }
    qsort(a->sum, n, sizeof *a->sum, by_offset);
    return ckpt_guard_file(a->file, a->sum, n, err);
}

static int open_zip(struct torch_archive *a, bool strict, struct ckpt_err *err)
{
    const struct zip_entry *e;
    struct value_seq names = {0};
    struct ckpt_cursor c;
    char *pickle;
    int rc, refused;

    if ((rc = zip_open(&a->zip, a->file, err)) != 0 || (rc = read_facts(a, err)) != 0)
        return rc;
    e = zip_find(&a->zip, "data.pkl");
    if (!e && torch_export_is(&a->zip))
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "is a program of torch.export: it has tensors and "
                         "no pickle");
    if (!e)
        return ckpt_fail(err, CKPT_EFORMAT, "no data.pkl: not what torch writes");
    if ((rc = zip_slurp(&a->zip, e, &a->arena, MAX_PICKLE, &pickle, err)) != 0)
        return rc;
    a->arena.limit = a->arena.used + VALUE_BYTES_MIN + VALUE_BYTES_PER * e->size;
    ckpt_cursor_init(&c, pickle, (size_t)e->size);
    rc = pickle_read(&a->root, &c, &a->arena, &names, err);
    refused = strict ? torch_names_check(&names, rc != 0, err) : 0;
    if (refused || rc)
        return refused ? refused : rc;
    if (ckpt_cursor_left(&c) != 0)
        return ckpt_fail_as(err, CKPT_EFORMAT, "trailing",
                            "data.pkl: %zu bytes after the pickle",
                            ckpt_cursor_left(&c));
    if ((rc = torch_value_resolve(a->root, &a->storages, &a->arena, strict, err)) != 0)
        return rc;
    rc = place_storages(a, err);
    return rc ? rc : guard(a, err);
}

/* Recognise the container by its first bytes, as torch does. */
static int open_archive(struct torch_archive *a, bool strict, struct ckpt_err *err)
{
    unsigned char head[CKPT_HEAD_BYTES];
    uint64_t size = ckpt_file_size(a->file);
    size_t n = size < sizeof head ? (size_t)size : sizeof head;
    int rc;

    if ((rc = ckpt_file_read_at(a->file, head, n, 0, err)) != 0)
        return rc;
    a->container = "legacy stream";
    if (torch_legacy_is(head, n))
        return torch_legacy_read(&a->root, &a->storages, &a->big_endian, a->file, &a->arena,
                                 strict, err);
    if (torch_tar_is(head, n)) {
        a->container = "legacy tar";
        return torch_tar_read(&a->root, &a->storages, a->file, &a->arena, strict, err);
    }
    return open_zip(a, strict, err);
}

enum open_how { OPEN_STRICT, OPEN_LISTED, OPEN_ANY };

static int open_as(struct torch_archive **out, struct ckpt_file *file, enum open_how how,
                   struct ckpt_err *err)
{
    struct torch_archive *a = ckpt_alloc(1, sizeof *a);
    int rc;

    *out = NULL;
    if (!a) {
        ckpt_file_close(file);
        return ckpt_nomem(err, sizeof *a);
    }
    a->file = file;
    a->storages.keep_unread = how == OPEN_LISTED;
    rc = open_archive(a, how != OPEN_ANY, err);
    if (rc) {
        ckpt_err_in(err, "%s", ckpt_file_name(file));
        torch_archive_close(a);
        return rc;
    }
    *out = a;
    return 0;
}

int torch_archive_open(struct torch_archive **out, struct ckpt_file *file, struct ckpt_err *err)
{
    return open_as(out, file, OPEN_STRICT, err);
}

int torch_archive_open_any(struct torch_archive **out, struct ckpt_file *file,
                           struct ckpt_err *err)
{
    return open_as(out, file, OPEN_ANY, err);
}

bool torch_archive_has_sums(const struct torch_archive *a)
{
    return a->zip.n > 0 && !a->zip.no_sums;
}

int torch_archive_verify(const struct torch_archive *a, struct ckpt_err *err)
{
    size_t n = (size_t)1 << 20;
    void *buf = ckpt_alloc_buffer(n);
    int rc = buf ? 0 : ckpt_nomem(err, n);

    for (size_t i = 0; rc == 0 && i < a->zip.n; i++)
        rc = zip_verify(&a->zip, &a->zip.entry[i], buf, n, err);
    ckpt_free(buf);
    return rc ? ckpt_err_in(err, "%s", ckpt_file_name(a->file)) : 0;
}

static bool contiguous(const struct value_tensor *t)
{
    int64_t want = 1;

    for (int i = t->shape.rank; i-- > 0;) {
        if (t->shape.dim[i] != 1 && t->stride[i] != want)
            return false;
        want *= t->shape.dim[i];
    }
    return true;
}

/* The strides belong to t. */
static struct ckpt_fragment fragment_of(const struct torch_archive *a,
                                        const struct value_tensor *t)
{
    size_t width = ckpt_dtype_size(t->dtype);

    return (struct ckpt_fragment){
        .file = a->file, .swapped = a->big_endian && width > 1, .negated = t->negated,
        .offset = a->storages.item[t->storage].offset + (uint64_t)t->offset * width,
        .conjugated = t->conjugated, .stride = contiguous(t) ? NULL : t->stride};
}

int torch_archive_fragment(struct ckpt_fragment **out, struct ckpt_arena *arena,
                           const struct torch_archive *a, const struct value_tensor *t,
                           struct ckpt_err *err)
{
    struct ckpt_fragment *f = ckpt_arena_alloc(arena, 1, sizeof *f);
    int64_t *stride;

    *out = f;
    if (!f)
        return ckpt_nomem(err, sizeof *f);
    *f = fragment_of(a, t);
    if (!f->stride)
        return 0;
    f->stride = stride = ckpt_arena_alloc(arena, CKPT_MAX_RANK, sizeof *stride);
    if (!stride)
        return ckpt_nomem(err, CKPT_MAX_RANK * sizeof *stride);
    memcpy(stride, t->stride, sizeof t->stride);
    return 0;
}

int torch_archive_read(void *dst, const struct torch_archive *a, const struct value_tensor *t,
                       int64_t start, int64_t count, struct ckpt_err *err)
{
    struct ckpt_fragment f = fragment_of(a, t);

    return ckpt_fragment_gather(dst, &t->shape, t->dtype, &f, 1, start, count, err);
}

/* -- the format row -------------------------------------------------------------------------- */

static int bid(const struct ckpt_place *p)
{
    if (!p->file || p->head_len < 30)
        return 0;
    if (memcmp(p->head, "PK\3\4", 4) == 0 || torch_legacy_is(p->head, p->head_len))
        return 80;
    return torch_tar_is(p->head, p->head_len) ? 40 : 0;
}

/* The archive, and its tensors that are not windows. */
struct torch_source {
    struct torch_archive      *archive;
    const struct ckpt_tensors *list;
    struct torch_inner        *inner;
    size_t                     n_inner;
};

static void close_source(void *self)
{
    struct torch_source *s = self;

    torch_archive_close(s->archive);
    ckpt_free(s->inner);
    ckpt_free(s);
}

static int read_source(void *self, size_t i, int64_t start, int64_t count, void *dst,
                       struct ckpt_err *err)
{
    const struct torch_source *s = self;
    const struct ckpt_tensor *t = &s->list->item[i];
    size_t low = 0, high = s->n_inner;

    if (t->n_frag)
        return ckpt_fragment_gather(dst, &t->shape, t->dtype, t->frag, t->n_frag, start, count,
                                    err);
    while (low < high) {
        size_t mid = low + (high - low) / 2;

        if (s->inner[mid].index < i)
            low = mid + 1;
        else
            high = mid;
    }
    if (s->inner[low].affine)
        return torch_affine_gather(dst, s->inner[low].affine, start, count, err);
    return torch_array_gather(dst, &s->inner[low].array, start, count, err);
}

static const struct ckpt_source_ops ops = {
    .format = "torch", .read = read_source, .close = close_source,
};

/* List a's tensors, and make the source's own state. */
static int list_archive(struct torch_source **out, struct ckpt_tensors *list, size_t *left_out,
                        struct torch_archive *a, struct ckpt_err *err)
{
    struct torch_adder to = {.a = a, .list = list};
    struct torch_source *s = ckpt_alloc(1, sizeof *s);
    int rc = s ? torch_list(&to, err) : ckpt_nomem(err, sizeof *s);

    ckpt_map_free(to.seen);
    *left_out = to.left_out;
    *out = rc ? NULL : s;
    if (rc) {
        ckpt_free(to.inner);
        ckpt_free(s);
        return rc;
    }
    *s = (struct torch_source){.archive = a, .inner = to.inner, .n_inner = to.n_inner};
    return 0;
}

/* -- programs of torch.export ---------------------------------------------------------------- */

static void close_program(void *self) { torch_archive_close(self); }

/* Tensors are read by their fragments. */
static const struct ckpt_source_ops program_ops = {.format = "torch", .close = close_program};

/* Whether a zip file is a program; if so, its members have been read. */
static bool is_program(struct zip *z, const struct ckpt_place *p)
{
    struct ckpt_err ignored = {0};
    size_t n = p->head_len > 30 ? p->head[26] + 256u * p->head[27] : 0;

    /* torch.save's first member is data.pkl: this spares most files a second look. */
    if (memcmp(p->head, "PK\3\4", 4) != 0 ||
        (n >= 8 && n <= p->head_len - 30 && memcmp(p->head + 30 + n - 8, "data.pkl", 8) == 0) ||
        zip_open(z, p->file, &ignored))
        return false;
    return torch_export_is(z);
}

/* Takes file. */
static int open_program(struct ckpt_source **out, struct ckpt_file *file, struct ckpt_err *err)
{
    struct torch_archive *a = ckpt_alloc(1, sizeof *a);
    struct ckpt_tensors list = {0};
    int rc;

    if (!a) {
        ckpt_file_close(file);
        return ckpt_nomem(err, sizeof *a);
    }
    a->file = file;
    rc = zip_open(&a->zip, file, err);
    if (rc == 0)
        rc = torch_export_list(&list, &a->zip, err);
    if (rc == 0)
        rc = guard(a, err);
    if (rc) {
        ckpt_err_in(err, "%s", ckpt_file_name(file));
        ckpt_tensors_release(&list);
        torch_archive_close(a);
        return rc;
    }
    return ckpt_source_new(out, &program_ops, a, &list, NULL, 0,
                           json_pack("{s:s,s:s}", "format", "torch", "container", "torch.export"),
                           err);
}

/*
 * Number of files that a model's matrices are split over, of which this is one: from Megatron's
 * arguments beside the weights; 1 without them.
 */
static int64_t tensor_parallel(const struct torch_archive *a)
{
    static const char *const keys[] = {"tensor_model_parallel_size", "model_parallel_size"};
    const struct value *args = value_get(torch_archive_root(a), "args");
    int64_t n = 1;

    for (size_t i = 0; value_is(args, VALUE_OBJECT) && n <= 1 && i < 2; i++)
        value_as_int(value_get(args->u.obj.state, keys[i]), &n);
    return n;
}

/* Takes file. */
static int source_of(struct ckpt_source **out, struct ckpt_file *file, enum open_how how,
                     struct ckpt_err *err)
{
    struct ckpt_tensors list = {0};
    struct torch_source *s;
    struct torch_archive *a;
    size_t left_out;
    json_t *info;
    int rc;

    *out = NULL;
    if ((rc = open_as(&a, file, how, err)) != 0)
        return rc;
    rc = list_archive(&s, &list, &left_out, a, err);
    if (rc) {
        ckpt_err_in(err, "%s", ckpt_file_name(file));
        ckpt_tensors_release(&list);
        torch_archive_close(a);
        return rc;
    }
    info = json_pack("{s:s,s:s}", "format", "torch", "container", a->container);
    if (tensor_parallel(a) > 1)
        json_object_set_new(info, "tensor_parallel", json_integer(tensor_parallel(a)));
    if (left_out)
        json_object_set_new(info, "arrays_left_out", json_integer((json_int_t)left_out));
    if ((rc = ckpt_source_new(out, &ops, s, &list, NULL, 0, info, err)) != 0)
        return rc;
    s->list = ckpt_source_tensors(*out);
    return 0;
}

int torch_look(struct ckpt_source **out, struct ckpt_file *file, struct ckpt_err *err)
{
    return source_of(out, file, OPEN_ANY, err);
}

static int open_source(struct ckpt_source **out, struct ckpt_place *place,
                       const struct ckpt_open_opts *opts, struct ckpt_err *err)
{
    struct zip z = {0};
    bool program;

    (void)opts;
    *out = NULL;
    if (!place->file)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "%s: is a directory, one torch file wanted",
                         place->path);
    if (bid(place) == 0)
        return ckpt_fail(err, CKPT_EUNSUPPORTED,
                         "%s: neither a zip archive nor a stream of pickles as torch writes them",
                         place->path);
    place->took = true;
    program = is_program(&z, place);
    zip_release(&z);
    return program ? open_program(out, place->file, err)
                   : source_of(out, place->file, OPEN_LISTED, err);
}

const struct ckpt_format ckpt_format_torch = {
    .name = "torch", .title = "torch archive", .bid = bid, .open = open_source,
    .create = torch_create,
};
