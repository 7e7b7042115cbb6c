/*
 * comm/meet - the ranks of a run find each other, through a store (store.h).
 *
 * The store is held by the supervisor of `nproc`, by torchrun's agent, or by rank 0, which then
 * serves it on the master's own address for as long as the meeting is open.  Every rank says there
 * who it is; rank 0 calls the roll, and a rank that is missing, of another version or there twice
 * ends the start of all, by name.
 */
#ifndef CKPT_TRAINER_COMM_MEET_H
#define CKPT_TRAINER_COMM_MEET_H

#include "trainer/comm/meeting.h"
#include "trainer/comm/ranks.h"

#define MEET_WORD_ENV "CKPT_STORE_WORD"     /* the store's word; taken out of the environment */

struct meet;

/*
 * Returns when all ranks have come.  CKPT_ECOMM when some have not after timeout_ms, CKPT_ECONFIG
 * for ranks that do not belong together or a master that is not this host's.
 */
int meet_open(struct meet **out, const struct ranks *r, int64_t timeout_ms, struct ckpt_err *err);
/* For plug-ins; borrowed from m. */
const struct comm_meeting *meet_meeting(const struct meet *m);
/* Tell the other ranks why this one fails.  NULL: nobody to tell. */
void meet_tell(const struct meet *m, const struct ckpt_err *why);
/* Why a peer is gone, as it or others told, with its code; waited for some seconds.  False: nobody
 * knows. */
bool meet_cause(const struct meet *m, struct ckpt_err *why);
/*
 * NULL is closed.  What happens to other ranks from here on is theirs.  well: no failure; whoever
 * holds the store keeps it until the others have closed their meetings too, for a while.
 */
void meet_close(struct meet *m, bool well);

#endif
