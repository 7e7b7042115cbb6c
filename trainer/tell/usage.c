/* usage - see usage.h. */
#include "trainer/tell/usage.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "libckpt/err.h"
#include "trainer/clock.h"

double usage_resident(void)
{
    unsigned long long whole, pages = 0;
    FILE *f = fopen("/proc/self/statm", "re");

    if (f && fscanf(f, "%llu %llu", &whole, &pages) != 2)
        pages = 0;
    if (f)
        fclose(f);
    return (double)pages * (double)sysconf(_SC_PAGESIZE) / (1 << 20);
}

/* Seconds of processor time, all threads. */
static double busy(void)
{
    struct rusage r;

    if (getrusage(RUSAGE_SELF, &r))
        return 0;
    return (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) +
           1e-6 * (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec);
}

void usage_open(struct usage *u, const struct device *dev)
{
    struct ckpt_err ignored = {0};

    *u = (struct usage){.at = clock_now(), .busy = busy()};
    if (dev->discrete && nvml_open(&u->chip, dev->bus, &ignored))
        u->chip = NULL;
}

void usage_sample(struct usage *u, struct usage_now *now)
{
    struct ckpt_err ignored = {0};
    double t = clock_now(), b = busy();

    memset(now, 0, sizeof *now);
    now->resident = usage_resident();
    now->host = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) / (1 << 20);
    now->cpu = t > u->at ? 100 * (b - u->busy) / (t - u->at) : 0;
    u->at = t;
    u->busy = b;
    if (u->chip && nvml_sample(u->chip, &now->gpu, &ignored))
        memset(&now->gpu, 0, sizeof now->gpu);
}

double usage_memory(struct usage *u)
{
    struct ckpt_err ignored = {0};
    struct nvml_now now;
    double used;

    if (!u->chip)
        return usage_resident();
    used = nvml_sample(u->chip, &now, &ignored) ? 0 : (double)now.used / (1 << 20);
    u->peak = fmax(u->peak, used);
    return used;
}

/* VmHWM: ru_maxrss begins with that of the process that started this one. */
static double resident_peak(void)
{
    FILE *f = fopen("/proc/self/status", "re");
    unsigned long long kib = 0;
    char line[256];

    while (f && kib == 0 && fgets(line, sizeof line, f))
        if (sscanf(line, "VmHWM: %llu kB", &kib) != 1)
            kib = 0;
    if (f)
        fclose(f);
    return (double)kib / 1024;
}

double usage_peak(struct usage *u)
{
    if (!u->chip)
        return resident_peak();
    usage_memory(u);
    return u->peak;
}

void usage_close(struct usage *u)
{
    nvml_close(u->chip);
    u->chip = NULL;
}
