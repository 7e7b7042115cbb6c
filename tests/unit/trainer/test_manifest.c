/* manifest: says what a directory holds, and finds each way in which it no longer does. */
#include "tests/unit/files.h"

#include "libckpt/digest.h"
#include "libckpt/file.h"
#include "libckpt/base/json.h"
#include "libckpt/mem.h"
#include "trainer/checkpoint/manifest.h"

static const char *dir;

static void put(const char *name, const char *text)
{
    put_text(text_of("%s/%s", dir, name), text);
}

/* A directory with two files, one in a folder, and its manifest. */
BEFORE_EACH()
{
    json_t *facts = json_pack("{s:i, s:s}", "step", 3, "run", "abc");
    struct ckpt_err err = {0};
    char *text;

    dir = scratch("manifest");
    assert_int_equal(mkdir(text_of("%s/sub", dir), 0777), 0);
    put("b.txt", "hello\n");
    put("sub/a.bin", "abc");
    put(".hidden", "not told");
    assert_int_equal(manifest_make(&text, dir, facts, &err), 0);
    put(MANIFEST_NAME, text);
    ckpt_free(text);
    json_decref(facts);
}

static json_t *load(void)
{
    struct ckpt_err err = {0};
    json_t *m = NULL;

    assert_int_equal(manifest_check(&m, dir, MANIFEST_SIZES, &err), 0);
    return m;
}

TEST(what_it_says)
{
    json_t *m = load(), *files = json_object_get(m, "files");

    assert_string_equal(json_string_value(json_object_get(m, "format")), "ckpt-manifest");
    assert_int_equal(json_integer_value(json_object_get(m, "version")), 1);
    assert_int_equal(json_integer_value(json_object_get(m, "step")), 3);
    assert_int_equal(json_array_size(files), 2);
    assert_string_equal(json_string_value(json_object_get(json_array_get(files, 0), "name")),
                        "b.txt");
    assert_int_equal(json_integer_value(json_object_get(json_array_get(files, 0), "size")), 6);
    assert_string_equal(json_string_value(json_object_get(json_array_get(files, 0), "sha256")),
                        "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03");
    assert_string_equal(json_string_value(json_object_get(json_array_get(files, 1), "name")),
                        "sub/a.bin");
    assert_string_equal(json_string_value(json_object_get(json_array_get(files, 1), "sha256")),
                        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    json_decref(m);
}

/* The check gives code and reason, the sentence names the directory, and nothing is handed out. */
static void assert_found(enum manifest_depth depth, int code, const char *reason,
                         const char *text)
{
    struct ckpt_err err = {0};
    json_t *m = NULL;

    assert_int_equal(manifest_check(&m, dir, depth, &err), code);
    assert_string_equal(err.reason, reason);
    assert_non_null(strstr(err.text, text));
    assert_non_null(strstr(err.text, dir));
    assert_null(m);
}

TEST(damage)
{
    struct ckpt_err err = {0};
    const char *path = text_of("%s/sub/a.bin", dir);

    assert_int_equal(manifest_check(NULL, dir, MANIFEST_DIGESTS, &err), 0);
    put("sub/a.bin", "abd");                    /* same size */
    assert_int_equal(manifest_check(NULL, dir, MANIFEST_SIZES, &err), 0);
    assert_found(MANIFEST_DIGESTS, CKPT_EFORMAT, "digest", "sub/a.bin: sha-256 is ");
    put("sub/a.bin", "ab");
    assert_found(MANIFEST_SIZES, CKPT_EFORMAT, "truncated",
                 "sub/a.bin: 2 bytes, 3 expected");
    assert_int_equal(unlink(path), 0);
    assert_found(MANIFEST_SIZES, CKPT_EFORMAT, "missing", "sub/a.bin: absent");
    assert_int_equal(symlink("../b.txt", path), 0);
    assert_found(MANIFEST_SIZES, CKPT_EREFUSED, "refused-path", "sub/a.bin");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(unlink(text_of("%s/" MANIFEST_NAME, dir)), 0);
    assert_found(MANIFEST_SIZES, CKPT_ENOTFOUND, "not-found", MANIFEST_NAME);
}

/* Write m back, with a right digest of its own when sealed. */
static void save(json_t *m, bool sealed)
{
    unsigned char digest[CKPT_SHA256_BYTES];
    struct ckpt_sha256 *s;
    struct ckpt_err err = {0};
    struct ckpt_buf b;
    char hex[CKPT_SHA256_HEX], *text;

    if (sealed) {
        json_object_del(m, "digest");
        ckpt_buf_init(&b, 1 << 20);
        assert_int_equal(ckpt_json_write(&b, m, 0, true, &err), 0);
        assert_int_equal(ckpt_sha256_new(&s, &err), 0);
        assert_int_equal(ckpt_sha256_add(s, b.data, b.len, &err), 0);
        assert_int_equal(ckpt_sha256_end(s, digest, &err), 0);
        ckpt_sha256_free(s);
        ckpt_buf_release(&b);
        ckpt_digest_hex(hex, digest, sizeof digest);
        json_object_set_new(m, "digest", json_string(hex));
    }
    text = json_dumps(m, 0);
    put(MANIFEST_NAME, text);
    free(text);
    json_decref(m);
}

/* A fresh directory, in whose manifest a value of the first file's is replaced, and the digest. */
static void forge(const char *key, json_t *value)
{
    json_t *m;

    before_each();
    m = load();
    json_object_set_new(json_array_get(json_object_get(m, "files"), 0), key, value);
    save(m, true);
}

/* A manifest that was changed is not believed, nor followed out of its directory. */
TEST(forged)
{
    static const char *const unclean[] = {"../outside", "/etc/passwd", "sub/../b.txt", "", "a//b"};
    json_t *m = load();

    json_object_set_new(m, "step", json_integer(4));
    save(m, false);
    assert_found(MANIFEST_SIZES, CKPT_EFORMAT, "digest", "its own digest does not match");
    for (size_t i = 0; i < sizeof unclean / sizeof unclean[0]; i++) {
        struct ckpt_err err = {0};

        forge("name", json_string(unclean[i]));
        assert_int_equal(manifest_check(NULL, dir, MANIFEST_SIZES, &err), CKPT_EREFUSED);
        assert_string_equal(err.reason, "refused-path");
    }
    forge("size", json_integer(-1));
    assert_found(MANIFEST_SIZES, CKPT_EFORMAT, "truncated", "b.txt: 6 bytes, -1 expected");
    before_each();
    m = load();
    json_object_set_new(m, "files", json_string("none"));
    save(m, true);
    assert_found(MANIFEST_SIZES, CKPT_EFORMAT, "malformed", "files");
    before_each();
    put(MANIFEST_NAME, "{\"digest\": \"\", \"digest\": \"\"}");
    assert_found(MANIFEST_SIZES, CKPT_EFORMAT, "duplicate", MANIFEST_NAME);
}

/* The same directory gives the same text. */
TEST(deterministic)
{
    struct ckpt_err err = {0};
    char *a, *b, *at;
    json_t *none = json_object();

    assert_int_equal(manifest_make(&a, dir, none, &err), 0);
    assert_int_equal(manifest_make(&b, dir, none, &err), 0);
    assert_string_equal(a, b);
    at = strstr(a, MANIFEST_NAME);
    assert_null(at);                            /* it does not tell itself, though it was there */
    ckpt_free(a);
    ckpt_free(b);
    assert_int_equal(manifest_make(&a, "build/no-such-directory", none, &err), CKPT_ENOTFOUND);
    assert_null(a);
    json_decref(none);
}
