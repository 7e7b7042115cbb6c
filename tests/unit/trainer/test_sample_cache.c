/* keep, sample_file: samples from the cache are those of the records, whatever becomes of the
 * file. */
#include "tests/unit/unit.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>

#include "tests/unit/data_files.h"
#include "tests/unit/faults.h"
#include "tests/unit/files.h"
#include "libckpt/commit.h"
#include "libckpt/log.h"
#include "trainer/data/sample_cache.h"
#include "trainer/data/sample_file.h"

#define PLACE "build/test-sample-cache"
#define ROWS  PLACE "-rows.jsonl"

struct set {
    struct records     *records;
    struct data_source *source;
};

static struct tokenizer *tok;
static char told[4096];

static void listen(void *ctx, enum ckpt_log_level level, const char *line)
{
    (void)ctx;
    (void)level;
    if (strlen(told) + strlen(line) + 2 < sizeof told)
        strcat(strcat(told, line), "\n");
}

BEFORE_ALL() { tok = demo_tokenizer(); }
AFTER_ALL()  { tokenizer_close(tok); }

BEFORE_EACH()
{
    struct ckpt_err err = {0};

    setenv("CKPT_CACHE", PLACE, 1);
    ckpt_outdir_remove(PLACE, &err);
    told[0] = '\0';
    ckpt_log_hook(listen, NULL);
}

static void write_rows(const char *body) { put_text(ROWS, body); }

/* n rows of text of several lengths, every bad-th of them without the field. */
static void write_texts(int n, int bad)
{
    FILE *f = fopen(ROWS, "w");

    assert_non_null(f);
    for (int i = 0; i < n; i++) {
        fprintf(f, "{\"%s\": \"row %d", bad && i % bad == bad - 1 ? "other" : "text", i);
        for (int k = 0; k < i % 23; k++)
            fputs(" and a dog", f);
        fputs("\"}\n", f);
    }
    fclose(f);
}

static int open_set(struct set *s, const struct data_opts *opts, struct ckpt_err *err)
{
    const char *path = ROWS;
    struct records_opts rows = {.identity = true};
    struct data_opts o = *opts;
    int rc;

    memset(s, 0, sizeof *s);
    o.max_seq_length = o.max_seq_length ? o.max_seq_length : 64;
    o.workers = o.workers ? o.workers : 2;
    rc = records_open_with(&s->records, &path, 1, &rows, err);
    return rc ? rc : data_source_open(&s->source, s->records, tok, &o, err);
}

static void close_set(struct set *s)
{
    data_source_close(s->source);
    records_close(s->records);
}

static void must_open(struct set *s, const struct data_opts *opts)
{
    struct ckpt_err err = {0};

    if (open_set(s, opts, &err))
        fail_msg("%s", err.text);
}

/* Whether a set that is opened like this has its samples from the cache. */
static void expect_cache(const struct data_opts *opts, bool cached)
{
    struct set s;

    must_open(&s, opts);
    assert_int_equal(s.source->cache != NULL, cached);
    close_set(&s);
}

/* Every sample, error, length and statistic of a is b's. */
static void assert_same(struct set *a, struct set *b)
{
    unsigned char of_a[16], of_b[16];
    struct data_stats stats_a, stats_b;
    struct sample x = {0}, y = {0};
    struct ckpt_err e = {0}, f = {0};

    assert_int_equal(data_source_count(a->source), data_source_count(b->source));
    for (int64_t i = data_source_count(a->source); i-- > 0;) {
        ckpt_err_clear(&e);
        ckpt_err_clear(&f);
        assert_int_equal(data_source_sample(a->source, i, &x, &e),
                         data_source_sample(b->source, i, &y, &f));
        assert_string_equal(e.text, f.text);
        if (e.code)
            continue;
        assert_int_equal(x.n, y.n);
        assert_int_equal(x.n_enc, y.n_enc);
        assert_int_equal(x.lead, y.lead);
        assert_int_equal(x.given, y.given);
        assert_int_equal(x.cut, y.cut);
        assert_memory_equal(x.ids, y.ids, (size_t)x.n * sizeof *x.ids);
        assert_memory_equal(x.labels, y.labels, (size_t)x.n * sizeof *x.labels);
        if (x.n_enc)
            assert_memory_equal(x.enc, y.enc, (size_t)x.n_enc * sizeof *x.enc);
    }
    assert_int_equal(data_source_fingerprint(a->source, of_a, &e),
                     data_source_fingerprint(b->source, of_b, &f));
    if (!e.code)
        assert_memory_equal(of_a, of_b, sizeof of_a);
    ckpt_err_clear(&e);
    ckpt_err_clear(&f);
    memset(&stats_a, 0, sizeof stats_a);
    memset(&stats_b, 0, sizeof stats_b);
    assert_int_equal(data_source_scan(a->source, &stats_a, &e),
                     data_source_scan(b->source, &stats_b, &f));
    assert_string_equal(e.text, f.text);
    if (!e.code)
        assert_memory_equal(data_source_lengths(a->source), data_source_lengths(b->source),
                            (size_t)data_source_count(a->source) * sizeof(int32_t));
    assert_memory_equal(&stats_a, &stats_b, sizeof stats_a);
    sample_release(&x);
    sample_release(&y);
}

