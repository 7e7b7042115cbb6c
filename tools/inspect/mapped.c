/* mapped - see mapped.h. */
#include "tools/inspect/mapped.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libckpt/base/fault.h"

/* The thread's mapping.  The handler runs in the thread whose load failed, and uses that
 * thread's mapping. */
static _Thread_local struct window {
    unsigned char         *base;        /* NULL: nothing */
    size_t                 size;
    const struct ckpt_file *file;
    uint64_t               offset, end; /* of the requested bytes in file; the end in its
                                           descriptor */
    volatile sig_atomic_t  gone;        /* zeros were mapped in place of missing bytes */
} window;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sigaction before;
static size_t page;

/*
 * Map zeros from the page of the failed load to the window's end, and let the load be repeated.
 * mmap is one system call, which a handler may make.  A fault elsewhere, or a signal sent by a
 * process, is not ours: restore the previous handler.
 */
static void on_bus(int sig, siginfo_t *info, void *context)
{
    struct window *w = &window;
    unsigned char *at = info->si_addr;
    int saved = errno;

    (void)context;
    if (info->si_code > 0 && w->base && at >= w->base && at < w->base + w->size) {
        size_t from = (size_t)(at - w->base) / page * page;

        if (mmap(w->base + from, w->size - from, PROT_READ,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED) {
            w->gone = 1;
            errno = saved;
            return;
        }
    }
    sigaction(sig, &before, NULL);
    raise(sig);                         /* delivered when this handler has returned */
    errno = saved;
}

/* Checked for each window: other code may have changed the handler since. */
static bool guard(void)
{
    struct sigaction act = {.sa_sigaction = on_bus, .sa_flags = SA_SIGINFO}, now = {0};
    bool ours;

    pthread_mutex_lock(&lock);
    ours = sigaction(SIGBUS, NULL, &now) == 0 && now.sa_sigaction == on_bus;
    if (!ours) {
        page = (size_t)sysconf(_SC_PAGESIZE);
        before = now;
        ours = sigaction(SIGBUS, &act, NULL) == 0;
    }
    pthread_mutex_unlock(&lock);
    return ours;
}

/* Whether the bytes are in the page cache.  Checking each page takes time, so the last stands
 * for all; if the check is not permitted, assume yes. */
static bool cached(unsigned char *map, size_t n)
{
    unsigned char there = 1;

    return mincore(map + (n - 1) / page * page, 1, &there) == 0 && (there & 1);
}

bool mapped_begin(const void **out, const struct ckpt_extent *x, size_t n)
{
    uint64_t base, from;
    int fd = ckpt_file_fd(x->file, &base);
    struct stat st;
    size_t lead;
    void *map;

    if (fd < 0 || n == 0 || !guard() || fstat(fd, &st) || !S_ISREG(st.st_mode))
        return false;
    from = base + x->offset;
    if (st.st_size < 0 || from > (uint64_t)st.st_size || n > (uint64_t)st.st_size - from)
        return false;                   /* reading gives the right error */
    lead = (size_t)(from % page);
    map = mmap(NULL, lead + n, PROT_READ, MAP_SHARED, fd, (off_t)(from - lead));
    if (map == MAP_FAILED)
        return false;
    if (!cached(map, lead + n)) {
        munmap(map, lead + n);
        return false;
    }
    window = (struct window){.base = map, .size = lead + n, .file = x->file,
                             .offset = x->offset, .end = from + n};
    *out = (unsigned char *)map + lead;
    return true;
}

/* The tail of a file's last page reads as zeros without a signal: a file truncated there is
 * detected by its size alone. */
int mapped_end(struct ckpt_err *err)
{
    const struct window w = window;
    uint64_t base;
    struct stat st;
    bool known = fstat(ckpt_file_fd(w.file, &base), &st) == 0;

    window.base = NULL;
    munmap(w.base, w.size);
    if (known && (uint64_t)st.st_size < w.end)
        return ckpt_fail_as(err, CKPT_EIO, "truncated",
                            "%s: ended at %llu while it was read, it had %llu bytes",
                            ckpt_file_name(w.file),
                            (unsigned long long)((uint64_t)st.st_size > base
                                                     ? (uint64_t)st.st_size - base : 0),
                            (unsigned long long)ckpt_file_size(w.file));
    if (w.gone || !known || ckpt_fault(CKPT_FAULT_READ))
        return ckpt_fail_errno(err, CKPT_EIO, EIO, "%s: read at %llu", ckpt_file_name(w.file),
                               (unsigned long long)w.offset);
    return 0;
}
