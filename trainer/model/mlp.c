/* mlp - a block's second half: norm, dense feed-forward, residual. */
#include "trainer/model/pass.h"

static struct op_rownorm norm2(const struct pass *p, const struct unit *u,
                               const struct block_bufs *b)
{
    return (struct op_rownorm){
        .out = b->at[BUF_Y2], .stats = b->at[BUF_STATS2], .x = b->at[BUF_H1],
        .norm = unit_norm(u, ROLE_NORM2_W, ROLE_NORM2_B), .n = p->n, .n_x = p->n,
        .dim = p->m->arch->hidden_size,
    };
}

static struct op_linear up_linear(const struct pass *p, const struct unit *u,
                                  const struct block_bufs *b)
{
    return (struct op_linear){
        .out = b->at[BUF_G], .pre = p->keep ? b->at[BUF_U] : NULL, .x = b->at[BUF_Y2],
        .w = unit_weight(u, ROLE_UP_W), .b = unit_weight(u, ROLE_UP_B),
        .act = OP_ACT_GELU_TANH, .n = p->n, .n_in = p->m->arch->hidden_size,
        .n_out = p->m->arch->intermediate_size,
    };
}

static struct op_linear down_linear(const struct pass *p, const struct unit *u,
                                    const struct block_bufs *b)
{
    return (struct op_linear){
        .x = b->at[BUF_G], .w = unit_weight(u, ROLE_DOWN_W), .b = unit_weight(u, ROLE_DOWN_B),
        .n = p->n, .n_in = p->m->arch->intermediate_size, .n_out = p->m->arch->hidden_size,
    };
}

void mlp_fwd(const struct pass *p, const struct unit *u, const struct block_bufs *b, void *next)
{
    struct op_rownorm norm = norm2(p, u, b);
    struct op_linear up = up_linear(p, u, b), down = down_linear(p, u, b);

    p->dev->ops->norm_fwd(p->dev, &norm);
    p->dev->ops->linear_fwd(p->dev, &up);
    down.out = next;
    down.residual = b->at[p->m->arch->resid_from_norm ? BUF_Y2 : BUF_H1];
    p->dev->ops->linear_fwd(p->dev, &down);
}

void mlp_again(const struct pass *p, const struct unit *u, const struct block_bufs *b)
{
    struct op_rownorm norm = norm2(p, u, b);
    struct op_linear up = up_linear(p, u, b);

    up.out = b->at[BUF_U];
    up.pre = NULL;
    up.act = OP_ACT_NONE;
    p->dev->ops->norm_fwd(p->dev, &norm);
    p->dev->ops->linear_fwd(p->dev, &up);
}

void mlp_bwd(const struct pass *p, const struct unit *u, const struct block_bufs *b, void *dh)
{
    const struct ops *ops = p->dev->ops;
    struct op_rownorm norm = norm2(p, u, b);
    struct op_linear up = up_linear(p, u, b), down = down_linear(p, u, b);

    down.dout = dh;
    down.dx = b->at[BUF_DU];
    down.x_act = OP_ACT_GELU_TANH;
    down.x_pre = b->at[BUF_U];
    down.dw = unit_grad(u, ROLE_DOWN_W);
    down.db = unit_grad(u, ROLE_DOWN_B);
    ops->linear_bwd(p->dev, &down);

    up.dout = b->at[BUF_DU];
    up.dx = b->at[BUF_DY2];
    up.dw = unit_grad(u, ROLE_UP_W);
    up.db = unit_grad(u, ROLE_UP_B);
    ops->linear_bwd(p->dev, &up);

    norm.dout = b->at[BUF_DY2];
    norm.dx = dh;
    *(p->m->arch->resid_from_norm ? &norm.dout_add : &norm.dx_add) = dh;
    ops->norm_bwd(p->dev, &norm);
}
