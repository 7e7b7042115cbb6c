/*
 * train/start - whether a process of ckpt-train starts ranks, how many of them and on which hosts,
 * and how often; the options that say so.
 */
#ifndef CKPT_TOOLS_TRAIN_START_H
#define CKPT_TOOLS_TRAIN_START_H

#include "tools/opt/opt.h"
#include "trainer/launch/hostfile.h"
#include "trainer/launch/node.h"
#include "trainer/run/settings.h"

/* All of them: every rank may have been started in another way. */
#define TRAIN_START_OPTIONS \
    "max-restarts min-ranks hostfile include exclude num-nodes num-gpus master-addr master-port " \
    "ssh-port launcher"

struct train_start {
    int64_t     max_restarts, min_ranks;
    const char *hostfile, *include, *exclude, *master_addr, *launcher;
    int64_t     num_nodes, num_gpus, master_port, ssh_port;
    char      **argv;                   /* the program's */
    bool        on_gpus;                /* each rank has one */
    struct hostfile hosts;              /* those chosen */
    struct node_ranks node;             /* a launcher's on another host; n 0: none */
};

/* s holds argv; the defaults are set here, and the values lie there after parsing. */
struct opt_section train_start_rows(struct train_start *s);
/* Before options are parsed: who started this process. */
int train_start_begin(struct train_start *s, struct ckpt_err *err);
/* Whether another process of ours started this one: it decides about ranks, and has told what there
 * is to tell of the options. */
bool train_start_is_rank(const struct train_start *s);
/* After it: read the host file; nproc becomes a number, also that of a plan for several hosts. */
int train_start_count(struct train_start *s, struct settings *set, struct ckpt_err *err);
/* 0: this process trains by itself; 1: it has started ranks, *status is what they came to;
 * negative: they could not be started. */
int train_start_ranks(int *status, const struct train_start *s, const struct settings *set,
                      struct cli *cli, struct ckpt_err *err);
/* A failure that the launcher on another host prints.  False: this process does. */
bool train_start_tell(const struct ckpt_err *err);
void train_start_end(struct train_start *s);

#endif
