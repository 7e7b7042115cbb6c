/*
 * checkpoint/state_dict - the whole model as one file of torch beside the checkpoints, under a name
 * of the user's: an OrderedDict of every name of the model, tied ones included, that a strict
 * load_state_dict takes.
 */
#ifndef CKPT_TRAINER_CHECKPOINT_STATE_DICT_H
#define CKPT_TRAINER_CHECKPOINT_STATE_DICT_H

#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/weights.h"

#define STATE_DICT_NAME 256     /* bytes of a name */

/*
 * The file's name from settings' template: {start} and {end} are the slice of the data, {n} the
 * epoch that is under way or just done, counted from 1, {step} the step.  CKPT_ECONFIG for another
 * word in braces, for {end} without an end, or when the name is not that of a file in a folder.
 */
int state_dict_name(char name[STATE_DICT_NAME], const struct settings *s,
                    const struct run_state *state, struct ckpt_err *err);

struct state_dict;

/* Begin the file in settings' output folder, where a file of that name is replaced; path gets its
 * name.  Its taker wants the gathered weights, f32.  Not of an adapter. */
int state_dict_begin(struct state_dict **out, char path[4096], struct session *s,
                     const struct checkpoint *c, struct ckpt_err *err);
const struct weights_taker *state_dict_taker(const struct state_dict *d);
int state_dict_commit(struct state_dict *d, struct ckpt_err *err);
/* Abort what was not committed, and release; NULL accepted. */
void state_dict_close(struct state_dict *d);

#endif
