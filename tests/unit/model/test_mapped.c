/* mapped, measure: bytes in place are the file's, or an error; never a crash, never a wrong sum. */
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "formats/formats.h"
#include "libckpt/ckpt.h"
#include "libckpt/base/fault.h"
#include "tools/inspect/inspect.h"
#include "tools/inspect/mapped.h"

#define BYTES ((size_t)3 << 20)
#define PAGE  ((size_t)4096)

static char path[300];
static unsigned char *content;

/* A file of noise, in the page cache; whole from the start. */
static void write_file(void)
{
    char next[320];
    int fd;

    snprintf(next, sizeof next, "%s.next", path);
    fd = open(next, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    assert_true(fd >= 0);
    for (size_t at = 0; at < BYTES;) {
        ssize_t n = write(fd, content + at, BYTES - at);

        assert_true(n > 0);
        at += (size_t)n;
    }
    close(fd);
    assert_int_equal(rename(next, path), 0);
}

BEFORE_ALL()
{
    snprintf(path, sizeof path, "%s/file", scratch("mapped"));
    content = malloc(BYTES);
    assert_non_null(content);
    for (size_t i = 0; i < BYTES; i++)
        content[i] = (unsigned char)((i * 2654435761u) >> 13 | 1);      /* none is zero */
}

AFTER_ALL()
{
    *strrchr(path, '/') = '\0';
    scratch_remove(path);
    free(content);
}

static struct ckpt_file *open_file(void)
{
    struct ckpt_err err = {0};
    struct ckpt_file *file;

    if (ckpt_file_open(&file, path, 0, &err))
        fail_msg("%s", err.text);
    return file;
}

TEST(bytes_are_the_files)
{
    static const struct { size_t from, n; } range[] = {
        {0, BYTES}, {1, 1}, {PAGE - 1, 2}, {PAGE, PAGE}, {12345, 700001}, {BYTES - 1, 1}};
    struct ckpt_err err = {0};
    struct ckpt_file *file, *window;

    write_file();
    file = open_file();
    assert_int_equal(ckpt_file_window(&window, file, 100, BYTES - 100, "window", &err), 0);
    for (size_t i = 0; i < sizeof range / sizeof range[0]; i++) {
        struct ckpt_extent x = {.file = file, .offset = range[i].from};
        const void *bytes;

        assert_true(mapped_begin(&bytes, &x, range[i].n));
        assert_memory_equal(bytes, content + range[i].from, range[i].n);
        assert_int_equal(mapped_end(&err), 0);
        if (range[i].from < 100)
            continue;
        x = (struct ckpt_extent){.file = window, .offset = range[i].from - 100};
        assert_true(mapped_begin(&bytes, &x, range[i].n));
        assert_memory_equal(bytes, content + range[i].from, range[i].n);
        assert_int_equal(mapped_end(&err), 0);
    }
    ckpt_file_close(window);
    ckpt_file_close(file);
}

/* Memory has no descriptor; a file that is too short already is left to reading. */
TEST(what_cannot_be_mapped)
{
    struct ckpt_err err = {0};
    struct ckpt_extent x = {0};
    const void *bytes;

    assert_int_equal(ckpt_file_memory(&x.file, content, BYTES, "memory", &err), 0);
    assert_false(mapped_begin(&bytes, &x, BYTES));
    ckpt_file_close(x.file);
    write_file();
    x.file = open_file();
    assert_false(mapped_begin(&bytes, &x, 0));
    assert_int_equal(truncate(path, (off_t)BYTES - 1), 0);
    assert_false(mapped_begin(&bytes, &x, BYTES));
    assert_true(mapped_begin(&bytes, &x, BYTES - 1));
    assert_int_equal(mapped_end(&err), 0);
    ckpt_file_close(x.file);
}

/* Loads every byte, whoever looks at the sum. */
static unsigned sum(const volatile unsigned char *bytes, size_t n)
{
    unsigned s = 0;

    for (size_t i = 0; i < n; i++)
        s += bytes[i];
    return s;
}

/* Cut to nothing, at a page, within one, and within the last, where no signal comes. */
TEST(cut_while_it_is_mapped)
{
    static const size_t left[] = {0, 1, PAGE, 10 * PAGE + 5, BYTES - PAGE, BYTES - 1};
    const void *bytes;

    for (size_t i = 0; i < sizeof left / sizeof left[0]; i++) {
        struct ckpt_extent x = {.offset = 4};
        struct ckpt_err err = {0};
        char said[80];

        write_file();
        x.file = open_file();
        assert_true(mapped_begin(&bytes, &x, BYTES - 4));
        assert_int_equal(truncate(path, (off_t)left[i]), 0);
        if (left[i] > 4)
            assert_int_equal(sum(bytes, left[i] - 4), sum(content + 4, left[i] - 4));
        sum(bytes, BYTES - 4);                  /* the rest has some value */
        sum(bytes, BYTES - 4);
        assert_int_equal(mapped_end(&err), CKPT_EIO);
        assert_string_equal(err.reason, "truncated");
        snprintf(said, sizeof said, "ended at %zu while it was read, it had %zu bytes", left[i],
                 BYTES);
        assert_non_null(strstr(err.text, said));
        assert_non_null(strstr(err.text, path));
        ckpt_file_close(x.file);
        write_file();                           /* the next window is sound again */
        x.file = open_file();
        assert_true(mapped_begin(&bytes, &x, BYTES - 4));
        assert_memory_equal(bytes, content + 4, BYTES - 4);
        assert_int_equal(mapped_end(&err), 0);
        ckpt_file_close(x.file);
    }
}

/* Cut and made long again: the size is as it was, that a load failed is not forgotten. */
TEST(cut_and_grown_again)
{
    struct ckpt_extent x = {0};
    struct ckpt_err err = {0};
    const void *bytes;

    write_file();
    x.file = open_file();
    assert_true(mapped_begin(&bytes, &x, BYTES));
    assert_int_equal(truncate(path, 0), 0);
    sum(bytes, BYTES);
    assert_int_equal(truncate(path, (off_t)BYTES), 0);
    assert_int_equal(mapped_end(&err), CKPT_EIO);
    assert_non_null(strstr(err.text, "read at 0"));
    ckpt_file_close(x.file);
}

#define THREADS 4
#define ROUNDS  60

static atomic_bool over;
static atomic_int  sound, told;

static void *reader(void *arg)
{
    const unsigned wanted = sum(content, BYTES);

    (void)arg;
    while (!atomic_load(&over)) {
        struct ckpt_extent x = {0};
        struct ckpt_err err = {0};
        const void *bytes;
        unsigned got;

        if (ckpt_file_open(&x.file, path, 0, &err))
            abort();
        if (ckpt_file_size(x.file) == BYTES && mapped_begin(&bytes, &x, BYTES)) {
            got = sum(bytes, BYTES);
            if (mapped_end(&err) == 0) {
                if (got != wanted)
                    abort();                    /* a wrong number, and nobody was told */
                atomic_fetch_add(&sound, 1);
            } else {
                if (err.code != CKPT_EIO)
                    abort();
                atomic_fetch_add(&told, 1);
            }
        }
        ckpt_file_close(x.file);
    }
    return NULL;
}

/* Many read while the file is cut again and again; each time a whole new one comes in its place. */
TEST(cut_while_threads_read)
{
    pthread_t thread[THREADS];

    write_file();
    atomic_store(&over, false);
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, reader, NULL), 0);
    for (int round = 0; round < ROUNDS || (round < 100 * ROUNDS && (!sound || !told)); round++) {
        struct timespec little = {.tv_nsec = (round % 10) * 400000};

        nanosleep(&little, NULL);
        assert_int_equal(truncate(path, (off_t)((size_t)round * 50021 % BYTES)), 0);
        write_file();                           /* its readers keep what was cut */
    }
    atomic_store(&over, true);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    assert_true(atomic_load(&sound) > 0 && atomic_load(&told) > 0);
}

