/*
 * course - when a run logs, evaluates, saves and ends, and which checkpoint is its best.
 *
 * Something happens every so many steps, at the end of each epoch, or never; a save also when an
 * evaluation was better than all before.  Whatever happens by steps or epochs happens at the run's
 * last step too.  All ranks decide alike: what they decide by is the same on each.
 * Source: transformers 5.17 trainer_callback.py (DefaultFlowCallback, EarlyStoppingCallback),
 * trainer.py (_determine_best_metric).
 */
#ifndef CKPT_TRAINER_RUN_COURSE_H
#define CKPT_TRAINER_RUN_COURSE_H

#include "trainer/run/evaluate.h"
#include "trainer/run/settings.h"
#include "trainer/run/state.h"

enum course_when { COURSE_NO, COURSE_STEPS, COURSE_EPOCH, COURSE_BEST };

struct course_event {
    enum course_when when;
    int64_t          every;         /* steps; 0: the last alone */
};

struct course {
    struct course_event log, eval, save;
    bool                log_first;  /* the first step's line too */
    double              eval_delay; /* no evaluation before: steps, or epochs of COURSE_EPOCH */
    bool                perplexity; /* what makes a checkpoint the best: this, or eval_loss */
    bool                greater;    /* more of it is better */
    int64_t             patience;   /* evaluations without progress that end the run; 0: any */
    double              threshold;  /* a smaller difference is none */
    double              deadline;   /* on clock_now's clock, of rank 0; INFINITY: none */
};

/* Whether there is data to evaluate. */
bool course_evaluates(const struct settings *s);
/* Whether it is evaluated before the run's last step too. */
bool course_evaluates_often(const struct settings *s);
/* Whether the best checkpoint is asked for: else it is one as any other. */
bool course_keeps_best(const struct settings *s);
/* Settings that a run's strategies make no sense with: CKPT_ECONFIG.  Part of settings_check. */
int course_check(const struct settings *s, struct ckpt_err *err);
/* total: steps of the run, of which fractions are taken; has_eval: there is something to evaluate.
 * started: when the process began.  Evaluations by steps that say no number come with the log's
 * lines, as HF Trainer's. */
void course_init(struct course *c, const struct settings *s, int64_t total, bool has_eval,
                 double started);
/* Whether it is time for one of c's events, after the step that the state is at. */
bool course_due(const struct course *c, const struct course_event *e,
                const struct run_state *state, bool epoch_ends);
/* Checkpoints that a run of so many steps writes; of COURSE_BEST as many as it may. */
int64_t course_saves(const struct course *c, int64_t steps, int64_t steps_per_epoch);
/* What of an evaluation is judged. */
double course_metric(const struct course *c, const struct evaluate_result *e);
/*
 * What an evaluation means: *better, the best so far, which the state gets; *ends, that there was
 * no progress for too long.  A loss that is not finite is no progress.
 */
void course_judge(const struct course *c, struct run_state *state,
                  const struct evaluate_result *e, bool *better, bool *ends);

#endif
