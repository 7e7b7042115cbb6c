/* fsdp - see fsdp.h. */
#include "formats/dcp/fsdp.h"

#include <string.h>

#include "formats/place.h"
#include "formats/dcp/fsdp_files.h"
#include "formats/dcp/fsdp_join.h"
#include "formats/hf/dir.h"
#include "formats/hf/safetensors.h"
#include "formats/hf/side_files.h"
#include "libckpt/err.h"
#include "libckpt/io/path.h"

#define PEEK_BYTES 262144u      /* bytes of a file searched for a distributed tensor's class */

struct fsdp {
    struct ckpt_dir   *dir;
    struct ckpt_file **file;
    size_t             n, cap;
    struct side_files  side;
};

struct reader {
    struct fsdp                 *f;
    struct ckpt_tensors         *list;
    const struct ckpt_open_opts *opts;
    int64_t                      world;
    struct ckpt_err             *err;
};

static void close_fsdp(void *self)
{
    struct fsdp *f = self;

    for (size_t i = 0; i < f->n; i++)
        ckpt_file_close(f->file[i]);
    ckpt_free(f->file);
    side_files_close(&f->side);
    ckpt_dir_close(f->dir);
    ckpt_free(f);
}

static const struct ckpt_source_ops ops = {.format = "fsdp", .close = close_fsdp};

/* Takes file, on failure too. */
static int keep(struct reader *r, struct ckpt_file *file)
{
    struct fsdp *f = r->f;

    if (ckpt_reserve(&f->file, f->n, &f->cap, sizeof *f->file, r->err)) {
        ckpt_file_close(file);
        return CKPT_ENOMEM;
    }
    f->file[f->n++] = file;
    return 0;
}

/* Read the pieces in a rank's file; its values are freed on return. */
static int read_rank(struct reader *r, struct fsdp_join *j, struct ckpt_file *file, size_t rank,
                     size_t ranks)
{
    struct fsdp_rank pieces = {0};
    struct torch_archive *a;
    struct ckpt_file *window;
    const char *name = ckpt_file_name(file);
    int rc;

    if ((rc = ckpt_file_window(&window, file, 0, ckpt_file_size(file), name, r->err)) != 0 ||
        (rc = torch_archive_open(&a, window, r->err)) != 0)
        return rc;
    rc = fsdp_pieces_read(&pieces, a, file, &r->list->arena, r->err);
    torch_archive_close(a);
    if (rc == 0 && pieces.local && pieces.world > (int64_t)ranks)
        rc = ckpt_fail_as(r->err, CKPT_EFORMAT, "missing",
                          "written by %lld ranks, %zu files of its set are there",
                          (long long)pieces.world, ranks);
    if (rc == 0 && ranks > 1 && pieces.rank >= 0 && pieces.rank != (int64_t)rank)
        rc = ckpt_fail(r->err, CKPT_EFORMAT, "is of rank %lld by what it holds",
                       (long long)pieces.rank);
    if (rc)
        ckpt_err_in(r->err, "%s", name);
    else
        rc = fsdp_join_rank(j, &pieces, r->err);
    if (rc == 0 && pieces.world > r->world)
        r->world = pieces.world;
    fsdp_pieces_release(&pieces);
    return rc;
}

/* Open the source of flattened parameters' shapes: a model directory, or a file. */
static int open_base(struct ckpt_source **out, const struct reader *r)
{
    struct ckpt_open_opts opts = {.follow = r->opts->follow};
    struct ckpt_arena a = {0};
    struct ckpt_place p;
    const struct ckpt_format *format;
    int rc;

    *out = NULL;
    rc = place_open(&p, r->opts->base, &opts, &a, r->err);
    if (rc == 0) {
        format = p.dir ? &ckpt_format_hf
                 : ckpt_format_safetensors.bid(&p) ? &ckpt_format_safetensors : &ckpt_format_torch;
        rc = format->open(out, &p, &opts, r->err);
        place_close(&p);
    }
    ckpt_arena_release(&a);
    return rc ? ckpt_err_in(r->err, "base") : 0;
}

/* List the tensors of a set's files.  The error for a hole adds how many files there should be. */
static int list_set(struct reader *r, struct fsdp_join *j, size_t ranks)
{
    struct ckpt_source *base = NULL;
    int rc = 0;

    if (fsdp_join_is_local(j) && r->opts->base)
        rc = open_base(&base, r);
    if (rc == 0)
        rc = fsdp_join_list(j, r->list, r->opts->optimizer, base, r->err);
    ckpt_source_close(base);
    if (rc == CKPT_EFORMAT && r->world > (int64_t)ranks)
        ckpt_err_in(r->err, "written by %lld ranks, %zu files of its set are there",
                    (long long)r->world, ranks);
    return rc;
}

/* Read the set of `name`; file: name's own file, open already, when the set is a single file. */
static int read_set(struct reader *r, const char *name, const struct ckpt_entry *entry,
                    size_t n_entry)
{
    struct ckpt_arena a = {0};
    struct fsdp_join *j = NULL;
    struct fsdp_set set;
    struct ckpt_file *file;
    int rc = fsdp_set_of(&set, name, entry, n_entry, &a, r->err);

    if (rc == 0)
        rc = fsdp_join_new(&j, r->err);
    for (size_t i = 0; rc == 0 && i < set.n; i++) {
        rc = ckpt_file_open_at(&file, r->f->dir, set.name[i], r->err);
        if (rc == 0)
            rc = keep(r, file);
        if (rc == 0)
            rc = read_rank(r, j, file, i, set.n);
    }
    if (rc == 0)
        rc = list_set(r, j, set.n);
    fsdp_join_free(j);
    ckpt_arena_release(&a);
    return rc;
}

