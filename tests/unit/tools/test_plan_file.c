/* plan_file: plans that are written are read, and no other lines. */
#include "tests/unit/unit.h"

#include "tools/push/plan_file.h"

#define HEAD(more) "{\"type\":\"header\",\"version\":1,\"source\":\"s\",\"destination\":\"d\",\"options\":{" more "}}\n"
#define FILE_LINE(path, reason) "{\"type\":\"operation\",\"action\":\"upload\",\"path\":\"" path \
                                "\",\"size\":3,\"reason\":\"" reason "\"}\n"

static int parse(struct plan_file *f, const char *text, struct ckpt_err *err)
{
    return plan_file_parse(f, text, strlen(text), err);
}

/* A plan of one file. */
static struct push_plan plan_of(struct push_file *file)
{
    return (struct push_plan){.source = "s", .file = file, .n = 1, .head = "h1"};
}

TEST_ERR(a_plan_is_read_as_it_was_written)
{
    const char *const globs[] = {"*.bin", "x"};
    struct push_filter filter = {.exclude = {globs, 2}, .also = {globs, 1}, .path_in_repo = "a",
                                 .allow_secrets = true, .allow_pickles = true};
    struct send_want want = {.branch = "b", .create = true, .remove = {globs, 1}};
    struct push_file file = {.from = "w", .to = "a/w", .size = 3, .lfs = true, .state = PUSH_NEW,
                             .digest = "sha256-00"};
    struct push_plan p = plan_of(&file);
    const char *path = scratch("plan");
    struct plan_writer *w;
    struct plan_file f;
    char name[300];

    snprintf(name, sizeof name, "%s/p.jsonl", path);
    assert_int_equal(plan_writer_open(&w, name, err), 0);
    assert_int_equal(plan_writer_add(w, &p, "d", &filter, &want, err), 0);
    assert_int_equal(plan_writer_add(w, &p, "e", &(struct push_filter){0}, &(struct send_want){0}, err), 0);
    assert_int_equal(plan_writer_commit(w, err), 0);
    assert_int_equal(plan_file_read(&f, name, err), 0);
    assert_int_equal(f.n, 2);
    assert_string_equal(f.part[0].destination, "d");
    assert_string_equal(f.part[1].destination, "e");
    assert_string_equal(f.part[0].head, "h1");
    assert_string_equal(f.part[0].want.branch, "b");
    assert_true(f.part[0].want.create && f.part[0].filter.allow_secrets && !f.part[0].want.create_pr);
    assert_int_equal(f.part[0].filter.exclude.n, 2);
    assert_string_equal(f.part[0].filter.exclude.item[1], "x");
    assert_int_equal(f.part[0].want.remove.n, 1);
    assert_int_equal(f.part[0].filter.also.n, 1);
    assert_true(f.part[0].filter.allow_pickles);
    assert_false(f.part[1].filter.allow_pickles);
    assert_null(f.part[1].want.branch);
    assert_int_equal(plan_file_agrees(&f.part[0], &p, err), 0);
    plan_file_close(&f);
}

TEST_ERR(what_changed_is_refused)
{
    struct push_file file = {.from = "w", .to = "w", .size = 3, .state = PUSH_NEW};
    struct push_plan p = plan_of(&file);
    struct plan_file f;

    assert_int_equal(parse(&f, HEAD("") FILE_LINE("w", "new"), err), 0);
    assert_int_equal(plan_file_agrees(&f.part[0], &p, err), 0);
    assert_int_equal(plan_file_agrees(NULL, &p, err), 0);
    file.state = PUSH_SAME;
    assert_int_equal(plan_file_agrees(&f.part[0], &p, err), CKPT_ESTOPPED);
    file.state = PUSH_NEW;
    file.size = 4;
    assert_int_equal(plan_file_agrees(&f.part[0], &p, err), CKPT_EFORMAT);
    file.size = 3;
    file.to = "x";
    assert_int_equal(plan_file_agrees(&f.part[0], &p, err), CKPT_EFORMAT);
    p.n = 0;
    assert_int_equal(plan_file_agrees(&f.part[0], &p, err), CKPT_EFORMAT);
    plan_file_close(&f);
}

TEST_ERR(lines_that_are_none_of_a_plan)
{
    static const char *const bad[] = {
        "", "\n", "x\n", "[]\n", "{}\n", "{\"type\":7}\n", FILE_LINE("w", "new"),
        "{\"type\":\"header\",\"version\":2,\"source\":\"s\",\"destination\":\"d\",\"options\":{}}\n",
        "{\"type\":\"header\",\"version\":1,\"source\":\"\",\"destination\":\"d\",\"options\":{}}\n",
        "{\"type\":\"header\",\"version\":1,\"source\":\"s\",\"options\":{}}\n",
        "{\"type\":\"header\",\"version\":1,\"source\":\"s\",\"destination\":\"d\"}\n",
        HEAD("\"branch\":7"), HEAD("\"branch\":\"\""), HEAD("\"create\":1"), HEAD("\"other\":\"x\""),
        HEAD("\"exclude\":\"x\""), HEAD("\"exclude\":[7]"), HEAD("\"author\":\"a\\u0000b\""),
        HEAD("") FILE_LINE("w", "new") FILE_LINE("w", "new"), HEAD("") FILE_LINE("w", "deleted"),
        HEAD("") FILE_LINE("w", "same"), HEAD("") FILE_LINE("", "new"),
        HEAD("") "{\"type\":\"operation\",\"action\":\"upload\",\"path\":\"w\",\"reason\":\"new\"}\n",
        HEAD("") "{\"type\":\"operation\",\"action\":\"upload\",\"path\":\"w\",\"size\":-1,\"reason\":\"new\"}\n",
        HEAD("") "{\"type\":\"operation\",\"action\":\"delete\",\"path\":\"w\",\"reason\":\"new\"}\n",
    };

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct plan_file f;

        if (parse(&f, bad[i], err) == 0)
            fail_msg("taken: %s", bad[i]);
        plan_file_close(&f);
    }
}
