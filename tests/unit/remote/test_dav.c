/* dav: addresses, lists of folders, logins of a netrc file. */
#include "tests/unit/unit.h"

#include "libckpt/remote/dav/dav.h"
#include "libckpt/remote/dav/dav_login.h"
#include "libckpt/remote/dav/dav_write.h"

struct seen {
    char text[2000];
};

static int see(void *ctx, const struct dav_entry *e, struct ckpt_err *err)
{
    struct seen *s = ctx;
    size_t n = strlen(s->text);

    (void)err;
    snprintf(s->text + n, sizeof s->text - n, "%s%s:%lld:%s;", e->path, e->is_folder ? "/" : "",
             e->size == FIELD_NONE ? -1 : (long long)e->size, e->tag);
    return 0;
}

#define RESPONSE(href, prop) "<D:response><D:href>" href "</D:href><D:propstat><D:prop>" prop \
                             "</D:prop></D:propstat></D:response>"
#define FOLDER "<D:resourcetype><D:collection xmlns:D=\"DAV:\"/></D:resourcetype>"
#define LIST(x) "<?xml version=\"1.0\"?><D:multistatus xmlns:D=\"DAV:\">" x "</D:multistatus>"

TEST_ERR(lists_of_folders_are_read)
{
    struct seen s = {""};

    assert_int_equal(dav_read_page(
        LIST(RESPONSE("/m%20x/", FOLDER)
             RESPONSE("/m%20x/a%25b", "<D:getcontentlength>7</D:getcontentlength><D:getetag>&quot;t&quot;</D:getetag>")
             RESPONSE("http://h:1/m%20x/sub/", FOLDER) RESPONSE("/other/c", "") RESPONSE("/m%20xy/c", "")
             RESPONSE("/m%20x/sub/deep", "") RESPONSE("/m%20x/sub%2Fdeep", "") RESPONSE("/m%20x/%zz", "")),
        "https://h:1/m%20x/", "n", see, &s, err), 0);
    assert_string_equal(s.text, "/:-1:;a%b:7:\"t\";sub/:-1:;");
}

/* Another prefix, or none. */
TEST_ERR(prefixes_do_not_matter)
{
    struct seen s = {""};

    assert_int_equal(dav_read_page("<multistatus xmlns=\"DAV:\"><response><href>/a</href><x:propstat><p:prop>"
                                   "<lp1:getcontentlength>3</lp1:getcontentlength></p:prop></x:propstat></response>"
                                   "</multistatus>", "http://h/", "n", see, &s, err), 0);
    assert_string_equal(s.text, "a:3:;");
}

TEST_ERR(lists_that_are_none_are_refused)
{
    static const char *const bad[] = {"", "<html></html>", "<D:multistatus>", LIST("<D:response><D:href>/a</D:href>")};

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct seen s = {""};

        assert_int_equal(dav_read_page(bad[i], "http://h/", "n", see, &s, err), CKPT_EPROTOCOL);
        ckpt_err_clear(err);
    }
}

TEST(logins_are_found)
{
    static const struct { const char *text, *host, *user, *password; } rows[] = {
        {"machine h login u password p", "h", "u", "p"},
        {"machine a login x password y\nmachine h\n\tpassword \"p q\"\n\tlogin u\n", "H", "u", "p q"},
        {"machine a login x password y default login u password p", "h", "u", "p"},
        {"macdef m\nmachine h login no password no\n\nmachine h account c login u password p", "h", "u", "p"},
        {"machine h login u machine a password p", "h", "u", ""},
        {"machine a login x password y", "h", NULL, NULL},
        {"machine h password p", "h", NULL, NULL},
        {"machine h login", "h", NULL, NULL},
        {"", "h", NULL, NULL},
        {"machine", "h", NULL, NULL},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char user[DAV_USER], password[DAV_PASSWORD], text[300];

        snprintf(text, sizeof text, "%s", rows[i].text);
        assert_int_equal(dav_login_netrc(user, password, text, rows[i].host), rows[i].user != NULL);
        if (rows[i].user) {
            assert_string_equal(user, rows[i].user);
            assert_string_equal(password, rows[i].password);
        }
    }
}

TEST_ERR(addresses_are_told_apart)
{
    static const char *const bad[] = {"dav://", "davs:///x", "davs://h/a//b", "davs://h/a/../b", "davs://h/x?y",
                                      "davs://u:p@h/x", "davs://h/x#y"};
    struct dav *d = calloc(1, sizeof *d);

    assert_true(dav_is_address("dav://h") && dav_is_address("webdav+https://h/x"));
    assert_false(dav_is_address("https://h/x") || dav_is_address("webdav://h"));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(dav_open_place(d, bad[i], err), CKPT_EUSAGE);
        ckpt_err_clear(err);
    }
    assert_int_equal(dav_open_place(d, "dav://example.org/x", err), CKPT_EREFUSED);
    ckpt_err_clear(err);
    assert_int_equal(dav_open_place(d, "davs://Host:81/a/", err), 0);
    assert_string_equal(d->base, "https://Host:81/a/");
    assert_string_equal(d->name, "davs://Host:81/a");
    free(d);
}

TEST_ERR(a_file_is_sent_beside_its_place)
{
    char a[DAV_PATH], b[DAV_PATH];

    assert_int_equal(dav_aside(a, "x/m.bin", "00112233445566778899", err), 0);
    assert_int_equal(strncmp(a, "x/.ckpt-push-0011223344556677", 29), 0);
    assert_int_equal(dav_aside(b, "x/n.bin", "00112233445566778899", err), 0);
    assert_string_not_equal(a, b);
}
