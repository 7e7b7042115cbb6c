/* lfs: pointers to the letter of the specification, and a store named by content. */
#include "tests/unit/unit.h"

#include "libckpt/base/fault.h"
#include "libckpt/remote/git/lfs.h"

#define OID "98ea6e4f216f2fb4b69fff9b3a44842c38686ca685f3f55dc48c5d3fb1107be4"

/* The pointer of git-lfs docs/spec.md's own example of the format. */
static const char pointer[] = "version https://git-lfs.github.com/spec/v1\n"
                              "oid sha256:" OID "\n"
                              "size 12345\n";

TEST(written)
{
    struct ckpt_buf b;

    ckpt_buf_init(&b, 4096);
    ckpt_lfs_pointer(&b, OID, 12345);
    assert_string_equal(ckpt_buf_str(&b), pointer);
    ckpt_buf_release(&b);
}

TEST(read)
{
    char oid[CKPT_SHA256_HEX], big[200];
    uint64_t size = 0;
    int n;

    assert_true(ckpt_lfs_parse(pointer, strlen(pointer), oid, &size));
    assert_string_equal(oid, OID);
    assert_int_equal(size, 12345);
    n = snprintf(big, sizeof big, "%.*ssize 9999999999999999999\n",
                 (int)(strstr(pointer, "size") - pointer), pointer);
    assert_true(ckpt_lfs_parse(big, (size_t)n, oid, &size));
    assert_true(size == 9999999999999999999ull);
    n = snprintf(big, sizeof big, "%.*ssize 0\n", (int)(strstr(pointer, "size") - pointer),
                 pointer);
    assert_true(ckpt_lfs_parse(big, (size_t)n, oid, &size));
    assert_int_equal(size, 0);
}

/* Each byte of a pointer counts: what is nearly one is a file like any other. */
TEST(nearly_pointers)
{
    static const char *const tails[] = {"size 12345", "size \n", "size 1 \n", "size -1\n",
                                        "size 0x10\n", "size 1\nmore\n", "Size 1\n", "\n",
                                        "size 99999999999999999999\n",
                                        "size 1111111111111111111111111111111\n"};
    size_t n = strlen(pointer), head = (size_t)(strstr(pointer, "size") - pointer);
    char oid[CKPT_SHA256_HEX], text[2000];
    uint64_t size;

    for (size_t i = 0; i < n; i++)
        assert_false(ckpt_lfs_parse(pointer, i, oid, &size));
    for (size_t i = 0; i < head + 5; i++) {
        memcpy(text, pointer, n);
        text[i] = (char)(text[i] ^ 0x80);
        assert_false(ckpt_lfs_parse(text, n, oid, &size));
        text[i] = '\0';
        assert_false(ckpt_lfs_parse(text, n, oid, &size));
    }
    for (size_t i = 0; i < sizeof tails / sizeof tails[0]; i++) {
        int k = snprintf(text, sizeof text, "%.*s%s", (int)head, pointer, tails[i]);

        assert_false(ckpt_lfs_parse(text, (size_t)k, oid, &size));
    }
    memcpy(text, pointer, n);
    text[head - 2] = 'A';                       /* upper case is no digit of an oid */
    assert_false(ckpt_lfs_parse(text, n, oid, &size));
    memset(text, '1', sizeof text);
    memcpy(text, pointer, n - 1);
    text[1999] = '\n';
    assert_false(ckpt_lfs_parse(text, 2000, oid, &size));
}

TEST(names)
{
    static const char *const by_pointer[] = {
        "model.safetensors", "a/b/pytorch_model.bin", "x.pt", "spiece.model", "t.tar.gz",
        "runs/events.out.tfevents.1.2", ".safetensors", "x.lfs.y",
    };
    static const char *const plain[] = {"config.json", "tokenizer.json", "bin", "README.md",
                                        "model.safetensors/config.json", "x.bin.txt", "latest"};
    struct ckpt_buf b;

    ckpt_buf_init(&b, 65536);
    ckpt_lfs_attributes(&b);
    for (size_t i = 0; i < sizeof by_pointer / sizeof by_pointer[0]; i++)
        assert_true(ckpt_lfs_by_name(by_pointer[i]));
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++)
        assert_false(ckpt_lfs_by_name(plain[i]));
    assert_non_null(strstr(ckpt_buf_str(&b),
                           "\n*.safetensors filter=lfs diff=lfs merge=lfs -text\n"));
    ckpt_buf_release(&b);
}

