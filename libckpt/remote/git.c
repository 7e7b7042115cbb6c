/* git - see git.h.  Written against libgit2 1.5 (Debian 12) and 1.7 (Ubuntu 24.04). */
#include "libckpt/remote/git.h"

#include <git2.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "libckpt/file.h"
#include "libckpt/mem.h"

struct ckpt_git {
    git_repository *repo;
    git_index      *index;          /* the tree in work; in memory only */
    git_oid         parent;
    bool            has_parent;
    char            ref[512];       /* refs/heads/... */
    char            dir[4096];
};

/* libgit2's own words, with what we were doing in front. */
static int fail(struct ckpt_err *err, int code, const char *what)
{
    const git_error *e = git_error_last();

    return ckpt_fail(err, code, "%s: %s", what, e && e->message ? e->message : "git failed");
}

bool ckpt_git_is_repository(const char *path)
{
    bool yes;

    git_libgit2_init();
    yes = git_repository_open_ext(NULL, path, GIT_REPOSITORY_OPEN_NO_SEARCH, NULL) == 0;
    git_libgit2_shutdown();
    return yes;
}

int ckpt_git_open(struct ckpt_git **out, const char *path, bool create, struct ckpt_err *err)
{
    struct ckpt_git *g = ckpt_alloc(1, sizeof *g);
    git_repository_init_options init;
    struct stat st;
    size_t n;

    *out = NULL;
    if (!g)
        return ckpt_nomem(err, sizeof *g);
    git_libgit2_init();
    git_libgit2_opts(GIT_OPT_ENABLE_FSYNC_GITDIR, 1);
    git_repository_init_options_init(&init, GIT_REPOSITORY_INIT_OPTIONS_VERSION);
    init.flags = GIT_REPOSITORY_INIT_BARE | GIT_REPOSITORY_INIT_MKPATH |
                 GIT_REPOSITORY_INIT_NO_REINIT;
    init.initial_head = "main";
    if (create && stat(path, &st) != 0) {
        if (git_repository_init_ext(&g->repo, path, &init)) {
            fail(err, CKPT_ECREATE, path);
            goto fail;
        }
    } else if (git_repository_open_ext(&g->repo, path, GIT_REPOSITORY_OPEN_NO_SEARCH, NULL)) {
        fail(err, stat(path, &st) ? CKPT_ENOTFOUND : CKPT_EFORMAT, path);
        ckpt_err_hint(err, "--create makes a bare repository there");
        goto fail;
    }
    snprintf(g->dir, sizeof g->dir, "%s", git_repository_path(g->repo));
    n = strlen(g->dir);
    if (n > 1 && g->dir[n - 1] == '/')
        g->dir[n - 1] = '\0';
    *out = g;
    return 0;
fail:
    ckpt_git_close(g);
    return err->code;
}

void ckpt_git_close(struct ckpt_git *g)
{
    if (!g)
        return;
    git_index_free(g->index);
    git_repository_free(g->repo);
    git_libgit2_shutdown();
    ckpt_free(g);
}

const char *ckpt_git_dir(const struct ckpt_git *g) { return g->dir; }

/* The reference the commit goes to. */
static int name_ref(struct ckpt_git *g, const char *branch, struct ckpt_err *err)
{
    git_reference *head = NULL;
    int valid = 0, rc = 0;

    if (branch) {
        if (git_branch_name_is_valid(&valid, branch) || !valid ||
            (size_t)snprintf(g->ref, sizeof g->ref, "refs/heads/%s", branch) >= sizeof g->ref)
            return ckpt_fail(err, CKPT_EUSAGE, "%s: no name for a branch", branch);
    } else if (git_reference_lookup(&head, g->repo, "HEAD")) {
        rc = fail(err, CKPT_EFORMAT, "HEAD");
    } else if (git_reference_type(head) != GIT_REFERENCE_SYMBOLIC) {
        rc = ckpt_fail(err, CKPT_EUSAGE, "HEAD names no branch: say which with --branch");
    } else {
        if ((size_t)snprintf(g->ref, sizeof g->ref, "%s",
                             git_reference_symbolic_target(head)) >= sizeof g->ref)
            rc = ckpt_fail(err, CKPT_ELIMIT, "HEAD: a branch name of %zu bytes, %zu at most",
                           strlen(git_reference_symbolic_target(head)), sizeof g->ref - 1);
    }
    git_reference_free(head);
    if (rc == 0 && (git_reference_name_is_valid(&valid, g->ref) || !valid))
        rc = ckpt_fail(err, CKPT_EUSAGE, "%s: no name for a branch", g->ref);
    return rc;
}

