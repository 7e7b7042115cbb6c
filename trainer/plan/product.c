/* product - see product.h. */
#include "trainer/plan/product.h"

#include <math.h>

#include "formats/families/arch.h"
#include "trainer/clock.h"
#include "trainer/ops/device.h"

#define SECONDS  0.2
#define MAX_ROWS 8192

/* Everything that a product needs, in one piece: input, weight, output, workspace. */
static void time_product(double *rate, struct device *dev, struct op_linear *op)
{
    double begun = clock_now(), flops = 2.0 * (double)op->n * (double)op->n_in * (double)op->n_out;

    dev->ops->linear_fwd(dev, op);      /* a device may choose its way now */
    dev->ops->sync(dev);
    do {
        double start = clock_now();

        dev->ops->linear_fwd(dev, op);
        dev->ops->sync(dev);
        *rate = fmax(*rate, flops / fmax(clock_now() - start, 1e-9));
    } while (dev->err.code == 0 && clock_now() - begun < SECONDS);
}

static size_t aligned(size_t bytes) { return (bytes + 255) & ~(size_t)255; }

int product_rate(double *rate, struct device *dev, const struct arch *arch, double rows,
                 struct ckpt_err *err)
{
    int64_t n = rows < 1 ? 1 : rows > MAX_ROWS ? MAX_ROWS : (int64_t)rows;
    int64_t in = arch->hidden_size;
    int64_t out = arch->num_experts > 0 ? arch->moe_intermediate_size : arch->intermediate_size;
    size_t act = ckpt_dtype_size(dev->act), wide = ckpt_dtype_size(dev->weight);
    struct op_limits limits = {.n = n, .n_rows = n, .max_doc = n, .dim = in, .n_head = 1,
                               .n_kv = 1, .head_dim = in, .ff = out, .vocab = in, .embed = in};
    size_t bytes = dev->ops->workspace(dev, &limits), x = aligned((size_t)(n * in) * act);
    size_t w = aligned((size_t)(in * out) * wide), y = aligned((size_t)(n * out) * act);
    void *work = dev->work;
    uint64_t work_bytes = dev->work_bytes;
    struct ckpt_err short_of = {0};
    unsigned char *at;

    *rate = 0;
    if (out < 1 || (uint64_t)(x + w + y + bytes) > dev->ops->free_bytes(dev) ||
        !(at = device_alloc(dev, x + w + y + bytes, &short_of)))
        return 0;
    dev->work = at + x + w + y;
    dev->work_bytes = bytes;
    time_product(rate, dev, &(struct op_linear){.proj = {.w = at + x}, .x = at, .out = at + x + w,
                                                .n = n, .n_in = in, .n_out = out});
    dev->work = work;
    dev->work_bytes = work_bytes;
    dev->ops->free(dev, at);
    if (dev->err.code == 0)
        return 0;
    *err = dev->err;
    return ckpt_err_code(err);
}