/* The one object of the cache; "" when there is none. */
static void object(char path[512])
{
    DIR *d = opendir(PLACE "/objects");
    struct dirent *e;
    int n = 0;

    path[0] = '\0';
    while (d && (e = readdir(d)) != NULL)
        if (e->d_name[0] != '.') {
            snprintf(path, 512, PLACE "/objects/%s", e->d_name);
            n++;
        } else {
            assert_true(strlen(e->d_name) <= 2);        /* nothing unfinished */
        }
    if (d)
        closedir(d);
    assert_true(n <= 1);
}

/* Open with and without, as often as it takes to make a file and to find it. */
static void assert_kept_is_same(struct data_opts o)
{
    struct set plain, kept;
    char path[512];

    must_open(&plain, &o);
    for (int time = 0; time < 2; time++) {
        o.cache = time ? DATA_CACHE_AUTO : DATA_CACHE_ON;
        told[0] = '\0';
        must_open(&kept, &o);
        assert_non_null(kept.source->cache);
        assert_same(&plain, &kept);
        assert_true(time ? !told[0] : strstr(told, "are kept") != NULL);
        object(path);
        assert_true(path[0]);
        close_set(&kept);
        close_set(&plain);
        o.cache = DATA_CACHE_OFF;
        must_open(&plain, &o);
    }
    close_set(&plain);
    unlink(path);
}

TEST(samples_are_those_of_the_records)
{
    struct data_opts pairs = {.pair = {.wanted = true, .start = 3, .pad = 4}};

    write_texts(700, 0);
    assert_kept_is_same((struct data_opts){0});
    assert_kept_is_same((struct data_opts){.max_seq_length = 7, .cut_left = true});
    write_rows("{\"prompt\": \"a cat\", \"completion\": \" sits here\"}\n"
               "{\"prompt\": \"\", \"completion\": \"\"}\n");
    assert_kept_is_same((struct data_opts){0});
    assert_kept_is_same((struct data_opts){.loss_on_prompt = true});
    assert_kept_is_same(pairs);
    write_rows("{\"input_ids\": [5, 6, 70000, 8], \"labels\": [5, -100, 70000, 8]}\n"
               "{\"input_ids\": [5, 6, 7, 8, 9, 5, 6, 7, 8, 9], "
               "\"labels\": [5, -100, 7, -100, -100, 5, 6, -100, 8, 9]}\n"
               "{\"input_ids\": [9, 5, 6], \"attention_mask\": [0, 1, 1]}\n"
               "{\"input_ids\": [5, 6, 7], \"labels\": [-100, 8, 9]}\n");
    assert_kept_is_same((struct data_opts){0});
    assert_kept_is_same(pairs);
}

TEST(bad_rows_are_the_same_rows)
{
    struct ckpt_err err = {0};
    struct data_stats stats;
    struct set s;
    struct data_opts o = {.workers = 1};    /* two may meet the third bad row first */

    write_texts(600, 100);
    assert_kept_is_same(o);
    o.bad = DATA_BAD_SKIP;
    assert_kept_is_same(o);
    /* A file that was made while they were errors serves when they are skipped. */
    o = (struct data_opts){.cache = DATA_CACHE_ON};
    expect_cache(&o, true);
    o.bad = DATA_BAD_SKIP;
    told[0] = '\0';
    must_open(&s, &o);
    assert_false(told[0]);
    assert_int_equal(data_source_count(s.source), 594);
    assert_int_equal(data_source_scan(s.source, &stats, &err), 0);
    assert_int_equal(stats.n_skipped, 6);
    assert_non_null(strstr(stats.first_bad, "record 100"));
    close_set(&s);
}