#define BYTES ((size_t)3 << 20 | 77)    /* more than a piece, and no whole number of them */

static char dir[256], path[300];
static unsigned char *bytes;
static char oid[CKPT_SHA256_HEX];

BEFORE_EACH()
{
    struct ckpt_err err = {0};
    struct ckpt_file *f;
    FILE *w;

    snprintf(dir, sizeof dir, "%s", scratch("lfs"));
    snprintf(path, sizeof path, "%s/weights", dir);
    bytes = malloc(BYTES);
    assert_non_null(bytes);
    for (size_t i = 0; i < BYTES; i++)
        bytes[i] = (unsigned char)(i * 31 + i / 251);
    w = fopen(path, "w");
    assert_true(w && fwrite(bytes, 1, BYTES, w) == BYTES && fclose(w) == 0);
    assert_int_equal(ckpt_file_open(&f, path, 0, &err), 0);
    assert_int_equal(ckpt_sha256_file(oid, f, &err), 0);
    ckpt_file_close(f);
}

AFTER_EACH()
{
    free(bytes);
}

static void add(void *ctx, uint64_t n) { *(uint64_t *)ctx += n; }

/* Put the file; *told is what progress heard of. */
static int put(const char *name, bool *had, uint64_t *told, struct ckpt_err *err)
{
    struct ckpt_file *f;
    int rc;

    *told = 0;
    assert_int_equal(ckpt_file_open(&f, path, 0, err), 0);
    rc = ckpt_lfs_put(had, dir, name, f, add, told, err);
    ckpt_file_close(f);
    return rc;
}

TEST_ERR(put)
{
    unsigned char *got = malloc(BYTES + 1);
    char at[400];
    uint64_t told;
    bool had;
    FILE *r;

    assert_int_equal(put(oid, &had, &told, err), 0);
    assert_false(had);
    assert_int_equal(told, BYTES);
    snprintf(at, sizeof at, "%s/lfs/objects/%.2s/%.2s/%s", dir, oid, oid + 2, oid);
    r = fopen(at, "r");
    assert_non_null(r);
    assert_int_equal(fread(got, 1, BYTES + 1, r), BYTES);
    assert_memory_equal(got, bytes, BYTES);
    fclose(r);
    assert_int_equal(put(oid, &had, &told, err), 0);
    assert_true(had);
    assert_int_equal(told, BYTES);
    /* An object of another length is none: an interrupted copy by somebody else. */
    assert_int_equal(truncate(at, 5), 0);
    assert_int_equal(put(oid, &had, &told, err), 0);
    assert_false(had);
    r = fopen(at, "r");
    assert_non_null(r);
    assert_int_equal(fread(got, 1, BYTES + 1, r), BYTES);
    assert_memory_equal(got, bytes, BYTES);
    fclose(r);
    free(got);
}

/* A file that is not what was digested leaves nothing in the store. */
TEST_ERR(changed)
{
    char at[400];
    uint64_t told;
    bool had;

    assert_int_equal(put(OID, &had, &told, err), CKPT_EFORMAT);
    assert_string_equal(err->reason, "changed");
    assert_non_null(strstr(err->text, "weights: changed while it was read"));
    snprintf(at, sizeof at, "%s/lfs/objects/98/ea", dir);
    assert_int_equal(entries(at), 0);
}

TEST_ERR(no_room)
{
    uint64_t told;
    bool had;

    snprintf(dir + strlen(dir), 20, "/weights");        /* a file is no directory */
    assert_int_equal(put(oid, &had, &told, err), CKPT_ECREATE);
    *strrchr(dir, '/') = '\0';
#ifdef CKPT_FAULTS
    char at[400];

    snprintf(at, sizeof at, "%s/lfs/objects/%.2s/%.2s", dir, oid, oid + 2);
    ckpt_err_clear(err);
    ckpt_fault_arm(CKPT_FAULT_WRITE, 2);
    assert_int_equal(put(oid, &had, &told, err), CKPT_EIO);
    assert_true(ckpt_fault_struck());
    ckpt_fault_arm(CKPT_FAULT_SYNC, 1);
    assert_int_equal(put(oid, &had, &told, err), CKPT_EIO);
    assert_true(ckpt_fault_struck());
    ckpt_fault_arm(CKPT_FAULT_SYNC, 0);
    assert_int_equal(entries(at), 0);
#endif
}
