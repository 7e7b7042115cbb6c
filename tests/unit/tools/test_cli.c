/* cli: work items from arguments and stdin, one line of error, an end that tells the truth. */
#include "tests/unit/stdio_to.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio_ext.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "libckpt/io/lock.h"
#include "libckpt/log.h"
#include "tools/cli_items.h"

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

TEST_ERR(items)
{
    static const char *const two[] = {"a", "b"}, *const mixed[] = {"a", "-", "b", "-"};
    char got[256];

    feed("x\n", 2);
    assert_int_equal(items_of(got, sizeof got, two, 2, false, err), 0);
    assert_string_equal(got, "a|b");
    feed("\nx y\n\n\nlast", 11);                /* empty lines are nothing, no end is needed */
    assert_int_equal(items_of(got, sizeof got, NULL, 0, false, err), 0);
    assert_string_equal(got, "x y|last");
    feed("x\n", 2);
    assert_int_equal(items_of(got, sizeof got, mixed, 4, false, err), 0);
    assert_string_equal(got, "a|x|b");
    feed("x\ny\0z\0", 6);
    assert_int_equal(items_of(got, sizeof got, NULL, 0, true, err), 0);
    assert_string_equal(got, "x\ny|z");
    feed("", 0);
    assert_int_equal(items_of(got, sizeof got, NULL, 0, false, err), 0);
    assert_string_equal(got, "");
}

/* Objects as --json prints them are the paths in them; other braces are of paths. */
TEST_ERR(items_in_objects)
{
    static const char some[] = "{\"path\": \"a b\", \"step\": 3}\n{x}\n{\"path\":\"\\u00e9/\\\"\"}\nz\n";
    static const char none[] = "{\"model\": \"x\"}\n", empty[] = "{\"path\": \"\"}\n";
    char got[256];

    feed(some, sizeof some - 1);
    assert_int_equal(items_of(got, sizeof got, NULL, 0, false, err), 0);
    assert_string_equal(got, "a b|{x}|\xc3\xa9/\"|z");
    feed("{\"path\": 1}\0", 13);               /* with -0 every byte is a path's */
    assert_int_equal(items_of(got, sizeof got, NULL, 0, true, err), 0);
    assert_string_equal(got, "{\"path\": 1}");
    feed(none, sizeof none - 1);
    assert_int_equal(items_of(got, sizeof got, NULL, 0, false, err), CKPT_EFORMAT);
    assert_string_equal(err->text, "standard input: line 1 is an object without a path");
    ckpt_err_clear(err);
    feed(empty, sizeof empty - 1);
    assert_int_equal(items_of(got, sizeof got, NULL, 0, false, err), CKPT_EFORMAT);
    ckpt_err_clear(err);
}

/* stdin is the read end of a pipe; the write end. */
static int pipe_in(void)
{
    int fd[2];

    assert_int_equal(pipe(fd), 0);
    assert_int_equal(dup2(fd[0], STDIN_FILENO), STDIN_FILENO);
    close(fd[0]);
    return fd[1];
}

static void send_to(int fd, const char *text)
{
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
}

TEST_ERR(items_of_a_pipe)
{
    static const char *const mixed[] = {"a", "-", "b"};
    struct cli_items *items;
    char got[256], *item;
    bool bytes;
    int fd = pipe_in();

    send_to(fd, "x\n\ny");
    close(fd);
    assert_int_equal(items_of(got, sizeof got, mixed, 3, false, err), 0);
    assert_string_equal(got, "a|x|y|b");
    fd = pipe_in();
    send_to(fd, "first-of-some\nz\n");
    close(fd);
    assert_int_equal(cli_items_open(&items, NULL, 0, false, err), 0);
    assert_int_equal(cli_items_bytes(items, &bytes, err), 0);      /* has taken some of it */
    assert_false(bytes);
    assert_int_equal(cli_items_next(items, &item, err), 0);
    assert_string_equal(item, "first-of-some");
    ckpt_free(item);
    cli_items_close(items);                     /* with one that nobody took */
    fd = pipe_in();
    send_to(fd, "x\n");
    assert_int_equal(write(fd, "q\0\n", 3), 3);
    close(fd);
    assert_int_equal(items_of(got, sizeof got, NULL, 0, false, err), CKPT_EFORMAT);
    assert_string_equal(got, "x");              /* what came before it is not lost */
    assert_string_equal(err->text, "standard input: line 2 has a NUL byte in it");
    fd = pipe_in();
    assert_int_equal(cli_items_open(&items, NULL, 0, false, err), 0);
    cli_items_close(items);                     /* never asked */
    close(fd);
}

static bool leased(const char *path)
{
    for (int i = 0; i < 200; i++) {             /* the thread may take its time */
        if (!ckpt_lock_unread(path))
            return true;
        usleep(10000);
    }
    return false;
}

