/* log_out: what TensorBoard's and W&B's writers here write, read back; histograms; full disks. */
#include "tests/unit/faults.h"
#include "tests/unit/files.h"
#include "tests/unit/golden_files.h"

#include <math.h>
#include <signal.h>
#include <sys/resource.h>

#include "formats/logs/log_file.h"
#include "formats/logs/run_log.h"
#include "formats/logs/tfevents_out.h"
#include "formats/logs/wandb_out.h"

SCRATCH_EACH("log-out")

static struct run_log *read_log(const char *path)
{
    struct ckpt_err err = {0};
    struct run_log *log = NULL;
    struct ckpt_file *f;

    if (ckpt_file_open(&f, path, 0, &err) || run_log_read(&log, f, &err))
        fail_msg("%s: %s", path, err.text);
    ckpt_file_close(f);
    assert_int_equal(log->torn_bytes, 0);
    return log;
}

/* The one file in a directory whose name has the part. */
static const char *only_file(const char *in, const char *part)
{
    const char *found = NULL;
    struct dirent *e;
    DIR *d = opendir(in);

    assert_non_null(d);
    while ((e = readdir(d)))
        if (strstr(e->d_name, part)) {
            assert_null(found);
            found = text_of("%s/%s", in, e->d_name);
        }
    closedir(d);
    assert_non_null(found);
    return found;
}

static void assert_point(const struct run_log *log, const char *tag, uint64_t i, int64_t step,
                         double value)
{
    const struct log_series *s = run_log_find(log, tag, strlen(tag), "scalar");

    assert_non_null(s);
    assert_true(i < s->count);
    assert_int_equal(s->point[i].step, step);
    if (isfinite(value))
        assert_float_equal(s->point[i].value, value, 1e-6);
    else
        assert_true(!isfinite(s->point[i].value));
    assert_true(s->point[i].time > 1.7e9);
}

/* -- TensorBoard ------------------------------------------------------------------------------ */

TEST_ERR(events_are_read_back)
{
    const struct log_number row[] = {{"train/loss", 2.5}, {"train/grad_norm", (double)NAN}};
    static struct histogram h;
    const float v[] = {-1, 0, 0.5f, 3};
    struct tfevents_out *o;
    struct run_log *log;
    const struct log_series *s;

    memset(&h, 0, sizeof h);
    histogram_add(&h, v, 4);
    assert_int_equal(tfevents_out_open(&o, text_of("%s/a/b", dir), err), 0);
    assert_int_equal(tfevents_out_text(o, 0, "args/text_summary", "| é | 1 |", err), 0);
    assert_int_equal(tfevents_out_scalars(o, 1, row, 2, err), 0);
    assert_int_equal(tfevents_out_scalars(o, 1LL << 40, row, 1, err), 0);
    assert_int_equal(tfevents_out_histogram(o, 3, "gradients/w", &h, err), 0);
    log = read_log(only_file(text_of("%s/a/b", dir), "events.out.tfevents."));  /* while it is open */
    assert_point(log, "train/loss", 0, 1, 2.5);
    assert_point(log, "train/loss", 1, 1LL << 40, 2.5);
    assert_point(log, "train/grad_norm", 0, 1, (double)NAN);
    s = run_log_find(log, "args/text_summary", 17, "text");
    assert_non_null(s);
    assert_string_equal(s->text, "| é | 1 |");
    s = run_log_find(log, "gradients/w", 11, "histogram");
    assert_non_null(s);
    assert_int_equal(s->last_step, 3);
    assert_int_equal(log->records, 5);
    run_log_free(log);
    tfevents_out_close(o);
}

TEST_ERR(a_start_drops_the_steps_after_it)
{
    const struct log_number row = {"train/loss", 1};
    struct tfevents_out *o;
    struct run_log *log;
    const struct log_series *s;

    assert_int_equal(tfevents_out_open(&o, dir, err), 0);
    for (int64_t i = 1; i <= 6; i++)
        assert_int_equal(tfevents_out_scalars(o, i, &row, 1, err), 0);
    assert_int_equal(tfevents_out_start(o, 4, err), 0);
    assert_int_equal(tfevents_out_scalars(o, 4, &row, 1, err), 0);
    tfevents_out_close(o);
    log = read_log(only_file(dir, "tfevents"));
    s = run_log_find(log, "train/loss", 10, "scalar");
    assert_int_equal(s->count, 4);
    assert_int_equal(s->last_step, 4);
    run_log_free(log);
}

/* -- W&B -------------------------------------------------------------------------------------- */

