/* lfs_action: answers of LFS servers, and their records; journal: what outlives a process. */
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <time.h>

#include "libckpt/base/json.h"
#include "libckpt/remote/lfs_action.h"

#define OID "49a3f2f9537cb294da34870d031ac2963abf8b9efec219089de71dfd76caf0f9"
#define PLACE "build/test-journal"

static const struct lfs_object object = {.oid = OID, .size = 12, .name = "w.bin"};

static int read_text(struct lfs_action *a, struct ckpt_arena *arena, const char *text,
                     struct ckpt_err *err)
{
    json_t *entry = NULL;
    int rc;

    assert_int_equal(ckpt_json_parse(&entry, text, strlen(text), CKPT_JSON_STRICT, err), 0);
    rc = lfs_action_read(a, arena, &object, entry, "server", err);
    json_decref(entry);
    return rc;
}

#define UP(inside) "{\"oid\":\"" OID "\",\"size\":12,\"actions\":{\"upload\":{" inside "}}}"

TEST_ERR(answers_of_servers)
{
    struct ckpt_arena arena = {0};
    struct lfs_action a;

    assert_int_equal(read_text(&a, &arena, "{\"oid\":\"" OID "\",\"size\":12}", err), 0);
    assert_true(a.present);
    assert_int_equal(read_text(&a, &arena, UP("\"href\":\"https://s/x\",\"header\":{\"A\":\"b\"},"
                                              "\"expires_in\":60"), err), 0);
    assert_false(a.present);
    assert_string_equal(a.href, "https://s/x");
    assert_string_equal(a.headers, "A: b\n");
    assert_int_equal(a.n_parts, 0);
    assert_true(a.until > time(NULL));
    /* The size of a part as text or number; another key than parts' is ignored. */
    assert_int_equal(read_text(&a, &arena, UP("\"href\":\"https://s/done\",\"header\":{\"chunk_size\":\"5\","
                                              "\"00002\":\"https://s/2\",\"00001\":\"https://s/1\","
                                              "\"3\":\"https://s/3\",\"upload_id\":\"u\"}"), err), 0);
    assert_int_equal(a.n_parts, 3);
    assert_string_equal(a.part[2], "https://s/3");
    assert_string_equal(a.headers, "");
    ckpt_arena_release(&arena);
}

/* An answer to "download", read. */
static int read_download(struct lfs_action *a, struct ckpt_arena *arena, const char *inside,
                         struct ckpt_err *err)
{
    char text[1000];
    json_t *entry = NULL;
    int rc;

    snprintf(text, sizeof text, "{\"oid\":\"" OID "\",%s}", inside);
    assert_int_equal(ckpt_json_parse(&entry, text, strlen(text), CKPT_JSON_STRICT, err), 0);
    rc = lfs_action_read_download(a, arena, &object, entry, "server", err);
    json_decref(entry);
    return rc;
}

TEST_ERR(answers_about_downloads)
{
    static const char *const bad[] = {
        "\"size\":13", "\"actions\":{\"download\":{}}",
        "\"actions\":{\"download\":{\"href\":\"ftp://s/x\"}}",
    };
    struct ckpt_arena arena = {0};
    struct lfs_action a;

    assert_int_equal(read_download(&a, &arena, "\"size\":12,\"actions\":{\"download\":{\"href\":"
                                   "\"https://s/x\",\"header\":{\"A\":\"b\",\"C\":\"d\\r\\nE: f\"},"
                                   "\"expires_in\":60}}", err), 0);
    assert_string_equal(a.href, "https://s/x");
    assert_string_equal(a.headers, "A: b\n");
    assert_true(a.until > time(NULL));
    assert_int_equal(read_download(&a, &arena, "\"size\":12", err), 0);
    assert_null(a.href);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (read_download(&a, &arena, bad[i], err) == 0)
            fail_msg("taken: %s", bad[i]);
    ckpt_arena_release(&arena);
}

TEST_ERR(answers_that_are_refused)
{
    static const char *const bad[] = {
        UP("\"header\":{}"), UP("\"href\":\"file:///etc\""), UP("\"href\":7"),
        UP("\"href\":\"https://s\",\"header\":{\"chunk_size\":0}"),
        UP("\"href\":\"https://s\",\"header\":{\"chunk_size\":5,\"1\":\"https://s/1\",\"2\":\"https://s/2\"}"),
        UP("\"href\":\"https://s\",\"header\":{\"chunk_size\":12,\"1\":\"https://s/1\",\"2\":\"https://s/2\"}"),
        UP("\"href\":\"https://s\",\"header\":{\"chunk_size\":12,\"1\":\"gopher://s/1\"}"),
        UP("\"href\":\"https://s\",\"header\":{\"chunk_size\":12,\"1\":\"https://s/1\",\"01\":\"https://s/2\"}"),
        "{\"oid\":\"" OID "\",\"size\":13}",
        "{\"oid\":\"" OID "\",\"error\":{\"code\":422,\"message\":\"no\"}}",
    };

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct ckpt_arena arena = {0};
        struct lfs_action a;

        if (read_text(&a, &arena, bad[i], err) == 0)
            fail_msg("taken: %s", bad[i]);
        ckpt_arena_release(&arena);
    }
}

