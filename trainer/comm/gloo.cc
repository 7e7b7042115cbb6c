/*
 * comm/gloo - collectives over Gloo's TCP transport, built as the plug-in libckpt_gloo.so.
 *
 * Gloo connects every rank with every other and moves bytes between them; which bytes, and the
 * order of sums, is decided here: rank 0's part + rank 1's + ..., whatever the world's links are,
 * so that reruns give the same bits.  A failure of a peer closes its connections, and the calls
 * of the others end with it.
 *
 * Source: gloo 0.5 (2022), gloo/context.h, transport/unbound_buffer.h, rendezvous/store.h.
 */
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include <gloo/barrier.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

extern "C" {
#include "trainer/comm/comm.h"
#include "trainer/comm/meeting.h"
#include "trainer/comm/plugin.h"
}

namespace {

const int64_t PIECE = 16 << 20;             /* bytes of a peer's part that are on their way at once */
const int64_t STAGE = 64 << 20;             /* bytes of all peers' parts that wait to be summed */
const int64_t SMALL = 1 << 16;              /* bytes up to which all ranks sum everything */
const size_t MAX_ADDRESSES = 1 << 20;       /* bytes of a rank's addresses: some 128 for each peer */
const std::chrono::milliseconds PATIENCE = std::chrono::hours(2);  /* for a peer that saves */

struct comm_gloo {
    struct comm head;
    std::shared_ptr<gloo::Context> *context;
    std::vector<char> *stage;               /* what peers send, before it is summed */
    uint64_t slot;                          /* counts calls: what belongs together */
    const struct comm_meeting *meeting;
    int n_split;                            /* parts that were made of it */
};

struct failure : std::exception {
    struct ckpt_err err;
    const char *what() const noexcept override { return err.text; }
};

struct comm_gloo *self(struct comm *c) { return reinterpret_cast<struct comm_gloo *>(c); }

void mark(struct comm *c, const char *what, const char *why)
{
    if (c->err.code)
        return;
    c->err.code = CKPT_ECOMM;
    snprintf(c->err.reason, sizeof c->err.reason, "peer-dead");
    snprintf(c->err.text, sizeof c->err.text, "rank %d: %s: %.800s", c->global_rank, what, why);
    for (char *p = c->err.text; *p; p++)    /* one line */
        if (*p == '\n')
            *p = ' ';
}

size_t width_of(enum ckpt_dtype t)
{
    switch (t) {
    case CKPT_F64:
    case CKPT_I64:  return 8;
    case CKPT_F32:
    case CKPT_I32:  return 4;
    case CKPT_BF16:
    case CKPT_F16:  return 2;
    default:        return 1;
    }
}

template <typename T> void fold(T *sum, const T *more, int64_t n, enum comm_op op)
{
    if (op == COMM_SUM)
        for (int64_t i = 0; i < n; i++)
            sum[i] += more[i];
    else if (op == COMM_MAX)
        for (int64_t i = 0; i < n; i++)
            sum[i] = std::max(sum[i], more[i]);
    else
        for (int64_t i = 0; i < n; i++)
            sum[i] = std::min(sum[i], more[i]);
}

void fold(char *sum, const char *more, int64_t n, enum ckpt_dtype t, enum comm_op op)
{
    if (t == CKPT_F32)
        fold(reinterpret_cast<float *>(sum), reinterpret_cast<const float *>(more), n, op);
    else if (t == CKPT_F64)
        fold(reinterpret_cast<double *>(sum), reinterpret_cast<const double *>(more), n, op);
    else
        fold(reinterpret_cast<int64_t *>(sum), reinterpret_cast<const int64_t *>(more), n, op);
}

/* A run of bytes; of none, nothing moves. */
struct run {
    char  *at;
    size_t n;
};

/* The bytes that each rank has for each: out(r) goes to rank r, in(r) comes from it. */
template <typename Out, typename In> void exchange(struct comm *c, Out out, In in)
{
    gloo::Context &g = **self(c)->context;
    uint64_t slot = self(c)->slot++;
    std::vector<std::unique_ptr<gloo::transport::UnboundBuffer>> sent, got;

    for (int d = 1; d < c->world_size; d++) {
        int to = (c->rank + d) % c->world_size, from = (c->rank - d + c->world_size) % c->world_size;

        struct run more = in(from), less = out(to);

        if (more.n > 0) {
            got.push_back(g.createUnboundBuffer(more.at, more.n));
            got.back()->recv(from, slot);
        }
        if (less.n > 0) {
            sent.push_back(g.createUnboundBuffer(less.at, less.n));
            sent.back()->send(to, slot);
        }
    }
    for (auto &b : got)
        b->waitRecv(PATIENCE);
    for (auto &b : sent)
        b->waitSend(PATIENCE);
}

/* Where the same number of bytes goes to and comes from every rank. */
template <typename Out, typename In>
void exchange(struct comm *c, int64_t bytes, Out out, In in)
{
    size_t n = static_cast<size_t>(bytes);

    exchange(c, [&](int r) { return (struct run){const_cast<char *>(out(r)), n}; },
             [&](int r) { return (struct run){in(r), n}; });
}

char *stage_of(struct comm *c, int64_t bytes)
{
    std::vector<char> &stage = *self(c)->stage;

    if (stage.size() < static_cast<size_t>(bytes))
        stage.resize(static_cast<size_t>(bytes));
    return stage.data();
}

/* dst[n] <- the ranks' parts in their order; own is this rank's. */
void fold_parts(struct comm *c, char *dst, const char *own, const char *parts, int64_t n,
                enum ckpt_dtype t, enum comm_op op)
{
    int64_t bytes = n * static_cast<int64_t>(width_of(t));
    const char *first = c->rank == 0 ? own : parts;

