/*
 * value - an inert Python value, read from a pickle without executing anything, or built to be
 * written as one.
 *
 * Values live in an arena and may form a graph (memos make sharing and even cycles): every walk
 * has a visit budget, nothing recurses without an explicit bound, freeing is by arena.  A call
 * (REDUCE, NEWOBJ, BUILD) is only recorded.
 */
#ifndef CKPT_FORMATS_CONTAINER_VALUE_H
#define CKPT_FORMATS_CONTAINER_VALUE_H

#include <jansson.h>

#include "libckpt/dtype.h"
#include "libckpt/mem.h"
#include "libckpt/shape.h"

enum value_kind {
    VALUE_NONE, VALUE_BOOL, VALUE_INT, VALUE_BIGINT, VALUE_FLOAT, VALUE_STR, VALUE_BYTES,
    VALUE_LIST, VALUE_TUPLE, VALUE_SET, VALUE_DICT,
    VALUE_GLOBAL,       /* module.name, not called */
    VALUE_OBJECT,       /* module.name(args), with state and items recorded */
    VALUE_PERSISTENT,   /* a persistent id that is not resolved: in seq, as the only item */
    VALUE_TENSOR        /* made by torch_value from a rebuild call */
};

struct value;

struct value_text { const char *p; size_t n; };         /* NUL-terminated as well */
struct value_seq { struct value **item; size_t n, cap; };
struct value_pairs {
    struct value **key, **val;
    size_t         n, cap;
    struct value  *state;           /* OrderedDict: BUILD's argument (torch's _metadata), or NULL */
};

/* A tensor as torch pickles it: a view of a storage. */
struct value_tensor {
    enum ckpt_dtype   dtype;
    struct ckpt_shape shape;
    int64_t           stride[CKPT_MAX_RANK];    /* elements */
    int64_t           offset;                   /* elements from the start of the storage */
    size_t            storage;                  /* index in the archive's storage table */
    bool              negated, conjugated;      /* conjugation or negation that torch defers */
    bool              requires_grad;
    bool              parameter;                /* it is wrapped in torch.nn.Parameter */
    struct value     *quantizer;                /* of a quantised tensor: scheme, scales, zeros */
    const struct value *attrs;                  /* DICT of attributes set on it, or NULL */
};

struct value {
    enum value_kind kind;
    bool            ordered;                    /* VALUE_DICT: an OrderedDict */
    unsigned char   mark;                       /* for walks that visit every value once */
    union {
        bool                b;
        int64_t             i;
        double              f;
        struct value_text   text;               /* STR, BYTES, BIGINT (decimal) */
        struct value_seq    seq;                /* LIST, TUPLE, SET, PERSISTENT */
        struct value_pairs  dict;               /* insertion order */
        struct {
            const char         *module, *name;
            struct value       *args;           /* TUPLE; NULL for GLOBAL */
            struct value       *kwargs;         /* DICT or NULL */
            struct value       *callee;         /* the record that is called, if a call's result
                                                   is called; name then ends in "()" */
            struct value       *state;          /* BUILD's argument, or NULL */
            struct value_seq    items;          /* APPEND(S) onto the object */
            struct value_pairs  pairs;          /* SETITEM(S) onto the object */
            bool                newobj;         /* built by NEWOBJ rather than REDUCE */
            bool                called;         /* GLOBAL: some record calls it */
        } obj;
        struct value_tensor *tensor;
    } u;
};

/* Builders; NULL when the arena refuses.  They return NULL for NULL children, so that a tree is
 * built in one expression and checked once. */