int ckpt_git_begin(struct ckpt_git *g, const char *branch, struct ckpt_err *err)
{
    git_commit *commit = NULL;
    git_tree *tree = NULL;
    int rc = name_ref(g, branch, err);

    git_index_free(g->index);
    g->index = NULL;
    if (rc == 0 && git_index_new(&g->index))
        rc = fail(err, CKPT_ENOMEM, "index");
    if (rc)
        return rc;
    rc = git_reference_name_to_id(&g->parent, g->repo, g->ref);
    g->has_parent = rc == 0;
    if (rc == GIT_ENOTFOUND)
        return 0;
    if (rc || git_commit_lookup(&commit, g->repo, &g->parent) || git_commit_tree(&tree, commit) ||
        git_index_read_tree(g->index, tree))
        rc = fail(err, CKPT_EFORMAT, g->ref);
    git_tree_free(tree);
    git_commit_free(commit);
    return rc;
}

/* A path that leads out of a work tree, or into its .git, as some file system spells it. */
static bool leads_astray(const char *path)
{
    char part[256];

    while (path) {
        size_t n = strcspn(path, "/");

        snprintf(part, sizeof part, "%.*s", (int)(n < 256 ? n : 0), path);
        if (!ckpt_name_is_clean(part) || strcasecmp(part, ".git") == 0 ||
            strcasecmp(part, "git~1") == 0)
            return true;
        path = path[n] ? path + n + 1 : NULL;
    }
    return false;
}

int ckpt_git_put(struct ckpt_git *g, const char *path, const void *bytes, size_t n,
                 struct ckpt_err *err)
{
    git_index_entry entry = {.mode = GIT_FILEMODE_BLOB, .path = path};

    if (leads_astray(path))             /* an index without a repository takes it */
        return ckpt_fail_as(err, CKPT_EREFUSED, "refused-path", "%s: no path for a repository",
                            path);
    if (git_blob_create_from_buffer(&entry.id, g->repo, bytes, n))
        return fail(err, CKPT_EIO, path);
    if (git_index_add(g->index, &entry))
        return fail(err, CKPT_EREFUSED, path);
    return 0;
}

bool ckpt_git_has(const struct ckpt_git *g, const char *path)
{
    return git_index_get_bypath(g->index, path, 0) != NULL;
}

const char *ckpt_git_path(const struct ckpt_git *g, size_t i)
{
    const git_index_entry *e = git_index_get_byindex(g->index, i);

    return e ? e->path : NULL;
}

int ckpt_git_remove(struct ckpt_git *g, const char *path, struct ckpt_err *err)
{
    return git_index_remove(g->index, path, 0) ? fail(err, CKPT_ENOTFOUND, path) : 0;
}

/* Move the branch from the parent to the new commit, or say that it moved meanwhile. */
static int move_branch(struct ckpt_git *g, const git_oid *id, const char *message,
                       struct ckpt_err *err)
{
    git_reference *ref = NULL;
    int rc;

    if (g->has_parent)
        rc = git_reference_create_matching(&ref, g->repo, g->ref, id, 1, &g->parent, message);
    else
        rc = git_reference_create(&ref, g->repo, g->ref, id, 0, message);
    git_reference_free(ref);
    if (rc == GIT_EMODIFIED || rc == GIT_EEXISTS)
        return ckpt_fail(err, CKPT_ESTOPPED, "%s: moved while this commit was made", g->ref);
    return rc ? fail(err, CKPT_EIO, g->ref) : 0;
}

int ckpt_git_commit(struct ckpt_git *g, const char *message, const char *author,
                    char id[CKPT_GIT_ID], bool *changed, struct ckpt_err *err)
{
    const char *open = strchr(author, '<'), *close = open ? strchr(open, '>') : NULL;
    git_commit *parent = NULL;
    git_signature *who = NULL;
    git_tree *tree = NULL;
    char name[256], mail[256];
    git_oid tree_id, commit_id;
    int rc = 0;

    *changed = false;
    if (!open || !close || open == author)
        return ckpt_fail(err, CKPT_EUSAGE, "%s: \"Name <mail>\" wanted", author);
    snprintf(name, sizeof name, "%.*s", (int)(open - author), author);
    snprintf(mail, sizeof mail, "%.*s", (int)(close - open - 1), open + 1);
    if (git_index_write_tree_to(&tree_id, g->index, g->repo) ||
        git_tree_lookup(&tree, g->repo, &tree_id) ||
        (g->has_parent && git_commit_lookup(&parent, g->repo, &g->parent)) ||
        git_signature_now(&who, name, mail)) {
        rc = fail(err, CKPT_EIO, "commit");
        goto out;
    }
    if (parent && git_oid_equal(&tree_id, git_commit_tree_id(parent))) {
        git_oid_tostr(id, CKPT_GIT_ID, &g->parent);
        goto out;
    }
    if (git_commit_create_v(&commit_id, g->repo, NULL, who, who, "UTF-8", message, tree,
                            parent ? 1 : 0, parent)) {
        rc = fail(err, CKPT_EIO, "commit");
        goto out;
    }
    rc = move_branch(g, &commit_id, message, err);
    git_oid_tostr(id, CKPT_GIT_ID, &commit_id);
    *changed = rc == 0;
out:
    git_signature_free(who);
    git_commit_free(parent);
    git_tree_free(tree);
    return rc;
}
