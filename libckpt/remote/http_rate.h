/* http_rate - one limit on the bytes that all requests of the process send. */
#ifndef CKPT_LIBCKPT_REMOTE_HTTP_RATE_H
#define CKPT_LIBCKPT_REMOTE_HTTP_RATE_H

#include <stddef.h>

/* How many of n bytes may be sent now, at least one of them; waits until then.  Any thread. */
size_t http_rate_take(size_t n);

#endif
