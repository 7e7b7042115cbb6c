/*
 * data/sample_cache - tokenised samples of a source, stored in the cache
 * (libckpt/remote/cache/cache.h).
 *
 * The object's key is a digest of everything that samples depend on: the files with their sizes
 * and times, how they are read, the tokenizer's files, all options of stream.h, and the version.
 * In addition, some samples of a file that is found are recomputed and compared.  A file that is
 * damaged or belongs to other data is reported in one line and recomputed; a sample that turns
 * out to be damaged when it is read is made from its record, as all are without a file.  So
 * samples are the same with and without the cache.
 */
#ifndef CKPT_TRAINER_DATA_SAMPLE_CACHE_H
#define CKPT_TRAINER_DATA_SAMPLE_CACHE_H

#include "trainer/data/source.h"

/*
 * Open the file, or create it where opts ask for that; *out is NULL when there is none.  A cache
 * that cannot be written is reported but is not an error; a record that cannot be read is, and so
 * is a stop.
 */
int sample_cache_open(struct sample_cache **out, const struct data_source *d,
                      const struct data_opts *opts, struct ckpt_err *err);
void sample_cache_close(struct sample_cache *k);
/* Read sample i; false when it must be made from its record. */
bool sample_cache_get(struct sample_cache *k, int64_t i, struct sample *s);
/* The lengths and statistics that a survey would find.  length[n]: -1 for records without a
 * sample. */
int sample_cache_survey(const struct sample_cache *k, int32_t *length, struct data_stats *stats,
                        struct ckpt_err *err);

#endif
