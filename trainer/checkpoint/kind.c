/* checkpoint/kind - see kind.h. */
#include "trainer/checkpoint/kind.h"

#include <string.h>

static const char *const rules[] = {
    [OP_RULE_ADAMW] = "AdamW", [OP_RULE_LION] = "Lion", [OP_RULE_SGD] = "SGD",
    [OP_RULE_ADAFACTOR] = "Adafactor", [OP_RULE_MUON] = "Muon",
};

/* Whether a state has that last name. */
static bool has(const struct ckpt_source *src, const char *last)
{
    size_t n = strlen(last);

    for (size_t t = 0; t < ckpt_source_count(src); t++) {
        const char *name = ckpt_source_tensor(src, t)->name;
        size_t m = strlen(name);

        if (m > n && name[m - n - 1] == '.' && strcmp(name + m - n, last) == 0)
            return true;
    }
    return false;
}

/* By the states that only one rule has; Adafactor's and Muon's files have AdamW's too. */
static bool rule_of(enum op_rule *rule, const struct ckpt_source *src)
{
    bool second = has(src, "exp_avg_sq") || has(src, "state2");
    bool hidden = has(src, "momentum_buffer");

    if (has(src, "exp_avg_sq_row"))
        *rule = OP_RULE_ADAFACTOR;
    else if (hidden)
        *rule = second ? OP_RULE_MUON : OP_RULE_SGD;
    else if (second)
        *rule = OP_RULE_ADAMW;
    else if (has(src, "exp_avg") || has(src, "state1"))
        *rule = OP_RULE_LION;
    else
        return false;
    return true;
}

int kind_check(const struct ckpt_source *src, const struct optim_row *row, bool wants_moments,
               struct ckpt_err *err)
{
    enum op_rule rule;

    if (!rule_of(&rule, src)) {
        if (!wants_moments)
            return 0;
        ckpt_fail(err, CKPT_EMISMATCH, "the optimizer's file has no moments: `optim %s` cannot go "
                  "on from it", row->name);
    } else if (rule == row->rule) {
        return 0;
    } else {
        ckpt_fail(err, CKPT_EMISMATCH, "has %s's states: `optim %s` cannot go on from them",
                  rules[rule], row->name);
    }
    return ckpt_err_hint(err, "`resume_file` goes on from the weights alone, with a fresh "
                         "optimizer");
}
