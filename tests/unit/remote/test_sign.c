/* sign: signatures of the reference (tests/golden/sign, make_sign.py) and our own; damage, other keys
 * and other files are told. */
#include "tests/unit/files.h"
#include "tests/unit/faults.h"

#include <openssl/pem.h>

#include "libckpt/digest.h"
#include "libckpt/sign/folder.h"
#include "libckpt/sign/trust.h"

#define GOLDEN "tests/golden/sign/"

SCRATCH_EACH("sign")

struct told {
    char   text[1000];
    size_t n;
};

static void tell(void *ctx, const char *path, enum sign_difference what)
{
    struct told *t = ctx;
    size_t at = strlen(t->text);

    snprintf(t->text + at, sizeof t->text - at, "%s%s:%c", at ? " " : "", path,
             "cmui"[what]);      /* changed, missing, unsigned, irregular */
    t->n++;
}

/* Check a signature, then a folder; the differences in t. */
static int check(struct told *t, struct sign_signer *who, const char *signature, const char *key,
                 const char *roots, const char *folder, struct ckpt_err *err)
{
    struct sign_manifest m = {0};
    struct sign_trust trust;
    struct sign_compare c = {.m = &m, .workers = 2, .differs = tell, .ctx = t};
    size_t len, n = 0;
    char *text = slurp(signature, &len);
    int rc = sign_trust_open(&trust, key, roots, err);

    memset(t, 0, sizeof *t);
    rc = rc ? rc : sign_trust_check(&m, who, &trust, text, len, err);
    if (rc == 0 && folder) {
        rc = ckpt_dir_open(&c.dir, folder, 0, err);
        rc = rc ? rc : sign_folder_compare(&c, &n, err);
        ckpt_dir_close(c.dir);
        assert_true(rc || n == t->n);
    }
    sign_manifest_release(&m);
    sign_trust_release(&trust);
    free(text);
    return rc;
}

/* -- the reference's -------------------------------------------------------------------------- */

TEST_ERR(keys_on_each_curve_and_shards_and_blake2)
{
    static const char *const names[][2] = {
        {"p256", "p256"}, {"p384", "p384"}, {"p521", "p521"}, {"shards", "p256"}, {"blake2", "p256"},
    };
    struct sign_signer who;
    struct told t;

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        assert_int_equal(check(&t, &who, text_of(GOLDEN "%s.sig", names[i][0]),
                               text_of(GOLDEN "%s.pub", names[i][1]), NULL, GOLDEN "model", err), 0);
        assert_string_equal(t.text, "");
        assert_string_equal(who.name, "");
        assert_int_equal(strlen(who.hint), 64);
    }
}

TEST_ERR(another_hash_is_named)
{
    struct sign_signer who;
    struct told t;

    assert_int_equal(check(&t, &who, GOLDEN "blake3.sig", GOLDEN "p256.pub", NULL, NULL, err),
                     CKPT_EUNSUPPORTED);
    assert_non_null(strstr(err->text, "blake3"));
}

TEST_ERR(certificates_below_the_root)
{
    struct sign_signer who;
    struct told t;

    assert_int_equal(check(&t, &who, GOLDEN "certificate.sig", NULL, GOLDEN "root.pem",
                           GOLDEN "model", err), 0);
    assert_string_equal(t.text, "");
    assert_string_equal(who.name, "CN=Signer of certificate");
    assert_string_equal(who.until, "2110-01-01T00:00:00Z");
    assert_false(who.expired);
    assert_int_equal(check(&t, &who, GOLDEN "expired.sig", NULL, GOLDEN "root.pem", GOLDEN "model",
                           err), 0);
    assert_true(who.expired);
    assert_int_equal(check(&t, &who, GOLDEN "no-usage.sig", NULL, GOLDEN "root.pem", NULL, err),
                     CKPT_EREFUSED);
    assert_non_null(strstr(err->text, "not for signatures"));
    assert_int_equal(check(&t, &who, GOLDEN "certificate.sig", NULL, GOLDEN "other-root.pem", NULL,
                           err), CKPT_EREFUSED);
    assert_string_equal(err->reason, "signer");
}

