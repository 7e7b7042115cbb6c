/* comm/same - see same.h. */
#include "trainer/comm/same.h"

#include <string.h>

#include "libckpt/base/buf.h"
#include "libckpt/mem.h"

#define MAX_TEXT ((size_t)1 << 20)

/*
 * This rank's lines against rank 0's, size bytes of text with a NUL behind each: values may have
 * line ends in them, as templates do.
 */
static int compare(const char *const *line, size_t n, const char *text, size_t size,
                   struct ckpt_err *err)
{
    const char *end = text + size;

    for (size_t i = 0; i < n; i++) {
        size_t len = text < end ? strlen(text) : 0, name = strcspn(line[i], " ");

        if (strlen(line[i]) != len || memcmp(line[i], text, len) != 0)
            return ckpt_fail_as(err, CKPT_ECONFIG, "mismatch", "`%.*s` is %s here, rank 0 has %.*s",
                                (int)name, line[i], line[i] + name + (line[i][name] == ' '),
                                len > name ? (int)(len - name - 1) : 0,
                                len > name ? text + name + 1 : text);
        text += len + (text < end);
    }
    return text == end ? 0
                       : ckpt_fail_as(err, CKPT_ECONFIG, "mismatch", "rank 0 has more settings: "
                                      "`%.*s`", (int)strcspn(text, " "), text);
}

int comm_same(struct comm *c, const char *const *line, size_t n, struct ckpt_err *err)
{
    struct ckpt_buf b;
    int64_t size;
    char *text = NULL;
    int rc = 0;

    if (c->world_size == 1)
        return 0;
    ckpt_buf_init(&b, MAX_TEXT);
    for (size_t i = 0; i < n; i++)
        ckpt_buf_put(&b, line[i], strlen(line[i]) + 1);
    size = ckpt_buf_ok(&b) ? (int64_t)b.len : -1;
    comm_broadcast(c, &size, 1, CKPT_I64, 0);
    if ((rc = comm_error(c, err)) == 0 && (size < 0 || size > (int64_t)MAX_TEXT))
        rc = ckpt_nomem(err, MAX_TEXT);
    if (rc == 0 && !(text = ckpt_alloc((size_t)size + 1, 1)))
        rc = ckpt_nomem(err, (size_t)size);
    rc = comm_agree(c, rc, err);
    if (rc == 0 && text) {
        if (c->rank == 0)
            memcpy(text, b.data, (size_t)size);
        text[size] = '\0';
        comm_broadcast(c, text, size, CKPT_U8, 0);
        rc = comm_error(c, err);
        rc = comm_agree(c, rc ? rc : compare(line, n, text, (size_t)size, err), err);
    }
    ckpt_free(text);
    ckpt_buf_release(&b);
    return rc;
}