/* How a child dies that is not protected from its own fault. */
static void dies(void (*how)(void))
{
    int status;
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        struct sigaction standard = {.sa_handler = SIG_DFL};
        struct ckpt_extent x = {.file = open_file()};
        struct ckpt_err err = {0};
        struct rlimit none = {0};
        const void *bytes;

        sigaction(SIGBUS, &standard, NULL);
        if (!mapped_begin(&bytes, &x, BYTES) || mapped_end(&err))
            _exit(0);
        setrlimit(RLIMIT_CORE, &none);
        if (!freopen("/dev/null", "w", stderr))
            _exit(0);
        how();
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) ? WTERMSIG(status) == SIGBUS : WEXITSTATUS(status) != 0);
}

static void sent(void) { raise(SIGBUS); }

static void elsewhere(void)
{
    int fd = open(path, O_RDWR);
    const volatile unsigned char *p = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, fd, 0);

    if (p != MAP_FAILED && ftruncate(fd, 0) == 0)
        (void)p[PAGE];
}

static void sent_while_mapped(void)
{
    struct ckpt_extent x = {.file = open_file()};
    const void *bytes;

    if (mapped_begin(&bytes, &x, BYTES))
        raise(SIGBUS);
}

/* Only loads within a window are anybody's business here. */
TEST(other_signals_kill)
{
    write_file();
    dies(sent);
    dies(sent_while_mapped);
    write_file();
    dies(elsewhere);
}

