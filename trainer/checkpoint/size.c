/* checkpoint/size - see checkpoint/size.h. */
#include "trainer/checkpoint/size.h"

#include "libckpt/file.h"
#include "trainer/checkpoint/files.h"
#include "trainer/shard/zero.h"

#define SMALL      24576                /* state, arguments, schedule, manifest, a card */
#define SMALL_RANK 15360                /* random state */
#define PER_TENSOR 90                   /* an entry of a header */
#define PER_SLOT   411                  /* an entry of optimizer.pt, */
#define PER_MOMENT 228                  /* and each of its moments */
#define PER_STATE  450                  /* names and shapes in a rank's file, of each tensor */

/* Padded elements of a parameter's parts, of all ranks. */
static uint64_t padded(int64_t n, int64_t ranks)
{
    return (uint64_t)((n + ranks - 1) / ranks * ranks);
}

enum ckpt_dtype checkpoint_model_dtype(const struct session *s, const struct settings *set)
{
    return set->stage3_gather_16bit_weights_on_model_save && !s->lora ? s->dev->weight : CKPT_F32;
}

int checkpoint_size(struct checkpoint_size *out, const struct session *s,
                    const struct settings *set, struct ckpt_err *err)
{
    const struct params *p = model_params(s->model);
    const struct zero_opts *z = &s->zero_opts;
    int64_t ranks = s->shard->world_size;
    uint64_t weights = 0, saved = 0, whole = 0, tokenizer = 0, n_saved = 0;
    bool model = s->lora || z->stage < 3 || set->stage3_gather_16bit_weights_on_model_save;
    int rc = s->tokenizer_dir ? checkpoint_tokenizer_bytes(&tokenizer, s->tokenizer_dir, err) : 0;

    *out = (struct checkpoint_size){0};
    for (size_t i = 0; rc == 0 && i < p->n; i++) {
        const struct param *q = &p->item[i];
        int fewer = zero_fewer(z, p, i);

        whole += (uint64_t)q->numel;
        if (!params_is_saved(p, i))
            continue;
        saved += (uint64_t)q->numel;
        n_saved++;
        if (q->trainable && z->stage == 0)
            out->optimizer += optim_state_moment_bytes(p, i, z->moments, fewer, q->numel);
        else if (q->trainable)
            out->optimizer += padded(q->numel, ranks) * (uint64_t)(3 - fewer) * sizeof(float);
        if (q->trainable)
            out->optimizer += z->stage == 0
                ? PER_SLOT + (uint64_t)(2 - fewer) * PER_MOMENT : 0;
    }
    if (z->factored)
        out->optimizer += zero_factored_bytes(p, false);
    weights = saved * ckpt_dtype_size(checkpoint_model_dtype(s, set)) + n_saved * PER_TENSOR;
    out->model = model ? weights : 0;
    if (z->stage == 1 || z->stage == 2)
        out->states = saved * ckpt_dtype_size(s->dev->weight) + n_saved * 2 * PER_TENSOR;
    else if (z->stage == 3)
        out->states = (uint64_t)ranks * n_saved * PER_STATE;
    out->others = SMALL + (uint64_t)s->comm->world_size * SMALL_RANK + tokenizer;
    out->all = out->model + out->states + out->optimizer + out->others;
    out->final_model = set->final_model ? weights + tokenizer + SMALL : 0;
    out->state_dict = set->state_dict_file && !s->lora ? whole * sizeof(float) : 0;
    return rc;
}
