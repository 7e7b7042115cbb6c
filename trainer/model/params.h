/*
 * params - the parameter list of a model: published name, shape, layer, offset.
 *
 * A layer is what is gathered and reduced at once: layer 0 is everything before the first block
 * (embeddings and their norms), layers 1..L the blocks, layer L + 1 what follows them (final
 * norm, an untied head).  Weights of a layer lie one after another without gaps, f32 on the CPU;
 * gradients likewise, but only those of parameters that are trained.
 *
 * With an adapter its factors are parameters too, each after its module, and carry
 * the names that PEFT saves them under; everything else is frozen unless the adapter says so.
 */
#ifndef CKPT_TRAINER_MODEL_PARAMS_H
#define CKPT_TRAINER_MODEL_PARAMS_H

#include <jansson.h>

#include "libckpt/mem.h"
#include "libckpt/shape.h"

enum param_kind {
    PARAM_BASE,                     /* the model's own */
    PARAM_LORA_A, PARAM_LORA_B, PARAM_MAGNITUDE,    /* of a projection or of the embedding */
    PARAM_TOKENS,                   /* rows of the embedding that are trained by themselves */
    PARAM_KINDS
};

struct param {
    const char       *name;         /* torch's state_dict name: "transformer.h.0.mlp...", of an
                                       adapter's factors "base_model.model.transformer.h.0..." */
    struct ckpt_shape shape;
    int64_t           numel;        /* without padding (params_divide) */
    int               layer;
    int64_t           offset;       /* from the layer's start, elements */
    int64_t           grad_offset;  /* from the start of the layer's gradients; -1: frozen */
    bool              decay;        /* weight decay applies (HF Trainer's rule) */
    int               group;        /* of the optimizer's: 0 decay, 1 no decay, or a further one
                                       (optim/groups.h) */
    bool              trainable;
    bool              written;      /* PARAM_BASE: role_overwrites_grad */
    int               role;         /* enum role (role.h) */
    int64_t           expert;       /* which, for a role that each expert has */
    enum param_kind   kind;
    bool              changed;      /* PARAM_BASE: its module has a low-rank change */
    bool              saved;        /* PARAM_BASE: a copy beside it is trained: modules_to_save */
    bool              stored;       /* PARAM_BASE, frozen: PEFT saves it beside the adapter */
    float             scale;        /* PARAM_LORA_A, _B: of their product */
};

struct params {
    struct ckpt_arena arena;
    struct param     *item;         /* in torch's named_parameters() order */
    size_t            n;
    int               n_layers;
    int64_t          *layer_numel;   /* [n_layers] with padding */
    int64_t          *layer_grad;    /* [n_layers] elements of the layer's gradients, likewise */
    int64_t           numel, grad_numel;        /* of the model, without */
    struct ckpt_map  *by_name;
    const struct family *family;    /* NULL: a list made by hand */
    const char       *prefix;       /* of the family: "transformer.", or "" */
    bool              adapted;      /* an adapter is trained, not the model */
    int               ranks;        /* each parameter has room for as many equal parts */
};

struct arch;
struct lora;

/*
 * Every parameter of a description, in order; offsets and layers filled.  Without an adapter
 * (lora NULL) all are trainable.  CKPT_ECONFIG when an adapter changes nothing.
 */
int params_build(struct params *p, const struct arch *arch, const struct lora *lora,
                 struct ckpt_err *err);
/*
 * Lay the parameters out anew for so many ranks that own an equal part of each: a parameter whose
 * size is no multiple of them is followed by padding, in the weights and in the gradients of its
 * layer, so that each rank's part is gathered and reduced in place.
 */
void params_divide(struct params *p, int ranks);
/* Elements from a parameter's start to the next one's: its size, or more where it is divided. */
int64_t params_room(const struct params *p, int64_t numel);
/* Whether a checkpoint has parameter i: an adapter's has what is trained, and an embedding that
 * PEFT saves with it. */
bool params_is_saved(const struct params *p, size_t i);
/* Whether it is a matrix between embeddings and head, or a factor of the adapter of one. */
bool params_is_hidden(const struct param *p);
/*
 * Where an expert's matrix lies in the tensor that transformers 5 has of all experts of a layer:
 * gate and up in [E, 2F, D], gate above, down in [E, D, F].  False: it is a tensor of its own, as
 * all are where an adapter is trained.
 */
struct params_stacked {
    int64_t matrix, above, height;      /* which; rows above its own there; all its rows */
    bool    down;                       /* it is in the second tensor of the layer */
};
bool params_stacked(struct params_stacked *out, const struct params *p, size_t i);
/*
 * The name PEFT saves a trained parameter under, or with live the one it has in the wrapped
 * model's state_dict; without an adapter the parameter's own.  Returns dst, cut to fit.
 */
const char *params_saved_name(char *dst, size_t size, const struct params *p, size_t i, bool live);
/* The ids whose rows are a PARAM_TOKENS: a list of integers, or NULL. */
const json_t *params_token_list(const struct params *p, const struct lora *lora);
/* Index by name, with or without the family's prefix ("transformer."); SIZE_MAX when absent. */
size_t params_find(const struct params *p, const char *name);
/* Index by a name that older files have for it; SIZE_MAX when it is none. */
size_t params_find_older(const struct params *p, const char *name);
/* A tensor of a file that belongs to no parameter and is known to be of no use. */
bool params_spare(const struct params *p, const char *name);
void params_release(struct params *p);

#endif
