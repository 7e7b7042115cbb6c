/*
 * driver - the main of a folder's tests: runs suites (a suite is a file), each in a process of its
 * own, so that neither its state nor its crash reaches the next one.
 *
 *   PROGRAM                    all suites
 *   PROGRAM SUITE[:TEST] ...   these; TEST may have * and ? in it
 *   PROGRAM --list             the names of all
 */
#include "tests/unit/unit.h"

#include <errno.h>
#include <sys/wait.h>

enum { MAX_SUITES = 64, MAX_TESTS = 96, MAX_SCRATCH = 16 };

static struct suite {
    char name[64];                      /* lock, of tests/unit/libckpt/test_lock.c */
    void (*fixture[UNIT_TEST])(void);
    void (*run[MAX_TESTS])(void);
    struct CMUnitTest test[MAX_TESTS];
    size_t n_test;
} suites[MAX_SUITES];
static size_t n_suite;
static const struct suite *running;

static char made[MAX_SCRATCH][256];     /* by scratch_at, since the test began */
static size_t n_made;

/* -- files and directories of a test ----------------------------------------------------------- */

void scratch_remove(const char *path)
{
    char command[1024];

    snprintf(command, sizeof command, "rm -rf %s", path);
    if (system(command) != 0)
        fail_msg("%s", command);
}

void scratch_at(const char *path)
{
    scratch_remove(path);
    mkdir("build", 0777);
    if (mkdir(path, 0777))
        fail_msg("%s cannot be made", path);
    for (size_t i = 0; i < n_made; i++)
        if (strcmp(made[i], path) == 0)
            return;
    if (n_made == MAX_SCRATCH)
        abort();
    snprintf(made[n_made++], sizeof made[0], "%s", path);
}

const char *scratch(const char *name)
{
    static char path[256];

    snprintf(path, sizeof path, "build/scratch-%s-%d", name, (int)getpid());
    scratch_at(path);
    return path;
}

char *file_in(char dst[600], const char *dir, const char *name)
{
    snprintf(dst, 600, "%s/%s", dir, name);
    return dst;
}

void file_put(const char *dir, const char *name, const char *text)
{
    char path[600];
    FILE *f = fopen(file_in(path, dir, name), "w");

    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

void file_holds(const char *path, const char *want)
{
    char got[64] = "";
    FILE *f = fopen(path, "r");

    assert_non_null(f);
    assert_int_equal(fread(got, 1, sizeof got - 1, f), strlen(want));
    fclose(f);
    assert_string_equal(got, want);
}

int entries(const char *path)
{
    DIR *d = opendir(path);
    int n = 0;

    if (!d)
        fail_msg("%s cannot be listed", path);
    for (struct dirent *e; (e = readdir(d));)
        n += strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
    closedir(d);
    return n;
}

/* -- suites ------------------------------------------------------------------------------------ */

static int fixture(enum unit_part part)
{
    if (running->fixture[part])
        running->fixture[part]();
    return 0;
}

/* cmocka hands a state around; ours is in the files' own variables. */
#define UNUSED __attribute__((unused))
static int before_all(void **state UNUSED)  { return fixture(UNIT_BEFORE_ALL); }
static int after_all(void **state UNUSED)   { return fixture(UNIT_AFTER_ALL); }

static int before_each(void **state UNUSED)
{
    n_made = 0;                         /* what is made for all tests stays until the last */
    return fixture(UNIT_BEFORE_EACH);
}

static int after_each(void **state UNUSED)
{
    int rc = fixture(UNIT_AFTER_EACH);

    while (n_made > 0)
        scratch_remove(made[--n_made]);
    return rc;
}

static void call_test(void **state)
{
    void (**run)(void) = *state;

    (*run)();
}

static void add_test(struct suite *s, const char *name, void (*run)(void))
{
    if (s->n_test == MAX_TESTS)
        abort();
    s->run[s->n_test] = run;
    s->test[s->n_test] = (struct CMUnitTest){
        name, call_test, before_each, after_each, &s->run[s->n_test],
    };
    s->n_test++;
}

/* A file's heads come one after another, before main; those of a file of the same name that it
 * includes are of its suite. */
void unit_add(enum unit_part part, const char *file, const char *name, void (*run)(void))
{
    struct suite *s = n_suite > 0 ? &suites[n_suite - 1] : NULL;
    const char *base = strrchr(file, '/') ? strrchr(file, '/') + 1 : file;
    char suite[sizeof s->name];
    size_t n;

    base += strncmp(base, "test_", 5) == 0 ? 5 : 0;
    snprintf(suite, sizeof suite, "%.*s", (int)strcspn(base, "."), base);
    if (!s || strcmp(s->name, suite) != 0) {
        if (n_suite == MAX_SUITES)
            abort();
        s = &suites[n_suite++];
        memcpy(s->name, suite, sizeof suite);
    }
    if (part < UNIT_TEST) {
        s->fixture[part] = run;
        return;
    }
    n = part == UNIT_AGAIN ? s->n_test : 0;
    add_test(s, name, run);
    for (size_t i = 0; i < n; i++)
        add_test(s, s->test[i].name, s->run[i]);
}

static int run_suite(const struct suite *s, const char *pattern)
{
    running = s;
    if (pattern)
        cmocka_set_test_filter(pattern);
    return _cmocka_run_group_tests(s->name, s->test, s->n_test, before_all, after_all) != 0;
}

static int run_apart(const struct suite *s, const char *pattern)
{
    int status = -1;
    pid_t child;

    fflush(NULL);
    child = fork();
    if (child == 0)
        exit(run_suite(s, pattern));
    if (child < 0)
        return 1;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    if (WIFSIGNALED(status))
        fprintf(stderr, "%s: killed by signal %d (%s)\n", s->name, WTERMSIG(status),
                strsignal(WTERMSIG(status)));
    return status != 0;
}

/* The suite named up to a colon, test_ before it or not. */
static const struct suite *suite_of(const char *arg)
{
    size_t n;

    arg += strncmp(arg, "test_", 5) == 0 ? 5 : 0;
    n = strcspn(arg, ":");
    for (size_t i = 0; i < n_suite; i++)
        if (strlen(suites[i].name) == n && strncmp(suites[i].name, arg, n) == 0)
            return &suites[i];
    return NULL;
}

int main(int argc, char **argv)
{
    int bad = 0;

    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        for (size_t i = 0; i < n_suite; i++)
            for (size_t t = 0; t < suites[i].n_test; t++)
                printf("%s:%s\n", suites[i].name, suites[i].test[t].name);
        return 0;
    }
    if (argc == 1 && n_suite == 1)
        return run_suite(&suites[0], NULL);
    for (size_t i = 0; argc == 1 && i < n_suite; i++)
        bad |= run_apart(&suites[i], NULL);
    for (int i = 1; i < argc; i++) {
        const struct suite *s = suite_of(argv[i]);
        const char *colon = strchr(argv[i], ':');

        if (!s) {
            fprintf(stderr, "%s: no suite %s; --list tells their names\n", argv[0], argv[i]);
            return 64;
        }
        if (argc == 2)
            return run_suite(s, colon ? colon + 1 : NULL);
        bad |= run_apart(s, colon ? colon + 1 : NULL);
    }
    return bad;
}
