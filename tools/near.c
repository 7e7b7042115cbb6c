/* near - see near.h. */
#include "tools/near.h"

#include <stdint.h>
#include <string.h>

#define MOST 200

static char dashed(char c) { return c == '_' ? '-' : c; }

/* Levenshtein distance, one row at a time. */
size_t near_edits(const char *a, size_t n, const char *b)
{
    size_t m = strlen(b), row[MOST + 1];

    if (n > MOST || m > MOST)
        return SIZE_MAX;
    for (size_t j = 0; j <= m; j++)
        row[j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t diagonal = row[0];

        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t best = diagonal + (dashed(a[i - 1]) != dashed(b[j - 1]));

            best = row[j] + 1 < best ? row[j] + 1 : best;
            best = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
            diagonal = row[j];
            row[j] = best;
        }
    }
    return row[m];
}
