/*
 * deepspeed/layout - how ZeRO stages cut parameters into flat partitions: arithmetic only.
 *
 * Stage 1, 2 and BF16_Optimizer: the trainable parameters of a group lie one after another in a
 * flat buffer, padded with zeros to a multiple of 2 * world_size (before 0.5.3: of world_size)
 * and cut into equal parts.
 * Stage 3: every parameter is cut on its own into parts of ceil(numel / world_size); a rank's
 * flat tensor is the concatenation of its parts; the padding's content is undefined.
 * Source: DeepSpeed 0.19.8 runtime/zero/stage_1_and_2.py, stage3.py, partition_parameters.py.
 */
#ifndef CKPT_FORMATS_DEEPSPEED_LAYOUT_H
#define CKPT_FORMATS_DEEPSPEED_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* DeepSpeed's default for zero_optimization.sub_group_size: elements of one rank. */
#define DS_SUB_GROUP_SIZE 1000000000

/* A run of a parameter's elements in one rank's flat tensor. */
struct ds_piece {
    int64_t start;      /* first element of the parameter */
    int64_t count;      /* elements; 0 when the rank holds none */
    int64_t at;         /* offset in the rank's flat tensor, in elements */
};

/* Stage 3: elements of each rank's part, padding included: ceil(numel / world_size). */
int64_t ds3_part(int64_t numel, int world_size);
/* Stage 3: the piece of a parameter that rank holds; base is the sum of the parts before it. */
struct ds_piece ds3_piece(int64_t numel, int64_t base, int rank, int world_size);

#define DS_ALIGN     2          /* groups are padded to a multiple of this times world_size */
#define DS_ALIGN_OLD 1          /* before 0.5.3 */

/* Stage 1/2: elements of each rank's part of a group of group_numel elements. */
int64_t ds12_part(int64_t group_numel, int world_size, int align);
/* Stage 1/2: padding elements in rank's part. */
int64_t ds12_padding(int64_t group_numel, int rank, int world_size, int align);
/* Stage 1/2: the piece of a parameter at offset in the flat group that rank holds. */
struct ds_piece ds12_piece(int64_t offset, int64_t numel, int64_t group_numel, int rank,
                           int world_size, int align);

#endif