/* From when a path is announced until it was worked on. */
TEST_ERR(items_are_leased)
{
    const char *const dir = scratch("cli"), *const *all;
    const char *arg[1];
    size_t n;
    struct cli_items *items;
    char one[300], two[300], lines[700], *item;
    int fd;

    snprintf(one, sizeof one, "%s/one", dir);
    snprintf(two, sizeof two, "%s/two", dir);
    arg[0] = one;
    assert_true(mkdir(one, 0777) == 0 && mkdir(two, 0777) == 0);
    fd = pipe_in();
    snprintf(lines, sizeof lines, "%s\n%s\nnot-there\n", one, two);
    send_to(fd, lines);
    assert_int_equal(cli_items_open(&items, NULL, 0, false, err), 0);
    assert_int_equal(cli_items_next(items, &item, err), 0);
    ckpt_free(item);
    assert_true(leased(one) && leased(two));
    assert_int_equal(cli_items_next(items, &item, err), 0);
    ckpt_free(item);
    assert_true(ckpt_lock_unread(one) && !ckpt_lock_unread(two));
    assert_int_equal(cli_items_next(items, &item, err), 0);
    assert_string_equal(item, "not-there");
    ckpt_free(item);
    assert_true(ckpt_lock_unread(two));
    snprintf(lines, sizeof lines, "%s\n%s\n", one, two);
    send_to(fd, lines);
    close(fd);
    assert_int_equal(cli_items_all(items, &all, &n, err), 0);
    assert_int_equal(n, 2);
    assert_string_equal(all[1], two);
    assert_true(!ckpt_lock_unread(one) && !ckpt_lock_unread(two));
    cli_items_close(items);
    assert_true(ckpt_lock_unread(one) && ckpt_lock_unread(two));
    assert_int_equal(cli_items_open(&items, (char **)arg, 1, false, err), 0);
    assert_int_equal(cli_items_next(items, &item, err), 0);
    ckpt_free(item);
    assert_false(ckpt_lock_unread(one));
    cli_items_close(items);
    assert_true(ckpt_lock_unread(one));
}

/* Through a pipe: INT is waited out and told, TERM is not. */
TEST_ERR(signals_and_pipes)
{
    struct cli cli = {0};
    struct cli_items *items;
    struct stdio_to s;
    char *item, *said;
    int fd = pipe_in();

    cli_begin(&cli, "tool");
    assert_int_equal(cli_items_open(&items, NULL, 0, false, err), 0);
    stdio_begin(&s, stderr);
    raise(SIGINT);
    raise(SIGINT);                              /* at once: the same request */
    said = stdio_end(&s);
    assert_string_equal(said, "tool: interrupted: working through what the pipe still brings; once "
                        "more ends it now\n");
    free(said);
    assert_int_equal(cli_stop, 0);
    send_to(fd, "x\n");
    assert_int_equal(cli_items_next(items, &item, err), 0);
    assert_string_equal(item, "x");
    ckpt_free(item);
    raise(SIGTERM);
    assert_int_equal(cli_items_next(items, &item, err), CKPT_ESTOPPED);
    assert_null(item);
    cli_stop = 0;
    close(fd);
    assert_int_equal(cli_items_next(items, &item, err), 0);
    assert_null(item);
    cli_items_close(items);
    raise(SIGINT);                              /* no pipe any more: as ever */
    assert_int_equal(cli_stop, SIGINT);
    cli_stop = 0;
    ckpt_log_hook(NULL, NULL);
}

static int two_fail(void *ctx, const char *item, struct ckpt_err *err)
{
    strcat(ctx, item);
    return strcmp(item, "b") == 0 ? ckpt_fail(err, CKPT_ENOTFOUND, "%s: is gone", item)
           : strcmp(item, "c") == 0 ? ckpt_fail(err, CKPT_EFORMAT, "%s: is bad", item)
           : strcmp(item, "e") == 0 ? ckpt_fail(err, CKPT_ESTOPPED, "stopped") : 0;
}

TEST_ERR(a_failure_hides_no_other_item)
{
    static const char *const all[] = {"a", "b", "c", "d"}, *const stop[] = {"b", "e", "a"};
    struct cli cli = {.tool = "tool"};
    struct cli_items *items;
    char seen[16] = "", *said;
    struct stdio_to s;
    int status = 0;

    assert_int_equal(cli_items_open(&items, (char **)all, 4, false, err), 0);
    stdio_begin(&s, stderr);
    assert_int_equal(cli_items_each(items, &cli, two_fail, seen, &status, err), 0);
    said = stdio_end(&s);
    cli_items_close(items);
    assert_string_equal(seen, "abcd");
    assert_int_equal(status, 66);               /* the first's */
    assert_string_equal(said, "tool: b: is gone\ntool: c: is bad\n");
    free(said);
    *seen = '\0';
    status = 0;
    assert_int_equal(cli_items_open(&items, (char **)stop, 3, false, err), 0);
    stdio_begin(&s, stderr);
    assert_int_equal(cli_items_each(items, &cli, two_fail, seen, &status, err), CKPT_ESTOPPED);
    free(stdio_end(&s));
    cli_items_close(items);
    assert_string_equal(seen, "be");
    assert_int_equal(status, 66);
}