TEST_ERR(lines_of_a_header_end_none_of_ours)
{
    struct ckpt_arena arena = {0};
    struct lfs_action a;

    assert_int_equal(read_text(&a, &arena, UP("\"href\":\"https://s\",\"header\":{\"A\":\"b\\r\\nC: d\","
                                              "\"E f\":\"g\",\"H\":\"i\"}"), err), 0);
    assert_string_equal(a.headers, "H: i\n");
    ckpt_arena_release(&arena);
}

BEFORE_EACH()
{
    setenv("CKPT_CACHE", PLACE, 1);
    scratch_at(PLACE);
}

TEST_ERR(parts_are_taken_up_while_their_addresses_last)
{
    struct lfs_object other = object;
    struct ckpt_arena arena = {0};
    struct lfs_action a, b;
    struct journal *j = journal_open("here");
    json_t *record;

    assert_int_equal(read_text(&a, &arena, UP("\"href\":\"https://s/done\",\"expires_in\":3600,"
        "\"header\":{\"chunk_size\":6,\"1\":\"https://s/1\",\"2\":\"https://s/2\"}"), err), 0);
    assert_non_null(j);
    journal_add(j, lfs_action_record(&a, &object));
    journal_add(j, json_pack("{s:s}", "tag", "x"));
    assert_null(journal_open("here"));              /* one process at a time */
    journal_close(j, false);
    assert_non_null(j = journal_open("here"));
    assert_int_equal(json_array_size(journal_records(j)), 2);
    record = json_array_get(journal_records(j), 0);
    assert_true(lfs_action_resume(&b, &arena, &object, record));
    assert_string_equal(b.part[1], "https://s/2");
    assert_string_equal(b.href, "https://s/done");
    assert_int_equal(b.chunk, 6);
    other.size = 13;
    assert_false(lfs_action_resume(&b, &arena, &other, record));
    json_object_set_new(record, "until", json_integer((json_int_t)time(NULL) + 5));
    assert_false(lfs_action_resume(&b, &arena, &object, record));
    journal_close(j, true);
    assert_non_null(j = journal_open("here"));
    assert_int_equal(json_array_size(journal_records(j)), 0);
    journal_close(j, true);
    ckpt_arena_release(&arena);
}

/* The journal's only file. */
static void path_of(char path[600])
{
    struct dirent *e;
    DIR *d = opendir(PLACE "/uploads");

    assert_non_null(d);
    while ((e = readdir(d)) != NULL)
        if (e->d_name[0] != '.')
            snprintf(path, 600, PLACE "/uploads/%s", e->d_name);
    closedir(d);
}

TEST(a_journal_that_nobody_went_on_with_is_removed)
{
    struct timespec old[2] = {{.tv_sec = time(NULL) - 8 * 24 * 3600}, {.tv_sec = 0}};
    struct journal *j = journal_open("there");
    char path[600] = "";
    struct stat st;

    journal_add(j, json_pack("{s:i}", "n", 1));
    journal_close(j, false);
    path_of(path);
    old[1] = old[0];
    assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
    journal_close(journal_open("here"), true);
    assert_int_not_equal(stat(path, &st), 0);
}

TEST(a_journal_is_cut_at_its_first_damaged_line)
{
    struct journal *j = journal_open("here");
    char path[600] = "";
    struct stat st;
    FILE *f;

    for (int i = 0; i < 3; i++)
        journal_add(j, json_pack("{s:i}", "n", i));
    journal_close(j, false);
    path_of(path);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    f = fopen(path, "r+");
    fseek(f, st.st_size / 3 + 12, SEEK_SET);
    fputc('?', f);
    fclose(f);
    j = journal_open("here");
    assert_int_equal(json_array_size(journal_records(j)), 1);
    journal_add(j, json_pack("{s:i}", "n", 7));
    journal_close(j, false);
    j = journal_open("here");
    assert_int_equal(json_array_size(journal_records(j)), 2);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(journal_records(j), 1), "n")),
                     7);
    journal_close(j, true);
    assert_int_not_equal(stat(path, &st), 0);
}