/* Read a directory's weights, and its optimizer state if requested. */
static int read_directory(struct reader *r, const struct ckpt_place *p)
{
    const char *name, *optimizer = NULL;
    int rc = fsdp_set_in(&name, FSDP_WEIGHTS, p->entry, p->n_entry, r->err);

    if (rc == 0 && r->opts->optimizer)
        rc = fsdp_set_in(&optimizer, FSDP_OPTIMIZER, p->entry, p->n_entry, r->err);
    if (rc == 0 && !name)
        rc = ckpt_fail(r->err, CKPT_ENOTFOUND, "no files of a model's ranks");
    if (rc == 0)
        rc = read_set(r, name, p->entry, p->n_entry);
    if (rc == 0 && optimizer)
        rc = read_set(r, optimizer, p->entry, p->n_entry);
    if (rc == 0)
        rc = side_files_open(&r->f->side, r->f->dir, &r->list->arena, r->err);
    return rc;
}

/* Read a file without a rank in its name as a set of its own. */
static int read_file(struct reader *r, struct ckpt_place *p)
{
    struct fsdp_join *j = NULL;
    struct ckpt_file *file = p->file;
    int rc;

    p->took = true;
    if ((rc = keep(r, file)) != 0 || (rc = fsdp_join_new(&j, r->err)) != 0)
        return rc;
    rc = read_rank(r, j, file, 0, 1);
    if (rc == 0)
        rc = list_set(r, j, 1);
    fsdp_join_free(j);
    return rc;
}

/* Read the set of a file with a rank in its name. */
static int read_beside(struct reader *r, const struct ckpt_place *p)
{
    const char *slash = strrchr(p->path, '/'), *name = slash ? slash + 1 : p->path;
    struct ckpt_arena a = {0};
    struct ckpt_entry *entry;
    char *dir = slash ? ckpt_arena_strndup(&a, p->path, (size_t)(slash - p->path) + 1)
                      : ckpt_arena_strndup(&a, ".", 1);
    size_t n;
    int rc = dir ? ckpt_path_dir(&r->f->dir, dir, r->opts->follow ? CKPT_FOLLOW : 0, r->err)
                 : ckpt_nomem(r->err, 64);

    if (rc == 0)
        rc = ckpt_dir_list(r->f->dir, &a, &entry, &n, r->err);
    if (rc == 0)
        rc = read_set(r, name, entry, n);
    ckpt_arena_release(&a);
    return rc;
}

static bool names_rank(const struct ckpt_place *p)
{
    const char *slash = strrchr(p->path, '/');
    size_t at, len;

    return fsdp_rank_in(slash ? slash + 1 : p->path, &at, &len);
}

static int open_source(struct ckpt_source **out, struct ckpt_place *place,
                       const struct ckpt_open_opts *opts, struct ckpt_err *err)
{
    struct ckpt_tensors list = {0};
    struct reader r = {.list = &list, .opts = opts, .world = 1, .err = err};
    json_t *info;
    int rc;

    *out = NULL;
    r.f = ckpt_alloc(1, sizeof *r.f);
    if (!r.f)
        return ckpt_nomem(err, sizeof *r.f);
    if (place->dir) {
        r.f->dir = place->dir;
        place->took = true;
        rc = read_directory(&r, place);
    } else {
        rc = names_rank(place) ? read_beside(&r, place) : read_file(&r, place);
    }
    if (rc) {
        ckpt_err_in(err, "%s", place->path);
        close_fsdp(r.f);
        ckpt_tensors_release(&list);
        return rc;
    }
    info = json_pack("{s:s,s:I}", "format", "fsdp", "world_size", (json_int_t)r.world);
    return ckpt_source_new(out, &ops, r.f, &list, r.f->side.item, r.f->side.n, info, err);
}

/* A distributed tensor's class is among the first names of its pickle. */
static bool mentions(const struct ckpt_place *p)
{
    static const char *const word[] = {"torch.distributed.tensor\nDTensor\n",
                                       "torch.distributed._tensor.api\nDTensor\n",
                                       "torch.distributed._shard.sharded_tensor.api\nSharded"};
    uint64_t size = ckpt_file_size(p->file);
    size_t n = size < PEEK_BYTES ? (size_t)size : PEEK_BYTES;
    char *bytes = ckpt_alloc_buffer(n);
    struct ckpt_err ignored = {0};
    bool found = false;

    if (bytes && ckpt_file_read_at(p->file, bytes, n, 0, &ignored) == 0)
        for (size_t i = 0; i < sizeof word / sizeof word[0]; i++)
            found = found || memmem(bytes, n, word[i], strlen(word[i])) != NULL;
    ckpt_free(bytes);
    return found;
}

/* Recognise a directory by its files' names: few others have names that end in rank0.pt. */
static int bid(const struct ckpt_place *p)
{
    struct ckpt_err ignored = {0};
    const char *name;

    if (!p->dir)
        return p->head_len > 4 && memcmp(p->head, "PK\3\4", 4) == 0 && mentions(p) ? 85 : 0;
    if (fsdp_set_in(&name, FSDP_WEIGHTS, p->entry, p->n_entry, &ignored))
        return 30;
    return !name ? 0 : strncmp(name, "model_world_size_", 17) == 0 ||
                           strncmp(name, "pytorch_model_fsdp", 18) == 0 ? 65 : 30;
}

const struct ckpt_format ckpt_format_fsdp = {
    .name = "fsdp", .title = "FSDP files of ranks", .bid = bid, .open = open_source,
};
