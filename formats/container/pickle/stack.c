/* pickle/stack - see pickle/stack.h. */
#include "formats/container/pickle/stack.h"

#include "formats/container/pickle/pickle.h"
#include "libckpt/mem.h"

struct memo_slot { uint64_t key; struct item item; };   /* key 0: empty; else index + 1 */

static const struct item unknown = {OTHER, 0, {0}};

static void broken(struct pickle_stack *s, const char *why)
{
    if (!s->broken)
        s->broken = why;
}

int stack_push(struct pickle_stack *s, struct item item, struct ckpt_err *err)
{
    if (s->n == PICKLE_MAX_STACK)
        return ckpt_fail(err, CKPT_ELIMIT, "pickle: more than %u values on the stack",
                         PICKLE_MAX_STACK);
    if (ckpt_reserve(&s->item, s->n, &s->cap, sizeof *s->item, err))
        return CKPT_ENOMEM;
    s->item[s->n++] = item;
    return 0;
}

struct item *stack_top(struct pickle_stack *s)
{
    size_t floor = s->n_mark ? s->mark[s->n_mark - 1] : 0;

    return s->n > floor ? &s->item[s->n - 1] : NULL;
}

struct item stack_pop(struct pickle_stack *s)
{
    struct item *t = stack_top(s);

    if (t) {
        s->n--;
        return *t;
    }
    broken(s, "the stack is empty");
    return unknown;
}

int stack_mark(struct pickle_stack *s, struct ckpt_err *err)
{
    if (s->n_mark == PICKLE_MAX_STACK)
        return ckpt_fail(err, CKPT_ELIMIT, "pickle: more than %u marks", PICKLE_MAX_STACK);
    if (ckpt_reserve(&s->mark, s->n_mark, &s->cap_mark, sizeof *s->mark, err))
        return CKPT_ENOMEM;
    s->mark[s->n_mark++] = s->n;
    return 0;
}

size_t stack_pop_mark(struct pickle_stack *s, size_t *from)
{
    size_t n;

    if (s->n_mark == 0)
        broken(s, "no mark");
    *from = s->n_mark ? s->mark[--s->n_mark] : s->n;
    n = s->n - *from;
    s->n = *from;
    return n;
}

void stack_drop(struct pickle_stack *s)
{
    if (s->n_mark && s->n == s->mark[s->n_mark - 1])
        s->n_mark--;
    else
        stack_pop(s);
}

static struct memo_slot *slot_of(struct memo_slot *memo, size_t cap, uint64_t key)
{
    size_t i = (size_t)(key * 0x9e3779b97f4a7c15u >> 20) & (cap - 1);

    while (memo[i].key && memo[i].key != key)
        i = (i + 1) & (cap - 1);
    return &memo[i];
}

int stack_keep(struct pickle_stack *s, uint64_t index, struct ckpt_err *err)
{
    struct item *t = stack_top(s);
    struct memo_slot *slot;

    if (!t) {
        broken(s, "nothing to remember");
        return 0;
    }
    if (s->n_memo * 2 >= s->cap_memo) {
        size_t cap = s->cap_memo ? 2 * s->cap_memo : 256;
        struct memo_slot *grown;

        if (cap > PICKLE_MAX_MEMO)
            return ckpt_fail(err, CKPT_ELIMIT, "pickle: more than %u memos", PICKLE_MAX_MEMO / 2);
        grown = ckpt_alloc(cap, sizeof *grown);
        if (!grown)
            return ckpt_nomem(err, cap * sizeof *grown);
        for (size_t i = 0; i < s->cap_memo; i++)
            if (s->memo[i].key)
                *slot_of(grown, cap, s->memo[i].key) = s->memo[i];
        ckpt_free(s->memo);
        s->memo = grown;
        s->cap_memo = cap;
    }
    slot = slot_of(s->memo, s->cap_memo, index + 1);
    s->n_memo += slot->key == 0;
    *slot = (struct memo_slot){index + 1, *t};
    return 0;
}

struct item stack_recall(struct pickle_stack *s, uint64_t index)
{
    const struct memo_slot *slot = s->memo ? slot_of(s->memo, s->cap_memo, index + 1) : NULL;

    if (slot && slot->key)
        return slot->item;
    broken(s, "no such memo");
    return unknown;
}

void stack_release(struct pickle_stack *s)
{
    ckpt_free(s->item);
    ckpt_free(s->mark);
    ckpt_free(s->memo);
    *s = (struct pickle_stack){0};
}
