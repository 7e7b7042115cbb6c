/* watch - see watch.h. */
#include "trainer/launch/watch.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "libckpt/mem.h"
#include "trainer/comm/control.h"

bool watch_follows(const struct ckpt_err *err)
{
    return err->code == CKPT_ECOMM || strcmp(err->reason, "peer-failed") == 0;
}

static void failed(struct watch *w, struct peer *p, const struct control_message *m)
{
    if (p->err)
        return;                         /* the first says why */
    p->err = ckpt_alloc(1, sizeof *p->err);
    if (!p->err)
        return;
    *p->err = m->err;
    p->agreed = m->value != 0;
    if (p->agreed)
        return;                         /* all leave by themselves */
    if (watch_follows(p->err) && w->echo_at == 0)
        w->echo_at = w->now;
    else if (!watch_follows(p->err) && w->failed_at == 0)
        w->failed_at = w->now;
}

static void lose(struct watch *w, size_t r)
{
    struct peer *p = &w->peer[r];

    close(w->launch.rank[r].control);
    w->launch.rank[r].control = -1;
    if (!p->bye && p->err) {            /* it said why */
        p->bye = true;
        p->status = ckpt_err_status(p->err->code);
    } else if (!p->bye) {
        p->lost = true;
        p->lost_at = w->now;
    }
}

static void beat(const struct watch *w, struct peer *p, const struct control_message *m)
{
    if (m->progress != p->progress)
        p->moved = w->now;
    p->progress = m->progress;
    p->collectives = m->collectives;
    ckpt_err_escape(p->last, sizeof p->last, m->text, strlen(m->text));
}

static void count_step(struct restart_end *end, const struct control_message *m)
{
    if (m->value == CONTROL_TRAIN && m->step > end->step)
        end->step = m->step;
    else if (m->value == CONTROL_SAVE && end->saving < 0)
        end->saving = m->step;
    else if (m->value == CONTROL_SAVED && m->step > end->saved)
        end->saved = m->step;
}

static void message(struct watch *w, struct peer *p, struct control_message *m)
{
    m->text[sizeof m->text - 1] = '\0';
    m->err.text[sizeof m->err.text - 1] = m->err.hint[sizeof m->err.hint - 1] = '\0';
    m->err.reason[sizeof m->err.reason - 1] = '\0';
    p->heard = w->now;
    if (m->kind == CONTROL_BEAT) {
        beat(w, p, m);
    } else if (m->kind == CONTROL_PHASE) {
        if (m->text[0])
            ckpt_err_escape(p->phase, sizeof p->phase, m->text, strlen(m->text));
        count_step(w->end, m);
    } else if (m->kind == CONTROL_ERROR) {
        failed(w, p, m);
    } else if (m->kind == CONTROL_BYE) {
        p->bye = true;
        p->status = m->value;
    }
}

void watch_hear(struct watch *w, size_t r)
{
    struct control_message m;
    ssize_t n;

    while (w->launch.rank[r].control >= 0) {
        n = recv(w->launch.rank[r].control, &m, sizeof m, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n != (ssize_t)sizeof m || m.version != CONTROL_VERSION)
            lose(w, r);
        else
            message(w, &w->peer[r], &m);
    }
}

void watch_hear_all(struct watch *w)
{
    for (size_t i = 0; i < w->n; i++)
        w->peer[i].heard = w->peer[i].moved = w->now;
}