    if (c->rank != 0 && dst == own) {       /* its own part is wanted later */
        char *copy = const_cast<char *>(parts) + c->rank * bytes;

        memcpy(copy, own, static_cast<size_t>(bytes));
        own = copy;
    }
    if (dst != first)
        memmove(dst, first, static_cast<size_t>(bytes));
    for (int r = 1; r < c->world_size; r++)
        fold(dst, r == c->rank ? own : parts + r * bytes, n, t, op);
}

template <typename Body> void guarded(struct comm *c, const char *what, Body body)
{
    try {
        body();
    } catch (const std::exception &e) {
        mark(c, what, e.what());
    }
}

/* dst[count] <- fold over ranks of src[rank * stride ...]; a piece at a time. */
void reduce_parts(struct comm *c, char *dst, const char *src, int64_t stride, int64_t count,
                  enum ckpt_dtype t, enum comm_op op)
{
    int64_t width = static_cast<int64_t>(width_of(t));
    int64_t step = std::max(std::min(PIECE, STAGE / c->world_size), SMALL) / width;

    for (int64_t at = 0; at < count; at += step) {
        int64_t n = std::min(step, count - at), bytes = n * width;
        char *stage = stage_of(c, bytes * c->world_size);

        exchange(c, bytes,
                 [&](int r) { return src + (r * stride + at) * width; },
                 [&](int r) { return stage + r * bytes; });
        fold_parts(c, dst + at * width, src + (c->rank * stride + at) * width, stage, n, t, op);
    }
}

void gloo_reduce_scatter(struct comm *c, void *dst, const void *src, int64_t count,
                         enum ckpt_dtype t)
{
    guarded(c, "reduce_scatter", [&] {
        reduce_parts(c, static_cast<char *>(dst), static_cast<const char *>(src), count, count, t,
                     COMM_SUM);
    });
}

void gather(struct comm *c, char *dst, const char *src, int64_t bytes)
{
    char *own = dst + c->rank * bytes;

    if (src != own)
        memmove(own, src, static_cast<size_t>(bytes));
    for (int64_t at = 0; at < bytes; at += PIECE)
        exchange(c, std::min(PIECE, bytes - at), [&](int) { return own + at; },
                 [&](int r) { return dst + r * bytes + at; });
}

void gloo_all_gather(struct comm *c, void *dst, const void *src, int64_t count, enum ckpt_dtype t)
{
    guarded(c, "all_gather", [&] {
        gather(c, static_cast<char *>(dst), static_cast<const char *>(src),
               count * static_cast<int64_t>(width_of(t)));
    });
}

/* Small ones are summed by all; of large ones each rank sums a part, which is then gathered. */
void gloo_all_reduce(struct comm *c, void *buf, int64_t count, enum ckpt_dtype t, enum comm_op op)
{
    char *all = static_cast<char *>(buf);
    int64_t width = static_cast<int64_t>(width_of(t)), part = count / c->world_size;

    guarded(c, "all_reduce", [&] {
        int64_t done = 0;

        if (count * width > SMALL) {
            std::vector<char> sum(static_cast<size_t>(part * width));

            reduce_parts(c, sum.data(), all, part, part, t, op);
            gather(c, all, sum.data(), part * width);
            done = part * c->world_size;
        }
        if (done < count)
            reduce_parts(c, all + done * width, all + done * width, 0, count - done, t, op);
    });
}

void gloo_broadcast(struct comm *c, void *buf, int64_t count, enum ckpt_dtype t, int root)
{
    int64_t bytes = count * static_cast<int64_t>(width_of(t));

    guarded(c, "broadcast", [&] {
        gloo::Context &g = **self(c)->context;

        /* Down a binomial tree whose root is root. */
        int me = (c->rank - root + c->world_size) % c->world_size, span = 1;

        for (; span < c->world_size; span *= 2) {
            uint64_t slot = self(c)->slot++;
            bool sends = me < span && me + span < c->world_size, takes = me >= span && me < 2 * span;
            int peer = ((sends ? me + span : me - span) + root) % c->world_size;

            if (!sends && !takes)
                continue;
            auto b = g.createUnboundBuffer(buf, static_cast<size_t>(bytes));
            if (sends) {
                b->send(peer, slot);
                b->waitSend(PATIENCE);
            } else {
                b->recv(peer, slot);
                b->waitRecv(PATIENCE);
            }
        }
    });
}

/* Where each rank's part begins, in bytes; at the end their sum. */
std::vector<size_t> starts_of(const int64_t *count, int n, size_t width)
{
    std::vector<size_t> at(static_cast<size_t>(n) + 1);

    for (int r = 0; r < n; r++)
        at[static_cast<size_t>(r) + 1] =
            at[static_cast<size_t>(r)] + static_cast<size_t>(count[r]) * width;
    return at;
}

void gloo_exchange(struct comm *c, void *dst, const int64_t *taken, const void *src,
                   const int64_t *given, enum ckpt_dtype t)
{
    guarded(c, "exchange", [&] {
        char *to = static_cast<char *>(dst), *from = const_cast<char *>(static_cast<const char *>(src));
        std::vector<size_t> in = starts_of(taken, c->world_size, width_of(t));
        std::vector<size_t> out = starts_of(given, c->world_size, width_of(t));
        auto part = [](char *base, const std::vector<size_t> &at, int r) {
            size_t k = static_cast<size_t>(r);

            return (struct run){base + at[k], at[k + 1] - at[k]};
        };
        struct run own = part(from, out, c->rank);

        if (own.n > 0)
            memcpy(part(to, in, c->rank).at, own.at, own.n);
        exchange(c, [&](int r) { return part(from, out, r); },
                 [&](int r) { return part(to, in, r); });
    });
}

void gloo_barrier(struct comm *c)
{
    guarded(c, "barrier", [&] {
        char mine = 0;
        std::vector<char> all(static_cast<size_t>(c->world_size));

        gather(c, all.data(), &mine, 1);
    });
}

void gloo_close(struct comm *c)
{
    struct comm_gloo *g = self(c);

    try {
        if (g->context && c->err.code)
            (*g->context)->closeConnections();
        delete g->context;
    } catch (const std::exception &) {
        ;                                   /* it ends either way */
    }
    delete g->stage;
    g->context = nullptr;
    g->stage = nullptr;
}

/* The ranks' store as Gloo asks it. */
class keys : public gloo::rendezvous::Store {
  public:
    keys(const struct comm_meeting *meeting, const std::string &before) : m(meeting), prefix(before) {}
    void set(const std::string &key, const std::vector<char> &data) override
    {
        check(m->set(m->ctx, name(key).c_str(), data.data(), data.size(), &e.err));
    }
    std::vector<char> get(const std::string &key) override
    {
        std::vector<char> value(MAX_ADDRESSES);
        size_t n = 0;

        check(m->get(m->ctx, name(key).c_str(), value.data(), value.size(), &n, &e.err));
        value.resize(n);
        return value;
    }
    void wait(const std::vector<std::string> &names) override
    {
        for (const auto &key : names)
            get(key);
    }

