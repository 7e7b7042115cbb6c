/* cli: work items from arguments and stdin, one line of error, an end that tells the truth. */
#include "tests/unit/stdio_to.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio_ext.h>
#include <sys/wait.h>

#include "libckpt/json.h"
#include "libckpt/log.h"
#include "tools/cli.h"

/* stdin is these bytes for what follows. */
static void feed(const char *bytes, size_t n)
{
    FILE *f = tmpfile();

    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    rewind(f);
    assert_true(dup2(fileno(f), STDIN_FILENO) == STDIN_FILENO);
    fclose(f);
    lseek(STDIN_FILENO, 0, SEEK_SET);
    clearerr(stdin);
    __fpurge(stdin);
}

/* The items that args (n of them) and stdin give, joined by "|". */
static int items_of(char *joined, size_t size, const char *const *arg, int n, bool nul,
                    struct ckpt_err *err)
{
    struct cli_items *items;
    char *item = NULL;
    int rc = cli_items_open(&items, (char **)arg, n, nul, err);

    *joined = '\0';
    while (rc == 0 && (rc = cli_items_next(items, &item, err)) == 0 && item) {
        size_t at = strlen(joined);

        snprintf(joined + at, size - at, "%s%s", at ? "|" : "", item);
        ckpt_free(item);
    }
    if (rc == 0)                                /* the end stays the end */
        assert_true(cli_items_next(items, &item, err) == 0 && !item);
    cli_items_close(items);
    return rc;
}

static void test_items(void **state)
{
    static const char *const two[] = {"a", "b"}, *const mixed[] = {"a", "-", "b", "-"};
    struct ckpt_err err = {0};
    char got[256];

    (void)state;
    feed("x\n", 2);
    assert_int_equal(items_of(got, sizeof got, two, 2, false, &err), 0);
    assert_string_equal(got, "a|b");
    feed("\nx y\n\n\nlast", 11);                /* empty lines are nothing, no end is needed */
    assert_int_equal(items_of(got, sizeof got, NULL, 0, false, &err), 0);
    assert_string_equal(got, "x y|last");
    feed("x\n", 2);
    assert_int_equal(items_of(got, sizeof got, mixed, 4, false, &err), 0);
    assert_string_equal(got, "a|x|b");
    feed("x\ny\0z\0", 6);
    assert_int_equal(items_of(got, sizeof got, NULL, 0, true, &err), 0);
    assert_string_equal(got, "x\ny|z");
    feed("", 0);
    assert_int_equal(items_of(got, sizeof got, NULL, 0, false, &err), 0);
    assert_string_equal(got, "");
}

static void test_items_refused(void **state)
{
    struct ckpt_err err = {0};
    char got[256], *line = malloc(70000);

    (void)state;
    feed("a\nb\0c\n", 6);
    assert_int_equal(items_of(got, sizeof got, NULL, 0, false, &err), CKPT_EFORMAT);
    assert_string_equal(err.text, "standard input: line 2 has a NUL byte in it");
    assert_string_equal(err.hint, "-0 reads paths that end with NUL");
    assert_non_null(line);
    memset(line, 'x', 70000);
    feed(line, 70000);
    assert_int_equal(items_of(got, sizeof got, NULL, 0, false, &err), CKPT_ELIMIT);
    assert_string_equal(err.text, "standard input: line 1 is longer than 65535 bytes");
    line[65535] = '\n';                         /* the longest that goes */
    feed(line, 65536);
    assert_int_equal(items_of(got, sizeof got, NULL, 0, false, &err), 0);
    free(line);
    assert_true(dup2(open("build", O_RDONLY), STDIN_FILENO) == 0);
    clearerr(stdin);
    assert_int_equal(items_of(got, sizeof got, NULL, 0, false, &err), CKPT_EIO);
}

static void test_stop_between_items(void **state)
{
    static const char *const two[] = {"a", "b"};
    struct cli cli = {0};
    struct cli_items *items;
    struct ckpt_err err = {0};
    char *item;

    (void)state;
    cli_begin(&cli, "tool");
    assert_int_equal(cli_items_open(&items, (char **)two, 2, false, &err), 0);
    assert_int_equal(cli_items_next(items, &item, &err), 0);
    ckpt_free(item);
    raise(SIGTERM);
    raise(SIGTERM);                             /* at once: the same request */
    assert_int_equal(cli_stop, SIGTERM);
    assert_int_equal(cli_items_next(items, &item, &err), CKPT_ESTOPPED);
    assert_null(item);
    assert_string_equal(err.text, "stopped by SIGTERM before all was done");
    assert_int_equal(ckpt_exit_status(err.code), 75);
    cli_stop = 0;
    assert_int_equal(cli_items_next(items, &item, &err), 0);
    ckpt_free(item);
    cli_stop = SIGINT;                          /* nothing is left: nothing was lost */
    assert_int_equal(cli_items_next(items, &item, &err), 0);
    assert_null(item);
    cli_stop = 0;
    cli_items_close(items);
    ckpt_log_hook(NULL, NULL);
}

