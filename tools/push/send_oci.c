/*
 * send_oci - a model in an OCI registry, as ModelPack describes it; see dest.h.
 *
 * Each file is a blob.  When all are there, the manifest is put under the tag: readers see the
 * files of before, or all of now.  The same files give the same manifest.  Source: ModelPack
 * model-spec 0.0.7, docs/spec.md, config.md, annotations.md.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "libckpt/base/json.h"
#include "libckpt/base/pool.h"
#include "libckpt/err.h"
#include "libckpt/log.h"
#include "libckpt/remote/oci/oci_write.h"
#include "tools/push/dest.h"
#include "tools/push/plan_file.h"
#include "tools/push/upload.h"

#define STREAMS     4           /* files read back at once */
#define MODEL_TYPE  "application/vnd.cncf.model."
#define CONFIG_TYPE MODEL_TYPE "config.v1+json"

struct job {
    struct push_plan       *p;
    const struct send_want *want;
    struct oci_place        place;
    struct oci_repo         repo;
    struct ckpt_buf         config, manifest;
    char                    config_digest[OCI_DIGEST], digest[OCI_DIGEST];
    size_t                  there;      /* blobs that the registry has, of a dry run */
    char                    from[256];  /* the source's repository, in the same registry; or "" */
};

/* -- before the first byte -------------------------------------------------------------------- */

static int parse(struct oci_place *place, const struct dest *d, const struct send_want *w,
                 struct ckpt_err *err)
{
    int rc = oci_parse(place, d->place, err);

    if (rc == 0 && place->path[0]) {
        ckpt_fail(err, CKPT_EUSAGE, "%s: names a path in the model", d->address);
        return ckpt_err_hint(err, "--path-in-repo %s publishes below it", place->path);
    }
    if (rc == 0 && place->by_digest)
        return ckpt_fail(err, CKPT_EUSAGE, "%s: names a digest, a tag wanted", d->address);
    if (rc == 0 && w->tag && !oci_is_tag(w->tag))
        return ckpt_fail(err, CKPT_EUSAGE, "--tag %s: letters, digits and \"_.-\" wanted, 128 at "
                         "most", w->tag);
    return rc;
}

int send_oci_check(const struct dest *d, const struct send_want *w, struct ckpt_err *err)
{
    struct oci_place place;
    struct oci_repo repo;
    int rc = parse(&place, d, w, err);

    if (rc)
        return rc;
    if (http_offline())
        return ckpt_fail_as(err, CKPT_EDEVICE, "offline", "%s: nothing is published offline",
                            d->address);
    rc = oci_repo_open(&repo, &place, "pull,push", err);
    rc = rc ? rc : oci_ping(&repo, err);
    oci_repo_close(&repo);
    return rc;
}

/* Another repository of the registry, that blobs may be lent from: the source's. */
static void find_lender(struct job *j)
{
    struct oci_place from;
    struct ckpt_err ignored = {0};

    if (strncmp(j->p->source, "oci://", strlen("oci://")) == 0 &&
        oci_parse(&from, j->p->source, &ignored) == 0 &&
        strcmp(from.origin, j->place.origin) == 0 && strcmp(from.name, j->place.name) != 0)
        snprintf(j->from, sizeof j->from, "%s", from.name);
}

/* -- the manifest ----------------------------------------------------------------------------- */

static bool ends(const char *s, const char *with)
{
    size_t n = strlen(s), k = strlen(with);

    return n >= k && strcmp(s + n - k, with) == 0;
}

/* The first row whose tail a path has: ModelPack's kind of the layer. */
static const char *kind_of(const char *path)
{
    static const struct { const char *tail, *kind; } kinds[] = {
        {".index.json", "weight.config"}, {".safetensors", "weight"}, {".gguf", "weight"},
        {".bin", "weight"}, {".pt", "weight"}, {".pth", "weight"}, {".distcp", "weight"},
        {".json", "weight.config"}, {".jinja", "weight.config"}, {".model", "weight.config"},
        {".py", "code"}, {".sh", "code"}, {".md", "doc"}, {".txt", "doc"}, {"LICENSE", "doc"},
        {".jsonl", "dataset"}, {".parquet", "dataset"}, {".csv", "dataset"},
    };

    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (ends(path, kinds[i].tail))
            return kinds[i].kind;
    return "weight";
}

