/* cache: complete or absent, within its limit, fetched once whoever asks. */
#include "tests/unit/faults.h"

#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>

#include "libckpt/commit.h"
#include "libckpt/remote/cache/cache.h"

#define PLACE "build/test-cache"

struct filler {
    const char *text;
    atomic_int  calls;
    int         fail;
};

static int fill(void *ctx, struct cache_sink *s, struct ckpt_err *err)
{
    struct filler *f = ctx;
    size_t n = strlen(f->text), half = n / 2;

    atomic_fetch_add(&f->calls, 1);
    usleep(20000);
    /* The second half first: any order will do. */
    if (cache_put(s, f->text + half, n - half, half, err) || cache_put(s, f->text, half, 0, err))
        return err->code;
    return f->fail ? ckpt_fail(err, CKPT_EFORMAT, "as the test wants") : 0;
}

BEFORE_EACH()
{
    struct ckpt_err err = {0};

    setenv("CKPT_CACHE", PLACE, 1);
    unsetenv("CKPT_CACHE_LIMIT");
    ckpt_outdir_remove(PLACE, &err);
}

static int count(const char *folder)
{
    char path[256];
    struct dirent *e;
    int n = 0;
    DIR *d;

    snprintf(path, sizeof path, PLACE "/%s", folder);
    d = opendir(path);
    while (d && (e = readdir(d)) != NULL)
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    if (d)
        closedir(d);
    return n;
}

static void holds(const char *key, const char *text)
{
    struct ckpt_err err = {0};
    struct ckpt_file *f;
    char got[64] = "";

    assert_int_equal(cache_find(&f, key, strlen(text), "x", &err), 0);
    assert_non_null(f);
    assert_int_equal(ckpt_file_read_at(f, got, strlen(text), 0, &err), 0);
    assert_string_equal(got, text);
    ckpt_file_close(f);
}

static void get(struct filler *f, const char *key, int want)
{
    struct ckpt_err err = {0};
    struct ckpt_file *file;

    assert_int_equal(cache_get(&file, key, strlen(f->text), "x", fill, f, &err), want);
    ckpt_file_close(file);
}

TEST_ERR(what_was_fetched_stays)
{
    struct filler f = {.text = "bytes of an object"};
    struct ckpt_file *none;

    assert_int_equal(cache_find(&none, "sha256-a", 18, "x", err), 0);
    assert_null(none);
    get(&f, "sha256-a", 0);
    get(&f, "sha256-a", 0);
    assert_int_equal(f.calls, 1);
    holds("sha256-a", f.text);
    assert_int_equal(cache_find(&none, "sha256-a", 17, "x", err), 0);
    assert_null(none);
}

TEST(what_failed_leaves_nothing)
{
    struct filler f = {.text = "bytes", .fail = 1};

    get(&f, "sha256-b", CKPT_EFORMAT);
    assert_int_equal(count("objects"), 0);
    f.fail = 0;
    get(&f, "sha256-b", 0);
    holds("sha256-b", "bytes");
}

static void *ask(void *ctx)
{
    get(ctx, "sha256-c", 0);
    return NULL;
}

TEST(who_wants_the_same_fetches_it_once)
{
    struct filler f = {.text = "bytes of many"};
    pthread_t thread[8];

    for (size_t i = 0; i < 8; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, ask, &f), 0);
    for (size_t i = 0; i < 8; i++)
        pthread_join(thread[i], NULL);
    assert_int_equal(f.calls, 1);
    holds("sha256-c", f.text);
}

TEST_ERR(the_oldest_goes_first)
{
    struct filler f = {.text = "0123456789"};
    struct ckpt_file *a;

    setenv("CKPT_CACHE_LIMIT", "25", 1);
    get(&f, "sha256-1", 0);
    get(&f, "sha256-2", 0);
    holds("sha256-1", f.text);          /* used: 2 is older now */
    get(&f, "sha256-3", 0);
    assert_int_equal(count("objects"), 2);
    holds("sha256-1", f.text);
    holds("sha256-3", f.text);
    get(&f, "sha256-4", 0);
    get(&f, "sha256-5", 0);
    assert_int_equal(cache_find(&a, "sha256-1", 10, "x", err), 0);
    assert_null(a);
}

TEST_ERR(an_open_object_outlives_its_name)
{
    struct filler f = {.text = "0123456789"};
    struct ckpt_file *a;
    char got[11] = "";

    setenv("CKPT_CACHE_LIMIT", "10", 1);
    assert_int_equal(cache_get(&a, "sha256-1", 10, "x", fill, &f, err), 0);
    get(&f, "sha256-2", 0);
    assert_int_equal(count("objects"), 1);
    assert_int_equal(ckpt_file_read_at(a, got, 10, 0, err), 0);
    assert_string_equal(got, f.text);
    ckpt_file_close(a);
}

TEST(without_a_place_nothing_is_kept)
{
    struct filler f = {.text = "bytes"};

    setenv("CKPT_CACHE", "none", 1);
    get(&f, "sha256-a", 0);
    get(&f, "sha256-a", 0);
    assert_int_equal(f.calls, 2);
    setenv("CKPT_CACHE", "/proc/nowhere", 1);
    get(&f, "sha256-a", 0);
    setenv("CKPT_CACHE", PLACE, 1);
    get(&f, "", 0);                     /* no key */
    setenv("CKPT_CACHE_LIMIT", "4", 1);
    get(&f, "sha256-a", 0);             /* larger than all that may be kept */
    assert_int_equal(count("objects"), 0);
}