TEST_ERR(another_key_or_kind_is_refused)
{
    struct sign_signer who;
    struct told t;

    assert_int_equal(check(&t, &who, GOLDEN "p256.sig", GOLDEN "p384.pub", NULL, NULL, err),
                     CKPT_EREFUSED);
    assert_string_equal(err->reason, "signer");
    assert_int_equal(check(&t, &who, GOLDEN "p256.sig", NULL, GOLDEN "root.pem", NULL, err),
                     CKPT_EREFUSED);
    assert_int_equal(check(&t, &who, GOLDEN "certificate.sig", GOLDEN "p256.pub", NULL, NULL, err),
                     CKPT_EREFUSED);
    assert_non_null(strstr(err->hint, "--certificate-root"));
    assert_int_equal(check(&t, &who, GOLDEN "p256.sig", GOLDEN "root.pem", NULL, NULL, err),
                     CKPT_EFORMAT);
    assert_int_equal(check(&t, &who, GOLDEN "p256.sig", NULL, GOLDEN "p256.pub", NULL, err),
                     CKPT_EFORMAT);
}

/* What follows changes a copy of the folder. */
static void assert_differs(const char *signature, const char *want)
{
    struct ckpt_err err = {0};
    struct sign_signer who;
    struct told t;

    assert_int_equal(check(&t, &who, text_of(GOLDEN "%s.sig", signature), GOLDEN "p256.pub", NULL,
                           text_of("%s/model", dir), &err), 0);
    assert_string_equal(t.text, want);
}

TEST(files_that_differ_are_told)
{
    static const char *const kinds[] = {"p256", "blake2"};

    shell(text_of("cp -r " GOLDEN "model %s/model", dir));
    assert_differs("p256", "");
    put_text(text_of("%s/model/notes.txt", dir), "ignored, whatever it says\n");
    shell(text_of("mkdir -p %s/model/cache/x %s/model/.git; echo 1 > %s/model/cache/x/y; "
                  "echo 1 > %s/model/.git/z; echo 1 > %s/model/.gitattributes", dir, dir, dir, dir,
                  dir));
    assert_differs("p256", "");
    put_text(text_of("%s/model/a/.git", dir), "only at the top\n");
    assert_differs("p256", "a/.git:u");
    shell(text_of("rm %s/model/a/.git; printf x >> %s/model/weights.bin; rm %s/model/a-b; "
                  "ln -s config.json %s/model/link; rm %s/model/config.json; "
                  "ln -s /etc/passwd %s/model/config.json", dir, dir, dir, dir, dir, dir));
    for (size_t i = 0; i < 2; i++)
        assert_differs(kinds[i], "a-b:m config.json:i weights.bin:c link:i");
}

TEST(shards_cover_their_files)
{
    shell(text_of("cp -r " GOLDEN "model %s/model", dir));
    shell(text_of("echo new > %s/model/empty; : > %s/model/empty2", dir, dir));
    assert_differs("shards", "empty:u");    /* an empty file has no part */
    shell(text_of(": > %s/model/empty; printf y >> %s/model/weights.bin", dir, dir));
    assert_differs("shards", "weights.bin:c");
    shell(text_of("truncate -s 4000 %s/model/weights.bin", dir));
    assert_differs("shards", "weights.bin:c");
}

/* Each byte of a signature counts. */
static struct sign_trust byte_trust;

static int check_bytes(const void *bytes, size_t n, struct ckpt_err *err)
{
    struct sign_manifest m = {0};
    struct sign_signer who;
    int rc = sign_trust_check(&m, &who, &byte_trust, bytes, n, err);

    sign_manifest_release(&m);
    return rc;
}