struct value *value_none(struct ckpt_arena *a);
struct value *value_bool(struct ckpt_arena *a, bool b);
struct value *value_int(struct ckpt_arena *a, int64_t i);
struct value *value_float(struct ckpt_arena *a, double f);
struct value *value_str(struct ckpt_arena *a, const char *s);
struct value *value_bytes(struct ckpt_arena *a, const void *p, size_t n);
struct value *value_list(struct ckpt_arena *a);
struct value *value_tuple(struct ckpt_arena *a);
struct value *value_dict(struct ckpt_arena *a, bool ordered);
struct value *value_global(struct ckpt_arena *a, const char *module, const char *name);
/* module.name(*args) by REDUCE, or by NEWOBJ; state may be NULL. */
struct value *value_object(struct ckpt_arena *a, const char *module, const char *name,
                           struct value *args, struct value *state, bool newobj);
struct value *value_tensor_new(struct ckpt_arena *a, const struct value_tensor *t);
/* A contiguous tensor at the beginning of a storage. */
struct value *value_tensor_whole(struct ckpt_arena *a, enum ckpt_dtype dtype,
                                 const struct ckpt_shape *shape, size_t storage);
/* Set the strides of a contiguous tensor: the last axis 1. */
void value_tensor_pack(struct value_tensor *t);
/* torch.Size(shape) */
struct value *value_size(struct ckpt_arena *a, const struct ckpt_shape *shape);
/* JSON as dict, list, str, int, float, bool, None.  NULL also when nested deeper than 64. */
struct value *value_of_json(struct ckpt_arena *a, const json_t *json);
/* Append to a list, tuple or set; set a key of a dict.  Return 0 or CKPT_ENOMEM without a
 * record; NULL children give CKPT_ENOMEM. */
int value_append(struct ckpt_arena *a, struct value *seq, struct value *item);
int value_set(struct ckpt_arena *a, struct value *dict, struct value *key, struct value *val);
int value_set_str(struct ckpt_arena *a, struct value *dict, const char *key, struct value *val);

/* The same for a bare sequence or pairs, which objects have. */
int value_seq_add(struct ckpt_arena *a, struct value_seq *s, struct value *item);
int value_pairs_add(struct ckpt_arena *a, struct value_pairs *d, struct value *key,
                    struct value *val);

/* Queries; all accept NULL. */
struct value *value_get(const struct value *dict, const char *key);      /* NULL when absent */
/* The next entry of a dictionary with a text key, from entry *i on; false after the last. */
bool value_next(const struct value *dict, size_t *i, const char **key, struct value **val);
/* The number of items of a list or tuple; item i of it, or argument i of a record: NULL when
 * there is none. */
size_t value_count(const struct value *seq);
struct value *value_item(const struct value *seq, size_t i);
struct value *value_arg(const struct value *record, size_t i);
/* Copy the numbers of a tuple, a list or a torch.Size; returns how many.  VALUE_NO_DIMS when one
 * is not a number >= 0 or v is none of these types, VALUE_MANY_DIMS for more than max; both are
 * below 0. */
enum { VALUE_NO_DIMS = -1, VALUE_MANY_DIMS = -2 };
int value_dims(const struct value *v, int64_t *out, int max);
static inline bool value_is(const struct value *v, enum value_kind kind)
{
    return v && v->kind == kind;
}
bool value_as_int(const struct value *v, int64_t *out);     /* INT, BOOL */
bool value_as_float(const struct value *v, double *out);    /* FLOAT, INT */
const char *value_as_str(const struct value *v);            /* NULL when it is not a STR, or
                                                               contains a NUL */
/* True when v is an object or global of that module and name. */
bool value_names(const struct value *v, const char *module, const char *name);

/*
 * The value as JSON for people and programs: tensors as {"$tensor": {dtype, shape}}, objects as
 * {"$object": "module.name", "args": [...], "state": ...}, bytes as {"$bytes": n, "hex": first
 * 32}, sets as lists, tuples as lists, NaN and infinities as strings, numbers beyond 64 bits as
 * digits.  A part inside itself appears as {"$ref": levels up}; shared parts are repeated. After
 * budget values, "..." replaces the rest.
 */
json_t *value_to_json(const struct value *v, size_t budget);

#endif
