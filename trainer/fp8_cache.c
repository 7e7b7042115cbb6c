/* trainer/fp8_cache - see trainer/fp8_cache.h. */
#include "trainer/fp8_cache.h"

#include "libckpt/log.h"
#include "formats/families/role.h"

int fp8_cache_lend(struct device *dev, const struct params *params, uint64_t left, bool dry,
                struct ckpt_err *err)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < params->n; i++) {
        const struct param *p = &params->item[i];
        enum role role = (enum role)p->role;

        if (p->kind == PARAM_BASE && p->layer > 0 && p->layer < params->n_layers - 1 &&
            role_is_linear(role) && !role_is_expert(role))
            bytes += 2 * ((uint64_t)p->numel + 256);
    }
    if (bytes <= left) {
        dev->fp8_cache = dry ? NULL : device_alloc(dev, bytes, err);
        dev->fp8_cache_bytes = dry || dev->fp8_cache ? bytes : 0;
        return dry || dev->fp8_cache ? 0 : ckpt_err_code(err);
    }
    ckpt_log(CKPT_LOG_NOTE, "fp8: no memory for %.2f GiB of 8-bit weights: they are rounded at "
             "each use", (double)bytes / (1 << 30));
    return 0;
}
