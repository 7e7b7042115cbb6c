/* lfs_action - see lfs_action.h. */
#include "libckpt/remote/lfs_action.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/buf.h"

#define MOST_PARTS 100000u
#define SPARE      60           /* seconds that an address must be valid for */

static bool is_number(const char *s) { return *s && strspn(s, "0123456789") == strlen(s); }

/* A number, or a text that is one. */
static uint64_t number_of(const json_t *v)
{
    const char *s = json_string_value(v);

    if (json_is_integer(v) && json_integer_value(v) > 0)
        return (uint64_t)json_integer_value(v);
    return s && is_number(s) && strlen(s) < 16 ? strtoull(s, NULL, 10) : 0;
}

static bool is_address(const char *s)
{
    return s && strlen(s) < HTTP_URL && (strncmp(s, "https://", 8) == 0 ||
                                         strncmp(s, "http://", 7) == 0);
}

/* "name: value\n" of each text of an action's header but what describes parts. */
static const char *lines_of(struct ckpt_arena *arena, const json_t *header, bool multipart)
{
    struct ckpt_buf b;
    const char *key, *text = NULL;
    json_t *v;

    ckpt_buf_init(&b, 65536);
    json_object_foreach ((json_t *)header, key, v) {
        const char *value = json_string_value(v);

        if (!value || multipart || strpbrk(value, "\r\n") || strpbrk(key, "\r\n: "))
            continue;
        ckpt_buf_printf(&b, "%s: %s\n", key, value);
    }
    if (ckpt_buf_str(&b))
        text = ckpt_arena_strndup(arena, (char *)b.data, b.len);
    ckpt_buf_release(&b);
    return text;
}

static int bad(const struct lfs_object *o, const char *server, const char *what,
               struct ckpt_err *err)
{
    return ckpt_fail(err, CKPT_EPROTOCOL, "%s: its answer about %.200s %s", server, o->name, what);
}

/* The addresses of the parts, which are the keys of digits. */
static int read_parts(struct lfs_action *a, struct ckpt_arena *arena, const struct lfs_object *o,
                      const json_t *header, const char *server, struct ckpt_err *err)
{
    const char *key;
    json_t *v;
    size_t n = 0;

    a->chunk = number_of(json_object_get(header, "chunk_size"));
    if (a->chunk == 0 || (o->size + a->chunk - 1) / a->chunk > MOST_PARTS)
        return bad(o, server, "has no chunk_size that serves", err);
    a->n_parts = (size_t)((o->size + a->chunk - 1) / a->chunk);
    a->part = ckpt_arena_alloc(arena, a->n_parts, sizeof *a->part);
    a->tag = ckpt_arena_alloc(arena, a->n_parts, sizeof *a->tag);
    if (!a->part || !a->tag)
        return ckpt_nomem(err, a->n_parts * sizeof *a->part);
    json_object_foreach ((json_t *)header, key, v) {
        unsigned long k = is_number(key) ? strtoul(key, NULL, 10) : 0;

        if (!is_number(key))
            continue;
        if (k == 0 || k > a->n_parts || a->part[k - 1] || !is_address(json_string_value(v)))
            return bad(o, server, "has parts that are not its own", err);
        a->part[k - 1] = ckpt_arena_strndup(arena, json_string_value(v), json_string_length(v));
        n += a->part[k - 1] != NULL;
    }
    return n == a->n_parts ? 0 : bad(o, server, "has not all of its parts", err);
}

static time_t expiry(const json_t *upload)
{
    uint64_t in = number_of(json_object_get(upload, "expires_in"));

    return in && in < 1000000000 ? time(NULL) + (time_t)in : 0;
}