/* One file serves whatever becomes of samples that are too long. */
TEST(long_rows_are_the_same_rows)
{
    struct data_opts o = {.max_seq_length = 8, .cache = DATA_CACHE_ON}, made = o;
    struct data_stats here, kept;
    struct ckpt_err err = {0};
    struct set s;

    write_texts(600, 0);
    made.cache = DATA_CACHE_OFF;
    made.excess = DATA_EXCESS_DROP;
    must_open(&s, &made);
    assert_int_equal(data_source_scan(s.source, &here, &err), 0);
    assert_true(here.n_dropped > 0 && here.n_samples > 0);
    close_set(&s);
    expect_cache(&o, true);
    o.excess = DATA_EXCESS_DROP;
    told[0] = '\0';
    must_open(&s, &o);
    assert_false(told[0]);                      /* it was found */
    assert_int_equal(data_source_scan(s.source, &kept, &err), 0);
    assert_memory_equal(&kept, &here, sizeof here);
    close_set(&s);
    o.excess = DATA_EXCESS_TRUNCATE;
    must_open(&s, &o);
    assert_int_equal(data_source_count(s.source), 600);
    close_set(&s);
}

TEST(whatever_decides_samples_makes_another_file)
{
    const struct data_opts other[] = {
        {.max_seq_length = 63}, {.loss_on_prompt = true}, {.no_eos = true}, {.cut_left = true},
        {.text_field = "text"}, {.field_mapping = "{\"b\": \"text\"}"},
        {.prompt_template = "{text}", .completion_template = "x"},
        {.prompt_template = "{text}", .completion_template = "x",
         .pair = {.wanted = true, .start = 1}},
    };
    struct data_opts o = {.cache = DATA_CACHE_ON};
    struct timespec t[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};

    write_texts(20, 0);
    expect_cache(&o, true);
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        o = other[i];
        o.cache = DATA_CACHE_AUTO;
        expect_cache(&o, false);
    }
    o = (struct data_opts){.cache = DATA_CACHE_AUTO};
    expect_cache(&o, true);
    assert_int_equal(utimensat(AT_FDCWD, ROWS, t, 0), 0);
    expect_cache(&o, false);
}

