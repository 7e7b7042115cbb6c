/* mem - see mem.h. */
#include "libckpt/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "libckpt/base/fault.h"

#define ARENA_FIRST 4096u       /* size of the first block for small requests; blocks double */
#define ARENA_BLOCK 65536u      /* up to this size, so that a small arena costs little */

struct ckpt_arena_block {
    struct ckpt_arena_block *next;
    size_t                   used, size;
    _Alignas(16) unsigned char bytes[];
};

void *ckpt_alloc(size_t n, size_t size)
{
    size_t bytes;

    if (__builtin_mul_overflow(n, size, &bytes) || ckpt_fault(CKPT_FAULT_ALLOC))
        return NULL;
    return calloc(bytes ? bytes : 1, 1);
}

void *ckpt_alloc_buffer(size_t bytes)
{
    size_t align = bytes < CKPT_LARGE ? 64 : 4096, rounded = (bytes + align - 1) & ~(align - 1);

    if (rounded < bytes || ckpt_fault(CKPT_FAULT_ALLOC))
        return NULL;
    return aligned_alloc(align, rounded ? rounded : align);
}

void *mem_map(size_t bytes)
{
    void *p;

    if (ckpt_fault(CKPT_FAULT_ALLOC))
        return NULL;
    p = mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

void mem_unmap(void *p, size_t bytes)
{
    if (p)
        munmap(p, bytes ? bytes : 1);
}

void *ckpt_grow(void *old, size_t n, size_t size)
{
    size_t bytes;

    if (__builtin_mul_overflow(n, size, &bytes) || ckpt_fault(CKPT_FAULT_ALLOC))
        return NULL;
    return realloc(old, bytes ? bytes : 1);
}

int ckpt_grow_double(void *array, size_t *cap, size_t size, struct ckpt_err *err)
{
    size_t more = *cap ? 2 * *cap : 16;
    void *p;

    memcpy(&p, array, sizeof p);
    p = ckpt_grow(p, more, size);
    if (!p)
        return ckpt_nomem(err, more * size);
    memcpy(array, &p, sizeof p);
    *cap = more;
    return 0;
}

int ckpt_reserve_all(const struct ckpt_array *all, size_t n_all, size_t *cap, size_t n,
                     struct ckpt_err *err)
{
    size_t more = *cap ? *cap : 64;
    void *p;

    if (n <= *cap)
        return 0;
    while (more < n)
        more = more > SIZE_MAX / 2 ? n : 2 * more;
    for (size_t i = 0; i < n_all; i++) {
        memcpy(&p, all[i].array, sizeof p);
        p = ckpt_grow(p, more, all[i].size);
        if (!p)
            return ckpt_nomem(err, more * all[i].size);
        memcpy(all[i].array, &p, sizeof p);
    }
    *cap = more;
    return 0;
}

void ckpt_free(void *p) { free(p); }

char *ckpt_strdup(const char *s)
{
    size_t n = strlen(s) + 1;
    char *copy = ckpt_alloc(n, 1);

    return copy ? memcpy(copy, s, n) : NULL;
}

int ckpt_nomem(struct ckpt_err *err, size_t bytes)
{
    return ckpt_fail(err, CKPT_ENOMEM, "out of memory: %zu bytes were asked for", bytes);
}

void *ckpt_arena_alloc(struct ckpt_arena *a, size_t n, size_t size)
{
    struct ckpt_arena_block *b = a->head;
    size_t bytes, block;
    void *p;

    if (__builtin_mul_overflow(n, size, &bytes) || bytes > SIZE_MAX - ARENA_BLOCK)
        return NULL;
    bytes = bytes ? (bytes + 15) & ~(size_t)15 : 16;
    if (a->limit && bytes > a->limit - (a->used < a->limit ? a->used : a->limit))
        return NULL;
    if (!b || b->size - b->used < bytes) {
        block = b && b->size >= ARENA_FIRST ? 2 * b->size : ARENA_FIRST;
        while (block / 4 < bytes && block < ARENA_BLOCK)
            block *= 2;
        block = bytes > ARENA_BLOCK / 4 ? bytes : block < ARENA_BLOCK ? block : ARENA_BLOCK;
        b = ckpt_alloc(1, sizeof *b + block);
        if (!b)
            return NULL;
        b->size = block;
        /* A block for one request goes after the head, so that the head's rest stays in use. */
        if (a->head && block == bytes) {
            b->next = a->head->next;
            a->head->next = b;
        } else {
            b->next = a->head;
            a->head = b;
        }
    }
    p = b->bytes + b->used;
    b->used += bytes;
    a->used += bytes;
    return p;
}

int ckpt_arena_reserve(struct ckpt_arena *a, void *array, size_t n, size_t *cap, size_t size,
                       struct ckpt_err *err)
{
    size_t more = *cap ? 2 * *cap : 16;
    void *now, *was;

    if (n < *cap)
        return 0;
    now = ckpt_arena_alloc(a, more, size);
    if (!now)
        return ckpt_nomem(err, more * size);
    memcpy(&was, array, sizeof was);
    if (n > 0)
        memcpy(now, was, n * size);
    memcpy(array, &now, sizeof now);
    *cap = more;
    return 0;
}

char *ckpt_arena_strndup(struct ckpt_arena *a, const char *s, size_t len)
{
    char *copy = len < SIZE_MAX ? ckpt_arena_alloc(a, len + 1, 1) : NULL;

    return copy ? memcpy(copy, s, len) : NULL;
}

char *ckpt_arena_printf(struct ckpt_arena *a, const char *fmt, ...)
{
    va_list ap;
    char *s;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0)
        return NULL;
    s = ckpt_arena_alloc(a, (size_t)n + 1, 1);
    if (!s)
        return NULL;
    va_start(ap, fmt);
    vsnprintf(s, (size_t)n + 1, fmt, ap);
    va_end(ap);
    return s;
}

void ckpt_arena_release(struct ckpt_arena *a)
{
    struct ckpt_arena_block *b, *next;

    for (b = a->head; b; b = next) {
        next = b->next;
        ckpt_free(b);
    }
    memset(a, 0, sizeof *a);
}
