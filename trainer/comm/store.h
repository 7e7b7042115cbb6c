/*
 * comm/store - the store through which ranks meet: keys and values on one host, reached by TCP.
 *
 * The protocol is that of PyTorch's TCPStore, so that ranks started by torchrun meet in the store
 * its agent holds, and torch's ranks could meet in ours (store_server.h).  A connection begins with
 * VALIDATE; then requests, each a byte and its fields, answered in their order:
 *
 *    0 VALIDATE     u32 0x3c85f7ce          -
 *    1 SET          key, value              -
 *    2 COMPARE_SET  key, expected, desired  value
 *    3 GET          key                     value; that of an absent key is empty
 *    4 ADD          key, i64                i64: the sum, which is kept as decimal text
 *    5 CHECK        u64 n, n keys           u8: 0 all are there, 1 not yet
 *    6 WAIT         u64 n, n keys           u8 0, once all are there
 *    7 GETNUMKEYS                           i64
 *    8 DELETE_KEY   key                     i64: how many there were
 *    9 APPEND       key, value              -
 *   10 MULTI_GET    u64 n, n keys           n values
 *   11 MULTI_SET    u64 n, n (key, value)   -
 *   12 CANCEL_WAIT                          u8 1
 *   13 PING         u32                     the same u32
 *
 * Keys and values are a u64 length and bytes; numbers are little-endian.  A store that was given a
 * word answers only connections whose first request after VALIDATE is SET STORE_WORD_KEY word.
 *
 * Source: pytorch 2.6, torch/csrc/distributed/c10d/TCPStore.cpp, TCPStoreBackend.hpp,
 * TCPStoreLibUvBackend.cpp.
 */
#ifndef CKPT_TRAINER_COMM_STORE_H
#define CKPT_TRAINER_COMM_STORE_H

#include <stddef.h>
#include <stdint.h>

#include "libckpt/fail.h"

#define STORE_MAGIC     0x3c85f7ceu
#define STORE_WORD_KEY  "ckpt/word"
#define STORE_MAX_KEY   8192u               /* bytes; as torch's server has it */
#define STORE_MAX_VALUE (8u << 20)          /* bytes */
#define STORE_MAX_KEYS  (128u << 10)        /* of one request */
#define STORE_ANSWER_MS 60000               /* a store that is there answers within this */

enum store_request {
    STORE_VALIDATE, STORE_SET, STORE_COMPARE_SET, STORE_GET, STORE_ADD, STORE_CHECK, STORE_WAIT,
    STORE_GETNUMKEYS, STORE_DELETE_KEY, STORE_APPEND, STORE_MULTI_GET, STORE_MULTI_SET,
    STORE_CANCEL_WAIT, STORE_PING
};

/* A connection; one thread at a time. */
struct store;

/*
 * Connect to the store at host and port, trying again until timeout_ms have passed: whoever holds
 * the store may start later, and so may its host get its name or another address.  word: NULL for
 * none.  CKPT_ECOMM when nobody answers in time, CKPT_ECONFIG when the host has no address then.
 */
int store_open(struct store **out, const char *host, uint16_t port, const char *word,
               int64_t timeout_ms, struct ckpt_err *err);
void store_close(struct store *s);
/* While *stop is not 0 nothing more is waited for: to connect, or for a key; CKPT_ESTOPPED.  NULL:
 * all waits take their time.  stop outlives that. */
void store_stop_on(const volatile int *stop);
/* A store that does not answer within ms is lost; STORE_ANSWER_MS at first. */
void store_answers_within(struct store *s, int64_t ms);
int store_set(struct store *s, const char *key, const void *value, size_t n, struct ckpt_err *err);
/* The sum after adding delta; an absent key counts as 0. */
int store_add(struct store *s, const char *key, int64_t delta, int64_t *sum, struct ckpt_err *err);
/*
 * The value of a key, at most max bytes, waited for at most timeout_ms.  CKPT_ENOTFOUND when the
 * time is over without the key, after which the connection is as before; CKPT_ELIMIT when the
 * value is longer.
 */
int store_get(struct store *s, const char *key, void *value, size_t max, size_t *n,
              int64_t timeout_ms, struct ckpt_err *err);
/* Whether the key is there now: 1, 0, or negative. */
int store_has(struct store *s, const char *key, struct ckpt_err *err);
/* The address of this end of the connection, as numbers: what other hosts can reach it by. */
int store_own_address(const struct store *s, char *out, size_t size, struct ckpt_err *err);

#endif
