/* outputs - see outputs.h. */
#include "tools/eval/outputs.h"

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

int outputs_check(const struct eval_want *w, struct ckpt_err *err)
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
