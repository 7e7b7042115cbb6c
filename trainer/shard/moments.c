/* moments - see moments.h. */
#include "trainer/shard/moments.h"

#include "formats/bnb/optim.h"
#include "formats/families/role.h"

/* The weight of an nn.Embedding, whole. */
static bool is_embedding(const struct param *p)
{
    return p->kind == PARAM_BASE && (p->role == ROLE_TOKENS || p->role == ROLE_POS ||
                                     p->role == ROLE_TOKEN_TYPE || p->role == ROLE_REL_BIAS);
}

enum op_moments moments_of(const struct params *params, size_t i, enum op_moments wanted)
{
    const struct param *p = &params->item[i];

    if (wanted == OP_MOMENTS_8BIT &&
        (p->numel < BNB_MIN_8BIT || is_embedding(p) ||
         (role_is_expert((enum role)p->role) && p->numel % OP_MOMENTS_BLOCK)))
        return OP_MOMENTS_F32;
    return wanted;
}

size_t moments_size(enum op_moments moments)
{
    return moments == OP_MOMENTS_F32 ? sizeof(float) : moments == OP_MOMENTS_BF16 ? 2 : 1;
}
