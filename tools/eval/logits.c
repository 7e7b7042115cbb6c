/* logits - see logits.h.  One row at a time, so memory is that of one row's logits. */
#include "tools/eval/logits.h"

#include <math.h>
#include <string.h>

#include "formats/formats.h"
#include "trainer/data/pack.h"
#include "formats/families/arch.h"

enum { T_LOGITS, T_LOSS, T_ROW_LOSS };

struct writer {
    struct session           *s;
    const struct data_source *data;
    struct ckpt_sink         *sink;
    struct pack               pack;
    struct sample             sample;
    int64_t                   rows, longest, vocab;
    float                    *logits;   /* [longest][V] of the current row */
    int32_t                  *index;    /* [longest] 0, 1, 2, ... */
    float                    *row_loss; /* [rows] */
    double                    loss;
};

/* Length of the longest row as given, with masked positions. */
static int find_longest(struct writer *w, struct ckpt_err *err)
{
    int rc;

    for (int64_t i = 0; i < w->rows; i++) {
        if ((rc = data_source_sample(w->data, i, &w->sample, err)) != 0)
            return rc;
        if (w->sample.given > w->longest)
            w->longest = w->sample.given;
    }
    return 0;
}

static int add(struct ckpt_tensors *list, const char *name, const struct ckpt_shape *shape,
               struct ckpt_err *err)
{
    return ckpt_tensors_add(list, NULL, name, strlen(name), CKPT_F32, shape, NULL, 0, false, err);
}

static int row(struct writer *w, int64_t i, struct ckpt_err *err)
{
    const struct model_weights *door = zero_weights(w->s->zero);
    struct sample *s = &w->sample;
    double sum = 0;
    int rc;

    memset(w->logits, 0, (size_t)(w->longest * w->vocab) * sizeof *w->logits);
    pack_clear(&w->pack);
    if ((rc = data_source_sample(w->data, i, s, err)) != 0 ||
        (rc = pack_add(&w->pack, s, 0, true, err)) != 0)
        return rc;
    if (s->n > 0)
        rc = model_logits(w->s->model, door, &w->pack.batch, w->index, w->pack.batch.n_tokens,
                          w->logits + s->lead * w->vocab, err);
    if (rc)
        return rc;
    if (w->pack.batch.n_rows > 0 && (rc = model_loss(w->s->model, door, &w->pack.batch, &sum,
                                                     NULL, err)) != 0)
        return rc;
    w->row_loss[i] = w->pack.batch.n_rows ? (float)(sum / (double)w->pack.batch.n_rows) : NAN;
    return ckpt_sink_write(w->sink, T_LOGITS, i * w->longest * w->vocab, w->longest * w->vocab,
                           w->logits, err);
}

static int write_all(struct writer *w, struct ckpt_err *err)
{
    float loss = (float)w->loss;
    int rc;

    for (int64_t i = 0; i < w->rows; i++)
        if (row(w, i, err))
            return ckpt_err_in(err, "row %lld", (long long)i + 1);
    rc = ckpt_sink_write(w->sink, T_LOSS, 0, 1, &loss, err);
    return rc ? rc : ckpt_sink_write(w->sink, T_ROW_LOSS, 0, w->rows, w->row_loss, err);
}

static int allocate(struct writer *w, struct ckpt_err *err)
{
    size_t n = (size_t)(w->longest * w->vocab);
    int rc;

    w->logits = ckpt_alloc(n, sizeof *w->logits);
    w->index = ckpt_alloc((size_t)w->longest, sizeof *w->index);
    w->row_loss = ckpt_alloc((size_t)w->rows, sizeof *w->row_loss);
    if (!w->logits || !w->index || !w->row_loss)
        return ckpt_nomem(err, n * sizeof *w->logits);
    for (int64_t i = 0; i < w->longest; i++)
        w->index[i] = (int32_t)i;
    if ((rc = pack_init(&w->pack, w->longest, 1, err)) != 0)
        return rc;
    return data_source_pairs(w->data)
               ? pack_init_pairs(&w->pack, data_source_max_length(w->data), err) : 0;
}

int logits_write(const char *path, bool overwrite, struct session *s,
                 const struct data_source *data, double loss, struct ckpt_err *err)
{
    struct writer w = {.s = s, .data = data, .loss = loss};
    struct ckpt_create_opts opts = {.flags = overwrite ? CKPT_REPLACE : 0};
    struct ckpt_tensors list = {0};
    struct ckpt_shape shape;
    int rc;

    if (!data)
        return ckpt_fail(err, CKPT_EUSAGE, "--logits needs --eval-file");
    w.rows = data_source_count(data);
    w.vocab = s->arch->vocab_size;
    rc = find_longest(&w, err);
    if (rc == 0)
        rc = allocate(&w, err);
    shape = ckpt_shape_of(3, (int64_t[]){w.rows, w.longest, w.vocab});
    if (rc == 0)
        rc = add(&list, "logits", &shape, err);
    shape = ckpt_shape_of(0, NULL);
    if (rc == 0)
        rc = add(&list, "loss", &shape, err);
    shape = ckpt_shape_1d(w.rows);
    if (rc == 0)
        rc = add(&list, "row_loss", &shape, err);
    if (rc == 0)
        rc = ckpt_create(&w.sink, "safetensors", path, &list, &opts, err);
    if (rc == 0)
        rc = write_all(&w, err);
    if (rc == 0)
        rc = ckpt_sink_commit(w.sink, err);
    else
        ckpt_sink_abort(w.sink);
    sample_release(&w.sample);
    pack_release(&w.pack);
    ckpt_free(w.logits);
    ckpt_free(w.index);
    ckpt_free(w.row_loss);
    ckpt_tensors_release(&list);
    return rc;
}