static struct wandb_out *open_run(const char *id, struct ckpt_err *err)
{
    json_t *config = json_pack("{s:f,s:{s:s}}", "learning_rate", 5e-5, "model", "model_type",
                               "blóom");
    const struct wandb_out_run run = {
        .dir = dir, .id = id, .project = "p", .name = "a name", .group = "g", .tags = "x,y",
        .notes = "", .program = "ckpt-train", .n_cpu = 2, .memory = 1 << 30, .config = config,
        .step_metric = "train/global_step",
    };
    struct wandb_out *o = NULL;

    assert_non_null(config);
    wandb_out_open(&o, &run, err);
    json_decref(config);
    return o;
}

static double summary_of(const struct run_log *log, const char *key)
{
    return json_number_value(json_object_get(json_object_get(log->info, "summary"), key));
}

TEST_ERR(a_run_is_read_back)
{
    struct wandb_out *o = open_run("abcd1234", err);
    const char *in, *config;
    struct run_log *log;
    static struct histogram h;
    const float v[] = {1, 2, 3};
    json_t *file;

    assert_non_null(o);
    memset(&h, 0, sizeof h);
    histogram_add(&h, v, 3);
    in = text_of("%s", wandb_out_dir(o));
    /* Long keys, so that records lie across blocks, at every offset in them. */
    for (int64_t i = 0; i < 2000; i++) {
        char tag[300];
        const struct log_number row[] = {{"train/loss", 1.0 / (double)(i + 1)},
                                         {"train/global_step", (double)i}, {tag, 7}};

        snprintf(tag, sizeof tag, "%0*d", (int)(1 + i % 250), 0);
        assert_int_equal(wandb_out_history(o, row, 3, err), 0);
    }
    const struct log_number step = {"train/global_step", 2000}, load = {"cpu", 12.5};

    assert_int_equal(wandb_out_histogram(o, "gradients/w", &h, err), 0);
    assert_int_equal(wandb_out_history(o, &step, 1, err), 0);
    assert_int_equal(wandb_out_stats(o, &load, 1, err), 0);
    assert_int_equal(wandb_out_line(o, "trained", err), 0);
    assert_int_equal(wandb_out_end(o, 3, err), 0);
    log = read_log(text_of("%s/run-abcd1234.wandb", in));
    assert_point(log, "train/loss", 0, 0, 1);
    assert_point(log, "train/loss", 1999, 1999, 1.0 / 2000);
    assert_point(log, "system/cpu", 0, 0, 12.5);
    assert_non_null(run_log_find(log, "gradients/w", 11, "histogram"));
    assert_string_equal(json_string_value(json_object_get(log->info, "run_id")), "abcd1234");
    assert_string_equal(json_string_value(json_object_get(log->info, "project")), "p");
    assert_string_equal(json_string_value(json_object_get(log->info, "name")), "a name");
    assert_string_equal(json_string_value(json_object_get(log->info, "group")), "g");
    assert_int_equal(json_array_size(json_object_get(log->info, "run_tags")), 2);
    assert_int_equal(json_integer_value(json_object_get(log->info, "exit_code")), 3);
    assert_float_equal(summary_of(log, "train/loss"), 1.0 / 2000, 1e-12);
    assert_float_equal(json_number_value(json_object_get(json_object_get(log->info, "config"),
                                                         "learning_rate")), 5e-5, 1e-12);
    run_log_free(log);
    file = golden_json(text_of("%s/files/wandb-summary.json", in));
    assert_float_equal(json_number_value(json_object_get(file, "train/loss")), 1.0 / 2000, 1e-12);
    json_decref(file);
    file = golden_json(text_of("%s/files/wandb-metadata.json", in));
    assert_string_equal(json_string_value(json_object_get(file, "program")), "ckpt-train");
    json_decref(file);
    size_t n;
    config = slurp(text_of("%s/files/config.yaml", in), &n);
    assert_non_null(strstr(config, "\"learning_rate\":\n    value: 5e-05"));
    free((void *)(uintptr_t)config);
    assert_int_equal(readlink(text_of("%s/wandb/latest-run", dir), (char[256]){0}, 255),
                     (ssize_t)strlen(strrchr(in, '/') + 1));
}

/* Short records in some hundred blocks: their ends lie at every distance from a block's. */
TEST_ERR(records_end_anywhere_in_blocks)
{
    struct wandb_out *o = open_run("short", err);
    const char *path;
    struct run_log *log;
    struct stat st = {0};
    uint64_t n = 0;

    assert_non_null(o);
    path = text_of("%s/run-short.wandb", wandb_out_dir(o));
    for (; st.st_size < (off_t)8 << 20; n += 100) {
        for (int i = 0; i < 100; i++)
            assert_int_equal(wandb_out_line(o, i % 3 ? "" : "x", err), 0);
        assert_int_equal(stat(path, &st), 0);
    }
    wandb_out_close(o);
    log = read_log(path);
    assert_true(log->records >= n);
    run_log_free(log);
}

