/* data - choose the file here that reports on a log, or on a file or folder of rows; see
 * inspect.h. */
#include <fnmatch.h>
#include <string.h>

#include "formats/logs/run_log.h"
#include "formats/records/record.h"
#include "formats/npy.h"
#include "tools/inspect/inspect.h"

enum kind { NO_DATA, DATA_LOG, DATA_PARQUET, DATA_ROWS };

/* Kind of a file by its first bytes and its name. */
static enum kind kind_of(const struct inspect_want *w, const char *path,
                         const unsigned char *head, size_t n)
{
    if (n >= 6 && memcmp(head, "\x93NUMPY", 6) == 0 &&
        (!npy_is_ids(head, n) || w->tree || w->verify || inspect_tensors_asked(w)))
        return NO_DATA;                 /* an array */
    return run_log_is(head, n) ? DATA_LOG
           : n >= 4 && memcmp(head, "PAR1", 4) == 0 ? DATA_PARQUET
           : records_is(path, head, n) && n > 0 ? DATA_ROWS : NO_DATA;
}

/* Refuse an option that does not apply to such a file. */
static int check_options(const struct inspect_want *w, enum kind kind, const char *path,
                         struct ckpt_err *err)
{
    const char *asked = w->tree ? "--tree" : inspect_tensors_asked(w);

    if (asked)
        return ckpt_fail(err, CKPT_EUSAGE, "%s: %s needs a checkpoint, this holds %s", path, asked,
                         kind == DATA_LOG ? "a log" : "rows");
    if (kind == DATA_LOG && w->rows >= 0)
        return ckpt_fail(err, CKPT_EUSAGE, "%s: --rows shows data, this holds a log", path);
    if (kind == DATA_PARQUET && w->plot)
        return ckpt_fail(err, CKPT_EUSAGE, "%s: --plot draws a log, this holds rows", path);
    return 0;
}

static int log_file(struct out *o, const struct inspect_want *w, const struct cli *cli,
                    struct ckpt_file *file, struct ckpt_err *err)
{
    struct run_log *log = NULL;
    int rc = run_log_read(&log, file, err);

    if (rc == 0)
        rc = inspect_log(o, w, cli->json, log, err);
    run_log_free(log);
    return rc ? ckpt_err_in(err, "%s", ckpt_file_name(file)) : 0;
}

static int data_file(struct out *o, const struct inspect_want *w, const struct cli *cli,
                     const char *path, struct ckpt_err *err)
{
    struct ckpt_file *file = NULL;
    enum kind kind = NO_DATA;
    unsigned char head[256];
    size_t n;
    int rc;

    if (ckpt_path_file(&file, path, cli->follow ? CKPT_FOLLOW : 0, err)) {
        ckpt_err_clear(err);            /* reported when it is opened as a checkpoint */
        return 1;
    }
    n = ckpt_file_size(file) < sizeof head ? (size_t)ckpt_file_size(file) : sizeof head;
    rc = n > 0 ? ckpt_file_read_at(file, head, n, 0, err) : 0;
    if (rc == 0)
        kind = kind_of(w, path, head, n);
    if (rc == 0 && kind != NO_DATA)
        rc = check_options(w, kind, path, err);
    if (rc == 0)
        rc = kind == DATA_LOG       ? log_file(o, w, cli, file, err)
             : kind == DATA_PARQUET ? inspect_parquet(o, w, cli->json, file, err)
             : kind == DATA_ROWS    ? inspect_rows(o, w, cli->json, path, err) : 1;
    ckpt_file_close(file);
    return rc;
}

/* Add a file to a folder's log. */
static int add_log(struct run_log **log, struct ckpt_dir *dir, const char *name,
                   struct ckpt_err *err)
{
    struct ckpt_file *file;
    int rc = ckpt_file_open_at(&file, dir, name, err);

    if (rc)
        return rc;
    rc = *log ? run_log_add(*log, file, err) : run_log_read(log, file, err);
    if (rc)
        ckpt_err_in(err, "%s", ckpt_file_name(file));
    ckpt_file_close(file);
    return rc;
}

/* The log in a folder: TensorBoard's files in the order of their names, which contain the time,
 * or the single W&B file.  *log NULL when there is none. */
static int read_logs(struct run_log **log, struct ckpt_dir *dir, struct ckpt_err *err)
{
    struct ckpt_arena arena = {0};
    struct ckpt_entry *entry;
    size_t n = 0;
    int rc = ckpt_dir_list(dir, &arena, &entry, &n, err);

    *log = NULL;
    for (size_t i = 0; rc == 0 && i < n; i++)
        if (entry[i].is_file && (fnmatch("*.tfevents.*", entry[i].name, 0) == 0 ||
                                 fnmatch("run-*.wandb", entry[i].name, 0) == 0))
            rc = add_log(log, dir, entry[i].name, err);
    ckpt_arena_release(&arena);
    return rc;
}

/* A folder with a log, one that datasets saved, or for a page a run; 1 when it is none. */
static int data_dir(struct out *o, const struct inspect_want *w, const struct cli *cli,
                    const char *path, struct ckpt_err *err)
{
    struct run_log *log = NULL;
    struct ckpt_dir *dir;
    bool saved;
    int rc = ckpt_path_dir(&dir, path, cli->follow ? CKPT_FOLLOW : 0, err);

    if (rc) {
        ckpt_err_clear(err);
        return 1;
    }
    saved = (ckpt_dir_has(dir, "state.json") && ckpt_dir_has(dir, "dataset_info.json")) ||
            ckpt_dir_has(dir, "dataset_dict.json");
    rc = saved ? 0 : read_logs(&log, dir, err);
    if (rc == 0 && (saved || log))
        rc = check_options(w, saved ? DATA_ROWS : DATA_LOG, path, err);
    if (rc == 0)
        rc = saved ? inspect_rows(o, w, cli->json, path, err)
             : log ? inspect_log(o, w, cli->json, log, err)
             : w->curves ? inspect_gather_dir(o, w, dir, err) : 1;
    ckpt_dir_close(dir);
    run_log_free(log);
    return rc;
}

int inspect_data(struct out *o, const struct inspect_want *w, const struct cli *cli,
                 const char *path, struct ckpt_err *err)
{
    return ckpt_path_is_file(path) ? data_file(o, w, cli, path, err) : 1;
}

int inspect_data_dir(struct out *o, const struct inspect_want *w, const struct cli *cli,
                     const char *path, struct ckpt_err *err)
{
    return ckpt_path_is_dir(path) ? data_dir(o, w, cli, path, err) : 1;
}
