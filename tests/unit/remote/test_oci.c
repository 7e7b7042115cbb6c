/* oci, oci_auth: addresses, manifests, challenges. */
#include "tests/unit/unit.h"

#include "libckpt/remote/oci/oci.h"

TEST_ERR(addresses_of_registries)
{
    struct oci_place p;

    assert_int_equal(oci_parse(&p, "oci://localhost:5000/a/b:v1/x/y", err), 0);
    assert_string_equal(p.origin, "http://localhost:5000");
    assert_string_equal(p.name, "a/b");
    assert_string_equal(p.reference, "v1");
    assert_string_equal(p.path, "x/y");
    assert_string_equal(p.root, "oci://localhost:5000/a/b:v1");
    assert_int_equal(oci_parse(&p, "oci://docker.io/b", err), 0);
    assert_string_equal(p.origin, "https://registry-1.docker.io");
    assert_string_equal(p.name, "library/b");
    assert_string_equal(p.reference, "latest");
    assert_int_equal(oci_parse(&p, "oci://127.evil.org/b", err), 0);
    assert_string_equal(p.origin, "https://127.evil.org");
    assert_int_equal(oci_parse(&p, "oci://h/a@sha256:12", err), CKPT_EUSAGE);
    assert_int_equal(oci_parse(&p, "oci://user@h/a", err), CKPT_EUSAGE);
    assert_int_equal(oci_parse(&p, "oci://h/a..b", err), CKPT_EUSAGE);
}

TEST(challenges_of_registries)
{
    struct oci_challenge c;

    assert_true(oci_challenge_read(&c, "Bearer service=\"a,b\", realm=\"https://t/k\",scope=\"x\""));
    assert_true(c.bearer);
    assert_string_equal(c.realm, "https://t/k");
    assert_string_equal(c.service, "a,b");
    assert_true(oci_challenge_read(&c, "Basic realm=\"r\""));
    assert_false(c.bearer);
    assert_false(oci_challenge_read(&c, "Bearer service=\"a\""));
    assert_false(oci_challenge_read(&c, "Bearer realm=\"a"));
    assert_false(oci_challenge_read(&c, "Negotiate"));
}
