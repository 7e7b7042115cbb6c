/* split/rows - see rows.h. */
#include "tools/eval/split/rows.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "libckpt/mem.h"
#include "tools/cli.h"
#include "trainer/comm/comm.h"

#define MOST   ((uint64_t)1 << 30)      /* bytes of a row's texts */
#define CHUNK  65536                    /* bytes that are received at once */

/* Before the texts, which end in NUL. */
struct head {
    uint64_t index;
    int64_t  n_tokens;
    uint64_t n_text, n_logprobs;        /* bytes with the NUL; 0: there are none */
    uint64_t stopped;
};

/* One connection, as the first rank sees it. */
struct sender {
    int    fd;                          /* -1: its rows have ended */
    char  *data;                        /* [n] that are no whole row yet */
    size_t n, cap;
};

struct split_rows {
    int            out;                 /* to the first rank; -1 */
    struct sender *sender;              /* [n] */
    struct pollfd *poll;                /* [n] */
    size_t         n;
};

/* -- connecting ------------------------------------------------------------------------------- */

/* A listening socket with a name of the system's choice. */
static int hang_out(int *fd, struct sockaddr_un *name, socklen_t *len, size_t n,
                    struct ckpt_err *err)
{
    *name = (struct sockaddr_un){.sun_family = AF_UNIX};
    *len = sizeof *name;
    *fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (*fd < 0 || bind(*fd, (struct sockaddr *)name, sizeof name->sun_family) ||
        listen(*fd, (int)n + 16) || getsockname(*fd, (struct sockaddr *)name, len))
        return ckpt_fail_errno(err, CKPT_ECOMM, errno, "a socket for the rows of other ranks");
    return 0;
}

static int reach(struct split_rows *r, const struct sockaddr_un *name, socklen_t len,
                 struct ckpt_err *err)
{
    r->out = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (r->out < 0 || connect(r->out, (const struct sockaddr *)name, len))
        return ckpt_fail_errno(err, CKPT_ECOMM, errno, "the socket of the first rank");
    return 0;
}

/* All others have connected: their connections wait, and perhaps a stranger's. */
static int accept_all(struct split_rows *r, int fd, size_t n, struct ckpt_err *err)
{
    while (r->n < n) {
        struct ucred who;
        socklen_t len = sizeof who;
        int got = accept4(fd, NULL, NULL, SOCK_CLOEXEC);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return ckpt_fail_errno(err, CKPT_ECOMM, errno, "the connection of another rank");
        if (getsockopt(got, SOL_SOCKET, SO_PEERCRED, &who, &len) == 0 && who.uid == geteuid())
            r->sender[r->n++].fd = got;
        else
            close(got);
    }
    return 0;
}

int split_rows_open(struct split_rows **out, struct split *s, struct ckpt_err *err)
{
    struct comm *c = split_comm(s);
    size_t n = (size_t)c->world_size - 1;
    struct split_rows *r = ckpt_alloc(1, sizeof *r);
    struct sockaddr_un name = {0};
    socklen_t len = 0;
    int fd = -1, rc = 0;

    *out = r;
    if (r) {
        r->out = -1;
        r->sender = ckpt_alloc(n, sizeof *r->sender);
        r->poll = ckpt_alloc(n, sizeof *r->poll);
    }
    if (!r || !r->sender || !r->poll)
        rc = ckpt_nomem(err, n * sizeof *r->sender);
    else if (split_first(s))
        rc = hang_out(&fd, &name, &len, n, err);
    if ((rc = split_agree(s, rc, err)) == 0) {
        comm_broadcast(c, &name, sizeof name, CKPT_U8, 0);
        comm_broadcast(c, &len, sizeof len, CKPT_U8, 0);
        rc = comm_error(c, err);
        if (rc == 0 && !split_first(s))
            rc = reach(r, &name, len, err);
        rc = split_agree(s, rc, err);
    }
    if (rc == 0 && split_first(s))
        rc = accept_all(r, fd, n, err);
    if (fd >= 0)
        close(fd);
    return split_agree(s, rc, err);
}

