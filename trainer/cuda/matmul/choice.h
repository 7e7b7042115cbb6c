/*
 * matmul/choice - the algorithm of cuBLASLt chosen for each shape: a table, and the file that
 * keeps it between runs.
 *
 * The file is $CKPT_CACHE, $XDG_CACHE_HOME/ckpt or ~/.cache/ckpt + "/cublaslt-GPU-VERSION", text:
 * a line with its name, then a line for each shape: the numbers of its key, a colon (a plus: by
 * our own kernel; a dash: two steps are faster), the eight words of the algorithm, which cuBLASLt
 * allows to be stored for the same version, and a checksum of all of these.  The file is replaced
 * by rename; a choice that another process wrote first wins.
 */
#ifndef CKPT_TRAINER_CUDA_MATMUL_CHOICE_H
#define CKPT_TRAINER_CUDA_MATMUL_CHOICE_H

#include <cublasLt.h>
#include <stdint.h>

enum {
    KEY_M, KEY_N, KEY_K, KEY_BATCH,     /* sizes, rounded up to three significant bits */
    KEY_IN, KEY_OUT, KEY_COMPUTE,
    KEY_FLAGS,                          /* transposed A, B; beta, in place; alone; quick; parts */
    KEY_EPILOGUE,
    KEY_ALIGN,                          /* alignment of pointers and row lengths */
    KEY_WORK,                           /* whether there is a workspace */
    KEY_NUMBERS
};

struct matmul_key { int64_t at[KEY_NUMBERS]; };

struct matmul_choice {
    struct matmul_key    key;
    cublasLtMatmulAlgo_t algo;
    int                  state;         /* CHOICE_ */
    bool                 kept;          /* in the file */
};

enum { CHOICE_EMPTY, CHOICE_FOUND, CHOICE_TILES, CHOICE_NONE };

struct matmul_choices {
    struct matmul_choice *at;          /* open addressing; the number of places is a power of two */
    size_t                places, n;
    char                 *path;         /* NULL: choices cannot be stored */
    char                  name[160];    /* the file's first line */
};

/* An unreadable or foreign file counts as empty.  Non-zero: out of memory. */
int matmul_choices_open(struct matmul_choices *c, const char *gpu, size_t version);
void matmul_choices_close(struct matmul_choices *c);
const struct matmul_choice *matmul_choices_find(const struct matmul_choices *c,
                                                const struct matmul_key *key);
/* The nearest stored choice whose m and k differ from the key's by at most a third, with all
 * else equal; or NULL. */
const struct matmul_choice *matmul_choices_like(const struct matmul_choices *c,
                                                const struct matmul_key *key);
/* Add a choice; with keep also to the file, unless the file has another, which then replaces it.
 * Returns the choice in force, or NULL when out of memory. */
const struct matmul_choice *matmul_choices_add(struct matmul_choices *c,
                                               const struct matmul_choice *choice, bool keep);

#endif
