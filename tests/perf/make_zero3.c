/* make_zero3 DIR GIB RANKS - a ZeRO-3 checkpoint of GIB GiB of f32 weights, random, for timing. */
#include <stdio.h>
#include <stdlib.h>

#include "formats/deepspeed/layout.h"
#include "formats/deepspeed/write/out.h"
#include "libckpt/err.h"

#define SIDE 4096               /* every parameter is SIDE x SIDE: 64 MiB */

static int write_rank(struct ckpt_outdir *dir, int rank, int ranks, struct ds_param *param,
                      size_t n, const float *random, struct ckpt_err *err)
{
    const float **ptr = calloc(n, sizeof *ptr);
    struct adamw_group group = {.lr = 1e-3, .initial_lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999};
    json_t *config = json_pack("{s:{s:i}}", "zero_optimization", "stage", 3);
    int rc;

    for (size_t i = 0; i < n; i++)      /* every part another window of the random block */
        ptr[i] = random + (i * 131 + (size_t)rank * 7) % SIDE;
    rc = ds_write_rank(dir, "global_step1", &(struct ds_rank_state){
        .rank = rank, .world_size = ranks, .param = param, .n_param = n, .group = &group,
        .n_group = 1, .model_dtype = CKPT_F32, .master = ptr, .exp_avg = ptr, .exp_avg_sq = ptr,
        .optimizer_step = 1, .global_steps = 1, .ds_config = config}, err);
    json_decref(config);
    free(ptr);
    return rc;
}

int main(int argc, char **argv)
{
    size_t n = argc == 4 ? strtoull(argv[2], NULL, 10) * 16 : 0;
    int ranks = argc == 4 ? (int)strtol(argv[3], NULL, 10) : 0;
    struct ds_param *param = calloc(n ? n : 1, sizeof *param);
    float *random = malloc(((size_t)SIDE * SIDE + SIDE) * sizeof *random);
    struct ckpt_outdir *dir = NULL;
    struct ckpt_err err = {0};
    char (*name)[32] = calloc(n ? n : 1, sizeof *name);
    unsigned long long x = 88172645463325252ull;
    int rc;

    if (!n || ranks < 1) {
        fprintf(stderr, "usage: make_zero3 DIR GIB RANKS\n");
        return 64;
    }
    for (size_t i = 0; i < (size_t)SIDE * SIDE + SIDE; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        random[i] = (float)(x >> 40) * 0x1p-24f - 0.5f;
    }
    for (size_t i = 0; i < n; i++) {
        snprintf(name[i], sizeof name[i], "h.%zu.weight", i);
        param[i] = (struct ds_param){.name = name[i], .shape = ckpt_shape_2d(SIDE, SIDE),
                                     .trainable = true};
    }
    rc = ckpt_outdir_create(&dir, argv[1], &err);
    for (int r = 0; rc == 0 && r < ranks; r++)
        rc = write_rank(dir, r, ranks, param, n, random, &err);
    if (rc == 0)
        rc = ds_write_latest(dir, "global_step1", &err);
    rc = rc ? rc : ckpt_outdir_commit(dir, &err);
    if (rc)
        fprintf(stderr, "make_zero3: %s\n", err.text);
    free(param);
    free(random);
    free(name);
    return rc != 0;
}