#define BLOCK     32768
#define DISTANCES 12            /* beyond the seven bytes before a chunk's data */

/* A line that fills the block but for `distance` bytes, or one on the way there.  Its length is a
 * guess: the time in a record has four or five bytes. */
static size_t next_length(off_t size, off_t distance, size_t overhead)
{
    off_t room = BLOCK - size % BLOCK - distance;

    return room > 3000 ? 1500 : room > 1700 ? (size_t)room - 800
           : room > (off_t)overhead ? (size_t)room - overhead : 100;
}

TEST_ERR(records_end_at_every_distance_from_a_block)
{
    struct wandb_out *o = open_run("near", err);
    const char *path = text_of("%s/run-near.wandb", wandb_out_dir(o));
    unsigned hit = 0, all = (1u << DISTANCES) - 1;
    size_t overhead = 50;
    struct run_log *log;
    uint64_t n = 0;

    for (; hit != all && n < 50000; n++) {
        struct stat was = {0}, is = {0};
        char text[1601];
        size_t len;

        assert_int_equal(stat(path, &was), 0);
        len = next_length(was.st_size, __builtin_ctz(~hit), overhead);
        memset(text, 'x', len);
        text[len] = '\0';
        assert_int_equal(wandb_out_line(o, text, err), 0);
        assert_int_equal(stat(path, &is), 0);
        if (was.st_size / BLOCK == (is.st_size - 1) / BLOCK)
            overhead = (size_t)(is.st_size - was.st_size) - len;
        if ((BLOCK - is.st_size % BLOCK) % BLOCK < DISTANCES)
            hit |= 1u << (BLOCK - is.st_size % BLOCK) % BLOCK;
    }
    assert_int_equal(hit, all);
    assert_int_equal(wandb_out_line(o, "the last", err), 0);
    wandb_out_close(o);
    log = read_log(path);
    assert_true(log->records > n);
    run_log_free(log);
}

TEST_ERR(an_id_that_leads_elsewhere_is_refused)
{
    static const char *const bad[] = {"../x", "", "a b/c", "0123456789012345678901234567890123456789"
                                      "0123456789012345678901234567890123456789"};

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_null(open_run(bad[i], err));
        assert_non_null(strstr(err->text, "WANDB_RUN_ID"));
    }
    assert_int_equal(entries(dir), 0);
}

/* -- histograms ------------------------------------------------------------------------------- */

TEST(buckets_hold_all_numbers_between_their_limits)
{
    static struct histogram h;
    double limit[HISTOGRAM_BUCKETS], count[HISTOGRAM_BUCKETS], sum = 0;
    float v[1000];
    size_t n;

    memset(&h, 0, sizeof h);
    for (int i = 0; i < 1000; i++)
        v[i] = (float)sin(i) * (i % 7 ? 1e-3f : 1e3f);
    v[10] = 0;
    v[11] = -0.0f;
    v[12] = (float)NAN;
    v[13] = (float)INFINITY;
    histogram_add(&h, v, 400);
    histogram_add(&h, v + 400, 600);
    assert_int_equal(h.n, 998);
    assert_int_equal(h.not_finite, 2);
    n = histogram_buckets(&h, limit, count);
    assert_true(n > 10);
    for (size_t i = 0; i < n; i++) {
        size_t between = 0;

        assert_true(i == 0 || limit[i] > limit[i - 1]);
        for (int k = 0; k < 1000; k++)
            between += isfinite(v[k]) && (double)fabsf(v[k]) > 0 && (double)v[k] < limit[i] &&
                       (i == 0 || (double)v[k] > limit[i - 1]);
        if (limit[i] > 1e-30 || limit[i] < -1e-30)
            assert_true((double)between <= count[i]);
        sum += count[i];
    }
    assert_float_equal(sum, 998, 0);
    assert_true(limit[n - 1] >= h.max);
}

