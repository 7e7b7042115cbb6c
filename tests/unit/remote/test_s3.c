/* s3, sigv4: the published signatures; lists of buckets. */
#include "tests/unit/unit.h"

#include "libckpt/remote/s3/s3.h"
#include "libckpt/remote/s3/s3_write.h"
#include "libckpt/remote/s3/sigv4.h"

/* "Signature Calculations: Examples", Amazon S3 API Reference. */
static void check(const char *url, const char *range, const char *names, const char *signature)
{
    struct sigv4_key key = {.id = "AKIAIOSFODNN7EXAMPLE", .region = "us-east-1",
                            .secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"};
    struct http_signed what = {.method = "GET", .url = url, .range = range};
    struct ckpt_err err = {0};
    char lines[4096], want[512];

    assert_int_equal(sigv4_sign(lines, sizeof lines, &key, &what, 1369353600, &err), 0);
    snprintf(want, sizeof want, "Authorization: AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/"
             "20130524/us-east-1/s3/aws4_request, SignedHeaders=%s, Signature=%s\n", names,
             signature);
    assert_non_null(strstr(lines, "x-amz-date: 20130524T000000Z\n"));
    assert_string_equal(strstr(lines, "Authorization"), want);
}

TEST(published_signatures)
{
    check("https://examplebucket.s3.amazonaws.com/test.txt", "bytes=0-9",
          "host;range;x-amz-content-sha256;x-amz-date",
          "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
    check("https://examplebucket.s3.amazonaws.com/?lifecycle", NULL,
          "host;x-amz-content-sha256;x-amz-date",
          "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
    check("https://examplebucket.s3.amazonaws.com:443/?prefix=J&max-keys=2", NULL,
          "host;x-amz-content-sha256;x-amz-date",
          "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
}

/* "PUT Object" of the published examples: lines that the request adds are signed too. */
TEST_ERR(added_lines_are_signed)
{
    struct sigv4_key key = {.id = "AKIAIOSFODNN7EXAMPLE", .region = "us-east-1",
                            .secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"};
    struct http_signed what = {
        .method = "PUT", .url = "https://examplebucket.s3.amazonaws.com/test%24file.text",
        .headers = "X-Amz-Storage-Class:  REDUCED_REDUNDANCY \nDate: Fri, 24 May 2013 00:00:00 GMT\n",
        .sha256 = "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072",
        .has_body = true};
    char lines[4096];

    assert_int_equal(sigv4_sign(lines, sizeof lines, &key, &what, 1369353600, err), 0);
    assert_non_null(strstr(lines, "SignedHeaders=date;host;x-amz-content-sha256;x-amz-date;"
                           "x-amz-storage-class, Signature=98ad721746da40c64f1a55b78f14c238d841ea"
                           "1380cd77a1b5971af0ece108bd\n"));
    what.headers = "no colon\n";
    assert_int_equal(sigv4_sign(lines, sizeof lines, &key, &what, 0, err), CKPT_ELIMIT);
}

TEST_ERR(what_is_too_long_is_not_signed)
{
    struct sigv4_key key = {.id = "a", .secret = "b", .region = "c"};
    struct http_signed what = {.method = "GET", .url = "https://h/k"};
    char lines[64];

    assert_int_equal(sigv4_sign(lines, sizeof lines, &key, &what, 0, err), CKPT_ELIMIT);
}

static int page(struct tree **t, char next[1100], const char *text)
{
    struct ckpt_err err = {0};
    int rc;

    assert_int_equal(tree_new(t, "s3://b/m", &err), 0);
    rc = s3_read_page(*t, text, "m/", next, &err);
    return rc ? rc : tree_ready(*t, &err);
}

TEST(parts_are_at_most_ten_thousand)
{
    assert_int_equal(s3_part_bytes(S3_WHOLE_BYTES + 1), 8 << 20);
    assert_int_equal(s3_part_bytes((uint64_t)10000 * (8 << 20)), 8 << 20);
    assert_int_equal(s3_part_bytes((uint64_t)10000 * (8 << 20) + 1), 9 << 20);
    assert_true(s3_part_bytes((uint64_t)1 << 42) * 10000 >= (uint64_t)1 << 42);
}

#define PARTS(x) "<?xml version=\"1.0\"?><ListPartsResult><Bucket>b</Bucket>" x "</ListPartsResult>"
#define PART(n, tag, size) "<Part><PartNumber>" n "</PartNumber><ETag>" tag "</ETag><Size>" size "</Size></Part>"

TEST_ERR(lists_of_parts_are_read)
{
    static struct s3_part part[3];
    unsigned long long next = 0;

    assert_int_equal(s3_read_parts(part, 3, PARTS(PART("1", "&quot;a&quot;", "10") PART("3", "\"c\"", "4")
                     "<IsTruncated>true</IsTruncated><NextPartNumberMarker>3</NextPartNumberMarker>"), "b",
                     &next, err), 0);
    assert_int_equal(next, 3);
    assert_string_equal(part[0].tag, "\"a\"");
    assert_int_equal(part[0].size, 10);
    assert_int_equal(part[1].size, 0);
    assert_string_equal(part[2].tag, "\"c\"");
    assert_int_equal(s3_read_parts(part, 3, PARTS(""), "b", &next, err), 0);
    assert_int_equal(next, 0);
}

TEST_ERR(lists_of_parts_that_were_not_sent_are_refused)
{
    static const char *const bad[] = {
        "", "<html></html>", PARTS(PART("0", "a", "1")), PARTS(PART("4", "a", "1")), PARTS(PART("x", "a", "1")),
        PARTS("<Part><PartNumber>1</PartNumber></Part>"), PARTS("<IsTruncated>true</IsTruncated>"),
        PARTS("<IsTruncated>true</IsTruncated><NextPartNumberMarker>2</NextPartNumberMarker>"),
    };
    static struct s3_part part[3];

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        unsigned long long next = 2;

        assert_int_equal(s3_read_parts(part, 3, bad[i], "b", &next, err), CKPT_EPROTOCOL);
        ckpt_err_clear(err);
    }
}

#define LIST(x) "<?xml version=\"1.0\"?><ListBucketResult><Name>b</Name>" x "</ListBucketResult>"
#define OBJECT(key, size) "<Contents><Key>" key "</Key><Size>" size "</Size></Contents>"

TEST(lists_are_read)
{
    char next[1100];
    struct tree *t;

    assert_int_equal(page(&t, next, LIST("<IsTruncated>true</IsTruncated>" OBJECT("m/", "0")
                                         OBJECT("m/b&amp;c", "7") "<NextContinuationToken>x&amp;y="
                                         "</NextContinuationToken>" OBJECT("m/sub/a", "3")
                                         OBJECT("m/../out", "1") OBJECT("other", "1"))), 0);
    assert_string_equal(next, "x&y=");
    assert_int_equal(t->n, 2);
    assert_string_equal(t->file[0].path, "b&c");
    assert_int_equal(t->file[0].size, 7);
    assert_string_equal(t->file[1].path, "sub/a");
    tree_free(t);
    assert_int_equal(page(&t, next, LIST("<EncodingType>url</EncodingType>"
                                         OBJECT("m/a+b%2Bc", "1"))), 0);
    assert_string_equal(t->file[0].path, "a b+c");
    assert_string_equal(next, "");
    tree_free(t);
    assert_int_equal(page(&t, next, LIST("")), 0);
    assert_int_equal(t->n, 0);
    tree_free(t);
}

TEST(lists_that_are_none)
{
    static const char *const bad[] = {
        "", "<Error><Code>x</Code></Error>", "<ListBucketResult>", LIST(OBJECT("m/a", "")),
        LIST(OBJECT("m/a", "1x")), LIST(OBJECT("m/a&x;", "1")), LIST("<Contents><Key>a</Key>"),
        LIST("<IsTruncated>true</IsTruncated>"), LIST(OBJECT("m/a", "9999999999999999999")),
        LIST("<Contents><Size>1</Size></Contents>"),
    };
    char next[1100];
    struct tree *t;

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(page(&t, next, bad[i]), CKPT_EPROTOCOL);
        tree_free(t);
    }
}
