/*
 * comm/store_server - a store (store.h) held by this process, on a thread of its own.
 *
 * It listens on one address, never on all.  What connects is a stranger until it has said the
 * magic number, and the word where there is one; strangers are dropped after ten seconds, and at
 * the first byte that is not the protocol's.
 */
#ifndef CKPT_TRAINER_COMM_STORE_SERVER_H
#define CKPT_TRAINER_COMM_STORE_SERVER_H

#include <stdint.h>

#include "libckpt/fail.h"

#define STORE_SERVER_ELSEWHERE "elsewhere"      /* reason: the address is not this host's (yet) */

struct store_server;

/*
 * Listen on host, a name or a number of this machine, at port (0: any that is free).  word: NULL
 * for none.  CKPT_ECONFIG when the address is not this machine's (reason STORE_SERVER_ELSEWHERE)
 * or the port is taken.
 */
int store_server_open(struct store_server **out, const char *host, uint16_t port,
                      const char *word, struct ckpt_err *err);
uint16_t store_server_port(const struct store_server *s);
/* Ends every connection.  NULL is closed. */
void store_server_close(struct store_server *s);

#endif
