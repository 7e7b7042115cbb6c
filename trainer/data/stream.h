/*
 * stream - records -> samples: ids and labels.
 *
 * How a record becomes a sample follows from its fields (those of the first record decide for the
 * whole set, unless templates are given):
 *
 *   input_ids [attention_mask] [labels]     taken as they are; labels default to input_ids
 *   prompt, completion                      loss on the completion
 *   instruction, [input], output            loss on the output
 *   question, [context], answers            loss on the first answer (SQuAD)
 *   question, answer                        loss on the answer
 *   messages or conversations               loss on the assistant's turns (data/conversation.h)
 *   prompt, completion as lists of messages loss on the completion
 *   text                                    loss on everything
 *
 * Text is tokenised once, prompt and completion together; tokens that end inside the prompt carry
 * no loss.  eos is appended, then the sample is cut to max_seq_length.  A chat brings its special
 * tokens itself.
 *
 * An option that samples depend on must also be in make_key of data/sample_cache.c; that file has
 * all samples, those too that are left out because they were too long.
 */
#ifndef CKPT_TRAINER_DATA_STREAM_H
#define CKPT_TRAINER_DATA_STREAM_H

#include "formats/records/record.h"
#include "trainer/data/sample.h"

enum data_kind { DATA_IDS, DATA_PROMPT, DATA_TEXT, DATA_CHAT };
enum data_bad { DATA_BAD_STOP, DATA_BAD_SKIP };
/* Samples that would be longer than max_seq_length: cut, left out, or an error. */
enum data_excess { DATA_EXCESS_TRUNCATE, DATA_EXCESS_DROP, DATA_EXCESS_RAISE };
/* Use of the cache (sample_cache.h): none; read, and written where that pays; read and always
 * written.  It pays for text that is passed over more than once, or entirely before the first
 * step. */
enum data_cache { DATA_CACHE_OFF, DATA_CACHE_AUTO, DATA_CACHE_ON };

struct data_opts {
    const char   *prompt_template;      /* NULL: by the fields */
    const char   *completion_template;
    const char   *text_field;           /* NULL: "text" */
    const char   *field_mapping;        /* JSON {"field": "column"}: renamed fields; or NULL */
    const char   *messages_field;       /* the records are chats, under this name; or NULL */
    struct ckpt_dir *chat_dir;          /* directory of a chat template; NULL: none */
    const char   *chat_template;        /* as chat_open's which, or NULL */
    bool          mask_history;         /* chats: loss on the last turn of the assistant only */
    int64_t       max_seq_length;       /* >= 1 */
    bool          loss_on_prompt;       /* loss on all tokens, also of prompts */
    bool          chat_prompts;         /* prompt and completion of text are turns of a chat */
    bool          whole_chats;          /* loss on all of a list of messages, as TRL's default; not
                                           of prompt and completion */
    bool          no_eos;
    bool          cut_left;             /* truncate samples that are too long at the beginning */
    bool          padded;               /* all samples have max_seq_length tokens, of pad_id where
                                           the text ends, or pad_before where it begins */
    bool          pad_before;
    int32_t       pad_id;
    struct sample_pair pair;            /* ids for pairs of encoder and decoder */
    enum data_bad bad;                  /* what to do with a record that cannot be used */
    enum data_excess excess;            /* and with one that is too long */
    size_t        workers;              /* threads of data_source_scan; 0: by CPUs */
    int64_t       vocab_size;           /* ids of the model; 0: unknown */
    int64_t       max_positions;        /* tokens that its positions allow; 0: unlimited */
    const volatile int *stop;           /* non-NULL and set: a scan ends with CKPT_ESTOPPED */
    enum data_cache cache;               /* unless OFF, records are opened with identity */
    int64_t       passes;               /* roughly how often each sample will be requested */
};

struct data_source;

/*
 * Keeps records and tok until closed; tok may be NULL when rows carry input_ids.  CKPT_EFORMAT
 * when the set is empty or the first record has no known fields (they are named).
 */
int data_source_open(struct data_source **out, struct records *records,
                     const struct tokenizer *tok, const struct data_opts *opts,
                     struct ckpt_err *err);
void data_source_close(struct data_source *d);
enum data_kind data_source_kind(const struct data_source *d);
int64_t data_source_max_length(const struct data_source *d);   /* max_seq_length */
bool data_source_pairs(const struct data_source *d);            /* samples are pairs */
bool data_source_padded(const struct data_source *d);           /* to that length */
/* Samples; after a scan with DATA_BAD_SKIP the usable ones only, with DATA_EXCESS_DROP those that
 * are not too long. */
int64_t data_source_count(const struct data_source *d);
/* Sample i, 0 <= i < count.  Any thread. */
int data_source_sample(const struct data_source *d, int64_t i, struct sample *s,
                       struct ckpt_err *err);
/* The record of sample i with the fields that field_mapping renames; yours (json_decref). */
int data_source_record(const struct data_source *d, int64_t i, json_t **out, struct ckpt_err *err);
/* Put file and record of sample i in front of an error. */
int data_source_err_in(const struct data_source *d, int64_t i, struct ckpt_err *err);
/* Prompt and completion of sample i as text (a record of plain text is all prompt), yours:
 * ckpt_free.  CKPT_EUNSUPPORTED for DATA_IDS. */
int data_source_text(const struct data_source *d, int64_t i, char **prompt, char **completion,
                     struct ckpt_err *err);

/* The result of a pass over all records. */
struct data_stats {
    int64_t n_samples, n_skipped, n_truncated, n_tokens, n_targets;
    int64_t n_dropped;          /* too long */
    int64_t longest;
    int64_t n_no_target;        /* samples without a supervised token */
    char    first_bad[256];     /* why the first record was skipped, or "" */
};
/*
 * Tokenise everything once: lengths for packing, bad records for DATA_BAD_SKIP, statistics;
 * cached samples have all of these.  Done at open for DATA_BAD_SKIP, and where samples that are
 * too long are not cut: CKPT_EFORMAT for DATA_EXCESS_RAISE.  stats may be NULL.
 */
int data_source_scan(struct data_source *d, struct data_stats *stats, struct ckpt_err *err);
/* Records that were too long and are left out. */
int64_t data_source_dropped(const struct data_source *d);
/* Tokens of each sample without padding, [count], after a scan; NULL before. */
const int32_t *data_source_lengths(const struct data_source *d);
/* 16 bytes that identify data and settings: stored in checkpoints. */
int data_source_fingerprint(const struct data_source *d, unsigned char out[16],
                            struct ckpt_err *err);
/* A digest of the text of the chat template in hex; "" where samples are made without one. */
int data_source_template(const struct data_source *d, char out[33], struct ckpt_err *err);

#endif
