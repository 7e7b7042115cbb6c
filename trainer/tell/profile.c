/* profile - see profile.h. */
#include "trainer/tell/profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/log.h"
#include "trainer/ops/profile.h"

enum { WARM = 3, STEPS = 10 };

/* The table, line by line. */
static int tell(struct profile *p, int64_t steps, struct ckpt_err *err)
{
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    int rc = to ? 0 : ckpt_fail(err, CKPT_ENOMEM, "no memory for a profile's table");

    if (to) {
        profile_print(p, to, steps);
        if (fclose(to))
            rc = ckpt_fail(err, CKPT_ENOMEM, "no memory for a profile's table");
    }
    for (char *line = text, *end; rc == 0 && line && (end = strchr(line, '\n')); line = end + 1)
        ckpt_log(CKPT_LOG_NOTE, "%.*s", (int)(end - line), line);
    free(text);
    return rc;
}

int profile_advance(struct profile_run *r, struct device *dev, int64_t done, int64_t all,
                     struct ckpt_err *err)
{
    int64_t from = all > WARM + 1 ? WARM : 0;
    int rc = 0;

    if (r->on && (done == all || done == r->from + STEPS)) {
        rc = tell(r->on, done - r->from, err);
        profile_end(r);
    } else if (!r->on && done == from && done < all) {
        rc = profile_on(&r->on, dev, err);
        r->from = done;
    }
    return rc;
}

void profile_end(struct profile_run *r)
{
    profile_off(r->on);
    r->on = NULL;
}