/* The digest of "bytes of an object", and of a git blob of it. */
#define SHA256 "sha256-" BYTES_SHA256
#define SHA1   "sha1-" BYTES_SHA1
#define BYTES_SHA256 "0fd57a804d6cfd79899146118ebf9e5f72fa701ca841281964394047e3fea128"
#define BYTES_SHA1   "6d0a762d7af963b489a95ba3443fd715574f44a8"

static void overwrite(const char *key, const char *text)
{
    char path[300];
    FILE *f;

    snprintf(path, sizeof path, PLACE "/objects/%s", key);
    f = fopen(path, "r+");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

/* Other bytes of the same length are not what was kept, whenever they came. */
TEST_ERR(proved_when_found)
{
    static const char *const keys[] = {SHA256, SHA1, "url-of-no-digest"};

    for (size_t i = 0; i < 3; i++) {
        struct filler f = {.text = "bytes of an object"};
        struct ckpt_file *file;
        char aside[200];
        struct stat st;

        get(&f, keys[i], 0);
        holds(keys[i], f.text);
        usleep(150000);                 /* its times are settled now, the record counts */
        holds(keys[i], f.text);
        holds(keys[i], f.text);
        overwrite(keys[i], "other");
        assert_int_equal(cache_find(&file, keys[i], 18, "x", err), 0);
        assert_null(file);
        snprintf(aside, sizeof aside, PLACE "/objects/damaged-%s", keys[i]);
        assert_int_equal(stat(aside, &st), 0);
        get(&f, keys[i], 0);
        assert_int_equal(f.calls, 2);
        holds(keys[i], f.text);
    }
}

TEST_ERR(damaged_offline)
{
    struct filler f = {.text = "bytes of an object"};
    struct ckpt_file *file;

    get(&f, SHA256, 0);
    overwrite(SHA256, "other");
    setenv("CKPT_OFFLINE", "1", 1);
    assert_int_equal(cache_find(&file, SHA256, 18, "x", err), CKPT_EFORMAT);
    assert_string_equal(err->reason, "digest");
    unsetenv("CKPT_OFFLINE");
}

/* Without a record, or with one that is none, the bytes themselves are asked. */
TEST(records)
{
    static const char *const bad[] = {"", "ckpt-proof 1\n", "ckpt-proof 2 00 1 1 1 1 1 1\n",
                                      "ckpt-proof 1 00 1 1 1 1 1 1"};
    struct filler f = {.text = "bytes of an object"};

    get(&f, SHA256, 0);
    holds(SHA256, f.text);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        FILE *w = fopen(PLACE "/proofs/" SHA256, "w");

        assert_non_null(w);
        fputs(bad[i], w);
        fclose(w);
        holds(SHA256, f.text);
    }
    assert_int_equal(unlink(PLACE "/proofs/" SHA256), 0);
    holds(SHA256, f.text);
    assert_int_equal(f.calls, 1);
}

TEST_ERR(of_others)
{
    static const char *const folders[] = {"", "/objects", "/lists"};
    struct filler f = {.text = "bytes of an object"};
    struct ckpt_file *file;

    get(&f, SHA256, 0);
    assert_int_equal(mkdir(PLACE "/lists", 0700), 0);
    for (size_t i = 0; i < 3; i++) {
        char path[200];

        snprintf(path, sizeof path, PLACE "%s", folders[i]);
        for (mode_t mode = 0777; mode; mode = mode == 0777 ? 0720 : mode == 0720 ? 0702 : 0) {
            assert_int_equal(chmod(path, mode), 0);
            ckpt_err_clear(err);
            assert_int_equal(cache_find(&file, SHA256, 18, "x", err), CKPT_EREFUSED);
            assert_int_not_equal(err->hint[0], 0);
            assert_int_equal(cache_get(&file, "other", 18, "x", fill, &f, err), CKPT_EREFUSED);
        }
        assert_int_equal(chmod(path, 01777), 0);
        holds(SHA256, f.text);
        assert_int_equal(chmod(path, 0700), 0);
        if (geteuid() == 0) {
            assert_int_equal(chown(path, 12345, 0), 0);
            assert_int_equal(cache_find(&file, SHA256, 18, "x", err), CKPT_EREFUSED);
            assert_int_equal(chown(path, 0, 0), 0);
        }
    }
    holds(SHA256, f.text);
}

TEST(lists)
{
    json_t *list = json_pack("{s:[i,i]}", "a", 1, 2), *back;
    char key[CACHE_KEY], other[CACHE_KEY];

    cache_key(key, "hub", "one");
    cache_key(other, "hub", "two");
    assert_string_not_equal(key, other);
    cache_keep_list(key, list);
    back = cache_list(key);
    assert_true(json_equal(list, back));
    assert_null(cache_list(other));
    json_decref(back);
    json_decref(list);
}

/* Every failing operation: an error, or the bytes; never a part under the name. */
TEST(faults)
{
    for (struct faults f = {.later = true}; faults_next(&f);) {
        struct filler fill_with = {.text = "bytes of an object"};
        struct ckpt_err err = {0};
        struct ckpt_file *file;
        struct stat st;
        int rc;

        before_each();
        faults_arm(&f);
        rc = cache_get(&file, "sha256-a", 18, "x", fill, &fill_with, &err);
        faults_disarm(&f);
        assert_int_equal(rc == 0, file != NULL);
        if (stat(PLACE "/objects/sha256-a", &st) == 0)
            assert_int_equal(st.st_size, 18);
        assert_true(count("objects") <= 1);
        ckpt_file_close(file);
    }
}
