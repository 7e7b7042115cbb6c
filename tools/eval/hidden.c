/* hidden - see hidden.h.  One text at a time, so memory is that of one text's states. */
#include "tools/eval/hidden.h"

#include <stdio.h>
#include <string.h>

#include "formats/formats.h"
#include "libckpt/mem.h"
#include "formats/families/arch.h"

struct writer {
    struct session   *s;
    struct encoding  *enc;          /* [n] */
    size_t            n, tensor;    /* the next one */
    int32_t          *positions;    /* [longest] 0, 1, 2, ... */
    float            *hidden;       /* [longest][D] */
    struct ckpt_sink *sink;
};

static int encode(struct writer *w, const struct opt_list *texts, int64_t max_length,
                  struct ckpt_err *err)
{
    int rc;

    for (size_t i = 0; i < w->n; i++) {
        const char *text = texts->item[i];

        if ((rc = tokenizer_encode(w->s->tokenizer, &w->enc[i], text, strlen(text), true,
                                   err)) != 0)
            return rc;
        if (w->enc[i].n == 0 || w->enc[i].n > (size_t)max_length)
            return ckpt_fail(err, CKPT_EUSAGE, "prompt %zu has %zu tokens, wanted 1 to "
                             "--max-seq-length %lld", i + 1, w->enc[i].n, (long long)max_length);
    }
    return 0;
}

static int list_all(struct ckpt_tensors *list, const struct writer *w, struct ckpt_err *err)
{
    const struct arch *a = w->s->arch;
    char name[64];
    int rc;

    for (size_t i = 0; i < w->n; i++) {
        struct ckpt_shape shape = ckpt_shape_1d((int64_t)w->enc[i].n);

        snprintf(name, sizeof name, "%zu.ids", i);
        if ((rc = ckpt_tensors_add(list, NULL, name, strlen(name), CKPT_I32, &shape, NULL, 0,
                                   false, err)) != 0)
            return rc;
        shape = ckpt_shape_2d((int64_t)w->enc[i].n, a->hidden_size);
        for (int64_t k = 0; k <= a->num_hidden_layers; k++) {
            snprintf(name, sizeof name, "%zu.hidden.%lld", i, (long long)k);
            if ((rc = ckpt_tensors_add(list, NULL, name, strlen(name), CKPT_F32, &shape, NULL,
                                       0, false, err)) != 0)
                return rc;
        }
    }
    return 0;
}

static int write_text(struct writer *w, const struct encoding *enc, struct ckpt_err *err)
{
    int64_t n = (int64_t)enc->n, D = w->s->arch->hidden_size;
    const int32_t start[2] = {0, (int32_t)n};
    struct batch b = {.n_tokens = n, .n_docs = 1, .ids = enc->id, .positions = w->positions,
                      .doc_start = start};
    int rc;

    if ((rc = ckpt_sink_write(w->sink, w->tensor++, 0, n, enc->id, err)) != 0)
        return rc;
    for (int64_t k = 0; k <= w->s->arch->num_hidden_layers; k++)
        if ((rc = model_hidden(w->s->model, zero_weights(w->s->zero), &b, k, w->hidden,
                               err)) != 0 ||
            (rc = ckpt_sink_write(w->sink, w->tensor++, 0, n * D, w->hidden, err)) != 0)
            return rc;
    return 0;
}

static int write_all(struct writer *w, const char *path, bool overwrite, int64_t max_length,
                     struct ckpt_err *err)
{
    struct ckpt_create_opts opts = {.flags = overwrite ? CKPT_REPLACE : 0};
    struct ckpt_tensors list = {0};
    int rc = list_all(&list, w, err);

    for (int64_t i = 0; i < max_length; i++)
        w->positions[i] = (int32_t)i;
    if (rc == 0)
        rc = ckpt_create(&w->sink, "safetensors", path, &list, &opts, err);
    for (size_t i = 0; rc == 0 && i < w->n; i++)
        rc = write_text(w, &w->enc[i], err);
    if (rc == 0)
        rc = ckpt_sink_commit(w->sink, err);
    else
        ckpt_sink_abort(w->sink);
    ckpt_tensors_release(&list);
    return rc;
}

int hidden_write(const char *path, bool overwrite, struct session *s, const struct opt_list *texts,
                 int64_t max_length, struct ckpt_err *err)
{
    struct writer w = {.s = s, .n = texts->n};
    int rc = 0;

    if (!s->tokenizer)
        return ckpt_fail(err, CKPT_EUSAGE, "--hidden needs a tokenizer: --tokenizer DIR");
    if (s->arch->stack != ARCH_ENCODER)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "--hidden is for encoders");
    w.enc = ckpt_alloc(w.n, sizeof *w.enc);
    w.positions = ckpt_alloc((size_t)max_length, sizeof *w.positions);
    w.hidden = ckpt_alloc((size_t)(max_length * s->arch->hidden_size), sizeof *w.hidden);
    if (!w.enc || !w.positions || !w.hidden)
        rc = ckpt_nomem(err, (size_t)(max_length * s->arch->hidden_size) * sizeof *w.hidden);
    if (rc == 0)
        rc = encode(&w, texts, max_length, err);
    if (rc == 0)
        rc = write_all(&w, path, overwrite, max_length, err);
    for (size_t i = 0; w.enc && i < w.n; i++)
        encoding_release(&w.enc[i]);
    ckpt_free(w.enc);
    ckpt_free(w.positions);
    ckpt_free(w.hidden);
    return rc;
}
