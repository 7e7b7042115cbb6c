/*
 * run_card - what a model's README.md tells of the run that made it: names that may be told,
 * figures of evaluations, and Markdown for people.
 *
 * log: the log_history of trainer_state.json.
 * Source: transformers 5.17 modelcard.py (TrainingSummary) for sections and the table.
 */
#ifndef CKPT_FORMATS_HF_RUN_CARD_H
#define CKPT_FORMATS_HF_RUN_CARD_H

#include "formats/hf/model_card.h"
#include "libckpt/file.h"

/* What of a path or an address may be told: owner/name of one on the Hub, in the cache of its
 * client too, else the last part.  True for the former. */
bool run_card_name(char *to, size_t size, const char *path);
/* Text within Markdown: no line ends, and no markup. */
void run_card_put_text(struct ckpt_buf *b, const char *s);
/* "It achieves ...": the last evaluation's loss and perplexity, if there is one. */
void run_card_put_last(struct ckpt_buf *b, const json_t *log);
/* A row for each evaluation, with the last logged loss before it. */
void run_card_put_table(struct ckpt_buf *b, const json_t *log);
/* The last row with that number, or NULL. */
const json_t *run_card_last(const json_t *log, const char *key);
/*
 * The figures of a row of HF Trainer's ("eval_loss", "eval_accuracy"), at most max: measures of
 * speed are none, and perplexity is added to the loss.  Names are borrowed from the row.
 */
size_t run_card_figures(struct model_card_result *to, size_t max, const json_t *row,
                        const char *task, const char *dataset);
/* Put into keys what a base's card says that holds for models made of it: licence, languages,
 * task.  A card that cannot be read says nothing. */
void run_card_inherit(json_t *keys, const struct ckpt_file *card);

#endif
