/* push/remake - see remake.h. */
#include "tools/push/remake.h"

#include <string.h>

#include "formats/hf/run_card.h"
#include "libckpt/base/json.h"
#include "libckpt/err.h"
#include "libckpt/log.h"
#include "trainer/checkpoint/manifest.h"

#define ADAPTER "adapter_config.json"
#define BASE    "base_model_name_or_path"

static const char *last_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

/* A JSON file of the plan; *out stays NULL where it is none, which its readers will say. */
static int read_json(json_t **out, const struct push_plan *p, size_t i, bool follow,
                     struct ckpt_err *err)
{
    struct ckpt_file *file;
    int rc = push_plan_open(&file, p, i, follow, err);

    *out = NULL;
    if (rc)
        return rc;
    rc = ckpt_json_read(out, file, CKPT_JSON_MAX_BYTES, CKPT_JSON_PYTHON, err);
    ckpt_file_close(file);
    if (rc == CKPT_EFORMAT || rc == CKPT_ELIMIT) {
        ckpt_err_clear(err);
        rc = 0;
    }
    return rc;
}

/* -- bases ------------------------------------------------------------------------------------ */

static int rename_base(struct push_plan *p, size_t i, json_t *config, struct ckpt_err *err)
{
    const char *base = json_string_value(json_object_get(config, BASE));
    char name[512];
    struct ckpt_buf b;
    int rc;

    if (!base || base[0] != '/')
        return 0;
    run_card_name(name, sizeof name, base);
    ckpt_log(CKPT_LOG_NOTE, "%s: the base %s is published as \"%s\"", p->file[i].from, base, name);
    if (json_object_set_new(config, BASE, json_string(name)))
        return ckpt_fail(err, CKPT_EREFUSED, "%s: the name of its base is no UTF-8",
                         p->file[i].from);
    ckpt_buf_init(&b, CKPT_JSON_MAX_BYTES);
    rc = ckpt_json_write(&b, config, 2, false, err);
    if (rc == 0 && !ckpt_buf_ok(&b))
        rc = ckpt_nomem(err, b.len);
    if (rc == 0)
        rc = push_plan_put(p, p->file[i].from, b.data, b.len, err);
    ckpt_buf_release(&b);
    return rc;
}

int push_rename_bases(struct push_plan *p, bool follow, struct ckpt_err *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < p->n; i++) {  /* one that is replaced keeps its place */
        json_t *config = NULL;

        if (strcmp(last_of(p->file[i].from), ADAPTER) != 0 || p->file[i].made)
            continue;
        rc = read_json(&config, p, i, follow, err);
        if (rc == 0 && config)
            rc = rename_base(p, i, config, err);
        json_decref(config);
    }
    return rc;
}

/* -- manifests -------------------------------------------------------------------------------- */

/* Put the digest of a made file below prefix into the manifest; *changed says whether it has it. */
static int amend(bool *changed, json_t *manifest, const struct push_plan *p, size_t i,
                 size_t prefix, struct ckpt_err *err)
{
    const struct push_file *f = &p->file[i];
    char hex[CKPT_SHA256_HEX];
    struct ckpt_file *file;
    int rc = push_plan_open(&file, p, i, false, err);

    if (rc)
        return rc;
    rc = ckpt_sha256_file(hex, file, err);
    ckpt_file_close(file);
    if (rc == 0)
        *changed |= manifest_set(manifest, f->from + prefix, f->size, hex);
    return rc;
}

static int remanifest(struct push_plan *p, size_t at, bool follow, struct ckpt_err *err)
{
    const char *from = p->file[at].from;
    size_t prefix = (size_t)(last_of(from) - from);
    json_t *manifest = NULL;
    bool changed = false;
    char *text = NULL;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < p->n; i++) {
        if (!p->file[i].made || strncmp(p->file[i].from, from, prefix) != 0)
            continue;
        if (!manifest && ((rc = read_json(&manifest, p, at, follow, err)) != 0 || !manifest))
            break;
        rc = amend(&changed, manifest, p, i, prefix, err);
    }
    if (rc == 0 && changed)
        rc = manifest_text(&text, manifest, err);
    if (rc == 0 && changed)
        rc = push_plan_put(p, from, text, strlen(text), err);
    ckpt_free(text);
    json_decref(manifest);
    return rc;
}

int push_remanifest(struct push_plan *p, bool follow, struct ckpt_err *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < p->n; i++)
        if (strcmp(last_of(p->file[i].from), MANIFEST_NAME) == 0 && !p->file[i].made)
            rc = remanifest(p, i, follow, err);
    return rc;
}
