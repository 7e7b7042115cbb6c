/* views/chain - see views/chain.h. */
#include "libckpt/views/chain.h"

int ckpt_chain_run(struct ckpt_source **src, ckpt_chain_step *const *step, size_t n, void *ctx,
                   struct ckpt_err *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = step[i](src, ctx, err);
    if (rc) {
        ckpt_source_close(*src);
        *src = NULL;
    }
    return rc;
}