static void assert_each_byte_counts(const char *path, const char *key, const char *roots,
                                    size_t step)
{
    size_t n;
    unsigned char *b = slurp(path, &n);
    struct ckpt_err err = {0};

    assert_int_equal(sign_trust_open(&byte_trust, key, roots, &err), 0);
    assert_int_equal(check_bytes(b, n, &err), 0);
    for (size_t i = 0; i < n; i += step) {
        unsigned char was = b[i];

        b[i] ^= i / step % 2 ? 0x01 : 0x80;
        if (check_bytes(b, n, &err) == 0)
            fail_msg("byte %zu of %s: 0x%02x for 0x%02x is accepted", i, path, b[i], was);
        assert_true(err.text[0] != '\0');
        b[i] = was;
    }
    for (size_t i = 0; i + 1 < n; i += 37)
        assert_int_not_equal(check_bytes(b, i, &err), 0);
    sign_trust_release(&byte_trust);
    free(b);
}

TEST(no_byte_can_be_changed)
{
    assert_each_byte_counts(GOLDEN "p256.sig", GOLDEN "p256.pub", NULL, 1);
}

TEST(nor_one_of_a_chain)
{
    assert_each_byte_counts(GOLDEN "certificate.sig", NULL, GOLDEN "root.pem", 7);
}

/* -- statements ------------------------------------------------------------------------------- */

#define HEAD "{\"_type\":\"https://in-toto.io/Statement/v1\",\"subject\":[{\"name\":\"m\",\"digest\":" \
             "{\"sha256\":\"%s\"}}],\"predicateType\":\"%s\",\"predicate\":{\"serialization\":{" \
             "\"method\":\"%s\",\"hash_type\":\"sha256\",\"allow_symlinks\":false,\"ignore_paths\":" \
             "[\"..\",\"/etc\",\"a/../b\",\"skip\"]},\"resources\":[%s]}}"
#define V1   "https://model_signing/signature/v1.0"
/* The digest of no bytes, and that of it and of it twice. */
#define D    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define ONE  "5df6e0e2761359d30a8275058e299fcc0381534545f55cf43e41983f5d4c9456"

static int parse(struct sign_manifest *m, const char *root, const char *kind, const char *method,
                 const char *resources, struct ckpt_err *err)
{
    const char *text = text_of(HEAD, root, kind, method, resources);

    return sign_manifest_parse(m, text, strlen(text), err);
}

#define ITEM(name) "{\"name\":\"" name "\",\"algorithm\":\"sha256\",\"digest\":\"" D "\"}"

TEST_ERR(statements_that_contradict_themselves)
{
    static const struct { const char *root, *kind, *method, *resources; int code; } bad[] = {
        {D, V1, "files", ITEM("a"), CKPT_EFORMAT},             /* the root is another */
        {D, V1, "files", "", CKPT_EFORMAT},                    /* no file */
        {ONE, V1, "files", ITEM("../a"), CKPT_EREFUSED},
        {ONE, V1, "files", ITEM("/a"), CKPT_EREFUSED},
        {ONE, V1, "files", ITEM("a/../../b"), CKPT_EREFUSED},
        {ONE, V1, "files", ITEM("a//b"), CKPT_EREFUSED},
        {ONE, V1, "files", ITEM("./a"), CKPT_EREFUSED},
        {ONE, V1, "files", ITEM("a/"), CKPT_EREFUSED},
        {ONE, V1, "files", ITEM(""), CKPT_EREFUSED},
        {ONE, V1, "tensors", ITEM("a"), CKPT_EUNSUPPORTED},
        {ONE, V1, "shards", ITEM("a"), CKPT_EFORMAT},
        {ONE, V1, "shards", ITEM("a:1:2"), CKPT_EFORMAT},      /* does not begin at 0 */
        {ONE, V1, "shards", ITEM("a:0:0"), CKPT_EFORMAT},
        {ONE, V1, "shards", ITEM("a:0:99999999999999999999"), CKPT_EFORMAT},
        {ONE, V1, "shards", ITEM("../a:0:1"), CKPT_EREFUSED},
        {ONE, "https://model_signing/Digests/v0.1", "files", ITEM("a"), CKPT_EUNSUPPORTED},
        {ONE, "https://slsa.dev/provenance/v1", "files", ITEM("a"), CKPT_EUNSUPPORTED},
    };
    struct sign_manifest m;

    assert_int_equal(parse(&m, ONE, V1, "files", ITEM("a"), err), 0);
    assert_int_equal(m.n_ignore, 1);        /* paths that lead out are passed over */
    assert_true(sign_manifest_ignored(&m, "skip/x"));
    assert_false(sign_manifest_ignored(&m, "skipped"));
    assert_true(sign_manifest_ignored(&m, ".git/config"));
    assert_false(sign_manifest_ignored(&m, ".gitmodules"));
    sign_manifest_release(&m);
    assert_int_equal(parse(&m, ONE, V1, "shards", ITEM("a:b:0:7"), err), 0);
    assert_string_equal(m.item[0].name, "a:b");
    sign_manifest_release(&m);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        int rc = parse(&m, bad[i].root, bad[i].kind, bad[i].method, bad[i].resources, err);

        if (rc != bad[i].code)
            fail_msg("%zu: %d %s", i, rc, err->text);
        sign_manifest_release(&m);
    }
}