static void test_errors(void **state)
{
    struct cli cli = {.tool = "ckpt-test"};
    struct ckpt_err err = {0};
    struct stdio_to s;
    json_t *o;
    char *text;

    (void)state;
    ckpt_fail_as(&err, CKPT_EFORMAT, "truncated", "file \"x\": %d bytes", 3);
    ckpt_err_hint(&err, "fetch it again");
    stdio_begin(&s, stderr);
    assert_int_equal(cli_error(&cli, &err), 65);
    text = stdio_end(&s);
    assert_string_equal(text, "ckpt-test: file \"x\": 3 bytes\nhint: fetch it again\n");
    free(text);
    cli.json = true;
    stdio_begin(&s, stderr);
    assert_int_equal(cli_error(&cli, &err), 65);
    text = stdio_end(&s);
    o = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(o);
    assert_string_equal(json_string_value(json_object_get(o, "tool")), "ckpt-test");
    assert_int_equal(json_integer_value(json_object_get(o, "status")), 65);
    assert_string_equal(json_string_value(json_object_get(o, "reason")), "truncated");
    assert_string_equal(json_string_value(json_object_get(o, "error")), "file \"x\": 3 bytes");
    assert_string_equal(json_string_value(json_object_get(o, "hint")), "fetch it again");
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
    json_decref(o);
    free(text);
}

static void test_artifacts(void **state)
{
    struct cli cli = {.tool = "ckpt-test"};
    struct ckpt_err err = {0};
    struct stdio_to s;
    char *text;

    (void)state;
    stdio_begin(&s, stdout);
    assert_int_equal(cli_artifact(&cli, "a b", NULL, &err), 0);
    cli.json = true;
    assert_int_equal(cli_artifact(&cli, "c", NULL, &err), 0);
    assert_int_equal(cli_artifact(&cli, "c", json_pack("{s:i}", "n", 1), &err), 0);
    cli.json = false;
    cli.nul = true;
    assert_int_equal(cli_artifact(&cli, "d", NULL, &err), 0);
    text = stdio_end(&s);
    assert_memory_equal(text, "a b\n{\"path\":\"c\"}\n{\"n\":1}\nd\0", 28);
    free(text);
}

/* What a process ends with that warns this often and then ends with status on this stdout. */
static int end_with(const char *out, unsigned warnings, bool strict, bool quiet, int status,
                    char **said)
{
    struct stdio_to s;
    pid_t pid;
    int wait_status;

    stdio_begin(&s, stderr);
    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        struct cli cli = {.strict = strict, .quiet = quiet};

        if (!freopen(out, "w", stdout))
            _exit(99);
        cli_begin(&cli, "tool");
        for (unsigned i = 0; i < warnings; i++)
            ckpt_log(CKPT_LOG_WARNING, "number %u", i);
        printf("text\n");
        _exit(cli_end(&cli, status));
    }
    assert_true(waitpid(pid, &wait_status, 0) == pid && WIFEXITED(wait_status));
    *said = stdio_end(&s);
    return WEXITSTATUS(wait_status);
}

static void test_end(void **state)
{
    static const struct {
        const char *out;
        unsigned    warnings;
        bool        strict, quiet;
        int         status, want;
        const char *said;
    } row[] = {
        {"/dev/null", 0, false, false, 0, 0, ""},
        {"/dev/null", 0, false, false, 65, 65, ""},
        {"/dev/null", 1, false, false, 0, 0, "tool: warning: number 0\ntool: 1 warning\n"},
        {"/dev/null", 2, true, false, 0, 1,
         "tool: warning: number 0\ntool: warning: number 1\ntool: 2 warnings\n"},
        {"/dev/null", 1, true, true, 0, 1, ""},         /* unsaid, but not unheard */
        {"/dev/null", 1, true, true, 65, 65, ""},
        {"/dev/full", 0, false, false, 0, 74,
         "tool: standard output: No space left on device\n"},
        {"/dev/full", 0, false, false, 65, 65, ""},     /* the first cause stands */
    };

    (void)state;
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        char *said;

        assert_int_equal(end_with(row[i].out, row[i].warnings, row[i].strict, row[i].quiet,
                                  row[i].status, &said),
                         row[i].want);
        assert_string_equal(said, row[i].said);
        free(said);
    }
}

/* Closed descriptors are filled: a file opened next is none of the standard ones. */
static void test_closed_descriptors(void **state)
{
    int status;
    pid_t pid;

    (void)state;
    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        struct cli cli = {0};
        int fd;

        close(0);
        close(1);
        close(2);
        cli_begin(&cli, "tool");
        fd = open("/dev/null", O_RDWR);
        _exit(fd > 2 && write(1, "x", 1) < 0 && read(0, &fd, 1) < 0 ? 0 : 1);
    }
    assert_true(waitpid(pid, &status, 0) == pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* A second later it is impatience: the signal has its own way. */
static void test_a_later_signal_ends_the_process(void **state)
{
    int status;
    pid_t pid = fork();

    (void)state;
    if (pid == 0) {
        struct cli cli = {0};

        cli_begin(&cli, "ckpt-test");
        raise(SIGTERM);
        if (!cli_stop)
            _exit(1);
        usleep(1100000);
        raise(SIGTERM);
        _exit(2);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_later_signal_ends_the_process),
        cmocka_unit_test(test_items),     cmocka_unit_test(test_items_refused),
        cmocka_unit_test(test_stop_between_items), cmocka_unit_test(test_errors),
        cmocka_unit_test(test_artifacts), cmocka_unit_test(test_end),
        cmocka_unit_test(test_closed_descriptors),
    };

    return cmocka_run_group_tests_name("cli", tests, NULL, NULL);
}
