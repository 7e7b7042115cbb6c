/* git: commits that a second git reads, a branch that moves only from where we saw it. */
#include "tests/unit/unit.h"

#include "libckpt/remote/git/git.h"

#define AUTHOR "A Tester <tester@example.com>"

static char dir[256], repo[300];

BEFORE_EACH()
{
    snprintf(dir, sizeof dir, "%s", scratch("git"));
    snprintf(repo, sizeof repo, "%s/deep/repo.git", dir);
}

/* What git itself says of the repository: its output up to n bytes. */
static void git_says(char *out, size_t n, const char *what)
{
    char command[800];
    size_t got;
    FILE *p;

    snprintf(command, sizeof command, "git --git-dir=%s %s 2>&1", repo, what);
    p = popen(command, "r");
    assert_non_null(p);
    got = fread(out, 1, n - 1, p);
    out[got] = '\0';
    if (pclose(p) != 0)
        fail_msg("%s: %s", command, out);
}

static void put(struct ckpt_git *g, const char *path, const char *text)
{
    struct ckpt_err err = {0};

    assert_int_equal(ckpt_git_put(g, path, text, strlen(text), &err), 0);
}

static struct ckpt_git *begun(bool create, const char *branch)
{
    struct ckpt_err err = {0};
    struct ckpt_git *g;

    if (ckpt_git_open(&g, repo, create, &err))
        fail_msg("%s", err.text);
    assert_int_equal(ckpt_git_begin(g, branch, &err), 0);
    return g;
}

TEST_ERR(first_commit)
{
    struct ckpt_git *g = begun(true, NULL);
    char id[CKPT_GIT_ID], said[600];
    bool changed;

    assert_true(ckpt_git_is_repository(repo));
    assert_false(ckpt_git_is_repository(dir));
    assert_non_null(strstr(ckpt_git_dir(g), "/deep/repo.git"));
    put(g, "b/c.txt", "deep\n");
    put(g, "a.txt", "old\n");
    put(g, "a.txt", "new\n");
    put(g, "empty", "");
    assert_true(ckpt_git_has(g, "b/c.txt"));
    assert_false(ckpt_git_has(g, "b"));
    assert_string_equal(ckpt_git_path(g, 0), "a.txt");
    assert_null(ckpt_git_path(g, 3));
    assert_int_equal(ckpt_git_commit(g, "subject\n\nbody\n", AUTHOR, id, &changed, err), 0);
    assert_true(changed);
    ckpt_git_close(g);
    git_says(said, sizeof said, "log --format='%H|%an|%ae|%s|%b|%P' refs/heads/main");
    assert_memory_equal(said, id, 40);
    assert_string_equal(said + 40, "|A Tester|tester@example.com|subject|body\n|\n");
    git_says(said, sizeof said, "ls-tree -r --format='%(objectmode) %(path)' main");
    assert_string_equal(said, "100644 a.txt\n100644 b/c.txt\n100644 empty\n");
    git_says(said, sizeof said, "show main:a.txt");
    assert_string_equal(said, "new\n");
    git_says(said, sizeof said, "fsck --strict");
}

/* The tree goes on from the branch's newest; the same tree is no commit. */
TEST_ERR(second_commit)
{
    struct ckpt_git *g = begun(true, NULL);
    char first[CKPT_GIT_ID], id[CKPT_GIT_ID], said[600];
    bool changed;

    put(g, "keep", "1");
    put(g, "drop", "2");
    assert_int_equal(ckpt_git_commit(g, "one", AUTHOR, first, &changed, err), 0);
    ckpt_git_close(g);
    g = begun(false, "main");
    put(g, "keep", "1");
    assert_int_equal(ckpt_git_commit(g, "nothing", AUTHOR, id, &changed, err), 0);
    assert_false(changed);
    assert_string_equal(id, first);
    assert_int_equal(ckpt_git_begin(g, NULL, err), 0);
    assert_int_equal(ckpt_git_remove(g, "absent", err), CKPT_ENOTFOUND);
    assert_int_equal(ckpt_git_remove(g, "drop", err), 0);
    put(g, "more", "3");
    assert_int_equal(ckpt_git_commit(g, "two", AUTHOR, id, &changed, err), 0);
    assert_true(changed);
    ckpt_git_close(g);
    git_says(said, sizeof said, "log --format=%s main");
    assert_string_equal(said, "two\none\n");
    git_says(said, sizeof said, "ls-tree -r --name-only main");
    assert_string_equal(said, "keep\nmore\n");
}

