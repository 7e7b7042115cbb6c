/*
 * bench_memory THREADS GIB|FILE - how fast this machine's cores read memory, or a file that lies in
 * the page cache and is mapped whole: the bound of --stats.  GB/s of all threads by the clock, and
 * of one core by CPU time, which tells more on a machine that others use; the best of five.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct part { const uint64_t *p; size_t n; uint64_t sum; pthread_t thread; };

static void *add(void *arg)
{
    struct part *t = arg;
    uint64_t s[8] = {0};

    for (size_t i = 0; i + 8 <= t->n; i += 8)
        for (size_t k = 0; k < 8; k++)
            s[k] += t->p[i + k];
    for (size_t k = 0; k < 8; k++)
        t->sum += s[k];
    return NULL;
}

static double seconds(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Memory of that many GiB, or the file of that name. */
static const uint64_t *open_memory(const char *what, size_t *bytes)
{
    char *end;
    struct stat st;
    void *p;
    int fd;

    *bytes = strtoul(what, &end, 10) << 30;
    if (!*end) {
        p = malloc(*bytes);
        return p ? memset(p, 1, *bytes) : NULL;
    }
    fd = open(what, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st))
        return NULL;
    *bytes = (size_t)st.st_size;
    p = mmap(NULL, *bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
    close(fd);
    return p == MAP_FAILED ? NULL : p;
}

int main(int argc, char **argv)
{
    size_t threads = argc > 1 ? strtoul(argv[1], NULL, 10) : 2, bytes, n;
    const uint64_t *p = open_memory(argc > 2 ? argv[2] : "1", &bytes);
    double best = 0, core = 0;
    struct part part[64];
    uint64_t sum = 0;

    if (!p || threads < 1 || threads > 64)
        return 1;
    n = bytes / 8 / threads;
    for (int round = 0; round < 5; round++) {
        double clock = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);

        for (size_t k = 0; k < threads; k++) {
            part[k] = (struct part){.p = p + k * n, .n = n};
            pthread_create(&part[k].thread, NULL, add, &part[k]);
        }
        for (size_t k = 0; k < threads; k++) {
            pthread_join(part[k].thread, NULL);
            sum += part[k].sum;
        }
        clock = (double)bytes / (seconds(CLOCK_MONOTONIC) - clock);
        cpu = (double)bytes / (seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu);
        best = clock > best ? clock : best;
        core = cpu > core ? cpu : core;
    }
    printf("%.2f %.2f\n", best / 1e9, core / 1e9);
    return sum == 0;
}
