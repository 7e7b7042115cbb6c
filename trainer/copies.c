/* copies - see copies.h. */
#include "trainer/copies.h"

#include "libckpt/log.h"
#include "trainer/model/names.h"

#define SPARE_BYTES ((size_t)256 << 20)

int copies_lend(struct device *dev, const struct params *params, struct ckpt_err *err)
{
    uint64_t bytes = 0;
    void *spare;

    for (size_t i = 0; i < params->n; i++) {
        const struct param *p = &params->item[i];
        enum role role = (enum role)p->role;

        if (p->kind == PARAM_BASE && p->unit > 0 && p->unit < params->n_unit - 1 &&
            role_is_linear(role) && !role_is_expert(role))
            bytes += 2 * ((uint64_t)p->numel + 256);
    }
    spare = device_alloc(dev, SPARE_BYTES, err);
    dev->copies = spare ? device_alloc(dev, bytes, err) : NULL;
    dev->copies_bytes = dev->copies ? bytes : 0;
    dev->ops->free(dev, spare);
    if (dev->copies || err->code != CKPT_ENOMEM)
        return err->code;
    ckpt_err_clear(&dev->err);
    ckpt_err_clear(err);
    ckpt_log(CKPT_LOG_NOTE, "fp8: no memory to keep %.2f GiB of weights in 8 bits: they are "
             "rounded at each use", (double)bytes / (1 << 30));
    return 0;
}
