/* hub, tree: addresses of the Hub, its lists, and the directories that they spell. */
#include "tests/unit/unit.h"

#include "libckpt/base/json.h"
#include "libckpt/io/path.h"
#include "libckpt/remote/hub.h"
#include "libckpt/remote/remote.h"
#include "libckpt/remote/web.h"

static void check(const char *url, const char *kind, const char *id, const char *revision,
                  const char *path)
{
    struct ckpt_err err = {0};
    struct hub_place p;

    assert_int_equal(hub_parse(&p, url, &err), 0);
    assert_string_equal(p.kind, kind);
    assert_string_equal(p.id, id);
    assert_string_equal(p.revision, revision);
    assert_string_equal(p.path, path);
}

TEST(addresses_that_are_read)
{
    check("hf://a/b", "models", "a/b", "main", "");
    check("hf://gpt2", "models", "gpt2", "main", "");
    check("hf://models/a/b/", "models", "a/b", "main", "");
    check("hf://a/b/c/d.json", "models", "a/b", "main", "c/d.json");
    check("hf://a/b@v1.0/c.json", "models", "a/b", "v1.0", "c.json");
    check("hf://datasets/a/b@refs/convert/parquet/x/0.parquet", "datasets", "a/b",
          "refs/convert/parquet", "x/0.parquet");
    check("hf://spaces/a/b@refs%2Fpr%2F7", "spaces", "a/b", "refs/pr/7", "");
    check("hf://a/b@feature%2Fx/c", "models", "a/b", "feature/x", "c");
}

TEST_ERR(addresses_that_are_none)
{
    static const char *const bad[] = {
        "hf://", "hf:///a", "hf://a//b", "hf://-a/b", "hf://a/b.git", "hf://a/b--c", "hf://a/..",
        "hf://a/b@", "hf://a/b@/c", "hf://a/b@%zz", "hf://a/b@a%00b", "hf://a/b@a..b", "hf://a b/c",
        "hf://a/b@x%20y",
    };
    struct hub_place p;

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ckpt_err_clear(err);
        assert_int_equal(hub_parse(&p, bad[i], err), CKPT_EUSAGE);
    }
}

static struct tree *tree_of(const char *page, int want)
{
    struct ckpt_err err = {0};
    struct tree *t;
    json_t *json;
    int rc;

    assert_int_equal(tree_new(&t, "hf://a/b", &err), 0);
    assert_int_equal(ckpt_json_parse(&json, page, strlen(page), 0, &err), 0);
    rc = hub_read_page(t, json, &err);
    if (rc == 0)
        rc = tree_ready(t, &err);
    json_decref(json);
    assert_int_equal(rc, want);
    return t;
}

#define FILE_ROW(path) "{\"type\":\"file\",\"path\":\"" path "\",\"size\":3,\"oid\":\"x\"}"

TEST_ERR(a_list_is_a_directory)
{
    struct tree *t = tree_of("[" FILE_ROW("a-b") "," FILE_ROW("a/x/2") "," FILE_ROW("a/x/1") ","
                             FILE_ROW("a.c") "," FILE_ROW(".gitattributes") ",{\"type\":"
                             "\"directory\",\"path\":\"a\"}]", 0);
    struct ckpt_arena arena = {0};
    struct ckpt_entry *e;
    struct ckpt_dir *dir, *sub;
    size_t n;

    assert_int_equal(tree_open_dir(&dir, t, "", "hf://a/b", 0, err), 0);
    assert_int_equal(ckpt_dir_list(dir, &arena, &e, &n, err), 0);
    assert_int_equal(n, 4);
    assert_string_equal(e[1].name, "a");
    assert_true(e[1].is_dir);
    assert_string_equal(e[3].name, "a.c");
    assert_int_equal(e[3].size, 3);
    assert_true(ckpt_dir_has(dir, "a/x/1"));
    assert_false(ckpt_dir_has(dir, "a/x"));
    assert_false(ckpt_dir_has(dir, "../a-b"));
    assert_int_equal(ckpt_dir_open_at(&sub, dir, "a/x", err), 0);
    assert_int_equal(ckpt_dir_list(sub, &arena, &e, &n, err), 0);
    assert_int_equal(n, 2);
    ckpt_dir_close(sub);
    assert_int_equal(ckpt_dir_open_at(&sub, dir, "a-b", err), CKPT_ENOTFOUND);
    assert_int_equal(ckpt_dir_open_at(&sub, dir, "b", err), CKPT_ENOTFOUND);
    ckpt_dir_close(dir);
    ckpt_arena_release(&arena);
    tree_free(t);
}

