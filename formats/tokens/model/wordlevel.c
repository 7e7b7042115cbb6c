/*
 * wordlevel - a word is a token or it is unknown.
 *
 * Source: huggingface/tokenizers 0.23 src/models/wordlevel/mod.rs.
 */
#include <string.h>

#include "formats/tokens/model/model.h"
#include "libckpt/base/json.h"

struct wordlevel {
    const struct vocab *vocab;
    int32_t             unk_id;     /* -1: there is none */
};

struct wordlevel_run { int32_t id; uint32_t len; };

static int read_wordlevel(void *model, const struct model_source *src, struct ckpt_err *err)
{
    struct wordlevel *m = model;
    const char *unk;
    int rc;

    if ((rc = ckpt_json_str_or(&unk, src->json, "unk_token", "<unk>", err)) != 0)
        return rc;
    m->vocab = src->vocab;
    m->unk_id = vocab_find(src->vocab, unk, strlen(unk));
    return 0;
}

static int encode(const void *model, void *memory, const unsigned char *s, size_t n,
                  struct word *out, struct ckpt_err *err)
{
    const struct wordlevel *m = model;
    struct wordlevel_run *run = memory;

    run->id = vocab_find(m->vocab, (const char *)s, n);
    if (run->id < 0)
        run->id = m->unk_id;
    if (run->id < 0)
        return ckpt_fail(err, CKPT_EFORMAT, "\"%.*s\" is no token, and there is no unk_token",
                         (int)(n > 80 ? 80 : n), (const char *)s);
    run->len = (uint32_t)n;
    *out = (struct word){.id = &run->id, .len = &run->len, .n = 1};
    return 0;
}

const struct model_ops model_wordlevel = {
    .type = "WordLevel", .size = sizeof(struct wordlevel), .run_size = sizeof(struct wordlevel_run),
    .read = read_wordlevel, .encode = encode,
};