TEST_ERR(a_file_is_listed_once)
{
    unsigned char both[64], digest[CKPT_SHA256_BYTES];
    struct ckpt_sha256 *s;
    struct sign_manifest m;
    char hex[CKPT_SHA256_HEX];

    assert_int_equal(ckpt_sha256_new(&s, err), 0);
    assert_int_equal(ckpt_sha256_end(s, both, err), 0);
    memcpy(both + 32, both, 32);
    assert_int_equal(ckpt_sha256_add(s, both, 64, err), 0);
    assert_int_equal(ckpt_sha256_end(s, digest, err), 0);
    ckpt_digest_hex(hex, digest, sizeof digest);
    ckpt_sha256_free(s);
    assert_int_equal(parse(&m, hex, V1, "files", ITEM("a") "," ITEM("b"), err), 0);
    sign_manifest_release(&m);
    assert_int_equal(parse(&m, hex, V1, "files", ITEM("a") "," ITEM("a"), err), CKPT_EFORMAT);
    assert_non_null(strstr(err->text, "twice"));
    sign_manifest_release(&m);
    assert_int_equal(parse(&m, hex, V1, "shards", ITEM("a:4:9") "," ITEM("a:0:4"), err), 0);
    sign_manifest_release(&m);
    assert_int_equal(parse(&m, hex, V1, "shards", ITEM("a:5:9") "," ITEM("a:0:4"), err),
                     CKPT_EFORMAT);
    sign_manifest_release(&m);
}

/* The vectors of the specification's steps: two files, and the encoding of an empty object. */
TEST_ERR(written_as_specified)
{
    unsigned char config[32], weights[32], digest[32];
    struct sign_manifest m = {.model = "toy \"1\""};
    unsigned char *block = malloc(1 << 20);
    struct ckpt_sha256 *s;
    struct ckpt_buf b;
    char hex[CKPT_SHA256_HEX];

    assert_int_equal(ckpt_sha256_new(&s, err), 0);
    assert_int_equal(ckpt_sha256_add(s, "{\"model_type\":\"toy\"}\n", 21, err), 0);
    assert_int_equal(ckpt_sha256_end(s, config, err), 0);
    for (size_t i = 0; i < 1 << 20; i++)
        block[i] = (unsigned char)(7 * i + 3);
    for (int k = 0; k < 6; k++)
        assert_int_equal(ckpt_sha256_add(s, block, 1 << 20, err), 0);
    assert_int_equal(ckpt_sha256_end(s, weights, err), 0);
    assert_int_equal(sign_manifest_add(&m, "config.json", config, err), 0);
    assert_int_equal(sign_manifest_add(&m, "weights.bin", weights, err), 0);
    ckpt_buf_init(&b, 1 << 20);
    assert_int_equal(sign_manifest_write(&b, &m, err), 0);
    assert_non_null(strstr(ckpt_buf_str(&b), "{\"name\":\"toy \\\"1\\\"\",\"digest\":{\"sha256\":\""
                           "98b05bb89ff54db0e4764813fd4694300780129ac67ebb597f412f5480064f7c\"}}"));
    sign_manifest_release(&m);
    assert_int_equal(sign_manifest_parse(&m, ckpt_buf_str(&b), b.len, err), 0);
    assert_int_equal(m.n, 2);
    assert_memory_equal(sign_manifest_find(&m, "weights.bin")->digest, weights, 32);
    assert_null(sign_manifest_find(&m, "weights"));
    assert_true(sign_manifest_ignored(&m, "model.sig") && sign_manifest_ignored(&m, ".cache/a"));
    ckpt_buf_release(&b);
    ckpt_buf_init(&b, 1000);
    sign_bundle_pae(&b, "{}", 2);
    assert_int_equal(ckpt_sha256_add(s, b.data, b.len, err), 0);
    assert_int_equal(ckpt_sha256_end(s, digest, err), 0);
    ckpt_digest_hex(hex, digest, 32);
    assert_string_equal(hex, "4842cb1ba6fed6e460d8a0d56f6b64ccf1f1e11f7714a7f282080d5780251b63");
    assert_int_equal(sign_manifest_add(&m, "../up", config, err), CKPT_EREFUSED);
    ckpt_buf_release(&b);
    ckpt_sha256_free(s);
    sign_manifest_release(&m);
    free(block);
}

