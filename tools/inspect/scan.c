/*
 * scan - every name that a pickle would import, and every trick of zip and path; see inspect.h.
 *
 * All pickles of a file are run by the machine that calls nothing; each name it meets is told,
 * also those whose values are thrown away and those of pickles that fail later.  Verdicts are
 * picklescan's: innocuous is what the one table of known names has, dangerous what no checkpoint
 * has a use for, suspicious the rest.  What the strict readers say comes beside it.
 */
#include <stdio.h>
#include <string.h>

#include "formats/container/pickle.h"
#include "formats/container/zip.h"
#include "formats/weights/torch.h"
#include "formats/weights/torch_names.h"
#include "libckpt/map.h"
#include "tools/inspect/inspect.h"

#define MAX_PICKLE  ((uint64_t)64 << 20)
#define MAX_PICKLES 5           /* one after another in a file, as torch once wrote them */

struct scan {
    struct out *o;
    int64_t     files, pickles, dangerous, suspicious, damaged;
};

static void put(struct scan *s, const char *file, const char *member, const char *what,
                const char *use, const char *verdict)
{
    out_cell_str(s->o, file);
    out_cell_str(s->o, member);
    out_cell_str(s->o, what);
    out_cell_str(s->o, use);
    out_cell_str(s->o, verdict);
}

/* What a reader refused, in its words. */
static void put_refusal(struct scan *s, const char *file, const char *member,
                        const struct ckpt_err *err)
{
    bool refused = err->code == CKPT_EREFUSED;

    put(s, file, member, err->text, "", refused ? "refused" : "damaged");
    s->dangerous += refused;
    s->damaged += !refused;
}

static void put_name(struct scan *s, const char *file, const char *member, const struct value *v)
{
    const char *module = v->u.obj.module, *name = v->u.obj.name;
    bool known = torch_name_find(module, name), alarms = !known && torch_name_alarms(module, name);
    char text[2100];

    snprintf(text, sizeof text, "%s.%s", module, name);
    put(s, file, member, text, v->u.obj.called ? "called" : "named",
        known ? "innocuous" : alarms ? "dangerous" : "suspicious");
    s->dangerous += alarms;
    s->suspicious += !known && !alarms;
}

/* Each name once, as called when some mention of it is. */
static int put_names(struct scan *s, const char *file, const char *member,
                     const struct value_seq *names, struct ckpt_err *err)
{
    struct ckpt_arena a = {0};          /* of the keys */
    struct ckpt_map *seen;
    size_t *first = ckpt_alloc(names->n + 1, sizeof *first), n = 0;
    int rc = ckpt_map_new(&seen, names->n, err);

    if (rc == 0 && !first)
        rc = ckpt_nomem(err, names->n * sizeof *first);
    for (size_t i = 0; rc == 0 && i < names->n; i++) {
        struct value *v = names->item[i];
        char *key = ckpt_arena_printf(&a, "%s\n%s", v->u.obj.module, v->u.obj.name);
        size_t k = key ? ckpt_map_get(seen, key, strlen(key)) : CKPT_MAP_NONE;

        if (k != CKPT_MAP_NONE) {
            names->item[k]->u.obj.called |= v->u.obj.called;
            continue;
        }
        rc = key ? ckpt_map_add(seen, key, strlen(key), i, err) : ckpt_nomem(err, 64);
        first[n++] = i;
    }
    for (size_t i = 0; rc == 0 && i < n; i++)
        put_name(s, file, member, names->item[first[i]]);
    ckpt_map_free(seen);
    ckpt_arena_release(&a);
    ckpt_free(first);
    return rc;
}

/* The pickles that follow each other at the front of n bytes. */
static int scan_pickles(struct scan *s, const char *file, const char *member, const void *bytes,
                        size_t n, struct ckpt_err *err)
{
    struct ckpt_arena a = {0};
    struct ckpt_cursor c;
    struct value_seq names = {0};
    struct ckpt_err own = {0};
    int rc = 0;

    ckpt_cursor_init(&c, bytes, n);
    for (int k = 0; k < MAX_PICKLES && rc == 0 && ckpt_cursor_left(&c) > 0; k++) {
        struct value *root;

        if (k && c.base[c.pos] != 0x80)
            break;                      /* storages, or what the strict reader will tell of */
        rc = pickle_read(&root, &c, &a, &names, &own);
        s->pickles++;
    }
    if (put_names(s, file, member, &names, err))
        rc = err->code;
    else if (rc) {
        put_refusal(s, file, member, &own);
        rc = 0;
    }
    ckpt_arena_release(&a);
    return rc;
}

static bool ends_in(const char *s, const char *tail)
{
    size_t n = strlen(s), k = strlen(tail);

    return n >= k && strcmp(s + n - k, tail) == 0;
}

static int scan_zip(struct scan *s, const char *name, struct ckpt_file *file,
                    struct ckpt_err *err)
{
    struct ckpt_err own = {0};
    struct zip z;
    int rc = 0;

    if (zip_open(&z, file, &own)) {
        put_refusal(s, name, "", &own);
        return 0;
    }
    for (size_t i = 0; rc == 0 && i < z.n; i++) {
        struct ckpt_arena a = {0};
        char *bytes;

        if (!ends_in(z.entry[i].name, ".pkl") && !ends_in(z.entry[i].name, ".pickle"))
            continue;
        if (zip_slurp(&z, &z.entry[i], &a, MAX_PICKLE, &bytes, &own))
            put_refusal(s, name, z.entry[i].name, &own);
        else
            rc = scan_pickles(s, name, z.entry[i].name, bytes, (size_t)z.entry[i].size, err);
        ckpt_arena_release(&a);
    }
    zip_release(&z);
    return rc;
}

