/* torch/legacy - see torch/legacy.h. */
#include "formats/torch/legacy.h"

#include <string.h>

#include "formats/container/pickle/pickle.h"
#include "libckpt/base/map.h"

#define FIRST_READ ((uint64_t)1 << 18)  /* most files' pickles are shorter */
#define MAX_READ   ((uint64_t)256 << 20)
#define N_PICKLES  5

/* 0x1950a86a20f9469cfc6c as LONG1, in any protocol. */
static const unsigned char magic[] = {0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46,
                                      0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19};

enum { P_MAGIC, P_VERSION, P_SYSTEM, P_OBJECT, P_KEYS };

bool torch_legacy_is(const unsigned char *head, size_t n)
{
    /* After PROTO, and in protocol 4 a FRAME. */
    return n >= 24 && head[0] == 0x80 &&
           (memcmp(head + 2, magic, sizeof magic) == 0 ||
            memcmp(head + 11, magic, sizeof magic) == 0);
}

struct legacy {
    const struct ckpt_file *file;
    struct ckpt_arena      *arena;
    struct value           *v[N_PICKLES];
    struct value_seq        names;
    uint64_t                end;        /* end of the pickles */
};

/* Run the pickles in the first n bytes.  *more: they continue beyond these. */
static int run(struct legacy *l, uint64_t n, bool *more, struct ckpt_err *err)
{
    struct ckpt_arena scratch = {0};
    unsigned char *bytes = ckpt_arena_alloc(&scratch, (size_t)n, 1);
    struct ckpt_cursor c;
    int rc = bytes ? ckpt_file_read_at(l->file, bytes, (size_t)n, 0, err)
                   : ckpt_nomem(err, (size_t)n);

    *more = false;
    ckpt_cursor_init(&c, bytes, (size_t)n);
    for (size_t i = 0; rc == 0 && i < N_PICKLES; i++)
        rc = pickle_read(&l->v[i], &c, l->arena, &l->names, err);
    *more = rc && bytes && c.failed;
    l->end = c.pos;
    ckpt_arena_release(&scratch);
    return rc;
}

/* The pickles' length is not stored: read more until they end. */
static int run_all(struct legacy *l, struct ckpt_err *err)
{
    uint64_t size = ckpt_file_size(l->file), n = FIRST_READ;
    bool more;
    int rc;

    for (;;) {
        if (n > size)
            n = size;
        memset(&l->names, 0, sizeof l->names);
        ckpt_arena_release(l->arena);
        l->arena->limit = ((uint64_t)16 << 20) + 256 * n;
        rc = run(l, n, &more, err);
        if (!more || n == size || n >= MAX_READ)
            return rc;
        n *= 8;
    }
}

static int check_system(const struct legacy *l, bool *big_endian, struct ckpt_err *err)
{
    const struct value *little = value_get(l->v[P_SYSTEM], "little_endian");
    int64_t version;

    if (!value_as_int(l->v[P_VERSION], &version) || version != 1001)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "legacy torch file of a protocol other than 1001");
    if (!value_is(l->v[P_SYSTEM], VALUE_DICT) || !value_is(little, VALUE_BOOL) ||
        !value_is(l->v[P_KEYS], VALUE_LIST))
        return ckpt_fail(err, CKPT_EFORMAT, "legacy torch file without byte order or key list");
    *big_endian = !little->u.b;
    return 0;
}

/* The storage that a key of the list names, each only once. */
static int find_key(const struct torch_storages *s, const struct value *v, size_t *i,
                    struct ckpt_err *err)
{
    const char *key = value_as_str(v);

    *i = key && s->by_key ? ckpt_map_get(s->by_key, key, strlen(key)) : CKPT_MAP_NONE;
    if (*i == CKPT_MAP_NONE)
        return ckpt_fail(err, CKPT_EFORMAT, "the key list has a storage %s that no tensor uses",
                         key ? key : "(no text)");
    return s->item[*i].offset == 0 ? 0 : ckpt_fail_as(err, CKPT_EFORMAT, "duplicate",
                                                      "the key list has storage %s twice", key);
}

/* Place each storage: they follow the pickles in the order of the key list. */
static int place(const struct legacy *l, struct torch_storages *s, struct ckpt_err *err)
{
    const struct value_seq *keys = &l->v[P_KEYS]->u.seq;
    uint64_t at = l->end, size = ckpt_file_size(l->file), bytes;
    unsigned char raw[8];
    struct ckpt_cursor c;
    size_t i;
    int rc;

    for (size_t k = 0; k < keys->n; k++) {
        if ((rc = find_key(s, keys->item[k], &i, err)) != 0 ||
            (rc = ckpt_file_read_at(l->file, raw, sizeof raw, at, err)) != 0)
            return rc;
        ckpt_cursor_init(&c, raw, sizeof raw);
        if (ckpt_cursor_u64le(&c) != (uint64_t)s->item[i].numel)
            return ckpt_fail(err, CKPT_EFORMAT, "storage %s: the pickle says %lld elements, its "
                             "place another number", s->item[i].key, (long long)s->item[i].numel);
        at += sizeof raw;
        if (!ckpt_mul(&bytes, (uint64_t)s->item[i].numel, ckpt_dtype_size(s->item[i].dtype)) ||
            bytes > size - at)
            return ckpt_fail_as(err, CKPT_EFORMAT, "truncated",
                                "storage %s: %lld elements of %s pass the end of the file",
                                s->item[i].key, (long long)s->item[i].numel,
                                ckpt_dtype_name(s->item[i].dtype));
        s->item[i].offset = at;
        at += bytes;
    }
    if (keys->n != s->n)
        return ckpt_fail_as(err, CKPT_EFORMAT, "missing", "the key list has %zu of %zu storages",
                            keys->n, s->n);
    return at == size ? 0 : ckpt_fail_as(err, CKPT_EFORMAT, "trailing",
                                         "%llu bytes after the last storage",
                                         (unsigned long long)(size - at));
}

int torch_legacy_read(struct value **root, struct torch_storages *storages, bool *big_endian,
                      const struct ckpt_file *file, struct ckpt_arena *arena, bool strict,
                      struct ckpt_err *err)
{
    struct legacy l = {.file = file, .arena = arena};
    int rc = run_all(&l, err);
    int refused = strict ? torch_names_check(&l.names, rc != 0, err) : 0;

    if (refused || rc)
        return refused ? refused : rc;
    if ((rc = check_system(&l, big_endian, err)) != 0)
        return rc;
    storages->legacy = true;
    if ((rc = torch_value_resolve(l.v[P_OBJECT], storages, arena, strict, err)) != 0)
        return rc;
    *root = l.v[P_OBJECT];
    return place(&l, storages, err);
}
