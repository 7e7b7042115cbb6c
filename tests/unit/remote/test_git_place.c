/* git/place, git/lfs_place: addresses of repositories on other hosts, and of their LFS servers. */
#include "tests/unit/unit.h"

#include "libckpt/remote/git/lfs_place.h"
#include "libckpt/remote/git/place.h"
#include "libckpt/remote/git/source.h"

static void check(const char *address, const char *url, const char *host, const char *user,
                  const char *path)
{
    struct ckpt_err err = {0};
    struct git_place p;

    assert_true(git_place_is(address));
    assert_int_equal(git_place_parse(&p, address, &err), 0);
    assert_string_equal(p.url, url);
    assert_string_equal(p.host, host);
    assert_string_equal(p.user, user);
    assert_string_equal(p.path, path);
    assert_int_equal(p.ssh, strncmp(url, "http", 4) != 0);
}

TEST(addresses_of_other_hosts)
{
    check("git+https://h/a/b", "https://h/a/b", "h", "", "a/b");
    check("https://u@h:8443/a/b.git", "https://u@h:8443/a/b.git", "h:8443", "u", "a/b.git");
    check("https://h/a/b.git/", "https://h/a/b.git/", "h", "", "a/b.git/");
    check("ssh://git@h:22/a/b.git", "ssh://git@h:22/a/b.git", "h:22", "git", "a/b.git");
    check("git+ssh://h/a", "ssh://h/a", "h", "", "a");
    check("git@h:a/b.git", "git@h:a/b.git", "h", "git", "a/b.git");
    check("h:/srv/a.git", "h:/srv/a.git", "h", "", "/srv/a.git");
}

TEST_ERR(what_is_none)
{
    static const char *const not_git[] = {"https://h/a/b", "/srv/a.git", "a/b:c", "folder", "",
                                          "hf://a/b", "s3://a/b.git", "git+file:///a"};
    static const char *const bad[] = {"git+https://h", "git+https://h/", "git+https:///a", "ssh://-oX/a",
                                      "https://u:secret@h/a.git", "-h:a.git", "git@:a.git", "git@h:",
                                      "ssh://h/a b", "ssh://h/a\nb"};
    struct git_place p;

    for (size_t i = 0; i < sizeof not_git / sizeof not_git[0]; i++)
        if (git_place_is(not_git[i]))
            fail_msg("taken for another host's: %s", not_git[i]);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (git_place_parse(&p, bad[i], err) != CKPT_EUSAGE)
            fail_msg("taken: %s", bad[i]);
}

static void check_source(const char *address, const char *url, const char *revision,
                         const char *path)
{
    static struct git_source_place p;
    struct ckpt_err err = {0};

    assert_true(git_source_is(address));
    assert_int_equal(git_source_parse(&p, address, &err), 0);
    assert_string_equal(p.url, url);
    assert_string_equal(p.revision, revision);
    assert_string_equal(p.path, path);
    assert_int_equal(p.local, *url == '/');
}

TEST(addresses_of_sources)
{
    check_source("git+https://h/a/b.git", "git+https://h/a/b.git", "", "");
    check_source("git+https://h/a/b.git/c/d.json", "git+https://h/a/b.git", "", "c/d.json");
    check_source("git+https://h/a/b@v1/c/", "git+https://h/a/b", "v1", "c");
    check_source("git+https://h/a/b.git@x%2Fy", "git+https://h/a/b.git", "x/y", "");
    check_source("git+https://h/@a/b.git@v/c@d", "git+https://h/@a/b.git", "v", "c@d");
    check_source("git+https://h/a/b", "git+https://h/a/b", "", "");
    check_source("git+ssh://git@h:22/a/b.git/c", "git+ssh://git@h:22/a/b.git", "", "c");
    check_source("git+file:///srv/a%20b.git@v1//c", "/srv/a b.git", "v1", "c");
    check_source("git+file:///nothing/there/", "/nothing/there/", "", "");
}

TEST_ERR(sources_that_are_none)
{
    static const char *const bad[] = {
        "git+https://h", "git+https://h/", "git+file://a/b.git", "git+https://h/a@", "git+https://h/a@/x",
        "git+https://h/a@-x", "git+https://h/a@a..b", "git+https://h/a@a%0ab", "git+https://h/a@%zz",
        "git+https://h/a@a:b", "git+file:///a%zz.git",
    };
    static struct git_source_place p;
    char address[300];

    assert_false(git_source_is("https://h/a/b.git"));
    assert_false(git_source_is("git@h:a/b.git"));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (git_source_parse(&p, bad[i], err) != CKPT_EUSAGE)
            fail_msg("taken: %s", bad[i]);
    assert_false(git_source_of_path(address, sizeof address, "nothing/there.git"));
    assert_false(git_source_of_path(address, sizeof address, "tests/golden"));
    assert_false(git_source_of_path(address, sizeof address, ""));
}

TEST(lfs_servers_of_trees)
{
    char url[HTTP_URL];

    assert_true(lfs_place_config(url, "[core]\n\turl = https://no/\n[lfs]\n\turl = \"https://h/lfs\"\r\n"));
    assert_string_equal(url, "https://h/lfs");
    assert_true(lfs_place_config(url, "[LFS]\nurl=http://h/x"));
    assert_string_equal(url, "http://h/x");
    assert_false(lfs_place_config(url, "[lfs]\nurl = file:///etc\n"));
    assert_false(lfs_place_config(url, "[lfs \"x\"]\nurl = https://h\n"));
    assert_false(lfs_place_config(url, "[lfs]\nurls = https://h\nurl\n"));
    assert_false(lfs_place_config(url, ""));
}
