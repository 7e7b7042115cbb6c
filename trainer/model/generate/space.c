/* generate/space - see generate/space.h. */
#include "trainer/model/generate/space.h"

#include <string.h>

int64_t space_take(struct space *s, int64_t n)
{
    int64_t end = 0, i = 0;

    if (n == 0)
        return 0;
    for (; i < s->n && s->piece[i].first - end < n; i++)
        end = s->piece[i].first + s->piece[i].n;
    if (i == s->n && s->size - end < n)
        return -1;
    memmove(s->piece + i + 1, s->piece + i, (size_t)(s->n - i) * sizeof *s->piece);
    s->piece[i] = (struct space_piece){.first = end, .n = n};
    s->n++;
    return end;
}

void space_drop(struct space *s, int64_t first)
{
    int64_t i = 0;

    while (i < s->n && s->piece[i].first < first)
        i++;
    if (i == s->n || s->piece[i].first != first)
        return;
    s->n--;
    memmove(s->piece + i, s->piece + i + 1, (size_t)(s->n - i) * sizeof *s->piece);
}
