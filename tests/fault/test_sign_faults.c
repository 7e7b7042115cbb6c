/*
 * Signing what is published under failure: opening the key, digesting the files, writing the
 * signature.  Each failure is told, or costs nothing but what the cache would have remembered; a
 * plan that is signed has a signature that holds.
 */
#include "tests/unit/faults.h"
#include "tests/unit/files.h"

#include "libckpt/sign/key.h"
#include "tools/push/sign.h"

SCRATCH_EACH("sign-faults")

static const char *in(const char *name) { return text_of("%s/%s", dir, name); }

static void make_model(void)
{
    assert_int_equal(mkdir(in("m"), 0777), 0);
    put_text(in("m/config.json"), "{}");
    put_text(in("m/notes.txt"), "of a model");
    put_text(in("m/model.sig"), "an older one");
    put_text(in("phrase"), "open-sesame-9\n");
    shell(text_of("openssl ecparam -name prime256v1 -genkey -noout | openssl pkey -aes256 "
                  "-passout pass:open-sesame-9 -out %s && chmod 600 %s", in("key"), in("key")));
    setenv("CKPT_CACHE", in("cache"), 1);
}

/* The plan's own file of that name. */
static const struct push_file *signature_of(const struct push_plan *p)
{
    for (size_t i = 0; i < p->n; i++)
        if (strcmp(p->file[i].to, "model.sig") == 0)
            return &p->file[i];
    return NULL;
}

static void assert_holds(const struct push_plan *p, const struct sign_key *k)
{
    const struct push_file *f = signature_of(p);
    struct sign_bundle b = {0};
    struct ckpt_err err = {0};

    assert_non_null(f);
    assert_non_null(f->made);
    if (sign_bundle_parse(&b, f->made, (size_t)f->size, &err) || sign_key_check(&b, k->key, &err))
        fail_msg("%s", err.text);
    assert_non_null(memmem(b.payload.data, b.payload.n, "notes.txt", 9));
    sign_bundle_release(&b);
}

static int sign(const struct faults *f, struct ckpt_err *err)
{
    const struct sign_want want = {.key = in("key"), .passphrase = in("phrase")};
    const struct push_filter all = {0};
    struct sign_key k = {0};
    struct push_plan p;
    struct ckpt_err ignored = {0};
    int rc;

    assert_int_equal(push_plan_make(&p, in("m"), &all, &ignored), 0);
    if (f)
        faults_arm(f);
    rc = push_sign_open(&k, &want, err);
    if (rc == 0)
        rc = push_sign(&p, &k, false, err);
    if (f)
        faults_disarm((struct faults *)(uintptr_t)f);
    if (rc == 0)
        assert_holds(&p, &k);
    sign_key_release(&k);
    push_plan_release(&p);
    return rc;
}

TEST_ERR(undisturbed)
{
    make_model();
    assert_int_equal(sign(NULL, err), 0);
}

/* Each time from an empty cache, and once with all remembered. */
static void fail_each(bool remembered)
{
    for (struct faults f = {.later = true, .sparse = 20}; faults_next(&f);) {
        struct ckpt_err err = {0};
        int rc;

        if (!remembered)
            shell(text_of("rm -rf %s", in("cache")));
        rc = sign(&f, &err);
        faults_told(&f, rc, &err, "signing");
    }
    assert_int_equal(sign(NULL, &(struct ckpt_err){0}), 0);
}

TEST(each_failure_is_told)
{
    make_model();
    fail_each(false);
}

TEST(with_what_is_remembered_too)
{
    make_model();
    assert_int_equal(sign(NULL, &(struct ckpt_err){0}), 0);
    fail_each(true);
}
