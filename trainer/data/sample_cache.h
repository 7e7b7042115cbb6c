/*
 * data/sample_cache - samples of a source that were made once, in the cache
 * (libckpt/remote/cache/cache.h).
 *
 * The object's key is a digest of what decides samples: which files with which size and time, how
 * they are read, the tokenizer's files, all options of stream.h, and the version.  Beside that some
 * samples of a file that is found are made anew and compared.  A file that is damaged or of other
 * data is told in one line and made anew; a sample that proves to be damaged when it is read is
 * made from its record, as all are without a file.  So samples are the same with it and without.
 */
#ifndef CKPT_TRAINER_DATA_SAMPLE_CACHE_H
#define CKPT_TRAINER_DATA_SAMPLE_CACHE_H

#include "trainer/data/source.h"

/*
 * Find the file, or make it where opts want that; *out is NULL when there is none.  A cache that
 * cannot be written is told and no failure; a record that cannot be read is, and a stop.
 */
int sample_cache_open(struct sample_cache **out, const struct data_source *d,
                      const struct data_opts *opts, struct ckpt_err *err);
void sample_cache_close(struct sample_cache *k);
/* Whether sample i was there. */
bool sample_cache_get(struct sample_cache *k, int64_t i, struct sample *s);
/* What a survey finds.  length[n]: -1 for records that make no sample. */
int sample_cache_survey(const struct sample_cache *k, int32_t *length, struct data_stats *stats,
                        struct ckpt_err *err);

#endif