/* The published config.json, or NULL. */
static json_t *model_config(const struct job *j)
{
    struct ckpt_err ignored = {0};
    struct ckpt_file *file;
    json_t *config = NULL;

    for (size_t i = 0; i < j->p->n; i++) {
        const char *slash = strrchr(j->p->file[i].to, '/');

        if (strcmp(slash ? slash + 1 : j->p->file[i].to, "config.json") != 0 ||
            push_plan_open(&file, j->p, i, j->want->follow, &ignored))
            continue;
        if (ckpt_json_read(&config, file, 1 << 20, CKPT_JSON_PYTHON, &ignored))
            config = NULL;
        ckpt_file_close(file);
        break;
    }
    return config;
}

/* The members of config that are known. */
static json_t *config_facts(const struct job *j)
{
    json_t *config = model_config(j), *facts = json_object();
    const char *type = json_string_value(json_object_get(config, "dtype"));
    const char *name =
        json_string_value(json_array_get(json_object_get(config, "architectures"), 0));
    const char *format = NULL;

    type = type ? type : json_string_value(json_object_get(config, "torch_dtype"));
    for (size_t i = 0; i < j->p->n; i++)
        format = ends(j->p->file[i].to, ".safetensors") ? "safetensors"
                 : ends(j->p->file[i].to, ".gguf") ? "gguf" : format;
    if (name)
        json_object_set_new(facts, "architecture", json_string(name));
    if (format)
        json_object_set_new(facts, "format", json_string(format));
    if (type)
        json_object_set_new(facts, "precision", json_string(type));
    json_decref(config);
    return facts;
}

/* RFC 3339, of SOURCE_DATE_EPOCH; false without it: the time would change the digest. */
static bool created(char *text, size_t size)
{
    const char *epoch = getenv("SOURCE_DATE_EPOCH");
    char *end;
    time_t at;
    struct tm tm;

    if (!epoch || !*epoch || strspn(epoch, "0123456789") != strlen(epoch))
        return false;
    at = (time_t)strtoll(epoch, &end, 10);
    return gmtime_r(&at, &tm) && strftime(text, size, "%Y-%m-%dT%H:%M:%SZ", &tm) > 0;
}

static int make_config(struct job *j, struct ckpt_err *err)
{
    const char *name = strrchr(j->place.name, '/');
    json_t *ids = json_array(), *value;
    char text[40], digest[OCI_DIGEST];
    int rc;

    for (size_t i = 0; i < j->p->n; i++) {
        snprintf(digest, sizeof digest, "sha256:%s", j->p->file[i].oid);
        json_array_append_new(ids, json_string(digest));
    }
    value = json_pack("{s:{s:s}, s:o, s:{s:s, s:o}}", "descriptor", "name",
                      name ? name + 1 : j->place.name, "config", config_facts(j), "modelfs",
                      "type", "layers", "diffIds", ids);
    if (value && created(text, sizeof text))
        json_object_set_new(json_object_get(value, "descriptor"), "createdAt", json_string(text));
    rc = value ? ckpt_json_write(&j->config, value, 0, false, err) : ckpt_nomem(err, 256);
    json_decref(value);
    return rc ? rc : oci_digest(j->config_digest, j->config.data, j->config.len, err);
}

static json_t *layer_of(const struct push_file *f)
{
    char type[100], digest[OCI_DIGEST];

    snprintf(type, sizeof type, MODEL_TYPE "%s.v1.raw", kind_of(f->to));
    snprintf(digest, sizeof digest, "sha256:%s", f->oid);
    return json_pack("{s:s, s:s, s:I, s:{s:s, s:s}}", "mediaType", type, "digest", digest, "size",
                     (json_int_t)f->size, "annotations", OCI_FILEPATH, f->to, OCI_TITLE, f->to);
}

