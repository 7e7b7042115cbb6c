/* files - see files.h. */
#include "tools/eval/files.h"

#include <glob.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/records/dir.h"
#include "libckpt/err.h"
#include "libckpt/io/path.h"
#include "tools/eval/rows_out.h"

/* Whether two names are one file's, which need not be there. */
static bool same_file(const char *a, const char *b)
{
    struct stat here, there;

    if (strcmp(a, b) == 0)
        return true;
    return stat(a, &here) == 0 && S_ISREG(here.st_mode) && stat(b, &there) == 0 &&
           here.st_dev == there.st_dev && here.st_ino == there.st_ino;
}

/* Whether an output is one of the files of data of a folder. */
static bool is_in(const char *file, const char *folder, const struct eval_want *w)
{
    struct ckpt_arena arena = {0};
    struct ckpt_err ignored = {0};
    struct ckpt_dir *dir = NULL;
    const char **name = NULL;
    char path[4096];
    bool is = false;
    size_t n = 0;

    if (records_dir_list(&dir, &name, &n, folder, w->rows.rows.config, NULL, &arena, &ignored) == 0)
        for (size_t i = 0; !is && i < n; i++)
            is = snprintf(path, sizeof path, "%s/%s", folder, name[i]) < (int)sizeof path &&
                 same_file(file, path);
    ckpt_dir_close(dir);
    ckpt_arena_release(&arena);
    return is;
}

/* Whether an output is one of the files that a path of data means: it, those of a folder, or those
 * that match a pattern. */
static bool is_data(const char *file, const char *data, const struct eval_want *w)
{
    struct stat st;
    glob_t found;
    bool is = false;

    if (same_file(file, data))
        return true;
    if (stat(file, &st) != 0 || ckpt_path_is_remote(data))
        return false;
    if (ckpt_path_is_dir(data))
        return is_in(file, data, w);
    if (!strpbrk(data, "*?[") || lstat(data, &st) == 0 || glob(data, 0, NULL, &found) != 0)
        return false;
    for (size_t i = 0; !is && i < found.gl_pathc; i++)
        is = ckpt_path_is_dir(found.gl_pathv[i]) ? is_in(file, found.gl_pathv[i], w)
                                                 : same_file(file, found.gl_pathv[i]);
    globfree(&found);
    return is;
}

int files_check(const struct eval_want *w, struct ckpt_err *err)
{
    static const char *const option[] = {"predictions-out", "html", "logits", "hidden"};
    const char *const of[] = {w->predictions_out, w->html, w->logits, w->hidden};
    int rc = 0;

    if (w->pass_through && of[0] && strcmp(of[0], "-") == 0)
        return ckpt_fail(err, CKPT_EUSAGE, "--predictions-out - and --pass-through: standard "
                         "output is either for rows or for paths");
    for (size_t i = 1; i < sizeof of / sizeof of[0]; i++)
        if (of[i] && strcmp(of[i], "-") == 0)
            return ckpt_fail(err, CKPT_EUSAGE, "--html, --logits, --hidden: a name of a file is "
                             "wanted, not -");
    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) {
        for (size_t k = 0; of[i] && k < i; k++)
            if (of[k] && same_file(of[i], of[k]))
                return ckpt_fail(err, CKPT_EUSAGE, "--%s and --%s: %s is one file", option[k],
                                 option[i], of[i]);
        for (size_t k = 0; of[i] && k < w->data.n; k++)
            if (strcmp(of[i], "-") != 0 && is_data(of[i], w->data.item[k], w))
                return ckpt_fail(err, CKPT_EUSAGE, "--%s: %s is the data", option[i], of[i]);
    }
    for (size_t i = 0; rc == 0 && i < sizeof of / sizeof of[0]; i++)
        rc = of[i] ? rows_out_check(of[i], w->overwrite, err) : 0;
    return rc;
}

static bool is_stdin(const char *path)
{
    return path && (strcmp(path, "-") == 0 || strcmp(path, "/dev/stdin") == 0);
}

static size_t count_stdin(const char *const *path, size_t n)
{
    size_t count = 0;

    for (size_t i = 0; i < n; i++)
        count += is_stdin(path[i]);
    return count;
}

int files_check_stdin(const struct eval_want *w, char *const *rest, int n_rest,
                      struct ckpt_err *err)
{
    bool scored = w->predictions.file.n > 0;
    bool models = !scored && (n_rest == 0 ||
                              count_stdin((const char *const *)rest, (size_t)n_rest) > 0);
    const struct { const char *option; size_t times; } of[] = {
        {"predictions", count_stdin(w->predictions.file.item, w->predictions.file.n)},
        {"base-predictions", is_stdin(w->predictions.base)},
        {"eval-file", count_stdin(w->data.item, w->data.n)},
        {"chat-template", is_stdin(w->rows.chat_template)},
        {"base", is_stdin(w->base)},
    };
    const char *first = NULL;

    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) {
        if (of[i].times == 0)
            continue;
        if (models)
            return ckpt_fail(err, CKPT_EUSAGE, "--%s - takes standard input: name the models",
                             of[i].option);
        first = of[i].times > 1 ? of[i].option : first;
        if (first)
            return ckpt_fail(err, CKPT_EUSAGE, "--%s - takes standard input: name a file for --%s",
                             first, of[i].option);
        first = of[i].option;
    }
    return 0;
}
