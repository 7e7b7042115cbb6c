/* gguf/names - see gguf/names.h. */
#include "formats/gguf/names.h"

#include <string.h>

#include "formats/gguf/types.h"
#include "libckpt/views/layout.h"

/* Where two rows have one name, a family has only one of the roles. */
static const struct family_name names[] = {
    {ROLE_TOKENS, "token_embd.weight"},
    {ROLE_POS, "position_embd.weight"},
    {ROLE_EMB_NORM_W, "token_embd_norm.$"},
    {ROLE_FINAL_NORM_W, "output_norm.$"},
    {ROLE_HEAD_W, "output.weight"},
    {ROLE_NORM1_W, "blk.#.attn_norm.$"},
    {ROLE_QKV_W, "blk.#.attn_qkv.$"},
    {ROLE_Q_W, "blk.#.attn_q.$"},
    {ROLE_K_W, "blk.#.attn_k.$"},
    {ROLE_V_W, "blk.#.attn_v.$"},
    {ROLE_Q_NORM, "blk.#.attn_q_norm.weight"},
    {ROLE_K_NORM, "blk.#.attn_k_norm.weight"},
    {ROLE_OUT_W, "blk.#.attn_output.$"},
    {ROLE_NORM2_W, "blk.#.ffn_norm.$"},
    {ROLE_GATE_W, "blk.#.ffn_gate.$"},
    {ROLE_UP_W, "blk.#.ffn_up.$"},
    {ROLE_GATE_UP_W, "blk.#.ffn_up.weight"},
    {ROLE_DOWN_W, "blk.#.ffn_down.$"},
    {ROLE_ROUTER_W, "blk.#.ffn_gate_inp.weight"},
    {ROLE_EXPERT_GATE, "blk.#.ffn_gate_exps.weight"},
    {ROLE_EXPERT_UP, "blk.#.ffn_up_exps.weight"},
    {ROLE_EXPERT_DOWN, "blk.#.ffn_down_exps.weight"},
    {ROLE_SHARED_ROUTER, "blk.#.ffn_gate_inp_shexp.weight"},
    {ROLE_SHARED_GATE, "blk.#.ffn_gate_shexp.weight"},
    {ROLE_SHARED_UP, "blk.#.ffn_up_shexp.weight"},
    {ROLE_SHARED_DOWN, "blk.#.ffn_down_shexp.weight"},
};

#define N_NAMES (sizeof names / sizeof names[0])

const struct family *gguf_family(const char *model_type)
{
    const struct family *f = family_find(model_type, NULL);

    return f && f->gguf ? f : NULL;
}

const struct family *gguf_family_of(const char *architecture, bool experts)
{
    const struct family *f;

    for (size_t i = 0; (f = family_at(i)) != NULL; i++)
        if (f->gguf && strcmp(f->gguf, architecture) == 0 &&
            (family_pattern(f, ROLE_ROUTER_W) != NULL) == experts)
            return f;
    return NULL;
}

/* The change of layout for a role. */
static enum gguf_change change_of(const struct family *f, enum role role)
{
    enum role weight = role_is_bias(role) ? role - 1 : role;

    if (role_is_expert(role))
        return GGUF_EXPERT;
    if (weight == ROLE_QKV_W && f->fixed.qkv == ARCH_QKV_HEAD_INTERLEAVED)
        return GGUF_QKV;
    if (f->gguf_llama && (weight == ROLE_Q_W || weight == ROLE_K_W))
        return weight == ROLE_Q_W ? GGUF_ROPE_Q : GGUF_ROPE_K;
    return f->fixed.weight_order == ARCH_IN_OUT && role_is_transposed(role) ? GGUF_TRANSPOSED
                                                                              : GGUF_AS_IS;
}

bool gguf_name_of_hf(struct gguf_name *out, const struct family *f, const char *name)
{
    const struct family_name *row = family_name_find(f, name, &out->at);

    *out = (struct gguf_name){.at = out->at, .change = GGUF_LEFT_OUT};
    if (!row)
        return family_is_spare(f, name);
    for (size_t i = 0; i < N_NAMES; i++)
        if (names[i].role == row->role) {
            out->pattern = names[i].pattern;
            out->change = change_of(f, out->at.role);
            out->outside = row->pattern[0] == '^';
            return true;
        }
    return false;
}

bool gguf_name_of_gguf(struct gguf_name *out, const struct family *f, const char *name)
{
    for (size_t i = 0; i < N_NAMES; i++)
        if (family_match(&out->at, &names[i], name) &&
            (out->pattern = family_pattern(f, names[i].role)) != NULL) {
            out->change = change_of(f, out->at.role);
            out->outside = out->pattern[0] == '^';
            return true;
        }
    return false;
}

int gguf_layout(struct ckpt_layout *r, enum gguf_change change, const struct ckpt_tensor *t,
                int64_t heads, bool to_gguf, struct ckpt_err *err)
{
    int64_t rows = t->shape.rank ? t->shape.dim[0] : 1, parts = change == GGUF_QKV ? 3 : 2;
    int64_t outer, inner, run;

    if (change == GGUF_TRANSPOSED) {
        if (t->shape.rank != 2)
            return ckpt_fail(err, CKPT_EFORMAT, "tensor %s: %d axes, 2 wanted", t->name,
                             t->shape.rank);
        r->shape = ckpt_shape_2d(t->shape.dim[1], t->shape.dim[0]);
        r->order = CKPT_LAYOUT_TRANSPOSED;
        return 0;
    }
    if (heads < 1 || rows < 1 || rows % (heads * parts) != 0)
        return ckpt_fail(err, CKPT_EFORMAT, "tensor %s: %lld rows are not those of %lld heads",
                         t->name, (long long)rows, (long long)heads);
    /* To GGUF: [heads][3][d] for QKV, of each head [2][d / 2] for rotary halves. */
    outer = change == GGUF_QKV ? heads : 2;
    inner = change == GGUF_QKV ? 3 : rows / heads / 2;
    run = change == GGUF_QKV ? rows / heads / 3 : 1;
    r->order = CKPT_LAYOUT_ROWS;
    r->a = to_gguf ? outer : inner;
    r->b = to_gguf ? inner : outer;
    r->c = run;
    return 0;
}

void gguf_layout_pack(struct ckpt_layout *r, int64_t numel)
{
    r->stored = "Q8_0";
    r->stored_bytes = (uint64_t)numel / GGUF_Q8_0_N * GGUF_Q8_0_BYTES;
}

void gguf_count_add(struct gguf_count *c, const struct ckpt_layout *r, enum ckpt_dtype dtype,
                    int64_t numel)
{
    c->numel[r->stored ? 3 : dtype == CKPT_BF16 ? 2 : dtype == CKPT_F16 ? 1 : 0] += numel;
}

int gguf_count_type(const struct gguf_count *c)
{
    static const int number[4] = {0, 1, 32, 7};
    int best = 0;

    for (int k = 1; k < 4; k++)
        if (c->numel[k] > c->numel[best])
            best = k;
    return number[best];
}

bool gguf_wants_f32(const char *name)
{
    static const char *const tails[] = {"_norm.weight", ".bias", "ffn_gate_inp.weight",
                                        "ffn_gate_inp_shexp.weight", "position_embd.weight"};
    size_t n = strlen(name);

    for (size_t i = 0; i < sizeof tails / sizeof tails[0]; i++)
        if (n >= strlen(tails[i]) && strcmp(name + n - strlen(tails[i]), tails[i]) == 0)
            return true;
    return strncmp(name, "rope_", 5) == 0;
}