int lfs_action_read(struct lfs_action *a, struct ckpt_arena *arena, const struct lfs_object *o,
                    const json_t *entry, const char *server, struct ckpt_err *err)
{
    const json_t *actions = json_object_get(entry, "actions");
    const json_t *upload = json_object_get(actions, "upload");
    const json_t *verify = json_object_get(actions, "verify");
    const json_t *error = json_object_get(entry, "error"), *header;
    const char *href = json_string_value(json_object_get(upload, "href"));

    memset(a, 0, sizeof *a);
    if (json_is_object(error)) {
        const char *text = json_string_value(json_object_get(error, "message"));

        return ckpt_fail(err, CKPT_EREFUSED, "%s: refuses %.200s: %.300s", server, o->name,
                         text ? text : "no reason is given");
    }
    if (number_of(json_object_get(entry, "size")) != o->size && json_object_get(entry, "size"))
        return bad(o, server, "gives another size", err);
    a->present = !json_is_object(upload);
    if (a->present)
        return 0;
    if (!is_address(href))
        return bad(o, server, "has no address", err);
    header = json_object_get(upload, "header");
    a->href = ckpt_arena_strndup(arena, href, strlen(href));
    a->headers = lines_of(arena, header, json_object_get(header, "chunk_size") != NULL);
    a->until = expiry(upload);
    if (json_is_object(verify)) {
        const char *at = json_string_value(json_object_get(verify, "href"));

        if (!is_address(at))
            return bad(o, server, "has no address to verify it", err);
        a->verify = ckpt_arena_strndup(arena, at, strlen(at));
        a->verify_headers = lines_of(arena, json_object_get(verify, "header"), false);
    }
    if (!a->href || !a->headers || (json_is_object(verify) && (!a->verify || !a->verify_headers)))
        return ckpt_nomem(err, 256);
    return json_object_get(header, "chunk_size") ? read_parts(a, arena, o, header, server, err) : 0;
}

int lfs_action_read_download(struct lfs_action *a, struct ckpt_arena *arena,
                             const struct lfs_object *o, const json_t *entry, const char *server,
                             struct ckpt_err *err)
{
    const json_t *actions = json_object_get(entry, "actions");
    const json_t *download = json_object_get(actions, "download");
    const char *href = json_string_value(json_object_get(download, "href"));

    memset(a, 0, sizeof *a);
    a->present = true;
    if (number_of(json_object_get(entry, "size")) != o->size && json_object_get(entry, "size"))
        return bad(o, server, "gives another size", err);
    if (!json_is_object(download))
        return 0;
    if (!is_address(href))
        return bad(o, server, "has no address", err);
    a->href = ckpt_arena_strndup(arena, href, strlen(href));
    a->headers = lines_of(arena, json_object_get(download, "header"), false);
    a->until = expiry(download);
    return a->href && a->headers ? 0 : ckpt_nomem(err, strlen(href));
}

/* -- in the journal --------------------------------------------------------------------------- */

json_t *lfs_action_record(const struct lfs_action *a, const struct lfs_object *o)
{
    json_t *parts = json_array(), *record;

    for (size_t i = 0; i < a->n_parts; i++)
        json_array_append_new(parts, json_string(a->part[i]));
    record = json_pack("{s:s, s:I, s:s, s:I, s:I, s:o}", "oid", o->oid, "size", (json_int_t)o->size,
                       "href", a->href, "chunk", (json_int_t)a->chunk, "until",
                       (json_int_t)a->until, "parts", parts);
    if (record && a->verify) {
        json_object_set_new(record, "verify", json_string(a->verify));
        json_object_set_new(record, "verify_headers", json_string(a->verify_headers));
    }
    return record;
}

static const char *text_of(struct ckpt_arena *arena, const json_t *record, const char *key)
{
    const json_t *v = json_object_get(record, key);

    return json_is_string(v) ? ckpt_arena_strndup(arena, json_string_value(v),
                                                  json_string_length(v)) : NULL;
}

bool lfs_action_resume(struct lfs_action *a, struct ckpt_arena *arena, const struct lfs_object *o,
                       const json_t *record)
{
    const char *oid = json_string_value(json_object_get(record, "oid"));
    const json_t *parts = json_object_get(record, "parts");

    memset(a, 0, sizeof *a);
    if (!oid || strcmp(oid, o->oid) != 0 || !json_array_size(parts) ||
        number_of(json_object_get(record, "size")) != o->size)
        return false;
    a->until = (time_t)number_of(json_object_get(record, "until"));
    a->chunk = number_of(json_object_get(record, "chunk"));
    a->n_parts = json_array_size(parts);
    if (a->until < time(NULL) + SPARE || a->chunk == 0 ||
        a->n_parts != (o->size + a->chunk - 1) / a->chunk)
        return false;
    a->href = text_of(arena, record, "href");
    a->headers = "";
    a->verify = text_of(arena, record, "verify");
    a->verify_headers = text_of(arena, record, "verify_headers");
    a->part = ckpt_arena_alloc(arena, a->n_parts, sizeof *a->part);
    a->tag = ckpt_arena_alloc(arena, a->n_parts, sizeof *a->tag);
    for (size_t i = 0; a->part && a->tag && i < a->n_parts; i++) {
        const char *s = json_string_value(json_array_get(parts, i));

        a->part[i] = is_address(s) ? ckpt_arena_strndup(arena, s, strlen(s)) : NULL;
        if (!a->part[i])
            return false;
    }
    return is_address(a->href) && a->part && a->tag && (!a->verify || a->verify_headers);
}
