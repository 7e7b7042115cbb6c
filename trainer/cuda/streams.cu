/*
 * cuda/streams - copies and collectives that run beside the operations: a stream for each
 * direction and one for collectives, events between them.
 *
 * Pinned memory is the process's own, which the system provides zeroed, in huge pages where it
 * can, and the driver locks: memory allocated by the driver is neither promised to be zero nor
 * ever huge.  Waiting for an event waits for its state at that moment, so that it may be
 * recorded again at once.
 */
#include "trainer/cuda/cuda.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

struct pin {
    struct pin *next;
    void       *at;
    size_t      bytes;
};

struct cuda_streams {
    cudaStream_t stream[OP_N_STREAMS];       /* OP_STREAM_MAIN's is the device's */
    cudaEvent_t  event[OP_N_EVENTS];         /* NULL: never recorded */
    struct pin  *pins;
};

static struct cuda_streams *streams_of(struct device *dev)
{
    struct cuda_device *d = cuda_of(dev);
    struct cuda_streams *l = d->streams;
    int least = 0, most = 0;

    if (l || dev->err.code)
        return dev->err.code ? NULL : l;
    l = d->streams = (struct cuda_streams *)calloc(1, sizeof *l);
    if (!l) {
        cuda_ok(dev, "streams", cudaErrorMemoryAllocation);
        return NULL;
    }
    l->stream[OP_STREAM_MAIN] = d->stream;
    cuda_ok(dev, "streams", cudaDeviceGetStreamPriorityRange(&least, &most));
    for (int i = OP_STREAM_IN; i < OP_N_STREAMS; i++)
        cuda_ok(dev, "streams",
                cudaStreamCreateWithPriority(&l->stream[i], cudaStreamNonBlocking,
                                             i == OP_STREAM_COMM ? most : least));
    return dev->err.code ? NULL : l;
}

cudaStream_t cuda_stream_of(struct device *dev, enum op_stream stream)
{
    struct cuda_streams *l = streams_of(dev);

    return l ? l->stream[stream] : NULL;
}

void cuda_streams_sync(struct device *dev)
{
    struct cuda_streams *l = cuda_of(dev)->streams;

    for (int i = OP_STREAM_IN; l && i < OP_N_STREAMS; i++)
        if (l->stream[i])
            cuda_ok(dev, "earlier copies", cudaStreamSynchronize(l->stream[i]));
}

static void take_back(struct pin *p)
{
    cudaHostUnregister(p->at);
    munmap(p->at, p->bytes);
    free(p);
}

void cuda_streams_close(struct cuda_device *d)
{
    struct cuda_streams *l = d->streams;

    if (!l)
        return;
    for (int i = OP_STREAM_IN; i < OP_N_STREAMS; i++)
        if (l->stream[i]) {
            cudaStreamSynchronize(l->stream[i]);
            cudaStreamDestroy(l->stream[i]);
        }
    for (int i = 0; i < OP_N_EVENTS; i++)
        if (l->event[i])
            cudaEventDestroy(l->event[i]);
    while (l->pins) {
        struct pin *p = l->pins;

        l->pins = p->next;
        take_back(p);
    }
    free(l);
    d->streams = NULL;
}

/* A thread's share of pages to populate. */
struct share {
    unsigned char *at;
    size_t         bytes;
};

static void *touch(void *arg)
{
    struct share *s = (struct share *)arg;

#ifdef MADV_POPULATE_WRITE
    if (s->bytes)
        madvise(s->at, s->bytes, MADV_POPULATE_WRITE);
#endif
    return NULL;
}

/* Let the system zero the pages on several threads: locking them would do so on one, at some 5
 * GB/s.  If that fails, locking does it. */
static void populate(unsigned char *at, size_t bytes, size_t page)
{
    enum { THREADS = 8 };
    size_t each = bytes / page / THREADS * page;
    struct share share[THREADS];
    pthread_t thread[THREADS];
    int n = 0;

    for (; each && n < THREADS; n++) {
        share[n].at = at + (size_t)n * each;
        share[n].bytes = each;
        if (pthread_create(&thread[n], NULL, touch, &share[n]))
            break;
    }
    while (n > 0)
        pthread_join(thread[--n], NULL);
}

void *cuda_pin(struct device *dev, size_t bytes)
{
    struct cuda_streams *l = streams_of(dev);
    size_t huge = (size_t)2 << 20, whole = (bytes + huge - 1) / huge * huge;
    struct pin *p;

    dev->n_alloc++;
    if (!l || whole < bytes)
        return NULL;
    whole = whole ? whole : huge;
    p = (struct pin *)calloc(1, sizeof *p);
    if (!p) {
        cuda_ok(dev, "pinned memory", cudaErrorMemoryAllocation);
        return NULL;
    }
    p->bytes = whole;
    p->at = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p->at == MAP_FAILED) {
        free(p);
        cuda_ok(dev, "pinned memory", cudaErrorMemoryAllocation);
        return NULL;
    }
    madvise(p->at, whole, MADV_HUGEPAGE);
    populate((unsigned char *)p->at, whole, huge);
    if (!cuda_ok(dev, "pinned memory", cudaHostRegister(p->at, whole, cudaHostRegisterDefault))) {
        munmap(p->at, whole);
        free(p);
        return NULL;
    }
    p->next = l->pins;
    l->pins = p;
    return p->at;
}

void cuda_unpin(struct device *dev, void *at)
{
    struct cuda_streams *l = cuda_of(dev)->streams;
    struct pin **p = l ? &l->pins : NULL, *found;

    while (p && *p && (*p)->at != at)
        p = &(*p)->next;
    if (!at || !p || !*p)
        return;
    cuda_streams_sync(dev);
    found = *p;
    *p = found->next;
    take_back(found);
}

void cuda_stream_copy(struct device *dev, enum op_stream stream, void *dst, const void *src,
                      size_t bytes)
{
    struct cuda_streams *l = bytes ? streams_of(dev) : NULL;

    if (l)
        cuda_ok(dev, stream == OP_STREAM_IN ? "copy in" : "copy out",
                cudaMemcpyAsync(dst, src, bytes, stream == OP_STREAM_IN ? cudaMemcpyHostToDevice
                                                                 : cudaMemcpyDeviceToHost,
                                l->stream[stream]));
}

void cuda_event_record(struct device *dev, enum op_stream stream, int i)
{
    struct cuda_streams *l = streams_of(dev);

    if (l && (l->event[i] ||
              cuda_ok(dev, "streams",
                      cudaEventCreateWithFlags(&l->event[i], cudaEventDisableTiming))))
        cuda_ok(dev, "record an event", cudaEventRecord(l->event[i], l->stream[stream]));
}

void cuda_stream_wait_event(struct device *dev, enum op_stream stream, int i)
{
    struct cuda_streams *l = streams_of(dev);

    if (l && l->event[i])
        cuda_ok(dev, "wait for an event", cudaStreamWaitEvent(l->stream[stream], l->event[i], 0));
}

void cuda_event_sync(struct device *dev, int i)
{
    struct cuda_streams *l = streams_of(dev);

    if (l && l->event[i])
        cuda_ok(dev, "earlier work", cudaEventSynchronize(l->event[i]));
}
