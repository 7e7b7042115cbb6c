/* fibers - the threads of a block; see cuda_runtime.h. */
#include "tests/emulate/cuda_runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace {

enum { MOST = 1024, STACK = (64 << 10) + 7 * 64 };        /* no two alike in a cache */
enum state { RUNS, WAITS_WARP, WAITS_BLOCK, ENDED };

/* -- contexts --------------------------------------------------------------------------------- */

void fiber_main(void);

#if defined(__x86_64__)
/* ucontext asks the kernel for the signal mask each time, which takes most of the time. */
typedef void *context;
extern "C" void emulate_switch(context *from, context to);
asm(".text\n"
    ".type emulate_switch, @function\n"
    "emulate_switch:\n"
    "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n    pushq %r13\n    pushq %r14\n    pushq %r15\n"
    "    movq %rsp, (%rdi)\n"
    "    movq %rsi, %rsp\n"
    "    popq %r15\n    popq %r14\n    popq %r13\n    popq %r12\n    popq %rbx\n    popq %rbp\n"
    "    ret\n"
    ".size emulate_switch, . - emulate_switch\n");

void go(context *from, context *to) { emulate_switch(from, *to); }

void make(context *c, unsigned char *stack)
{
    void **top = (void **)(void *)(stack + STACK) - 2;

    *--top = NULL;                      /* where fiber_main would return to: it never does */
    *--top = (void *)fiber_main;
    for (int i = 0; i < 6; i++)
        *--top = NULL;
    *c = top;
}
#else
typedef ucontext_t context;
void go(context *from, context *to) { swapcontext(from, to); }

void make(context *c, unsigned char *stack)
{
    getcontext(c);
    c->uc_stack.ss_sp = stack;
    c->uc_stack.ss_size = STACK;
    c->uc_link = NULL;
    makecontext(c, fiber_main, 0);
}
#endif

/* -- threads ---------------------------------------------------------------------------------- */

/* A thread that waits keeps its stack; others begin on the one that has become free. */
struct thread {
    context    at;
    enum state state;
    dim3       index;
    unsigned   exchanges;
};

struct thread threads[MOST];
uint64_t slots[2][MOST];
unsigned char *stacks;
context scheduler;
unsigned current, count, begun, launches, n_stacks;
void (*work)(void *);
void *work_ctx;

void become(unsigned i)
{
    current = i;
    threadIdx = threads[i].index;
    threads[i].state = RUNS;
}

/* The next thread begins; false: all have. */
bool begin_next(void)
{
    if (begun == count)
        return false;
    become(launches % 2 ? count - 1 - begun : begun);
    begun++;
    return true;
}

void fiber_main(void)
{
    do {
        work(work_ctx);
        threads[current].state = ENDED;
    } while (begin_next());
    go(&threads[current].at, &scheduler);
    abort();
}

/* Those of [from, end) go on if all wait for each other; whether some did. */
bool release(unsigned from, unsigned end, enum state what)
{
    bool any = false;

    for (unsigned i = from; i < end; i++) {
        if (threads[i].state != what && threads[i].state != ENDED)
            return false;
        any = any || threads[i].state == what;
    }
    for (unsigned i = from; any && i < end; i++)
        if (threads[i].state == what)
            threads[i].state = RUNS;
    return any;
}

/* Every thread that can runs up to where it waits, or ends; whether some could. */
bool turn(void)
{
    bool moved = false;

    for (unsigned k = 0; k < count; k++) {
        unsigned i = launches % 2 ? count - 1 - k : k;

        if (threads[i].state == RUNS) {
            become(i);
            go(&scheduler, &threads[i].at);
            moved = true;
        }
    }
    for (unsigned i = 0; i < count; i += 32)
        moved = release(i, i + 32 < count ? i + 32 : count, WAITS_WARP) || moved;
    return release(0, count, WAITS_BLOCK) || moved;
}

void run_block(void)
{
    count = blockDim.x * blockDim.y * blockDim.z;
    begun = n_stacks = 0;
    for (unsigned i = 0; i < count; i++) {
        threads[i].exchanges = 0;
        threads[i].index =
            dim3(i % blockDim.x, i / blockDim.x % blockDim.y, i / blockDim.x / blockDim.y);
    }
    while (begin_next()) {
        make(&threads[current].at, stacks + (size_t)n_stacks++ * STACK);
        go(&scheduler, &threads[current].at);
    }
    while (turn())
        ;
    for (unsigned i = 0; i < count; i++)
        if (threads[i].state != ENDED) {
            fprintf(stderr, "emulate: threads wait for others that never come\n");
            abort();
        }
}

} /* namespace */

dim3 threadIdx, blockIdx, blockDim, gridDim;

/* Who is two exchanges ahead knows that all have read what they had before the last. */
uint64_t *emulate_slots(void) { return slots[threads[current].exchanges++ % 2]; }
unsigned emulate_thread(void) { return current; }

void emulate_wait(bool whole_block)
{
    unsigned me = current;

    threads[me].state = whole_block ? WAITS_BLOCK : WAITS_WARP;
    go(&threads[me].at, &scheduler);
}

void emulate_run(dim3 grid, dim3 block, void (*body)(void *ctx), void *ctx)
{
    if (!stacks) {
        void *p = mmap(NULL, (size_t)MOST * STACK, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

        if (p == MAP_FAILED)
            abort();
        stacks = (unsigned char *)p;
    }
    if (block.x * block.y * block.z > MOST || block.x * block.y * block.z == 0 || grid.x == 0) {
        fprintf(stderr, "emulate: %u blocks of %u threads\n", grid.x, block.x);
        abort();
    }
    work = body;
    work_ctx = ctx;
    gridDim = grid;
    blockDim = block;
    launches++;
    for (unsigned z = 0; z < grid.z; z++)
        for (unsigned y = 0; y < grid.y; y++)
            for (unsigned x = 0; x < grid.x; x++) {
                blockIdx = dim3(x, y, z);
                run_block();
            }
}
