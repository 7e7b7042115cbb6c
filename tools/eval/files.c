/* files - see files.h. */
#include "tools/eval/files.h"

#include <string.h>
#include <sys/stat.h>

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

int files_check(const struct eval_want *w, struct ckpt_err *err)
{
    static const char *const option[] = {"predictions-out", "html", "logits", "hidden"};
    const char *const of[] = {w->predictions_out, w->html, w->logits, w->hidden};
    int rc = 0;

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
            if (strcmp(of[i], "-") != 0 && same_file(of[i], w->data.item[k]))
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
