/*
 * hostfile - hosts and their slots, as DeepSpeed's runner takes them.
 *
 *    worker-0 slots=4     # a host, and how many ranks or GPUs it has
 *    worker-1 slots=4
 *
 * A slot is the number of a GPU there, from 0.  A choice among them is HOST[:SLOT,SLOT...][@...].
 *
 * Source: DeepSpeed 0.17, deepspeed/launcher/runner.py: _parse_hostfile, parse_resource_filter.
 */
#ifndef CKPT_TRAINER_LAUNCH_HOSTFILE_H
#define CKPT_TRAINER_LAUNCH_HOSTFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libckpt/fail.h"

#define HOSTFILE_MAX_SLOTS 1024         /* of a host */
#define HOSTFILE_MAX_HOSTS 16384

struct hostfile_host {
    char      name[254];                /* letters, digits, "." "-" "_" */
    uint16_t *slot;                     /* [n] in the order in which ranks take them */
    int64_t   n;                        /* > 0 */
};

struct hostfile {
    struct hostfile_host *host;         /* [n] */
    size_t                n;
};

/* Hosts without slots are left out.  CKPT_ECONFIG names the line (of file `name`) that is none of
 * the above, or a host that is there twice. */
int hostfile_parse(struct hostfile *h, const char *text, size_t n, const char *name,
                   struct ckpt_err *err);
int hostfile_read(struct hostfile *h, const char *path, struct ckpt_err *err);
/* Keep the hosts and slots of a choice, in the file's order of hosts and the choice's of slots; or
 * all others.  CKPT_ECONFIG for what is not in the file, or when nothing is left. */
int hostfile_include(struct hostfile *h, const char *choice, struct ckpt_err *err);
int hostfile_exclude(struct hostfile *h, const char *choice, struct ckpt_err *err);
/* Keep the first so many hosts, or so many slots of each.  CKPT_ECONFIG where there are fewer. */
int hostfile_first_hosts(struct hostfile *h, int64_t n, struct ckpt_err *err);
int hostfile_first_slots(struct hostfile *h, int64_t n, struct ckpt_err *err);
/* Of all hosts. */
int64_t hostfile_slots(const struct hostfile *h);
/* "0,2": as CUDA_VISIBLE_DEVICES has it. */
void hostfile_slot_list(char *out, size_t size, const struct hostfile_host *host);
/* Whether a name means the host that this process runs on. */
bool hostfile_is_here(const char *name);
void hostfile_release(struct hostfile *h);

#endif