/* Another branch is born beside the first, which stays where it was. */
TEST_ERR(branches)
{
    struct ckpt_git *g = begun(true, "step-3");
    char id[CKPT_GIT_ID], said[600];
    bool changed;

    put(g, "a", "1");
    assert_int_equal(ckpt_git_commit(g, "one", AUTHOR, id, &changed, err), 0);
    assert_int_equal(ckpt_git_begin(g, "bad..name", err), CKPT_EUSAGE);
    assert_int_equal(ckpt_git_begin(g, "-x", err), CKPT_EUSAGE);
    assert_int_equal(ckpt_git_begin(g, "", err), CKPT_EUSAGE);
    memset(said, 'x', sizeof said - 1);         /* cut short it would be another branch */
    said[sizeof said - 1] = '\0';
    assert_int_equal(ckpt_git_begin(g, said, err), CKPT_EUSAGE);
    ckpt_git_close(g);
    git_says(said, sizeof said, "for-each-ref --format='%(refname)'");
    assert_string_equal(said, "refs/heads/step-3\n");
}

/* Two writers: the second is told that the branch moved, and nothing of the first is lost. */
TEST_ERR(moved_meanwhile)
{
    struct ckpt_git *a = begun(true, NULL), *b;
    char id[CKPT_GIT_ID], said[600];
    bool changed;

    b = begun(false, NULL);                     /* of an unborn branch, too */
    put(a, "x", "a");
    put(b, "x", "b");
    assert_int_equal(ckpt_git_commit(a, "a1", AUTHOR, id, &changed, err), 0);
    assert_int_equal(ckpt_git_commit(b, "b1", AUTHOR, id, &changed, err), CKPT_ESTOPPED);
    assert_false(changed);
    assert_non_null(strstr(err->text, "refs/heads/main: moved while"));
    assert_int_equal(ckpt_git_begin(b, NULL, err), 0);
    assert_int_equal(ckpt_git_begin(a, NULL, err), 0);
    put(b, "x", "b");
    put(a, "y", "a");
    assert_int_equal(ckpt_git_commit(b, "b2", AUTHOR, id, &changed, err), 0);
    assert_int_equal(ckpt_git_commit(a, "a2", AUTHOR, id, &changed, err), CKPT_ESTOPPED);
    ckpt_git_close(a);
    ckpt_git_close(b);
    git_says(said, sizeof said, "log --format=%s main");
    assert_string_equal(said, "b2\na1\n");
}

TEST_ERR(refused)
{
    static const char *const astray[] = {".git/hooks/post-update", "a/.GIT/config", "a/Git~1/x",
                                         "../out", "/abs", "a/../b", "a//b", ""};
    struct ckpt_git *g;
    char id[CKPT_GIT_ID], said[600];
    bool changed;

    assert_int_equal(ckpt_git_open(&g, repo, false, err), CKPT_ENOTFOUND);
    assert_null(g);
    assert_string_equal(err->hint, "--create makes a bare repository there");
    assert_int_equal(ckpt_git_open(&g, dir, true, err), CKPT_EFORMAT); /* there, and no git */
    assert_null(g);
    assert_int_equal(entries(dir), 0);
    g = begun(true, NULL);
    for (size_t i = 0; i < sizeof astray / sizeof astray[0]; i++) {
        assert_int_equal(ckpt_git_put(g, astray[i], "x", 1, err), CKPT_EREFUSED);
        assert_string_equal(err->reason, "refused-path");
        assert_false(ckpt_git_has(g, astray[i]));
    }
    put(g, ".gitattributes", "1");
    put(g, "a.git/git", "1");
    assert_int_equal(ckpt_git_commit(g, "m", "nobody", id, &changed, err), CKPT_EUSAGE);
    assert_int_equal(ckpt_git_commit(g, "m", "<a@b>", id, &changed, err), CKPT_EUSAGE);
    assert_int_equal(ckpt_git_commit(g, "m", "a> <b", id, &changed, err), CKPT_EUSAGE);
    ckpt_git_close(g);
    git_says(said, sizeof said, "for-each-ref");
    assert_string_equal(said, "");
}

/* HEAD that names a commit and no branch wants to be told which. */
TEST_ERR(detached)
{
    struct ckpt_git *g = begun(true, NULL);
    char id[CKPT_GIT_ID], said[600];
    bool changed;

    put(g, "a", "1");
    assert_int_equal(ckpt_git_commit(g, "one", AUTHOR, id, &changed, err), 0);
    git_says(said, sizeof said, "update-ref --no-deref HEAD refs/heads/main");
    assert_int_equal(ckpt_git_begin(g, NULL, err), CKPT_EUSAGE);
    assert_string_equal(err->text, "HEAD names no branch: say which with --branch");
    assert_int_equal(ckpt_git_begin(g, "main", err), 0);
    ckpt_git_close(g);
}
