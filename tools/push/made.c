/* push/made - files of a plan that are made while publishing, and files that must not change any
 * more; see plan.h. */
#include <string.h>
#include <sys/stat.h>

#include "libckpt/err.h"
#include "tools/push/plan.h"

static size_t find(const struct push_plan *p, const char *from)
{
    size_t i = 0;

    while (i < p->n && strcmp(p->file[i].from, from) != 0)
        i++;
    return i;
}

void push_plan_drop(struct push_plan *p, const char *from)
{
    size_t i = find(p, from);

    if (i == p->n)
        return;
    p->bytes -= p->file[i].size;
    p->n--;
    memmove(&p->file[i], &p->file[i + 1], (p->n - i) * sizeof *p->file);
}

int push_plan_put(struct push_plan *p, const char *from, const void *bytes, size_t n,
                  struct ckpt_err *err)
{
    unsigned char *copy = ckpt_arena_alloc(&p->arena, n ? n : 1, 1);
    struct push_file *f;

    if (!copy)
        return ckpt_nomem(err, n);
    if (ckpt_reserve(&p->file, p->n, &p->cap, sizeof *p->file, err))
        return CKPT_ENOMEM;
    memcpy(copy, bytes, n);
    push_plan_drop(p, from);
    f = &p->file[p->n];
    *f = (struct push_file){.made = copy, .size = n};
    f->from = ckpt_arena_strndup(&p->arena, from, strlen(from));
    f->to = *p->below ? ckpt_arena_printf(&p->arena, "%s/%s", p->below, from) : f->from;
    if (!f->from || !f->to)
        return ckpt_nomem(err, strlen(from));
    p->n++;
    p->bytes += n;
    push_plan_judge(f);
    push_plan_sort(p);
    return 0;
}

int push_plan_pin(struct push_plan *p, size_t i, int fd, struct ckpt_err *err)
{
    struct stat *pin = ckpt_arena_alloc(&p->arena, 1, sizeof *pin);

    if (!pin)
        return ckpt_nomem(err, sizeof *pin);
    if (fstat(fd, pin))
        return ckpt_fail(err, CKPT_EIO, "its times cannot be read");
    p->file[i].pin = pin;
    return 0;
}

/* Whether an opened file is still the one that was pinned. */
int push_plan_pinned(const struct push_file *f, const struct ckpt_file *file, struct ckpt_err *err)
{
    const struct stat *was = f->pin;
    struct stat now;
    uint64_t base;
    int fd = was ? ckpt_file_fd(file, &base) : -1;

    if (fd < 0)
        return 0;
    if (fstat(fd, &now) || now.st_dev != was->st_dev || now.st_ino != was->st_ino ||
        now.st_size != was->st_size || now.st_mtim.tv_sec != was->st_mtim.tv_sec ||
        now.st_mtim.tv_nsec != was->st_mtim.tv_nsec || now.st_ctim.tv_sec != was->st_ctim.tv_sec ||
        now.st_ctim.tv_nsec != was->st_ctim.tv_nsec)
        return ckpt_fail_as(err, CKPT_EFORMAT, "changed", "%s: changed after it was signed",
                            ckpt_file_name(file));
    return 0;
}
