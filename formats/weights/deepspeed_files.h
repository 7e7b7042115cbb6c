/*
 * deepspeed_files - which files a DeepSpeed tag consists of, opened and agreed with each other.
 */
#ifndef CKPT_DEEPSPEED_FILES_H
#define CKPT_DEEPSPEED_FILES_H

#include "formats/weights/torch.h"

#define DS_MAX_RANKS 65536

/* One rank's files.  Stage 0 has no optim file; stages 0 to 2 have one model file in all. */
struct ds_rank {
    struct torch_archive *model, *optim;
    const struct value   *model_root, *optim_root;  /* dicts; optim: its optimizer_state_dict */
};

struct ds_files {
    char            tag[256];
    struct ds_rank *rank;       /* [n] */
    size_t          n;          /* data-parallel ranks found */
    int             stage;      /* 0..3 */
    bool            bf16;       /* BF16_Optimizer: no zero_stage, padding kept */
};

/* The tag to read: what was asked for, or what `latest` says (one clean name, <= 256 bytes). */
int ds_find_tag(char tag[256], struct ckpt_dir *dir, const char *wanted, struct ckpt_err *err);
/* Open all files of a tag.  dir holds the tag's folder, or is it when tag is "". */
int ds_files_open(struct ds_files *f, struct ckpt_dir *dir, const char *tag,
                  struct ckpt_err *err);
void ds_files_close(struct ds_files *f);

#endif
