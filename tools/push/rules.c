/* rules - see rules.h. */
#include "tools/push/rules.h"

#include <string.h>

#include "libckpt/log.h"
#include "libckpt/remote/git/attributes.h"
#include "libckpt/remote/git/lfs.h"

#define ROOT_FILE ".gitattributes"
#define LFS_LINE  " filter=lfs diff=lfs merge=lfs -text\n"

/* The folder of a .gitattributes file that is not at the root; false for any other path. */
static bool is_below(char folder[4096], const char *path)
{
    size_t n = strlen(path), k = strlen("/" ROOT_FILE);

    if (n <= k || n >= 4096 || strcmp(path + n - k, "/" ROOT_FILE) != 0)
        return false;
    memcpy(folder, path, n - k);
    folder[n - k] = '\0';
    return true;
}

/* Read all rules of the tree, with text replacing the file at its root. */
static int read_rules(struct attributes **out, const struct ckpt_git *g,
                      const struct ckpt_buf *text, struct ckpt_err *err)
{
    const char *path;
    int rc = attributes_new(out, err);

    if (rc == 0 && text->len > 0)
        rc = attributes_add(*out, "", (const char *)text->data, text->len, err);
    for (size_t i = 0; rc == 0 && (path = ckpt_git_path(g, i)) != NULL; i++) {
        char folder[4096];
        struct ckpt_buf b;

        if (!is_below(folder, path))
            continue;
        ckpt_buf_init(&b, (size_t)1 << 20);
        rc = ckpt_git_read(&b, g, path, err);
        if (rc == 0)
            rc = attributes_add(*out, folder, (const char *)b.data, b.len, err);
        if (rc == CKPT_EREFUSED) {      /* a link: git ignores it too */
            ckpt_err_clear(err);
            rc = 0;
        }
        ckpt_buf_release(&b);
    }
    return rc;
}

/* How git in a clone treats the file at path; *said is false where no rule decides. */
static int look_up(bool *lfs, bool *said, struct attributes *a, const char *path,
                   struct ckpt_err *err)
{
    enum attribute_state state;
    const char *value;
    int rc;

    if ((rc = attributes_of(&state, &value, a, path, "filter", err)) != 0)
        return rc;
    *said = state != ATTRIBUTE_UNSAID;
    *lfs = state == ATTRIBUTE_VALUE && strcmp(value, "lfs") == 0;
    if (state != ATTRIBUTE_VALUE || *lfs)
        return 0;
    ckpt_fail(err, CKPT_EREFUSED, "%s: .gitattributes gives it the filter %.100s, which is not "
              "known here", path, value);
    return ckpt_err_hint(err, "git-lfs' filter is; --exclude leaves the file out");
}

/* Warn of files that git converts in a clone by the repository owner's rules, so that bytes
 * differ. */
static int tell_conversions(struct attributes *a, const char *path, struct ckpt_err *err)
{
    static const char *const names[] = {"working-tree-encoding", "eol", "ident"};
    enum attribute_state text, state;
    const char *value;
    int rc;

    if ((rc = attributes_of(&text, &value, a, path, "text", err)) != 0)
        return rc;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if ((rc = attributes_of(&state, &value, a, path, names[i], err)) != 0)
            return rc;
        if ((i == 0 && state == ATTRIBUTE_VALUE) || (i == 2 && state == ATTRIBUTE_TRUE) ||
            (i == 1 && state == ATTRIBUTE_VALUE && text != ATTRIBUTE_FALSE &&
             strcmp(value, "crlf") == 0))
            ckpt_log(CKPT_LOG_WARNING, "%s: .gitattributes says %s: a clone may have other bytes",
                     path, names[i]);
    }
    return 0;
}

/* Whether the Hub's default list would turn files already in the tree into pointers. */
static bool list_would_hit(const struct ckpt_git *g, const struct push_plan *p)
{
    const char *path;

    for (size_t i = 0; (path = ckpt_git_path(g, i)) != NULL; i++) {
        bool ours = !ckpt_lfs_by_name(path);

        for (size_t k = 0; k < p->n && !ours; k++)
            ours = strcmp(p->file[k].to, path) == 0;
        if (!ours)
            return true;
    }
    return false;
}

/* Decide on one file by the existing rules; add a line for it if none applies and one is needed. */
static int decide(struct ckpt_buf *text, struct attributes *a, struct push_file *f,
                  struct ckpt_err *err)
{
    bool lfs, said;
    int rc;

    if ((rc = ckpt_git_check_path(f->to, err)) != 0 ||
        (rc = look_up(&lfs, &said, a, f->to, err)) != 0)
        return rc;
    f->lfs = said ? lfs : f->large;
    if (!f->lfs && f->size > CKPT_LFS_THRESHOLD)
        ckpt_log(CKPT_LOG_WARNING, "%s: %.1f MB go into git itself: a rule of .gitattributes "
                 "keeps it from LFS", f->to, (double)f->size / 1e6);
    if (f->lfs && !said) {
        attributes_pattern(text, f->to);
        ckpt_buf_put_str(text, LFS_LINE);
    }
    return f->lfs ? 0 : tell_conversions(a, f->to, err);
}

/* Check the decisions against the new rules, as git will read them. */
static int prove(const struct ckpt_git *g, const struct push_plan *p, const struct ckpt_buf *text,
                 struct ckpt_err *err)
{
    struct attributes *a;
    int rc = read_rules(&a, g, text, err);

    for (size_t i = 0; rc == 0 && i < p->n; i++) {
        bool lfs, said;

        rc = look_up(&lfs, &said, a, p->file[i].to, err);
        if (rc == 0 && lfs != p->file[i].lfs)
            rc = ckpt_fail(err, CKPT_EREFUSED, "%s: no line of .gitattributes can say that it goes "
                           "by pointer", p->file[i].to);
    }
    attributes_free(a);
    return rc;
}

int rules_decide(struct ckpt_buf *text, bool *changed, const struct ckpt_git *g,
                 struct push_plan *p, struct ckpt_err *err)
{
    bool fresh = !ckpt_git_has(g, ROOT_FILE);
    struct attributes *a = NULL;
    struct ckpt_buf lines;
    int rc = fresh ? 0 : ckpt_git_read(text, g, ROOT_FILE, err);

    ckpt_buf_init(&lines, text->limit);
    if (rc == 0 && fresh && !list_would_hit(g, p))
        ckpt_lfs_attributes(text);
    if (rc == 0)
        rc = read_rules(&a, g, text, err);
    for (size_t i = 0; rc == 0 && i < p->n; i++)
        rc = decide(&lines, a, &p->file[i], err);
    attributes_free(a);
    *changed = lines.len > 0 || (fresh && text->len > 0);
    if (lines.len > 0 && text->len > 0 && text->data[text->len - 1] != '\n')
        ckpt_buf_put_str(text, "\n");
    ckpt_buf_put(text, lines.data, lines.len);
    if (rc == 0 && (!ckpt_buf_ok(&lines) || !ckpt_buf_ok(text)))
        rc = ckpt_fail(err, CKPT_ELIMIT, "%s: its lines are more than %zu bytes", ROOT_FILE,
                       text->limit);
    ckpt_buf_release(&lines);
    return rc ? rc : prove(g, p, text, err);
}
