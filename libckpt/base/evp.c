/* evp - see evp.h. */
#include "libckpt/base/evp.h"

#include <openssl/err.h>
#include <stdbool.h>

int ckpt_evp_failed(struct ckpt_err *err, const char *name)
{
    unsigned long code = ERR_get_error();
    bool memory = !code;

    /* OpenSSL 3.0 calls memory that its own set-up did not get an internal error of its base
     * library (ERR_LIB_CRYPTO); where no memory was left for a record, there is none. */
    for (; code; code = ERR_get_error())
        memory |= ERR_GET_LIB(code) == ERR_LIB_CRYPTO ||
                  ERR_GET_REASON(code) == ERR_R_MALLOC_FAILURE;
    return memory ? ckpt_fail(err, CKPT_ENOMEM, "out of memory: OpenSSL has none for %s", name)
                  : ckpt_fail(err, CKPT_ESTATE, "%s is not available in this OpenSSL", name);
}
