/*
 * signature - check that a folder's files are those that someone signed, and who; see inspect.h.
 *
 * Nothing of the folder is believed before its signature is checked with the given key or roots;
 * then all its files are read.
 */
#include <string.h>

#include "formats/formats.h"
#include "libckpt/base/pool.h"
#include "libckpt/sign/folder.h"
#include "libckpt/sign/trust.h"
#include "tools/inspect/inspect.h"

#define WORKERS 8

/* The table of differences: for people it begins with the first. */
struct table {
    struct out *o;
    bool        begun;
};

static void begin_table(struct table *t)
{
    static const struct out_column columns[] = {
        {"path", "path", OUT_LEFT}, {"what", "what", OUT_LEFT},
    };

    if (!t->begun)
        out_table(t->o, "differences", columns, 2);
    t->begun = true;
}

static void put_difference(void *ctx, const char *path, enum sign_difference what)
{
    static const char *const words[] = {
        [SIGN_CHANGED] = "changed", [SIGN_MISSING] = "missing", [SIGN_UNSIGNED] = "unsigned",
        [SIGN_IRREGULAR] = "no regular file",
    };

    struct table *t = ctx;

    begin_table(t);
    out_cell_str(t->o, path);
    out_cell_str(t->o, words[what]);
}

static void put_signer(struct out *o, const struct sign_signer *who, const struct sign_manifest *m)
{
    if (*who->name)
        out_str(o, "signed_by", "signed by", who->name);
    if (*who->until)
        out_str(o, "valid_until", "certificate valid until", who->until);
    if (*who->hint)
        out_str(o, "key", "signed with key", who->hint);
    if (m->model && *m->model)
        out_str(o, "signed_as", "signed as", m->model);
    out_int(o, "signed_files", m->shards ? "signed parts of files" : "signed files",
            (int64_t)m->n);
}

/* Compare the folder with the checked list, and conclude. */
static int compare(struct out *o, const struct inspect_want *w, const struct cli *cli,
                   struct ckpt_dir *dir, const struct ckpt_file *signature,
                   const struct sign_manifest *m, const struct sign_signer *who,
                   struct ckpt_err *err)
{
    struct table t = {.o = o};
    const struct sign_compare c = {
        .m = m, .dir = dir, .signature = signature, .ignore_unsigned = w->ignore_unsigned,
        .workers = cli->jobs > 0 ? (size_t)cli->jobs : ckpt_pool_default(WORKERS),
        .differs = put_difference, .ctx = &t,
    };
    size_t n = 0;
    int rc;

    if (cli->json)
        begin_table(&t);
    rc = sign_folder_compare(&c, &n, err);
    if (t.begun)
        out_table_end(o);
    if (rc)
        return rc;
    if (n)
        return ckpt_fail_as(err, CKPT_EMISMATCH, "signature", "%zu file%s not as signed", n,
                            n == 1 ? " is" : "s are");
    if (who->expired)
        return ckpt_fail_as(err, CKPT_ENO, "expired", "all files are as signed, but the "
                            "certificate of %s is valid no longer (until %s)", who->name,
                            who->until);
    out_str(o, "verified", "verified", "every file is as it was signed");
    return 0;
}

/* The signature's file, as its text. */
static int read_signature(char **text, size_t *n, struct ckpt_file **file, struct ckpt_arena *arena,
                          const struct inspect_want *w, struct ckpt_dir *dir, struct ckpt_err *err)
{
    int rc;

    if (!w->signature && !ckpt_dir_has(dir, "model.sig")) {
        ckpt_fail(err, CKPT_ENOTFOUND, "there is no model.sig in it");
        return ckpt_err_hint(err, "--signature names a file elsewhere");
    }
    rc = w->signature ? ckpt_path_file(file, w->signature, CKPT_FOLLOW, err)
                      : ckpt_file_open_at(file, dir, "model.sig", err);
    return rc ? rc : ckpt_file_slurp(*file, arena, SIGN_BUNDLE_MAX, text, n, err);
}

static int check(struct out *o, const struct inspect_want *w, const struct cli *cli,
                 struct ckpt_dir *dir, const struct sign_trust *trust, struct ckpt_err *err)
{
    struct sign_manifest m = {0};
    struct ckpt_arena arena = {0};
    struct ckpt_file *file = NULL;
    struct sign_signer who = {0};
    char *text;
    size_t n;
    int rc = read_signature(&text, &n, &file, &arena, w, dir, err);

    if (rc == 0 && (rc = sign_trust_check(&m, &who, trust, text, n, err)) != 0)
        ckpt_err_in(err, "%s", w->signature ? w->signature : "model.sig");
    if (rc == 0) {
        put_signer(o, &who, &m);
        rc = compare(o, w, cli, dir, file, &m, &who, err);
    }
    sign_manifest_release(&m);
    ckpt_file_close(file);
    ckpt_arena_release(&arena);
    return rc;
}

int inspect_signature(struct out *o, const struct inspect_want *w, const struct cli *cli,
                      const char *path, struct ckpt_err *err)
{
    struct ckpt_open_opts opts = {.follow = cli->follow, .spool = cli_spool(),
                                  .prove = ckpt_path_is_remote(path)};
    struct sign_trust trust = {0};
    struct ckpt_file *file = NULL;
    struct ckpt_dir *dir = NULL;
    int rc = sign_trust_open(&trust, w->public_key, w->certificate_root, err);

    if (rc == 0) {
        rc = formats_unpack(&dir, &file, path, &opts, err);
        if (rc == 0 && !dir)
            rc = ckpt_fail(err, CKPT_EUSAGE, "a folder is signed, this is a file");
        rc = rc ? rc : check(o, w, cli, dir, &trust, err);
        if (rc)
            ckpt_err_in(err, "%s", path);
    }
    ckpt_file_close(file);
    ckpt_dir_close(dir);
    sign_trust_release(&trust);
    return rc;
}