/* -- our own ---------------------------------------------------------------------------------- */

/* A key of that curve as NAME.pem and NAME.pub. */
static void make_key(const char *name, const char *curve, const char *phrase)
{
    EVP_PKEY *key = strcmp(curve, "ed25519") == 0 ? EVP_PKEY_Q_keygen(NULL, NULL, "ED25519")
                                                  : EVP_EC_gen(curve);
    FILE *f = fopen(text_of("%s/%s.pem", dir, name), "w"), *g = fopen(text_of("%s/%s.pub", dir, name),
                                                                      "w");

    assert_true(key && f && g);
    assert_int_equal(PEM_write_PKCS8PrivateKey(f, key, phrase ? EVP_aes_256_cbc() : NULL, phrase,
                                               phrase ? (int)strlen(phrase) : 0, NULL, NULL), 1);
    assert_int_equal(PEM_write_PUBKEY(g, key), 1);
    fclose(f);
    fclose(g);
    EVP_PKEY_free(key);
}

TEST_ERR(signed_here_is_verified_here)
{
    static const char *const curves[] = {"P-256", "P-384", "P-521"};

    for (size_t i = 0; i < 3; i++) {
        const char *pem = text_of("%s/k%zu.pem", dir, i), *sig = text_of("%s/%zu.sig", dir, i);
        struct sign_bundle b = {.payload = {(unsigned char *)"x", 1}};
        struct sign_signer who;
        struct sign_key k;
        struct told t;
        json_t *json;

        make_key(text_of("k%zu", i), curves[i], NULL);
        assert_int_equal(sign_key_open(&k, pem, NULL, NULL, err), 0);
        assert_int_equal(sign_key_sign(&b, &k, err), 0);
        assert_int_equal(sign_key_check(&b, k.key, err), 0);
        json = sign_bundle_json(&b);
        assert_non_null(json);
        assert_int_equal(json_dump_file(json, sig, JSON_COMPACT), 0);
        assert_int_equal(check(&t, &who, sig, text_of("%s/k%zu.pub", dir, i), NULL, NULL, err),
                         CKPT_EFORMAT);     /* signed, but "x" is no statement */
        b.payload.data = (unsigned char *)"y";
        assert_int_equal(sign_key_check(&b, k.key, err), CKPT_EREFUSED);
        assert_string_equal(err->reason, "signature");
        json_decref(json);
        sign_bundle_release(&b);
        sign_key_release(&k);
    }
}

