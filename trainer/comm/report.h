/*
 * report - a rank's side of control.h: its messages to the supervisor.
 *
 * Without a supervisor every call here returns at once.  A thread reports that the process runs,
 * however long a step takes, and ends the process when the supervisor is gone.
 */
#ifndef CKPT_TRAINER_COMM_REPORT_H
#define CKPT_TRAINER_COMM_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libckpt/fail.h"
#include "trainer/comm/control.h"

/* How far this process has come. */
struct report_progress {
    uint64_t    done;                   /* goes up with phases, collectives, records, data */
    uint64_t    collectives;            /* begun so far */
    const char *last;                   /* the last of them, "all_reduce"; "" */
};

/* Find the supervisor that the environment names, if it names one.  First thing in main after
 * signals are set up.  CKPT_ECONFIG for a name that is no supervisor's. */
int report_open(struct ckpt_err *err);
/* Whether a supervisor listens. */
bool report_watched(void);
/* What the run does from here on: a few words for a sentence, as "train step 12". */
void report_phase(const char *fmt, ...) CKPT_PRINTF(1, 2);
/* The same with its number: "train step 12", "save of step 12"; CONTROL_SAVED names no phase. */
void report_step(enum control_stage stage, int64_t step);
/* Call it at every phase from here on, in the thread that begins the phase; NULL: no more. */
void report_on_phase(void (*call)(void *ctx), void *ctx);
/* The first step that earlier tries of this run began to save; -1: this is the first try, or they
 * came to no save. */
int64_t report_saved_before(void);
/* A collective begins; a literal. */
void report_collective(const char *name);
/* A part of a step is done. */
void report_part(void);
struct report_progress report_progress_now(void);
/* What was last said of it: "start-up" at first. */
void report_phase_now(char *out, size_t size);
/*
 * Report a failure, which the supervisor prints with the rank.  agreed: all ranks know of it, and
 * only one reports it.  False: nobody listens, the caller prints it.
 */
bool report_error(const struct ckpt_err *err, bool agreed);
/* Say goodbye with the exit status, which is returned. */
int report_close(int status);

#endif
