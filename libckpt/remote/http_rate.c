/* http_rate - see http_rate.h.  A token bucket: it holds a tenth of a second's bytes at most. */
#include "libckpt/remote/http_rate.h"

#include <pthread.h>
#include <time.h>

#include "libckpt/remote/http.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t rate;           /* bytes a second; 0: no limit */
static double bucket, filled;   /* bytes in it, and the second of that */

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

void http_limit_rate(uint64_t bytes_per_second)
{
    pthread_mutex_lock(&lock);
    rate = bytes_per_second;
    bucket = 0;
    filled = seconds();
    pthread_mutex_unlock(&lock);
}

size_t http_rate_take(size_t n)
{
    double most, now, wait = 0;

    pthread_mutex_lock(&lock);
    if (rate == 0 || n == 0) {
        pthread_mutex_unlock(&lock);
        return n;
    }
    most = (double)rate / 10 > 1 ? (double)rate / 10 : 1;
    n = (double)n > most ? (size_t)most : n;
    now = seconds();
    bucket += (now - filled) * (double)rate;
    bucket = bucket > most ? most : bucket;
    filled = now;
    bucket -= (double)n;                /* what is missing is waited for, after those before us */
    if (bucket < 0)
        wait = -bucket / (double)rate;
    pthread_mutex_unlock(&lock);
    nanosleep(&(struct timespec){.tv_sec = (time_t)wait,
                                 .tv_nsec = (long)((wait - (double)(time_t)wait) * 1e9)}, NULL);
    return n;
}