void split_rows_close(struct split_rows *r)
{
    if (!r)
        return;
    if (r->out >= 0)
        close(r->out);
    for (size_t i = 0; i < r->n; i++) {
        if (r->sender[i].fd >= 0)
            close(r->sender[i].fd);
        ckpt_free(r->sender[i].data);
    }
    ckpt_free(r->sender);
    ckpt_free(r->poll);
    ckpt_free(r);
}

/* -- sending ---------------------------------------------------------------------------------- */

static int send_all(int fd, const void *bytes, size_t n, struct ckpt_err *err)
{
    const char *at = bytes;

    while (n > 0) {
        ssize_t k = send(fd, at, n, MSG_NOSIGNAL);

        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return ckpt_fail_errno(err, CKPT_ECOMM, errno, "the first rank takes no rows");
        at += k;
        n -= (size_t)k;
    }
    return 0;
}

int split_rows_put(struct split_rows *r, const struct split_row *row, struct ckpt_err *err)
{
    struct head h = {.index = row->index, .n_tokens = row->n_tokens, .stopped = row->stopped,
                     .n_text = strlen(row->text) + 1,
                     .n_logprobs = row->logprobs ? strlen(row->logprobs) + 1 : 0};
    int rc = h.n_text + h.n_logprobs > MOST ? ckpt_nomem(err, MOST)
                                            : send_all(r->out, &h, sizeof h, err);

    rc = rc ? rc : send_all(r->out, row->text, h.n_text, err);
    return rc ? rc : send_all(r->out, row->logprobs, h.n_logprobs, err);
}

/* -- taking ----------------------------------------------------------------------------------- */

typedef int take_fn(void *ctx, const struct split_row *row, struct ckpt_err *err);

/* Give the whole rows of what has been received. */
static int give(struct sender *s, take_fn *take, void *ctx, struct ckpt_err *err)
{
    size_t at = 0;
    int rc = 0;

    while (rc == 0 && s->n - at >= sizeof(struct head)) {
        const char *text = s->data + at + sizeof(struct head);
        struct split_row row;
        struct head h;
        uint64_t all;

        memcpy(&h, s->data + at, sizeof h);
        if (h.n_text == 0 || h.n_text > MOST || h.n_logprobs > MOST)
            return ckpt_fail(err, CKPT_ECOMM, "another rank sent what is no row");
        all = sizeof h + h.n_text + h.n_logprobs;
        if (s->n - at < all)
            break;
        row = (struct split_row){.index = (size_t)h.index, .n_tokens = h.n_tokens, .text = text,
                                 .stopped = h.stopped,
                                 .logprobs = h.n_logprobs ? text + h.n_text : NULL};
        rc = take(ctx, &row, err);
        at += (size_t)all;
    }
    memmove(s->data, s->data + at, s->n - at);
    s->n -= at;
    return rc;
}

/* Receive what is there: 1 when there was something, 0 when there was not. */
static int hear(struct sender *s, struct ckpt_err *err)
{
    ssize_t k;
    int rc = ckpt_reserve_all(&(struct ckpt_array){&s->data, 1}, 1, &s->cap, s->n + CHUNK, err);

    if (rc)
        return rc;
    k = recv(s->fd, s->data + s->n, CHUNK, MSG_DONTWAIT);
    if (k < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (k <= 0) {                       /* if it failed, the ranks agree on why */
        close(s->fd);
        s->fd = -1;
        return 0;
    }
    s->n += (size_t)k;
    return 1;
}

int split_rows_take(struct split_rows *r, bool all, take_fn *take, void *ctx,
                    struct ckpt_err *err)
{
    for (;;) {
        size_t open = 0;
        int n, rc;

        for (size_t i = 0; i < r->n; i++) {
            r->poll[i] = (struct pollfd){.fd = r->sender[i].fd, .events = POLLIN};
            open += r->sender[i].fd >= 0;
        }
        if (open == 0)
            return 0;
        n = poll(r->poll, r->n, all ? 1000 : 0);
        if (cli_stop)
            return cli_stopped(err);
        if (n <= 0 && !all)
            return 0;
        for (size_t i = 0; n > 0 && i < r->n; i++)
            if (r->poll[i].fd >= 0 && r->poll[i].revents) {
                if ((rc = hear(&r->sender[i], err)) < 0 ||
                    (rc = give(&r->sender[i], take, ctx, err)) != 0)
                    return rc;
            }
    }
}