static int make_manifest(struct job *j, struct ckpt_err *err)
{
    json_t *layers = json_array(), *value;
    char text[40];
    int rc = make_config(j, err);

    for (size_t i = 0; i < j->p->n; i++)
        json_array_append_new(layers, layer_of(&j->p->file[i]));
    value = json_pack("{s:i, s:s, s:s, s:{s:s, s:s, s:I}, s:o}", "schemaVersion", 2, "mediaType",
                      OCI_MANIFEST, "artifactType", MODEL_TYPE "manifest.v1+json", "config",
                      "mediaType", CONFIG_TYPE, "digest", j->config_digest, "size",
                      (json_int_t)j->config.len, "layers", layers);
    if (value && created(text, sizeof text))
        json_object_set_new(value, "annotations",
                            json_pack("{s:s}", "org.opencontainers.image.created", text));
    if (rc == 0)
        rc = value && json_array_size(json_object_get(value, "layers")) == j->p->n
                 ? ckpt_json_write(&j->manifest, value, 0, false, err)
                 : ckpt_nomem(err, 256 * j->p->n);
    json_decref(value);
    if (rc == 0 && j->manifest.len > OCI_MANIFEST_BYTES)
        rc = ckpt_fail(err, CKPT_ELIMIT, "%s: the manifest of %zu files has %zu bytes, registries "
                       "take %llu", j->place.root, j->p->n, j->manifest.len,
                       (unsigned long long)OCI_MANIFEST_BYTES);
    return rc ? rc : oci_digest(j->digest, j->manifest.data, j->manifest.len, err);
}

/* -- the blobs -------------------------------------------------------------------------------- */

static int look(void *ctx, struct upload_file *f, struct ckpt_err *err)
{
    struct job *j = ctx;
    char digest[OCI_DIGEST];

    int rc;

    snprintf(digest, sizeof digest, "sha256:%s", f->of->oid);
    rc = oci_has(&f->skip, &j->repo, digest, f->of->size, err);
    return rc || f->skip || !*j->from ? rc : oci_mount(&f->skip, &j->repo, digest, j->from, err);
}

static int send_blob(void *ctx, struct upload_file *f, size_t part, const struct http_body *body,
                     char tag[FIELD_BYTES], struct ckpt_err *err)
{
    struct job *j = ctx;
    char digest[OCI_DIGEST];
    int rc;

    (void)part;
    (void)tag;
    snprintf(digest, sizeof digest, "sha256:%s", f->of->oid);
    rc = oci_send(&j->repo, digest, body, err);
    f->again = rc == CKPT_ESTOPPED && strcmp(err->reason, "session") == 0;
    return rc;
}

static int send_config(struct job *j, struct ckpt_err *err)
{
    const struct http_body body = {.type = "application/octet-stream", .bytes = j->config.data,
                                   .n = j->config.len};
    bool has;
    int rc = oci_has(&has, &j->repo, j->config_digest, j->config.len, err);

    return rc || has ? rc : oci_send(&j->repo, j->config_digest, &body, err);
}

/* -- publishing ------------------------------------------------------------------------------- */

/* Whether the tag has our manifest. */
static int is_published(bool *is, struct job *j, const char *tag, struct ckpt_err *err)
{
    char digest[OCI_DIGEST], *text;
    size_t n;
    int rc = oci_manifest(&text, &n, digest, &j->repo, tag, err);

    *is = rc == 0 && strcmp(digest, j->digest) == 0;
    ckpt_free(text);
    if (rc == CKPT_ENOTFOUND) {
        ckpt_err_clear(err);
        rc = 0;
    }
    return rc;
}

/* Put the manifest under a tag, and read it back. */
static int publish_as(struct job *j, const char *tag, bool *changed, struct ckpt_err *err)
{
    bool is;
    int rc = is_published(&is, j, tag, err);

    if (rc || is)
        return rc;
    *changed = true;
    rc = oci_put_manifest(&j->repo, tag, (char *)j->manifest.data, j->manifest.len, err);
    rc = rc ? rc : is_published(&is, j, tag, err);
    return rc || is ? rc
           : ckpt_fail_as(err, CKPT_EPROTOCOL, "unconfirmed", "%s: tag %s does not have the "
                          "manifest that was sent", j->place.root, tag);
}