TEST(digests_of_a_list)
{
    static const char page[] =
        "[{\"type\":\"file\",\"path\":\"m\",\"size\":132,\"oid\":"
        "\"6ce70ec43db2e3e903040bf7ad01574c660a78e9\",\"lfs\":{\"oid\":\"49a3f2f9537cb294da34870d031"
        "ac2963abf8b9efec219089de71dfd76caf0f9\",\"size\":6291456}},"
        "{\"type\":\"file\",\"path\":\"c\",\"size\":21,\"oid\":"
        "\"b44ca83de3f3f4c0311f57d048cd9db556ceaa8d\"}]";
    struct tree *t = tree_of(page, 0);

    assert_string_equal(t->file[0].digest, "sha1-b44ca83de3f3f4c0311f57d048cd9db556ceaa8d");
    assert_int_equal(t->file[1].size, 6291456);
    assert_string_equal(t->file[1].digest, "sha256-49a3f2f9537cb294da34870d031ac2963abf8b9efec219089"
                                           "de71dfd76caf0f9");
    tree_free(t);
}

TEST(lists_that_are_none)
{
    tree_free(tree_of("{}", CKPT_EPROTOCOL));
    tree_free(tree_of("[1]", CKPT_EPROTOCOL));
    tree_free(tree_of("[{\"type\":\"file\",\"path\":\"a\"}]", CKPT_EPROTOCOL));
    tree_free(tree_of("[{\"type\":\"file\",\"path\":\"a\",\"size\":-1}]", CKPT_EPROTOCOL));
    tree_free(tree_of("[" FILE_ROW("a") "," FILE_ROW("a") "]", CKPT_EPROTOCOL));
    tree_free(tree_of("[" FILE_ROW("a") "," FILE_ROW("a/b") "]", CKPT_EPROTOCOL));
}

TEST(paths_that_lead_out_are_left_out)
{
    struct tree *t = tree_of("[" FILE_ROW("../a") "," FILE_ROW("/etc/passwd") "," FILE_ROW("a//b")
                             "," FILE_ROW("b/../../c") "," FILE_ROW("a\\\\b") "," FILE_ROW("good")
                             "]", 0);

    assert_int_equal(t->n, 1);
    assert_string_equal(t->file[0].path, "good");
    tree_free(t);
}

TEST_ERR(commits)
{
    char commit[41];
    json_t *good = json_pack("{s:s}", "sha", "6ce70ec43db2e3e903040bf7ad01574c660a78e9");
    json_t *bad = json_pack("{s:s}", "sha", "../../../../../../../../../../../../../x");

    assert_int_equal(hub_read_commit(commit, good, err), 0);
    assert_int_equal(hub_read_commit(commit, bad, err), CKPT_EPROTOCOL);
    json_decref(good);
    json_decref(bad);
}

TEST_ERR(an_index_names_files)
{
    struct tree *t;
    json_t *index = json_pack("{s:{s:s,s:s,s:s}}", "weight_map", "a", "m-1.safetensors", "b",
                              "m-1.safetensors", "c", "../m-2");

    assert_int_equal(tree_new(&t, "https://h/x", err), 0);
    assert_int_equal(web_read_index(t, index, err), 0);
    assert_int_equal(t->n, 1);
    json_decref(index);
    index = json_pack("[i]", 1);
    assert_int_equal(web_read_index(t, index, err), CKPT_EFORMAT);
    json_decref(index);
    tree_free(t);
}

TEST(what_is_an_address)
{
    assert_true(ckpt_remote_is_address("hf://a/b"));
    assert_true(ckpt_remote_is_address("git+https://a/b"));
    assert_false(ckpt_remote_is_address("a/b"));
    assert_false(ckpt_remote_is_address("./hf://a"));
    assert_false(ckpt_remote_is_address("://a"));
    assert_false(ckpt_remote_is_address("1a://b"));
    assert_true(ckpt_path_is_remote("s3://b/k"));
    assert_false(ckpt_path_is_remote("file:///tmp"));
    assert_false(ckpt_path_is_remote("-"));
}

TEST_ERR(file_addresses_are_paths)
{
    struct ckpt_dir *dir;

    assert_true(ckpt_path_is_dir("file:///"));
    assert_true(ckpt_path_is_dir("file://localhost/%2e"));
    assert_false(ckpt_path_is_file("file:///"));
    assert_int_equal(ckpt_path_dir(&dir, "file:///", 0, err), 0);
    ckpt_dir_close(dir);
    assert_int_equal(ckpt_path_dir(&dir, "file://else/where", 0, err), CKPT_ENOTFOUND);
}