/* The same size and time, another text: some samples are looked at. */
TEST(a_file_of_other_samples_is_made_anew)
{
    struct timespec t[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    struct data_opts o = {.cache = DATA_CACHE_ON};
    struct set plain, kept;

    write_rows("{\"text\": \"a cat\"}\n{\"text\": \"a dog\"}\n");
    assert_int_equal(utimensat(AT_FDCWD, ROWS, t, 0), 0);
    expect_cache(&o, true);
    write_rows("{\"text\": \"a dog\"}\n{\"text\": \"a dog\"}\n");
    assert_int_equal(utimensat(AT_FDCWD, ROWS, t, 0), 0);
    told[0] = '\0';
    must_open(&kept, &o);
    assert_non_null(strstr(told, "record 0 makes another sample now"));
    must_open(&plain, &(struct data_opts){0});
    assert_same(&plain, &kept);
    close_set(&plain);
    close_set(&kept);
}

TEST(it_is_kept_unasked_where_it_pays)
{
    struct data_opts once = {.cache = DATA_CACHE_AUTO, .passes = 1},
                     twice = {.cache = DATA_CACHE_AUTO, .passes = 2},
                     skip = {.cache = DATA_CACHE_AUTO, .bad = DATA_BAD_SKIP};
    char path[512];

    write_texts(999, 0);
    expect_cache(&twice, false);
    write_texts(1000, 0);
    expect_cache(&once, false);
    expect_cache(&twice, true);
    expect_cache(&once, true);
    object(path);
    unlink(path);
    expect_cache(&skip, true);
    setenv("CKPT_CACHE", "none", 1);
    expect_cache(&twice, false);
}

/* Bytes of it changed, all but most of those of a text, and other lengths: never another sample. */
TEST(a_damaged_file_changes_no_sample)
{
    struct data_opts o = {.cache = DATA_CACHE_ON};
    struct set plain, kept;
    char path[512];
    struct stat st;
    unsigned char byte;
    FILE *f;

    write_texts(6, 4);
    must_open(&plain, &(struct data_opts){0});
    expect_cache(&o, true);
    object(path);
    assert_int_equal(stat(path, &st), 0);
    for (long at = 0; at < st.st_size; at += at < 96 || at > 352 ? 1 : 32) {
        f = fopen(path, "r+");
        assert_non_null(f);
        fseek(f, at, SEEK_SET);
        assert_int_equal(fread(&byte, 1, 1, f), 1);
        fseek(f, at, SEEK_SET);
        fputc(byte ^ 0x41, f);
        fclose(f);
        told[0] = '\0';
        must_open(&kept, &o);
        assert_same(&plain, &kept);
        assert_non_null(strstr(told, "the cache of samples"));
        close_set(&kept);
        if (access(path, F_OK))         /* it was damaged when a sample was read */
            expect_cache(&o, true);
    }
    for (long size = 0; size < st.st_size; size += 29) {
        assert_int_equal(truncate(path, size), 0);
        told[0] = '\0';
        must_open(&kept, &o);
        assert_same(&plain, &kept);
        assert_non_null(strstr(told, "the cache of samples: was damaged in the cache"));
        close_set(&kept);
    }
    close_set(&plain);
}

static void *open_once(void *arg)
{
    struct data_opts o = {.cache = DATA_CACHE_ON};
    struct set *s = arg;

    must_open(s, &o);
    return NULL;
}

TEST(one_makes_it_and_others_wait)
{
    struct set s[4], plain;
    pthread_t thread[4];
    const char *line;

    write_texts(900, 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, open_once, &s[i]), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    line = strstr(told, "are kept");
    assert_non_null(line);
    assert_null(strstr(line + 1, "are kept"));
    must_open(&plain, &(struct data_opts){0});
    for (int i = 0; i < 4; i++) {
        assert_non_null(s[i].source->cache);
        assert_same(&plain, &s[i]);
        close_set(&s[i]);
    }
    close_set(&plain);
}

TEST(a_stop_ends_the_making)
{
    volatile int stop = 1;
    struct data_opts o = {.cache = DATA_CACHE_ON, .stop = &stop};
    struct ckpt_err err = {0};
    char path[512];
    struct set s;

    write_texts(10, 0);
    assert_int_equal(open_set(&s, &o, &err), CKPT_ESTOPPED);
    close_set(&s);
    object(path);
    assert_string_equal(path, "");
}

/* A failing disk or memory: an error, or the same samples; and no file that is not whole. */
TEST(faults_change_no_sample)
{
    struct data_opts o = {.cache = DATA_CACHE_ON};
    struct set plain, kept;
    char path[512];

    write_texts(300, 0);
    must_open(&plain, &(struct data_opts){0});
    for (struct faults f = {.sparse = 16, .later = true}; faults_next(&f);) {
        /* What the set is opened with may fail too: not looked at here. */
        bool opened = f.kind == CKPT_FAULT_ALLOC || f.kind == CKPT_FAULT_OPEN ||
                      f.kind == CKPT_FAULT_READ;
        struct ckpt_err err = {0};
        int rc;

        object(path);
        if (f.n % 2 && path[0])
            unlink(path);
        memset(&kept, 0, sizeof kept);
        if (opened) {
            const char *list = ROWS;
            struct records_opts rows = {.identity = true};
            struct data_opts all = o;

            assert_int_equal(records_open_with(&kept.records, &list, 1, &rows, &err), 0);
            all.max_seq_length = 64;
            all.workers = 2;
            faults_arm(&f);
            rc = data_source_open(&kept.source, kept.records, tok, &all, &err);
        } else {
            faults_arm(&f);
            rc = open_set(&kept, &o, &err);
        }
        faults_disarm(&f);
        faults_told(&f, rc, &err, "kept samples");
        if (rc == 0)
            assert_same(&plain, &kept);
        else
            assert_null(kept.source);
        close_set(&kept);
        object(path);
    }
    close_set(&plain);
}