static int scan_front(struct scan *s, const char *name, struct ckpt_file *file,
                      struct ckpt_err *err)
{
    uint64_t n = ckpt_file_size(file) < MAX_PICKLE ? ckpt_file_size(file) : MAX_PICKLE;
    void *bytes = ckpt_alloc_buffer(n);
    int rc = bytes ? ckpt_file_read_at(file, bytes, n, 0, err) : ckpt_nomem(err, n);

    if (rc == 0)
        rc = scan_pickles(s, name, "", bytes, n, err);
    ckpt_free(bytes);
    return rc;
}

/* The strict reader's word. */
static void scan_strictly(struct scan *s, const char *name, struct ckpt_file *file)
{
    struct ckpt_err own = {0};
    struct torch_archive *a;
    struct ckpt_file *again;

    if (ckpt_file_window(&again, file, 0, ckpt_file_size(file), ckpt_file_name(file), &own))
        return;
    if (torch_archive_open(&a, again, &own) == 0)       /* takes it */
        torch_archive_close(a);
    else
        put_refusal(s, name, "", &own);
}

static int scan_file(struct scan *s, const char *name, struct ckpt_file *file,
                     struct ckpt_err *err)
{
    static const char *const tail[] = {".pkl", ".pickle", ".pt", ".pth", ".bin", ".ckpt", ".th"};
    int64_t before = s->dangerous + s->suspicious + s->damaged;
    unsigned char magic[4] = {0};
    bool zip, pickle;
    int rc = 0;

    s->files++;
    if (ckpt_file_size(file) < sizeof magic)
        return 0;
    if (ckpt_file_read_at(file, magic, sizeof magic, 0, err))
        return err->code;
    zip = memcmp(magic, "PK\003\004", sizeof magic) == 0;
    pickle = magic[0] == 0x80;
    for (size_t i = 0; !zip && i < sizeof tail / sizeof tail[0]; i++)
        pickle |= ends_in(name, tail[i]);       /* protocols 0 and 1 have no mark of their own */
    if (zip)
        rc = scan_zip(s, name, file, err);
    else if (pickle)
        rc = scan_front(s, name, file, err);
    if (rc == 0 && (zip || (pickle && !ends_in(name, ".pkl") && !ends_in(name, ".pickle"))) &&
        s->damaged + s->dangerous + s->suspicious == before)
        scan_strictly(s, name, file);
    return rc;
}

/* A directory's files, and with deep those of its directories. */
static int scan_dir(struct scan *s, const char *prefix, struct ckpt_dir *dir, bool deep,
                    struct ckpt_err *err)
{
    struct ckpt_arena a = {0};
    struct ckpt_entry *entry;
    size_t n = 0;
    int rc = ckpt_dir_list(dir, &a, &entry, &n, err);

    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct ckpt_err own = {0};
        struct ckpt_file *file = NULL;
        struct ckpt_dir *sub = NULL;
        char name[600];

        snprintf(name, sizeof name, "%s%s", prefix, entry[i].name);
        if (entry[i].is_dir && deep) {
            rc = ckpt_dir_open_at(&sub, dir, entry[i].name, err);
            snprintf(name, sizeof name, "%s/", entry[i].name);
            if (rc == 0)
                rc = scan_dir(s, name, sub, false, err);
        } else if (!entry[i].is_dir && ckpt_file_open_at(&file, dir, entry[i].name, &own)) {
            put_refusal(s, name, "", &own);     /* a link that leads away, a fifo */
        } else if (file) {
            rc = scan_file(s, name, file, err);
        }
        ckpt_file_close(file);
        ckpt_dir_close(sub);
    }
    ckpt_arena_release(&a);
    return rc;
}

int inspect_scan(struct out *o, const struct cli *cli, const char *path, struct ckpt_err *err)
{
    static const struct out_column columns[] = {
        {"file", "file", OUT_LEFT}, {"member", "member", OUT_LEFT}, {"what", "what", OUT_LEFT},
        {"use", "use", OUT_LEFT},   {"verdict", "verdict", OUT_LEFT},
    };
    unsigned flags = cli->follow ? CKPT_FOLLOW : 0;
    struct scan s = {.o = o};
    struct ckpt_file *file = NULL;
    struct ckpt_dir *dir = NULL;
    bool is_dir = ckpt_path_is_dir(path);
    const char *slash = strrchr(path, '/');
    int rc = is_dir ? ckpt_path_dir(&dir, path, flags, err)
                    : ckpt_path_file(&file, path, flags, err);

    out_table(o, "scan", columns, 5);
    if (rc == 0)
        rc = is_dir ? scan_dir(&s, "", dir, true, err)
                    : scan_file(&s, slash ? slash + 1 : path, file, err);
    out_table_end(o);
    out_int(o, "files", "files", s.files);
    out_int(o, "pickles", "pickles", s.pickles);
    out_int(o, "dangerous", "dangerous", s.dangerous);
    out_int(o, "suspicious", "suspicious", s.suspicious);
    out_int(o, "damaged", "damaged", s.damaged);
    ckpt_file_close(file);
    ckpt_dir_close(dir);
    if (rc)
        return rc;
    if (s.dangerous)
        return ckpt_fail(err, CKPT_EREFUSED, "%s: %lld dangerous", path, (long long)s.dangerous);
    if (s.damaged)
        return ckpt_fail(err, CKPT_EFORMAT, "%s: %lld damaged", path, (long long)s.damaged);
    return s.suspicious ? ckpt_fail(err, CKPT_ENO, "%s: %lld suspicious", path,
                                    (long long)s.suspicious) : 0;
}
