/* objects - see objects.h. */
#include "tools/push/objects.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/err.h"
#include "libckpt/remote/lfs_http.h"
#include "tools/progress.h"
#include "tools/push/events.h"

#define STREAMS 4               /* transfers at once, where --jobs is not given */

struct sending {
    const struct push_objects *to;
    const struct push_plan    *p;
    struct lfs_object         *object;  /* [n], each oid once; of file `of` of the plan */
    size_t                    *of, n;
    struct progress           *progress;
    pthread_mutex_t            lock;    /* guards done and n_done */
    uint64_t                   done, total;
    size_t                     n_done;
};

static int open_object(void *ctx, size_t i, struct ckpt_file **out, struct ckpt_err *err)
{
    struct sending *s = ctx;

    return push_plan_open(out, s->p, s->of[i], s->to->follow, err);
}

static void advance(void *ctx, uint64_t bytes)
{
    struct sending *s = ctx;

    pthread_mutex_lock(&s->lock);
    s->done += bytes;
    progress_tick(s->progress, s->done, s->total);
    pthread_mutex_unlock(&s->lock);
}

static void done(void *ctx, size_t i, bool sent)
{
    struct sending *s = ctx;

    push_event_file(s->to->cli, &s->p->file[s->of[i]], sent);
    pthread_mutex_lock(&s->lock);
    progress_files(s->progress, ++s->n_done, s->n);
    pthread_mutex_unlock(&s->lock);
}

static int by_oid(const void *a, const void *b, void *ctx)
{
    const struct push_file *file = ctx;
    const size_t *x = a, *y = b;

    return strcmp(file[*x].oid, file[*y].oid);
}

static int collect(struct sending *s, struct push_plan *p, struct ckpt_err *err)
{
    size_t n = 0;

    s->of = ckpt_arena_alloc(&p->arena, p->n, sizeof *s->of);
    s->object = ckpt_arena_alloc(&p->arena, p->n, sizeof *s->object);
    if (!s->of || !s->object)
        return ckpt_nomem(err, p->n * sizeof *s->object);
    for (size_t i = 0; i < p->n; i++)
        if (p->file[i].lfs && p->file[i].oid[0])
            s->of[n++] = i;
    qsort_r(s->of, n, sizeof *s->of, by_oid, p->file);
    for (size_t k = 0; k < n; k++) {
        const struct push_file *f = &p->file[s->of[k]];

        if (k > 0 && strcmp(f->oid, s->object[s->n - 1].oid) == 0)
            continue;
        s->of[s->n] = s->of[k];
        s->object[s->n++] = (struct lfs_object){.oid = f->oid, .size = f->size, .name = f->from};
        s->total += f->size;
    }
    return 0;
}

int push_objects_send(const struct push_objects *to, struct push_plan *p, uint64_t *sent,
                      struct ckpt_err *err)
{
    struct sending s = {.to = to, .p = p, .lock = PTHREAD_MUTEX_INITIALIZER};
    struct lfs_server server = {.url = to->url, .name = to->name, .ref = to->ref, .auth = to->auth,
                                .streams = to->cli->jobs > 0 ? (size_t)to->cli->jobs : STREAMS,
                                .open = open_object, .progress = advance, .done = done,
                                .ctx = &s};
    int rc = collect(&s, p, err);

    *sent = 0;
    if (rc || s.n == 0)
        return rc;
    server.http = http_shared(err);
    if (!server.http)
        return ckpt_err_code(err);
    server.journal = journal_open(to->target);
    s.progress = progress_new(to->cli, "push", true);
    rc = lfs_send(&server, s.object, s.n, sent, err);
    progress_end(s.progress);
    journal_close(server.journal, rc == 0);
    return rc;
}