  private:
    std::string name(const std::string &key) const { return prefix + key; }
    void check(int rc)
    {
        if (rc)
            throw e;
    }
    const struct comm_meeting *m;
    std::string prefix;                     /* of its keys: each communicator's own */
    failure e;
};

/* Connect c's ranks with each other, under keys that no other communicator has.  A failure marks c. */
void meet_others(struct comm *c, const struct comm_meeting *m, const std::string &prefix,
                 std::shared_ptr<gloo::transport::Device> device)
{
    struct comm_gloo *g = self(c);

    try {
        keys store(m, prefix);
        auto context = std::make_shared<gloo::rendezvous::Context>(c->rank, c->world_size);

        if (!device) {
            gloo::transport::tcp::attr at(m->address);

            device = gloo::transport::tcp::CreateDevice(at);
        }
        context->setTimeout(std::chrono::milliseconds(m->timeout_ms));
        context->connectFullMesh(store, device);
        context->setTimeout(PATIENCE);
        g->context = new std::shared_ptr<gloo::Context>(context);
        g->stage = new std::vector<char>();
        g->meeting = m;
    } catch (const failure &e) {
        c->err = e.err;
    } catch (const std::exception &e) {
        mark(c, "meeting the other ranks", e.what());
    }
}

void gloo_split(struct comm *part, struct comm *c, int color)
{
    struct comm_gloo *g = self(c);
    int n = g->n_split++;

    guarded(part, "meeting the other ranks", [&] {
        meet_others(part, g->meeting, "gloo/" + std::to_string(n) + "." + std::to_string(color) + "/",
                    (*g->context)->getDevice());
    });
}

const struct comm_ops gloo_ops = {
    "gloo", sizeof(struct comm_gloo), gloo_all_reduce, gloo_all_gather, gloo_reduce_scatter,
    gloo_broadcast, gloo_barrier, gloo_exchange, nullptr, gloo_split, gloo_close,
    true, nullptr,
};

int start(struct comm *c, const struct comm_meeting *m)
{
    c->ops = &gloo_ops;
    c->rank = c->global_rank = m->rank;
    c->world_size = m->world_size;
    c->local_rank = m->local_rank;
    meet_others(c, m, "gloo/", nullptr);
    if (c->err.code == 0)
        return 0;
    gloo_close(c);
    return -1;
}

} // namespace

extern "C" __attribute__((visibility("default"))) const struct comm_plugin comm_plugin = {
    COMM_PLUGIN_VERSION, sizeof(struct comm_gloo), start,
};
