/*
 * watch - the ranks of one try on this host, as their supervisor sees them: what they have said
 * (watch.c), and what follows from it (verdict.c).
 */
#ifndef CKPT_TRAINER_LAUNCH_WATCH_H
#define CKPT_TRAINER_LAUNCH_WATCH_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libckpt/fail.h"
#include "trainer/launch/launch.h"
#include "trainer/launch/restart.h"

struct supervise_opts;

/* One rank, as it is heard. */
struct peer {
    int    pidfd;
    bool   bye, lost, agreed;
    int    status;                      /* with bye */
    double heard, lost_at;
    char   phase[96];
    uint64_t progress, collectives;     /* as the rank said them last */
    double moved;                       /* when progress went up */
    char   last[32];                    /* collective that it began */
    struct ckpt_err *err;               /* its own failure, or NULL */
};

struct watch {
    const struct supervise_opts *o;
    const struct restart_try    *t;
    struct restart_end          *end;
    struct launch launch;
    struct peer  *peer;                 /* [n] */
    size_t        n;
    struct pollfd *poll;                /* [n + 2] */
    int           asked;                /* the signal that was passed on; 0: none */
    bool          at_once;              /* a second one came */
    bool          left;                 /* the launcher of several hosts is gone */
    bool          killed;               /* a rank was, by a signal of nobody here */
    char          said[32];             /* by the launcher: the line so far */
    char          host[65];             /* this one's name */
    double        now;
    double        asked_at, failed_at, echo_at, quiet_at;       /* 0: not yet */
    struct ckpt_err verdict;            /* what the supervisor itself found */
};

static inline bool watch_since(const struct watch *w, double then, double seconds)
{
    return then > 0 && w->now - then >= seconds;
}

/* Whether a failure only follows from that of a peer: no reason to name where there is another. */
bool watch_follows(const struct ckpt_err *err);
/* Take what rank r of those here has sent. */
void watch_hear(struct watch *w, size_t r);
/* What was not heard while this process was held up is no silence. */
void watch_hear_all(struct watch *w);

#endif