TEST_ERR(items_refused)
{
    char got[256], *line = malloc(70000);

    feed("a\nb\0c\n", 6);
    assert_int_equal(items_of(got, sizeof got, NULL, 0, false, err), CKPT_EFORMAT);
    assert_string_equal(err->text, "standard input: line 2 has a NUL byte in it");
    assert_string_equal(err->hint, "-0 reads paths that end with NUL");
    assert_non_null(line);
    memset(line, 'x', 70000);
    feed(line, 70000);
    assert_int_equal(items_of(got, sizeof got, NULL, 0, false, err), CKPT_ELIMIT);
    assert_string_equal(err->text, "standard input: line 1 is longer than 65535 bytes");
    line[65535] = '\n';                         /* the longest that goes */
    feed(line, 65536);
    assert_int_equal(items_of(got, sizeof got, NULL, 0, false, err), 0);
    free(line);
    assert_true(dup2(open("build", O_RDONLY), STDIN_FILENO) == 0);
    clearerr(stdin);
    assert_int_equal(items_of(got, sizeof got, NULL, 0, false, err), CKPT_EIO);
}

TEST_ERR(stop_between_items)
{
    static const char *const two[] = {"a", "b"};
    struct cli cli = {0};
    struct cli_items *items;
    char *item;

    cli_begin(&cli, "tool");
    assert_int_equal(cli_items_open(&items, (char **)two, 2, false, err), 0);
    assert_int_equal(cli_items_next(items, &item, err), 0);
    ckpt_free(item);
    raise(SIGTERM);
    raise(SIGTERM);                             /* at once: the same request */
    assert_int_equal(cli_stop, SIGTERM);
    assert_int_equal(cli_items_next(items, &item, err), CKPT_ESTOPPED);
    assert_null(item);
    assert_string_equal(err->text, "stopped by SIGTERM before all was done");
    assert_int_equal(ckpt_err_status(err->code), 75);
    cli_stop = 0;
    assert_int_equal(cli_items_next(items, &item, err), 0);
    ckpt_free(item);
    cli_stop = SIGINT;                          /* nothing is left: nothing was lost */
    assert_int_equal(cli_items_next(items, &item, err), 0);
    assert_null(item);
    cli_stop = 0;
    cli_items_close(items);
    ckpt_log_hook(NULL, NULL);
}

TEST_ERR(errors)
{
    struct cli cli = {.tool = "ckpt-test"};
    struct stdio_to s;
    json_t *o;
    char *text;

    ckpt_fail_as(err, CKPT_EFORMAT, "truncated", "file \"x\": %d bytes", 3);
    ckpt_err_hint(err, "fetch it again");
    stdio_begin(&s, stderr);
    assert_int_equal(cli_error(&cli, err), 65);
    text = stdio_end(&s);
    assert_string_equal(text, "ckpt-test: file \"x\": 3 bytes\nhint: fetch it again\n");
    free(text);
    cli.json = true;
    stdio_begin(&s, stderr);
    assert_int_equal(cli_error(&cli, err), 65);
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

TEST_ERR(artifacts)
{
    struct cli cli = {.tool = "ckpt-test"};
    struct stdio_to s;
    char *text;

    stdio_begin(&s, stdout);
    assert_int_equal(cli_artifact(&cli, "a b", NULL, err), 0);
    cli.json = true;
    assert_int_equal(cli_artifact(&cli, "c", NULL, err), 0);
    assert_int_equal(cli_artifact(&cli, "c", json_pack("{s:i}", "n", 1), err), 0);
    cli.json = false;
    cli.nul = true;
    assert_int_equal(cli_artifact(&cli, "d", NULL, err), 0);
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

TEST(end)
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
TEST(closed_descriptors)
{
    int status;
    pid_t pid;

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
TEST(a_later_signal_ends_the_process)
{
    int status;
    pid_t pid = fork();

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

/* What a rank after the first says begins with its number, once. */
TEST(a_rank_says_which_it_is)
{
    char *said;
    struct stdio_to s;
    pid_t pid;

    stdio_begin(&s, stderr);
    fflush(NULL);
    if ((pid = fork()) == 0) {
        struct cli cli = {.rank = 3};

        cli_begin(&cli, "tool");
        ckpt_log(CKPT_LOG_WARNING, "the disk is slow");
        ckpt_log(CKPT_LOG_NOTE, "rank 3: here");
        cli.only_warnings = true;
        ckpt_log(CKPT_LOG_NOTE, "not this");
        cli.rank = 0;
        ckpt_log(CKPT_LOG_WARNING, "the first");
        _exit(0);
    }
    assert_true(waitpid(pid, NULL, 0) == pid);
    said = stdio_end(&s);
    assert_string_equal(said, "tool: warning: rank 3: the disk is slow\ntool: rank 3: here\n"
                              "tool: warning: the first\n");
    free(said);
}