static int read_back(void *ctx, size_t i, size_t worker, struct ckpt_err *err)
{
    struct job *j = ctx;
    const struct push_file *f = &j->p->file[i];
    char digest[OCI_DIGEST];

    (void)worker;
    snprintf(digest, sizeof digest, "sha256:%s", f->oid);
    return oci_check(&j->repo, f->to, digest, f->size, err);
}

/* The digest of the manifest that the tag names; "" for a tag that is not there. */
static int find_head(struct job *j, struct ckpt_err *err)
{
    char digest[OCI_DIGEST] = "", *text;
    size_t n;
    int rc = oci_manifest(&text, &n, digest, &j->repo, j->place.reference, err);

    ckpt_free(text);
    if (rc == CKPT_ENOTFOUND) {
        ckpt_err_clear(err);
        *digest = '\0';
        rc = 0;
    }
    j->p->head = ckpt_arena_strndup(&j->p->arena, digest, strlen(digest));
    return rc || j->p->head ? rc : ckpt_nomem(err, sizeof digest);
}

/* What the registry has of the blobs, for a plan that is made or carried out. */
static int settle(struct job *j, struct ckpt_err *err)
{
    int rc;

    push_plan_forget(j->p);
    rc = find_head(j, err);
    for (size_t i = 0; rc == 0 && i < j->p->n; i++) {
        struct upload_file f = {.of = &j->p->file[i]};

        rc = look(j, &f, err);
        j->there += f.skip;
        rc = rc ? rc : push_plan_found(j->p, i, f.skip ? PUSH_SAME : PUSH_NEW, "sha256",
                                       j->p->file[i].oid, err);
    }
    rc = rc ? rc : plan_file_agrees(j->want->plan, j->p, err);
    if (rc == 0 && j->want->dry_run)
        ckpt_log(CKPT_LOG_NOTE, "%s: %zu files, %zu of them are there", j->place.root, j->p->n,
                 j->there);
    return rc;
}

static int publish(struct job *j, const struct cli *cli, uint64_t *sent, bool *changed,
                   struct ckpt_err *err)
{
    const struct upload u = {.p = j->p, .cli = cli, .follow = j->want->follow,
                             .target = j->place.root, .look = look, .send = send_blob, .ctx = j};
    int rc = upload_run(&u, sent, err);

    rc = rc ? rc : send_config(j, err);
    rc = rc ? rc : publish_as(j, j->place.reference, changed, err);
    if (rc == 0 && j->want->verify)
        rc = ckpt_pool_run(STREAMS, j->p->n, read_back, j, err);
    return rc == 0 && j->want->tag ? publish_as(j, j->want->tag, changed, err) : rc;
}

int send_oci(char *url, size_t url_size, const struct dest *d, struct push_plan *p,
             const struct send_want *w, const struct cli *cli, struct ckpt_err *err)
{
    struct job j = {.p = p, .want = w};
    uint64_t sent = 0;
    bool changed = false;
    int rc = parse(&j.place, d, w, err);

    ckpt_buf_init(&j.config, (size_t)OCI_MANIFEST_BYTES);
    ckpt_buf_init(&j.manifest, (size_t)OCI_MANIFEST_BYTES + 1);
    if (rc)
        return rc;
    find_lender(&j);
    rc = upload_digests(p, cli, w->follow, err);
    rc = rc ? rc : make_manifest(&j, err);
    rc = rc ? rc : oci_repo_open(&j.repo, &j.place, "pull,push", err);
    if (rc == 0 && (w->dry_run || w->plan))
        rc = settle(&j, err);
    if (rc == 0 && !w->dry_run)
        rc = publish(&j, cli, &sent, &changed, err);
    if (rc == 0 && !w->dry_run) {
        snprintf(url, url_size, "oci://%s/%s@%s", j.place.host, j.place.name, j.digest);
        ckpt_log(CKPT_LOG_NOTE, "%s: %zu files, %llu bytes, %llu of them new%s", j.place.root, p->n,
                 (unsigned long long)p->bytes, (unsigned long long)sent,
                 changed ? "" : "; nothing changed");
    }
    oci_repo_close(&j.repo);
    ckpt_buf_release(&j.config);
    ckpt_buf_release(&j.manifest);
    return rc;
}
