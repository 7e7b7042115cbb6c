/*
 * shared - see shared.h.
 *
 * Every rank has a window of SLOTS slots in the memory; it alone writes there, and all read.  A
 * collective goes in pieces that fit a slot, each in the slot after the last one's, and between
 * writing and reading stands a barrier.  Pieces are counted by all ranks alike.  A slot is written
 * again SLOTS pieces later; two barriers at least lie between, so that everybody has read it.
 * Ranks that were divided into groups (comm_split) have windows and teams of their own for each
 * way of dividing, since a peer of one group may still read what the next one's piece overwrites.
 *
 *     segment head | teams | rank 0: slot 0, 1, 2 | rank 1: slot 0, 1, 2 | ... | divided 1 | 2 ...
 *
 * Sums are rank 0's part + rank 1's + ..., as Gloo's (gloo.cc).
 */
#include "trainer/comm/shared.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "libckpt/mem.h"

#define MAGIC    0x72616e6bu            /* of this layout */
#define SLOTS    3
#define SLOT     ((int64_t)256 << 10)   /* bytes: slots of some ranks stay in a core's cache */
#define SMALL    ((int64_t)64 << 10)    /* bytes of all ranks up to which everyone sums all */
#define BLOCK    8192                   /* bytes that are summed at a time: they stay in L1 */
#define LINE     64                     /* bytes of a cache line */
#define MAX_RANKS 4096
#define SPINS    20000                  /* looks before a rank sleeps: some 0.2 ms */
#define DIVIDED  5                      /* times that ranks may be divided: into groups and across
                                           them, and for a thread's own use all of it again */
#define NAP_NS   100000000              /* a sleeper looks up at least so often */

/* Of one set of ranks that meet in a barrier. */
struct team {
    alignas(LINE) uint32_t arrived;     /* at the barrier that is next */
    alignas(LINE) uint32_t turn;        /* barriers that all have passed; a futex */
    uint32_t sleepers;
    uint32_t gone;                      /* 1 + a rank that has left; 0: none */
};

struct segment {
    uint32_t    magic, n;
    uint32_t    spins;
    struct team team[];                 /* of all; then n for each way of dividing */
};

struct comm_shared {
    struct comm     head;
    struct segment *segment;
    struct team    *team;
    char           *window;             /* [n][SLOTS][SLOT] */
    const char    **part;               /* [n]: what is summed */
    uint64_t        piece;              /* pieces so far */
    uint32_t        turn;               /* barriers so far */
    int             divided;            /* times */
    bool            is_part;            /* of another one, whose memory this is */
};

static struct comm_shared *self(struct comm *c) { return (struct comm_shared *)c; }

static int64_t head_bytes(int64_t n)
{
    int64_t bytes = (int64_t)(sizeof(struct segment) +
                              (size_t)(1 + DIVIDED * n) * sizeof(struct team));

    return (bytes + 4095) / 4096 * 4096;
}

static int64_t windows_bytes(int64_t n) { return n * SLOTS * SLOT; }

static int64_t segment_bytes(int64_t n) { return head_bytes(n) + (1 + DIVIDED) * windows_bytes(n); }

/* -- the barrier ------------------------------------------------------------------------------ */

static void mark(struct comm *c, const char *what, uint32_t gone)
{
    ckpt_fail_as(&c->err, CKPT_ECOMM, "peer-dead", "rank %d: %s: rank %u has left", c->rank, what,
                 gone - 1);
}

