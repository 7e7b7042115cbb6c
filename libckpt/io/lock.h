/*
 * lock - advisory locks on directories, among the processes of a pipeline and of a cluster's
 * node.
 *
 * There are two uses.  A writer's lock keeps a second trainer out of an output directory: it is
 * held on the file `.lock` in it, which names the holder.  A reader's lease keeps a directory
 * from being pruned while somebody reads it: shared, on the directory itself, which stays
 * unchanged.
 *
 * Both are flock(2) locks: the kernel drops them when the holder dies, however it dies.  The
 * descriptor is closed on exec, since a child that inherits it would keep the lock.  Where a file
 * system has no locks (ENOLCK, ENOSYS, EOPNOTSUPP, EBADF on NFS) every lock succeeds.
 */
#ifndef CKPT_LIBCKPT_IO_LOCK_H
#define CKPT_LIBCKPT_IO_LOCK_H

#include <stdbool.h>

#include "libckpt/fail.h"

struct ckpt_lock;

#define CKPT_LOCK_NAME ".lock"

/*
 * Lock dir, which must exist, against other writers.  CKPT_ECREATE "locked" with the holder's
 * process id and host, when another process has it.  *out is yours.
 */
int ckpt_lock_writer(struct ckpt_lock **out, const char *dir, struct ckpt_err *err);
/* Refuse what that would refuse as things are now, and create nothing.  Whoever locks dir in the
 * same instant is refused. */
int ckpt_lock_writer_ready(const char *dir, struct ckpt_err *err);
/*
 * Lock the file name in dir for this process and a child that gets *fd: the lock holds until both
 * have closed it.  *got is false, without an error, when another process has it.
 */
int ckpt_lock_pass(int *fd, bool *got, const char *dir, const char *name, struct ckpt_err *err);
/* Lease path, a directory or a file, for reading.  NULL when it is absent or cannot be leased:
 * opening path will report why. */
struct ckpt_lock *ckpt_lock_reader(const char *path);
/* Whether nobody leases path at this moment. */
bool ckpt_lock_unread(const char *path);
/* Keep new readers out of path while it is removed.  NULL when somebody reads it, or it is not
 * there. */
struct ckpt_lock *ckpt_lock_removal(const char *path);
/* NULL accepted.  A writer's lock file stays: removing it would race with processes waiting for
 * it. */
void ckpt_lock_release(struct ckpt_lock *lock);

#endif
