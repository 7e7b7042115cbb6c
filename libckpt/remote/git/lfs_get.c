/* git/lfs_get - see git/lfs_get.h.  Source: git-lfs docs/api/batch.md (3.7). */
#include "libckpt/remote/git/lfs_get.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "libckpt/base/secret.h"
#include "libckpt/err.h"

static json_t *question(const struct lfs_server *s, const struct lfs_object *object, size_t n)
{
    json_t *objects = json_array();
    json_t *value = json_pack("{s:s, s:[s], s:s, s:O}", "operation", "download", "transfers",
                              "basic", "hash_algo", "sha256", "objects", objects);

    for (size_t i = 0; value && i < n; i++)
        json_array_append_new(objects, json_pack("{s:s, s:I}", "oid", object[i].oid, "size",
                                                 (json_int_t)object[i].size));
    if (value && s->ref)
        json_object_set_new(value, "ref", json_pack("{s:s}", "name", s->ref));
    json_decref(objects);
    return value;
}

static int sign(void *ctx, const struct http_signed *what, char *lines, size_t size,
                struct ckpt_err *err)
{
    (void)what;
    return (size_t)snprintf(lines, size, "%s", (const char *)ctx) < size
               ? 0 : ckpt_fail(err, CKPT_ELIMIT, "the header of an LFS object is too long");
}

/* Header values are credentials as a rule: they are masked like them. */
static void mask(const char *lines)
{
    char value[4200];

    for (size_t n; *lines; lines += n + (lines[n] == '\n')) {
        const char *colon = strchr(lines, ':');

        n = strcspn(lines, "\n");
        if (!colon || colon >= lines + n)
            continue;
        colon += 1 + strspn(colon + 1, " ");
        snprintf(value, sizeof value, "%.*s", (int)(lines + n - colon), colon);
        if (strncmp(value, "Basic ", 6) == 0 || strncmp(value, "Bearer ", 7) == 0)
            ckpt_secret_add(strchr(value, ' ') + 1);
        else if (strncasecmp(lines, "authorization:", 14) == 0)
            ckpt_secret_add(value);
    }
}

static int read_entry(struct lfs_get *g, struct ckpt_arena *arena, const struct lfs_object *o,
                      const json_t *entry, const char *server, struct ckpt_err *err)
{
    const json_t *error = json_object_get(entry, "error");
    const char *text = json_string_value(json_object_get(error, "message"));
    int rc;

    if (json_is_object(error)) {
        snprintf(g->why, sizeof g->why, "%s", text ? text : "no reason is given");
        return 0;
    }
    if ((rc = lfs_action_read_download(&g->action, arena, o, entry, server, err)) != 0)
        return rc;
    if (!g->action.href) {
        snprintf(g->why, sizeof g->why, "the server names no address for it");
        return 0;
    }
    mask(g->action.headers);
    g->auth.sign = sign;
    g->auth.ctx = (void *)(uintptr_t)g->action.headers;
    return http_origin(g->auth.origin, g->action.href, err);
}

int lfs_get_ask(const struct lfs_server *s, const struct lfs_object *object, size_t n,
                struct lfs_get *get, struct ckpt_arena *arena, struct ckpt_err *err)
{
    json_t *value = question(s, object, n), *answer = NULL, *entry;
    bool answered[LFS_GET_OBJECTS] = {false};
    size_t k;
    int rc = value ? lfs_batch(s, &answer, value, err) : ckpt_nomem(err, 64 * n);

    memset(get, 0, n * sizeof *get);
    json_decref(value);
    json_array_foreach (json_object_get(answer, "objects"), k, entry) {
        const char *oid = json_string_value(json_object_get(entry, "oid"));

        for (size_t i = 0; rc == 0 && oid && i < n; i++)
            if (!answered[i] && strcmp(object[i].oid, oid) == 0) {
                rc = read_entry(&get[i], arena, &object[i], entry, s->name, err);
                answered[i] = true;
            }
    }
    for (size_t i = 0; rc == 0 && i < n; i++)
        if (!answered[i])
            rc = ckpt_fail(err, CKPT_EPROTOCOL, "%s: did not answer about %.200s", s->name,
                           object[i].name);
    json_decref(answer);
    return rc;
}