static void wake(struct team *t)
{
    if (__atomic_load_n(&t->sleepers, __ATOMIC_SEQ_CST))
        syscall(SYS_futex, &t->turn, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

/* Until turn is not what it was, or for a while. */
static void nap(struct team *t, uint32_t was)
{
    const struct timespec a_while = {.tv_nsec = NAP_NS};

    __atomic_add_fetch(&t->sleepers, 1, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, &t->turn, FUTEX_WAIT, was, &a_while, NULL, 0);
    __atomic_sub_fetch(&t->sleepers, 1, __ATOMIC_SEQ_CST);
}

static void relax(void)
{
#ifdef __x86_64__
    __builtin_ia32_pause();
#endif
}

/* Until all ranks are here.  False: one of them has left, and the handle is marked. */
static bool meet_all(struct comm *c, const char *what)
{
    struct comm_shared *s = self(c);
    struct team *t = s->team;
    uint32_t was = s->turn++, gone;
    uint32_t spins = s->segment->spins;

    if (__atomic_add_fetch(&t->arrived, 1, __ATOMIC_ACQ_REL) == (uint32_t)c->world_size) {
        __atomic_store_n(&t->arrived, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&t->turn, s->turn, __ATOMIC_SEQ_CST);
        wake(t);
        return true;
    }
    for (uint32_t i = 0; i < spins; i++) {
        if (__atomic_load_n(&t->turn, __ATOMIC_ACQUIRE) != was)
            return true;
        relax();
    }
    /* Who leaves has passed the barriers before: gone is looked at first, then turn once more. */
    for (;;) {
        gone = __atomic_load_n(&t->gone, __ATOMIC_SEQ_CST);
        if (__atomic_load_n(&t->turn, __ATOMIC_SEQ_CST) != was)
            return true;
        if (gone) {
            mark(c, what, gone);
            return false;
        }
        nap(t, was);
    }
}

/* -- sums ------------------------------------------------------------------------------------- */

/* name: sum[n] <- op of sum[n] and more[n], where add(a, b) is their sum. */
#define FOLD(name, type, add) \
    static void name(type *restrict sum, const type *restrict more, int64_t n, enum comm_op op) \
    { \
        if (op == COMM_SUM) \
            for (int64_t i = 0; i < n; i++) \
                sum[i] = add(sum[i], more[i]); \
        else if (op == COMM_MAX) \
            for (int64_t i = 0; i < n; i++) \
                sum[i] = sum[i] < more[i] ? more[i] : sum[i]; \
        else \
            for (int64_t i = 0; i < n; i++) \
                sum[i] = more[i] < sum[i] ? more[i] : sum[i]; \
    }
#define PLUS(a, b) ((a) + (b))
/* Integers wrap around, as MPI's and Gloo's do. */
#define WRAP(a, b) ((int64_t)((uint64_t)(a) + (uint64_t)(b)))

FOLD(fold_f32, float, PLUS)
FOLD(fold_f64, double, PLUS)
FOLD(fold_i64, int64_t, WRAP)

/* dst[n] <- part[0] + part[1] + ..., element by element; dst may be one of the parts. */
static void fold_parts(const struct comm_shared *s, char *dst, int64_t n, enum ckpt_dtype t,
                       enum comm_op op)
{
    alignas(LINE) char sum[BLOCK];
    const int64_t width = (int64_t)ckpt_dtype_size(t);

    for (int64_t at = 0; at < n * width; at += BLOCK) {
        int64_t bytes = n * width - at < BLOCK ? n * width - at : BLOCK, count = bytes / width;

        memcpy(sum, s->part[0] + at, (size_t)bytes);
        for (int r = 1; r < s->head.world_size; r++) {
            const void *more = s->part[r] + at;

            if (t == CKPT_F32)
                fold_f32((float *)sum, more, count, op);
            else if (t == CKPT_F64)
                fold_f64((double *)sum, more, count, op);
            else
                fold_i64((int64_t *)sum, more, count, op);
        }
        memcpy(dst + at, sum, (size_t)bytes);
    }
}

/* -- collectives ------------------------------------------------------------------------------ */

static char *slot_of(const struct comm_shared *s, int rank, uint64_t piece)
{
    return s->window + ((int64_t)rank * SLOTS + (int64_t)(piece % SLOTS)) * SLOT;
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Everyone sums all. */
static void reduce_small(struct comm *c, char *buf, int64_t n, enum ckpt_dtype t, enum comm_op op)
{
    struct comm_shared *s = self(c);

    memcpy(slot_of(s, c->rank, s->piece), buf, (size_t)n * ckpt_dtype_size(t));
    if (!meet_all(c, "all_reduce"))
        return;
    for (int r = 0; r < c->world_size; r++)
        s->part[r] = slot_of(s, r, s->piece);
    fold_parts(s, buf, n, t, op);
    s->piece++;
}

/* One piece of a large buffer: rank r sums its elements from share(r) up to share(r + 1). */
struct piece {
    char    *buf;
    int64_t  n, width;                  /* elements, and bytes of each */
    uint64_t number;
};

/* In bytes; whole lines, that no two ranks write to the same. */
static int64_t share(const struct comm *c, const struct piece *p, int rank)
{
    int64_t lines = (p->n * p->width + LINE - 1) / LINE;

    return least(lines * rank / c->world_size * LINE, p->n * p->width);
}

/* What the others sum. */
static void put_piece(struct comm *c, const struct piece *p)
{
    char *slot = slot_of(self(c), c->rank, p->number);
    int64_t from = share(c, p, c->rank), to = share(c, p, c->rank + 1);

    memcpy(slot, p->buf, (size_t)from);
    memcpy(slot + to, p->buf + to, (size_t)(p->n * p->width - to));
}

static void sum_piece(struct comm *c, const struct piece *p, enum ckpt_dtype t, enum comm_op op)
{
    struct comm_shared *s = self(c);
    int64_t from = share(c, p, c->rank), to = share(c, p, c->rank + 1);

    for (int r = 0; r < c->world_size; r++)
        s->part[r] = (r == c->rank ? p->buf : slot_of(s, r, p->number)) + from;
    fold_parts(s, p->buf + from, (to - from) / p->width, t, op);
    memcpy(slot_of(s, c->rank, p->number) + from, p->buf + from, (size_t)(to - from));
}

static void take_piece(struct comm *c, const struct piece *p)
{
    for (int d = 1; d < c->world_size; d++) {
        int r = (c->rank + d) % c->world_size;
        int64_t from = share(c, p, r), to = share(c, p, r + 1);

        memcpy(p->buf + from, slot_of(self(c), r, p->number) + from, (size_t)(to - from));
    }
}

static struct piece piece_of(const struct comm_shared *s, char *buf, int64_t count, int64_t width,
                             int64_t i)
{
    int64_t step = SLOT / width;

    return (struct piece){.buf = buf + i * SLOT, .n = least(step, count - i * step),
                          .width = width, .number = s->piece + (uint64_t)i};
}

/* Three pieces at once, in three slots: one is put, the one before is summed, and the one before
 * that is taken, between two barriers. */
static void shared_all_reduce(struct comm *c, void *buf, int64_t count, enum ckpt_dtype t,
                              enum comm_op op)
{
    struct comm_shared *s = self(c);
    int64_t width = (int64_t)ckpt_dtype_size(t), pieces = (count * width + SLOT - 1) / SLOT;
    struct piece p;

    if (count * width * c->world_size <= SMALL) {
        reduce_small(c, buf, count, t, op);
        return;
    }
    for (int64_t i = 0; i < pieces + 2; i++) {
        if (i < pieces) {
            p = piece_of(s, buf, count, width, i);
            put_piece(c, &p);
        }
        if (i >= 1 && i <= pieces) {
            p = piece_of(s, buf, count, width, i - 1);
            sum_piece(c, &p, t, op);
        }
        if (i >= 2) {
            p = piece_of(s, buf, count, width, i - 2);
            take_piece(c, &p);
        }
        if (i <= pieces && !meet_all(c, "all_reduce"))
            return;
    }
    s->piece += (uint64_t)pieces;
}

static void shared_all_gather(struct comm *c, void *dst, const void *src, int64_t count,
                              enum ckpt_dtype t)
{
    struct comm_shared *s = self(c);
    int64_t bytes = count * (int64_t)ckpt_dtype_size(t);
    char *own = (char *)dst + c->rank * bytes;

    if (src != own)
        memmove(own, src, (size_t)bytes);
    for (int64_t at = 0; at < bytes; at += SLOT, s->piece++) {
        size_t n = (size_t)least(SLOT, bytes - at);

        memcpy(slot_of(s, c->rank, s->piece), own + at, n);
        if (!meet_all(c, "all_gather"))
            return;
        for (int d = 1; d < c->world_size; d++) {
            int r = (c->rank + d) % c->world_size;

            memcpy((char *)dst + r * bytes + at, slot_of(s, r, s->piece), n);
        }
    }
}

/* A slot has a part for each rank. */
static void shared_reduce_scatter(struct comm *c, void *dst, const void *src, int64_t count,
                                  enum ckpt_dtype t)
{
    struct comm_shared *s = self(c);
    const char *all = src;
    int64_t width = (int64_t)ckpt_dtype_size(t);
    int64_t step = SLOT / c->world_size / LINE * LINE / width;

    for (int64_t at = 0; at < count; at += step, s->piece++) {
        int64_t n = least(step, count - at);

        for (int r = 0; r < c->world_size; r++)
            if (r != c->rank)
                memcpy(slot_of(s, c->rank, s->piece) + r * step * width,
                       all + (r * count + at) * width, (size_t)(n * width));
        if (!meet_all(c, "reduce_scatter"))
            return;
        for (int r = 0; r < c->world_size; r++)
            s->part[r] = r == c->rank ? all + (r * count + at) * width
                                      : slot_of(s, r, s->piece) + c->rank * step * width;
        fold_parts(s, (char *)dst + at * width, n, t, COMM_SUM);
    }
}

static void shared_broadcast(struct comm *c, void *buf, int64_t count, enum ckpt_dtype t, int root)
{
    struct comm_shared *s = self(c);
    int64_t bytes = count * (int64_t)ckpt_dtype_size(t);

    for (int64_t at = 0; at < bytes; at += SLOT, s->piece++) {
        char *slot = slot_of(s, root, s->piece), *own = (char *)buf + at;
        size_t n = (size_t)least(SLOT, bytes - at);

        if (c->rank == root)
            memcpy(slot, own, n);
        if (!meet_all(c, "broadcast"))
            return;
        if (c->rank != root)
            memcpy(own, slot, n);
    }
}

/* A slot has a part for each rank, as many times as the largest of all parts needs. */
static void shared_exchange(struct comm *c, void *dst, const int64_t *taken, const void *src,
                            const int64_t *given, enum ckpt_dtype t)
{
    struct comm_shared *s = self(c);
    int64_t width = (int64_t)ckpt_dtype_size(t), most = 0, in = 0, out = 0;
    int64_t step = SLOT / c->world_size / LINE * LINE / width;

    for (int r = 0; r < c->world_size; r++)
        most = r != c->rank && given[r] > most ? given[r] : most;
    reduce_small(c, (char *)&most, 1, CKPT_I64, COMM_MAX);
    for (int64_t at = 0; at < most; at += step, s->piece++) {
        const char *from = src;
        char *to = dst;

        for (int r = 0; r < c->world_size; from += given[r++] * width)
            if (r != c->rank && given[r] > at)
                memcpy(slot_of(s, c->rank, s->piece) + r * step * width, from + at * width,
                       (size_t)(least(step, given[r] - at) * width));
        if (!meet_all(c, "exchange"))
            return;
        for (int r = 0; r < c->world_size; to += taken[r++] * width)
            if (r != c->rank && taken[r] > at)
                memcpy(to + at * width, slot_of(s, r, s->piece) + c->rank * step * width,
                       (size_t)(least(step, taken[r] - at) * width));
    }
    for (int r = 0; r < c->rank; r++) {
        in += taken[r];
        out += given[r];
    }
    memcpy((char *)dst + in * width, (const char *)src + out * width,
           (size_t)(given[c->rank] * width));
}

static void shared_barrier(struct comm *c) { meet_all(c, "barrier"); }

/* -- opening and closing ---------------------------------------------------------------------- */

static void shared_close(struct comm *c)
{
    struct comm_shared *s = self(c);

    __atomic_store_n(&s->team->gone, (uint32_t)c->rank + 1, __ATOMIC_SEQ_CST);
    wake(s->team);
    if (!s->is_part)
        munmap(s->segment, (size_t)segment_bytes(c->world_size));
    ckpt_free(s->part);
}

static void shared_split(struct comm *part, struct comm *c, int color)
{
    struct comm_shared *s = self(c), *p = self(part);
    int64_t n = c->world_size, way = s->divided++;

    p->is_part = true;
    p->segment = s->segment;
    p->part = ckpt_alloc((size_t)part->world_size, sizeof *p->part);
    p->team = s->team;                  /* of a part that failed: who waits for all hears of it */
    if (way >= DIVIDED || !p->part) {
        ckpt_fail(&part->err, p->part ? CKPT_ESTATE : CKPT_ENOMEM, "rank %d: ranks are divided %d "
                  "times at most", c->rank, DIVIDED);
        return;
    }
    p->team = &s->segment->team[1 + way * n + color];
    p->window = (char *)s->segment + head_bytes(n) + (1 + way) * windows_bytes(n) +
                (int64_t)color * windows_bytes(part->world_size);
}

static const struct comm_ops shared_ops = {
    .name = "shared memory",
    .size = sizeof(struct comm_shared),
    .all_reduce = shared_all_reduce,
    .all_gather = shared_all_gather,
    .reduce_scatter = shared_reduce_scatter,
    .broadcast = shared_broadcast,
    .barrier = shared_barrier,
    .exchange = shared_exchange,
    .split = shared_split,
    .close = shared_close,
    .threads = true,
};

static bool crowded(int64_t n)
{
    cpu_set_t cpus;

    CPU_ZERO(&cpus);
    return sched_getaffinity(0, sizeof cpus, &cpus) == 0 && CPU_COUNT(&cpus) < n;
}

int shared_create(int *out, int64_t n, struct ckpt_err *err)
{
    const struct segment s = {.magic = MAGIC, .n = (uint32_t)n, .spins = crowded(n) ? 0 : SPINS};
    int fd = n > MAX_RANKS ? -1 : memfd_create("ckpt ranks", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    *out = -1;
    if (fd < 0 || ftruncate(fd, segment_bytes(n)) ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) ||
        pwrite(fd, &s, sizeof s, 0) != (ssize_t)sizeof s) {
        ckpt_fail_errno(err, CKPT_ENOMEM, n > MAX_RANKS ? E2BIG : errno,
                        "memory for %lld ranks to share", (long long)n);
        if (fd >= 0)
            close(fd);
        return CKPT_ENOMEM;
    }
    *out = fd;
    return 0;
}

int shared_inherited(void)
{
    const char *text = getenv(SHARED_ENV);
    char *end = NULL;
    long fd = text ? strtol(text, &end, 10) : -1;

    if (!text || end == text || *end || fd < 3 || fd > 1 << 20)
        fd = -1;
    unsetenv(SHARED_ENV);
    return fd >= 0 && fcntl((int)fd, F_SETFD, FD_CLOEXEC) == 0 ? (int)fd : -1;
}

/* The memory, if it is what shared_create made; NULL: it is not. */
static struct segment *map(int fd, int n)
{
    const int wanted = F_SEAL_SHRINK | F_SEAL_GROW;
    int seals = fcntl(fd, F_GET_SEALS);
    struct segment *s;
    struct stat st;

    if (seals < 0 || (seals & wanted) != wanted || fstat(fd, &st) ||
        st.st_size != segment_bytes(n))
        return NULL;
    s = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (s == MAP_FAILED)
        return NULL;
    if (s->magic == MAGIC && s->n == (uint32_t)n)
        return s;
    munmap(s, (size_t)st.st_size);
    return NULL;
}

int shared_open(struct comm **out, int fd, int rank, int n, struct ckpt_err *err)
{
    struct comm_shared *s = ckpt_alloc(1, sizeof *s);
    const char **part = ckpt_alloc((size_t)n, sizeof *part);
    struct segment *segment = map(fd, n);
    int rc = 0;

    *out = NULL;
    if (!s || !part)
        rc = ckpt_nomem(err, (size_t)n * sizeof *part + sizeof *s);
    else if (!segment)
        rc = ckpt_fail(err, CKPT_ECONFIG, "%s: no memory that %d ranks share", SHARED_ENV, n);
    close(fd);
    if (rc) {
        if (segment)
            munmap(segment, (size_t)segment_bytes(n));
        ckpt_free(part);
        ckpt_free(s);
        return rc;
    }
    *s = (struct comm_shared){
        .head = {.ops = &shared_ops, .rank = rank, .world_size = n, .local_rank = rank,
                 .global_rank = rank, .stride = 1},
        .segment = segment, .team = &segment->team[0],
        .window = (char *)segment + head_bytes(n),
        .part = part,
    };
    *out = &s->head;
    return 0;
}
