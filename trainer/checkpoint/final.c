/* checkpoint/final - see final.h. */
#include "trainer/checkpoint/final.h"

#include <stdio.h>
#include <string.h>

#include "trainer/checkpoint/files.h"
#include "trainer/checkpoint/size.h"

/* Whether a user wrote the card that is there. */
static bool card_is_users(const char *output_dir)
{
    struct ckpt_err ignored = {0};
    struct ckpt_dir *dir;
    struct ckpt_file *f;
    char head[4096];
    bool users = false;

    if (ckpt_dir_open(&dir, output_dir, 0, &ignored))
        return false;
    if (ckpt_dir_has(dir, "README.md") &&
        ckpt_file_open_at(&f, dir, "README.md", &ignored) == 0) {
        uint64_t size = ckpt_file_size(f);
        size_t n = size < sizeof head - 1 ? (size_t)size : sizeof head - 1;

        head[n] = '\0';
        users = ckpt_file_read_at(f, head, n, 0, &ignored) || !strstr(head, FINAL_CARD_MARK);
        ckpt_file_close(f);
    }
    ckpt_dir_close(dir);
    return users;
}

/* The base's card, under another name. */
static int put_base_card(struct ckpt_outdir *dir, const struct side_files *side,
                         struct ckpt_err *err)
{
    for (size_t i = 0; i < side->n; i++) {
        struct ckpt_extra card = side->item[i];

        if (strcmp(card.name, "README.md") != 0)
            continue;
        card.name = "BASE_README.md";
        return side_file_put(dir, &card, err);
    }
    return 0;
}

/* Everything but the weights. */
static int put_files(struct ckpt_outdir *dir, const char *output_dir, struct session *s,
                     const struct checkpoint *c, const char *card, struct ckpt_err *err)
{
    int rc = checkpoint_describe(s, c, dir, false, err);

    if (rc == 0)
        rc = put_base_card(dir, c->side, err);
    if (rc == 0 && card && !card_is_users(output_dir))
        rc = ckpt_outdir_put(dir, "README.md", card, strlen(card), err);
    return rc;
}

int final_save(const char *output_dir, struct session *s, const struct checkpoint *c,
               const char *card, struct ckpt_err *err)
{
    struct ckpt_outdir *dir = NULL;
    bool first = s->comm->rank == 0;
    char path[4200], staging[4096] = "";
    int rc = 0;

    snprintf(path, sizeof path, "%s/final-model", output_dir);
    if (first)
        rc = ckpt_outdir_create(&dir, path, err);
    if (dir) {
        snprintf(staging, sizeof staging, "%s", ckpt_outdir_staging(dir));
        rc = put_files(dir, output_dir, s, c, card, err);
    }
    if ((rc = comm_agree(s->comm, rc, err)) == 0)
        rc = checkpoint_save_model(s, c->settings, staging, err);
    if ((rc = comm_agree(s->comm, rc, err)) != 0)
        ckpt_outdir_abort(dir);
    else if (dir)
        rc = ckpt_outdir_commit_beside(dir, err);
    return comm_agree(s->comm, rc, err);
}