static struct ckpt_source *tensor_file(size_t *at)
{
    static const char head[] = "{\"t\":{\"dtype\":\"F32\",\"shape\":[65536,9],"
                               "\"data_offsets\":[0,2359296]}}     ";
    uint64_t n = sizeof head - 1;
    struct ckpt_err err = {0};
    struct ckpt_source *src;
    FILE *f = fopen(path, "wb");
    float v[9];

    assert_non_null(f);
    fwrite(&n, 8, 1, f);
    fwrite(head, 1, n, f);
    for (size_t i = 0; i < 65536; i++) {
        for (size_t k = 0; k < 9; k++)
            v[k] = (float)(i * 7919 % 65521) / 1024 - (float)k;
        fwrite(v, sizeof v, 1, f);
    }
    fclose(f);
    *at = 8 + (size_t)n;
    if (ckpt_open(&src, path, NULL, &err))
        fail_msg("%s", err.text);
    return src;
}

/* The numbers of a mapped tensor are those of its bytes, wherever it lies. */
TEST(measure)
{
    static float v[65536 * 9];
    struct tensor_measure m;
    struct ckpt_err err = {0};
    struct stats want = {0};
    size_t at;
    struct ckpt_source *src = tensor_file(&at);

    assert_int_equal(ckpt_source_read(src, 0, 0, 65536 * 9, v, &err), 0);
    stats_add(&want, v, CKPT_F32, 65536 * 9);
    assert_int_equal(inspect_measure(&m, src, NULL, 1, INSPECT_STATS, 2, &err), 0);
    assert_memory_equal(&m.s, &want, sizeof want);
    assert_int_equal(truncate(path, (off_t)(at + 2000000)), 0);
    err = (struct ckpt_err){0};
    assert_int_equal(inspect_measure(&m, src, NULL, 1, INSPECT_STATS, 2, &err), CKPT_EIO);
    assert_string_equal(err.reason, "truncated");
    assert_non_null(strstr(err.text, "tensor t: "));
    ckpt_source_close(src);
}

/* A disk that fails while its pages are loaded. */
TEST(a_failed_load)
{
#ifdef CKPT_FAULTS
    struct ckpt_extent x = {0};
    struct ckpt_err err = {0};
    const void *bytes;

    write_file();
    x.file = open_file();
    assert_true(mapped_begin(&bytes, &x, BYTES));
    ckpt_fault_arm(CKPT_FAULT_READ, 1);
    assert_int_equal(mapped_end(&err), CKPT_EIO);
    ckpt_fault_arm(CKPT_FAULT_READ, 0);
    assert_non_null(strstr(err.text, "read at 0"));
    ckpt_file_close(x.file);
#else
    skip();
#endif
}
