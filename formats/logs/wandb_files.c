/* wandb_files - see wandb_files.h. */
#include "formats/logs/wandb_files.h"

#include <stdio.h>

#include "libckpt/base/json.h"

#define MAX_BYTES ((size_t)64 << 20)

static int put_json(const char *dir, const char *name, const json_t *value,
                    struct ckpt_err *err)
{
    char path[4200];
    struct ckpt_buf b;
    int rc = value ? 0 : ckpt_nomem(err, 64);

    ckpt_buf_init(&b, MAX_BYTES);
    snprintf(path, sizeof path, "%s/files/%s", dir, name);
    if (rc == 0)
        rc = ckpt_json_write(&b, value, 2, false, err);
    if (rc == 0)
        rc = ckpt_buf_ok(&b) ? log_file_replace(path, b.data, b.len, err) : ckpt_nomem(err, b.len);
    ckpt_buf_release(&b);
    return rc;
}

/* JSON values are YAML too. */
int wandb_files_config(const char *dir, const json_t *config, struct ckpt_err *err)
{
    char path[4200];
    struct ckpt_buf b;
    const char *key;
    json_t *v;
    int rc = 0;

    ckpt_buf_init(&b, MAX_BYTES);
    ckpt_buf_put_str(&b, "wandb_version: 1\n");
    json_object_foreach ((json_t *)(uintptr_t)config, key, v) {
        json_t *name = json_string(key);

        ckpt_buf_put_str(&b, "\n");
        rc = rc ? rc : name ? ckpt_json_write(&b, name, 0, false, err) : ckpt_nomem(err, 64);
        json_decref(name);
        ckpt_buf_put_str(&b, ":\n    value: ");
        rc = rc ? rc : ckpt_json_write(&b, v, 0, false, err);
    }
    ckpt_buf_put_str(&b, "\n");
    snprintf(path, sizeof path, "%s/files/config.yaml", dir);
    if (rc == 0)
        rc = ckpt_buf_ok(&b) ? log_file_replace(path, b.data, b.len, err) : ckpt_nomem(err, b.len);
    ckpt_buf_release(&b);
    return rc;
}

int wandb_files_metadata(const char *dir, const struct wandb_out_run *run,
                         const struct utsname *host, time_t start, struct ckpt_err *err)
{
    char started[40], os[300], total[32];
    struct tm utc;
    json_t *v;
    int rc = 0;

    gmtime_r(&start, &utc);
    strftime(started, sizeof started, "%Y-%m-%dT%H:%M:%SZ", &utc);
    snprintf(os, sizeof os, "%s-%s-%s", host->sysname, host->release, host->machine);
    snprintf(total, sizeof total, "%llu", (unsigned long long)run->memory);
    v = json_pack("{s:s,s:s,s:s?,s:s,s:i,s:i,s:{s:s},s:s}", "os", os, "startedAt", started,
                  "program", run->program, "host", host->nodename, "cpu_count", (int)run->n_cpu,
                  "cpu_count_logical", (int)run->n_cpu, "memory", "total", total, "writerId",
                  run->id);
    if (v && run->gpu &&
        (json_object_set_new(v, "gpu", json_string(run->gpu)) ||
         json_object_set_new(v, "gpu_count", json_integer(run->n_gpu))))
        rc = ckpt_nomem(err, 64);
    if (rc == 0)
        rc = put_json(dir, "wandb-metadata.json", v, err);
    json_decref(v);
    return rc;
}

int wandb_files_summary(const char *dir, const json_t *summary, struct ckpt_err *err)
{
    return put_json(dir, "wandb-summary.json", summary, err);
}
