/*
 * report - a rank's side of control.h: its messages to the supervisor.
 *
 * Without a supervisor every call here returns at once.  A thread reports that the process runs,
 * however long a step takes, and ends the process when the supervisor is gone.
 */
#ifndef CKPT_TRAINER_COMM_REPORT_H
#define CKPT_TRAINER_COMM_REPORT_H

#include <stdbool.h>

#include "libckpt/fail.h"

/*
 * Say hello to the supervisor that the environment names, if it names one; standard streams are
 * the supervisor's from then on.  First thing in main after signals are set up.  CKPT_ECOMM when
 * the supervisor is gone.
 */
int report_open(struct ckpt_err *err);
/* Whether a supervisor listens. */
bool report_watched(void);
/* Standard error is the launcher's, which the supervisor quotes, while a library is called that
 * prints there; on false it is the user's again. */
void report_aside(bool on);
/* What the run does from here on: a few words for a sentence, as "train step 12". */
void report_phase(const char *fmt, ...) CKPT_PRINTF(1, 2);
/*
 * Report a failure, which the supervisor prints with the rank.  agreed: all ranks know of it, and
 * only one reports it.  False: nobody listens, the caller prints it.
 */
bool report_error(const struct ckpt_err *err, bool agreed);
/* Say goodbye with the exit status.  Returns what to end with: a rank that has sent its status
 * ends with 0, so that the launcher does not end its peers in the midst of their own goodbyes. */
int report_close(int status);

#endif
