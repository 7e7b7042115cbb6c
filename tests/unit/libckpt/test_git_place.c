/* git/place, git/lfs_place: addresses of repositories on other hosts, and of their LFS servers. */
#include "tests/unit/unit.h"

#include "libckpt/remote/git/lfs_place.h"
#include "libckpt/remote/git/place.h"

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
