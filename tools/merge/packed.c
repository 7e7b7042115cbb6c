/* packed - see packed.h. */
#include "tools/merge/packed.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "libckpt/io/pack.h"

struct merge_packed {
    struct ckpt_outdir *aside;
    struct ckpt_out    *out;
    enum ckpt_pack      kind;
    char                tree[4608];     /* inside `aside`: the directory */
};

bool merge_is_file(const char *format)
{
    static const char *const files[] = {"safetensors", "torch", "gguf"};

    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        if (strcmp(format, files[i]) == 0)
            return true;
    return false;
}

bool merge_is_packed(const char *output, const char *format)
{
    return !merge_is_file(format) &&
           (strcmp(output, "-") == 0 || ckpt_pack_of(output) != CKPT_PACK_NONE);
}

/* Where the directory is built. */
static void name_aside(char aside[4352], const char *output, const char *spool)
{
    if (strcmp(output, "-") == 0)
        snprintf(aside, 4352, "%s/ckpt-merge-stream", spool ? spool : "/var/tmp");
    else
        snprintf(aside, 4352, "%s.unpacked", output);
}

int merge_packed_ready(char path[4352], const char *output, const char *spool, unsigned flags,
                       struct ckpt_err *err)
{
    int rc = strcmp(output, "-") == 0 ? 0 : ckpt_out_ready(output, flags, err);

    name_aside(path, output, spool);
    return rc ? rc : ckpt_outdir_ready(path, err);
}

int merge_packed_begin(struct merge_packed **out, const char **path, const char *output,
                       const char *spool, unsigned flags, struct ckpt_err *err)
{
    struct merge_packed *p = ckpt_alloc(1, sizeof *p);
    bool stream = strcmp(output, "-") == 0;
    char aside[4352];
    int rc = p ? 0 : ckpt_nomem(err, sizeof *p);

    *out = NULL;
    name_aside(aside, output, spool);
    if (rc == 0)
        rc = stream ? ckpt_out_stream(&p->out, STDOUT_FILENO, "stdout", err)
                    : ckpt_out_create(&p->out, output, flags, err);
    if (rc == 0)
        rc = ckpt_outdir_create(&p->aside, aside, err);
    if (rc) {
        merge_packed_abort(p);
        return rc;
    }
    p->kind = stream ? CKPT_PACK_TAR : ckpt_pack_of(output);
    snprintf(p->tree, sizeof p->tree, "%s/tree", ckpt_outdir_staging(p->aside));
    *path = p->tree;
    *out = p;
    return 0;
}

int merge_packed_commit(struct merge_packed *p, const volatile int *stop, struct ckpt_err *err)
{
    struct ckpt_dir *dir = NULL;
    int rc = ckpt_dir_open(&dir, p->tree, 0, err);

    if (rc == 0)
        rc = ckpt_pack(p->out, dir, p->kind, stop, err);
    ckpt_dir_close(dir);
    if (rc == 0) {
        rc = ckpt_out_commit(p->out, err);
        p->out = NULL;
    }
    merge_packed_abort(p);
    return rc;
}

void merge_packed_abort(struct merge_packed *p)
{
    if (!p)
        return;
    ckpt_out_abort(p->out);
    ckpt_outdir_abort(p->aside);
    ckpt_free(p);
}
