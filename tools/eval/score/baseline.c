/* baseline - see baseline.h. */
#include "tools/eval/score/baseline.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* The fields of a line, which ends before `end`; false: it is none. */
static bool take_line(int64_t *layer, double figure[3], const char *at, const char *end)
{
    char *past;

    errno = 0;
    *layer = strtoll(at, &past, 10);
    if (past == at || errno)
        return false;
    for (int k = 0; k < 3; k++) {
        at = past;
        if (at >= end || *at != ',')
            return false;
        figure[k] = strtod(++at, &past);
        if (past == at || past > end)
            return false;
    }
    while (past < end && strchr(" \t\r", *past))
        past++;
    return past == end;
}

int baseline_read(double figure[3], const char *text, size_t n, int64_t layer,
                  struct ckpt_err *err)
{
    const char *stop = text + n;
    int64_t found;

    for (const char *at = text; at < stop;) {
        const char *end = memchr(at, '\n', (size_t)(stop - at));

        end = end ? end : stop;
        if (take_line(&found, figure, at, end) && found == layer) {
            for (int k = 0; k < 3; k++)
                if (!(figure[k] > -1 && figure[k] < 1))
                    return ckpt_fail(err, CKPT_EFORMAT, "layer %lld: a value is not in (-1, 1)",
                                     (long long)layer);
            return 0;
        }
        at = end + 1;
    }
    return ckpt_fail(err, CKPT_EFORMAT, "no line of layer %lld", (long long)layer);
}