TEST(even_buckets_keep_the_count)
{
    static struct histogram h;
    double edge[65];
    uint64_t count[64], sum = 0, middle = 0;
    const float one = 2.5f;

    memset(&h, 0, sizeof h);
    for (int i = 0; i < 6400; i++) {
        float v = (float)i / 100.0f;

        histogram_add(&h, &v, 1);
    }
    histogram_even(&h, edge, count, 64);
    for (int i = 0; i < 64; i++) {
        sum += count[i];
        middle += i >= 16 && i < 48 ? count[i] : 0;
    }
    assert_int_equal(sum, 6400);
    assert_in_range(middle, 3100, 3300);
    assert_float_equal(edge[0], 0, 0);
    assert_float_equal(edge[64], 63.99, 1e-4);
    memset(&h, 0, sizeof h);
    histogram_add(&h, &one, 1);
    histogram_even(&h, edge, count, 64);
    sum = 0;
    for (int i = 0; i < 64; i++)
        sum += count[i];
    assert_int_equal(sum, 1);
    assert_true(edge[0] < 2.5 && edge[64] > 2.5);
}

/* -- a full disk ------------------------------------------------------------------------------ */

/* A write that fails in its middle leaves the file as it was; what comes later is whole. */
TEST_ERR(a_record_that_does_not_fit_is_not_half_there)
{
    struct rlimit was, small;
    const struct log_number row = {"train/loss", 1};
    struct tfevents_out *o;
    struct run_log *log;
    const char *path;
    struct stat st;
    int failed = 0;

    assert_int_equal(tfevents_out_open(&o, dir, err), 0);
    path = only_file(dir, "tfevents");
    assert_int_equal(tfevents_out_scalars(o, 1, &row, 1, err), 0);
    assert_int_equal(stat(path, &st), 0);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    small = was;
    small.rlim_cur = (rlim_t)st.st_size + 20;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    for (int64_t i = 2; i < 4; i++)
        failed += tfevents_out_scalars(o, i, &row, 1, err) == CKPT_EIO;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    assert_int_equal(failed, 2);
    assert_non_null(strstr(err->text, path));
    log = read_log(path);
    assert_int_equal(log->records, 2);
    run_log_free(log);
    assert_int_equal(tfevents_out_scalars(o, 4, &row, 1, err), 0);
    tfevents_out_close(o);
    log = read_log(path);
    assert_point(log, "train/loss", 1, 4, 1);
    run_log_free(log);
}

/* A run of both writers; the first failure, or 0. */
static int write_all(const char *where, struct ckpt_err *err)
{
    const struct log_number row = {"train/loss", 1};
    json_t *config = json_pack("{s:i}", "n", 1);
    const struct wandb_out_run run = {.dir = where, .id = "abc", .project = "p", .config = config,
                                      .program = "t", .step_metric = "s"};
    static struct histogram h;
    struct tfevents_out *events = NULL;
    struct wandb_out *w = NULL;
    const float v = 1;
    int rc = tfevents_out_open(&events, where, err);

    memset(&h, 0, sizeof h);
    histogram_add(&h, &v, 1);
    if (rc == 0)
        rc = tfevents_out_scalars(events, 1, &row, 1, err);
    if (rc == 0)
        rc = tfevents_out_histogram(events, 1, "h", &h, err);
    tfevents_out_close(events);
    if (rc == 0)
        rc = wandb_out_open(&w, &run, err);
    if (rc == 0)
        rc = wandb_out_histogram(w, "h", &h, err);
    if (rc == 0)
        rc = wandb_out_history(w, &row, 1, err);
    if (w && rc == 0) {
        rc = wandb_out_end(w, 0, err);
        w = NULL;
    }
    wandb_out_close(w);
    json_decref(config);
    return rc;
}

/* Every log below a directory is whole, and no file of any is left aside. */
static void assert_whole(const char *in)
{
    struct dirent *e;
    DIR *d = opendir(in);

    while (d && (e = readdir(d)) != NULL) {
        const char *path = text_of("%s/%s", in, e->d_name);
        struct stat st;

        assert_null(strstr(e->d_name, ".new"));
        if (e->d_name[0] == '.' || lstat(path, &st))
            continue;
        if (S_ISDIR(st.st_mode))
            assert_whole(path);
        else if (S_ISREG(st.st_mode) && !strstr(in, "files") && st.st_size > 7)
            run_log_free(read_log(path));
    }
    if (d)
        closedir(d);
}

TEST(failures_leave_whole_records)
{
    for (struct faults f = {.kinds = FAULT(ALLOC) | FAULT(WRITE) | FAULT(RENAME), .later = true};
         faults_next(&f);) {
        struct ckpt_err err = {0};
        const char *where = scratch("log-out");
        int rc;

        faults_arm(&f);
        rc = write_all(where, &err);
        faults_disarm(&f);
        faults_told(&f, rc, &err, "writing reports");
        if (f.struck)
            assert_int_not_equal(rc, 0);
        assert_whole(where);
    }
}