TEST_ERR(keys_that_cannot_be_used)
{
    struct sign_key k;

    make_key("ed", "ed25519", NULL);
    make_key("koblitz", "secp256k1", NULL);
    make_key("phrase", "P-256", "open sesame");
    make_key("other", "P-256", NULL);
    assert_int_equal(sign_key_open(&k, text_of("%s/ed.pem", dir), NULL, NULL, err),
                     CKPT_EUNSUPPORTED);
    sign_key_release(&k);
    assert_int_equal(sign_key_open(&k, text_of("%s/koblitz.pem", dir), NULL, NULL, err),
                     CKPT_EUNSUPPORTED);
    sign_key_release(&k);
    assert_int_equal(sign_key_open(&k, text_of("%s/phrase.pem", dir), NULL, NULL, err),
                     CKPT_EREFUSED);
    assert_string_equal(err->reason, "passphrase");
    sign_key_release(&k);
    assert_int_equal(sign_key_open(&k, text_of("%s/phrase.pem", dir), NULL, "sesame", err),
                     CKPT_EREFUSED);
    sign_key_release(&k);
    assert_int_equal(sign_key_open(&k, text_of("%s/phrase.pem", dir), NULL, "open sesame", err), 0);
    sign_key_release(&k);
    assert_int_equal(sign_key_open(&k, text_of("%s/other.pem", dir), GOLDEN "root.pem", NULL, err),
                     CKPT_EMISMATCH);
    sign_key_release(&k);
    assert_int_equal(sign_key_open(&k, text_of("%s/other.pub", dir), NULL, NULL, err), CKPT_EFORMAT);
    sign_key_release(&k);
    assert_int_equal(sign_key_open(&k, text_of("%s/none.pem", dir), NULL, NULL, err),
                     CKPT_ENOTFOUND);
    sign_key_release(&k);
}

/* -- failures --------------------------------------------------------------------------------- */

/* Whatever fails, nobody is told that a changed folder is as it was signed. */
TEST(failures_are_told)
{
    size_t len;
    char *text = slurp(GOLDEN "p256.sig", &len);

    shell(text_of("cp -r " GOLDEN "model %s/model; echo >> %s/model/a-b", dir, dir));
    for (struct faults f = {.kinds = FAULT(ALLOC) | FAULT(READ) | FAULT(OPEN)}; faults_next(&f);) {
        struct told t = {.n = 0};
        struct sign_manifest m = {0};
        struct sign_trust trust;
        struct sign_signer who;
        struct sign_compare c = {.m = &m, .workers = 1, .differs = tell, .ctx = &t};
        struct ckpt_err err = {0};
        size_t n = 0;
        int rc = sign_trust_open(&trust, GOLDEN "p256.pub", NULL, &err);

        rc = rc ? rc : sign_trust_check(&m, &who, &trust, text, len, &err);
        rc = rc ? rc : ckpt_dir_open(&c.dir, text_of("%s/model", dir), 0, &err);
        rc = rc ? rc : sign_folder_compare(&c, &n, &err);
        faults_disarm(&f);
        faults_told(&f, rc, &err, "checking");
        assert_true(rc || n > 0);
        ckpt_dir_close(c.dir);
        sign_manifest_release(&m);
        sign_trust_release(&trust);
    }
    free(text);
}

TEST(signing_fails_whole)
{
    const char *pem;

    make_key("k", "P-256", NULL);
    pem = text_of("%s/k.pem", dir);
    for (struct faults f = {.kinds = FAULT(ALLOC) | FAULT(READ) | FAULT(OPEN)}; faults_next(&f);) {
        struct sign_manifest m = {.model = "m"};
        struct sign_bundle b = {0};
        struct ckpt_err err = {0};
        struct ckpt_buf statement;
        struct sign_key k;
        int rc = sign_key_open(&k, pem, NULL, NULL, &err);

        ckpt_buf_init(&statement, 10000);
        rc = rc ? rc : sign_manifest_add(&m, "a", (const unsigned char *)D, &err);
        rc = rc ? rc : sign_manifest_write(&statement, &m, &err);
        b.payload = (struct sign_bytes){statement.data, statement.len};
        rc = rc ? rc : sign_key_sign(&b, &k, &err);
        faults_disarm(&f);
        faults_told(&f, rc, &err, "signing");
        assert_true(rc || sign_key_check(&b, k.key, &err) == 0);
        sign_bundle_release(&b);
        sign_manifest_release(&m);
        ckpt_buf_release(&statement);
        sign_key_release(&k);
    }
}
