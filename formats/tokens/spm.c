/* spm - see spm.h. */
#include "formats/tokens/spm.h"

#include <string.h>

#include "formats/container/protobuf.h"
#include "libckpt/base/base64.h"
#include "formats/tokens/unicode/unicode.h"
#include "libckpt/mem.h"

enum { NORMAL = 1, UNKNOWN = 2, CONTROL = 3, USER_DEFINED = 4, UNUSED = 5, BYTE = 6 };
enum { UNIGRAM = 1, BPE = 2 };

#define MAX_PIECES 4000000      /* the largest vocabulary seen has 256,000 */

/* Fields of the file, initialised to the format's defaults. */
struct proto {
    json_t              *vocab;         /* [[text, score], ...] */
    json_t              *kinds;         /* [type, ...] */
    int64_t              unk_id;        /* of the piece of type UNKNOWN; -1 */
    int64_t              model_type, bos, eos, pad;
    bool                 suffix, byte_fallback, prefix, squeeze, escape;
    const unsigned char *charsmap;
    size_t               n_charsmap;
    const unsigned char *unk_surface;
    size_t               n_unk_surface;
};

static int read_piece(struct proto *p, const struct protobuf_field *field, struct ckpt_err *err)
{
    struct ckpt_cursor c = protobuf_inside(field);
    struct protobuf_field f;
    const unsigned char *text = (const unsigned char *)"";
    size_t n = 0, i = json_array_size(p->vocab);
    double score = 0;
    int64_t kind = NORMAL;

    while (protobuf_next(&c, &f)) {
        if (protobuf_is(&f, 1, PROTOBUF_BYTES)) {
            text = f.bytes;
            n = f.len;
        } else if (protobuf_is(&f, 2, PROTOBUF_32)) {
            score = protobuf_float(f.bits);
        } else if (protobuf_is(&f, 3, PROTOBUF_VARINT)) {
            kind = (int64_t)f.bits;
        }
    }
    if (c.failed)
        return ckpt_fail(err, CKPT_EFORMAT, "piece %zu is no message", i);
    if (n == 0 || memchr(text, '\0', n) || utf8_valid_prefix(text, n) != n)
        return ckpt_fail(err, CKPT_EFORMAT, "piece %zu has no text, or none in UTF-8", i);
    if (kind < NORMAL || kind > BYTE || !(score > -1e30 && score < 1e30))
        return ckpt_fail(err, CKPT_EFORMAT, "piece %zu: type %lld, score %g", i,
                         (long long)kind, score);
    if (kind == UNUSED)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "piece %zu is unused; models with such are not "
                         "followed", i);
    if (i == MAX_PIECES)
        return ckpt_fail(err, CKPT_ELIMIT, "more than %d pieces", MAX_PIECES);
    if (kind == UNKNOWN)
        p->unk_id = (int64_t)i;
    if (json_array_append_new(p->vocab, json_pack("[s%f]", (const char *)text, n, score)) ||
        json_array_append_new(p->kinds, json_integer(kind)))
        return ckpt_nomem(err, n);
    return 0;
}

static int read_trainer(struct proto *p, const struct protobuf_field *field,
                        struct ckpt_err *err)
{
    struct ckpt_cursor c = protobuf_inside(field);
    struct protobuf_field f;

    while (protobuf_next(&c, &f)) {
        if (protobuf_is(&f, 3, PROTOBUF_VARINT))
            p->model_type = (int64_t)f.bits;
        else if (protobuf_is(&f, 24, PROTOBUF_VARINT))
            p->suffix = f.bits != 0;
        else if (protobuf_is(&f, 35, PROTOBUF_VARINT))
            p->byte_fallback = f.bits != 0;
        else if (protobuf_is(&f, 41, PROTOBUF_VARINT))
            p->bos = (int32_t)f.bits;
        else if (protobuf_is(&f, 42, PROTOBUF_VARINT))
            p->eos = (int32_t)f.bits;
        else if (protobuf_is(&f, 43, PROTOBUF_VARINT))
            p->pad = (int32_t)f.bits;
        else if (protobuf_is(&f, 44, PROTOBUF_BYTES)) {
            p->unk_surface = f.bytes;
            p->n_unk_surface = f.len;
        }
    }
    return c.failed ? ckpt_fail(err, CKPT_EFORMAT, "trainer_spec is no message") : 0;
}

static int read_normalizer(struct proto *p, const struct protobuf_field *field,
                           struct ckpt_err *err)
{
    struct ckpt_cursor c = protobuf_inside(field);
    struct protobuf_field f;

    while (protobuf_next(&c, &f)) {
        if (protobuf_is(&f, 2, PROTOBUF_BYTES)) {
            p->charsmap = f.bytes;
            p->n_charsmap = f.len;
        } else if (protobuf_is(&f, 3, PROTOBUF_VARINT)) {
            p->prefix = f.bits != 0;
        } else if (protobuf_is(&f, 4, PROTOBUF_VARINT)) {
            p->squeeze = f.bits != 0;
        } else if (protobuf_is(&f, 5, PROTOBUF_VARINT)) {
            p->escape = f.bits != 0;
        }
    }
    return c.failed ? ckpt_fail(err, CKPT_EFORMAT, "normalizer_spec is no message") : 0;
}

static int read_proto(struct proto *p, const unsigned char *bytes, size_t n,
                      struct ckpt_err *err)
{
    struct ckpt_cursor c;
    struct protobuf_field f;
    unsigned specs = 0;
    int rc = 0;

    p->vocab = json_array();
    p->kinds = json_array();
    if (!p->vocab || !p->kinds)
        return ckpt_nomem(err, n);
    ckpt_cursor_init(&c, bytes, n);
    while (rc == 0 && protobuf_next(&c, &f)) {
        if (protobuf_is(&f, 1, PROTOBUF_BYTES))
            rc = read_piece(p, &f, err);
        else if (protobuf_is(&f, 2, PROTOBUF_BYTES))
            rc = read_trainer(p, &f, err);
        else if (protobuf_is(&f, 3, PROTOBUF_BYTES))
            rc = read_normalizer(p, &f, err);
        specs |= protobuf_is(&f, 2, PROTOBUF_BYTES)   ? 1
                 : protobuf_is(&f, 3, PROTOBUF_BYTES) ? 2
                                                      : 0;
    }
    if (rc == 0 && c.failed)
        rc = ckpt_fail(err, CKPT_EFORMAT, "no message of fields at byte %zu of %zu", c.pos, n);
    if (rc == 0 && json_array_size(p->vocab) == 0)
        rc = ckpt_fail(err, CKPT_EFORMAT, "no pieces: this is no sentencepiece model");
    /* These follow the pieces: a file truncated between two pieces is not accepted. */
    if (rc == 0 && specs != 3)
        rc = ckpt_fail_as(err, CKPT_EFORMAT, "truncated", "ends at byte %zu without its %s", n,
                          specs & 1 ? "normalizer_spec" : "trainer_spec");
    if (rc == 0 && p->model_type != UNIGRAM && p->model_type != BPE)
        rc = ckpt_fail(err, CKPT_EUNSUPPORTED, "model_type %lld; unigram (1) and bpe (2) are "
                       "read", (long long)p->model_type);
    if (rc == 0 && p->unk_id < 0)
        rc = ckpt_fail(err, CKPT_EFORMAT, "no piece is the unknown one");
    return rc;
}

static int kind_of(const struct proto *p, size_t i)
{
    return (int)json_integer_value(json_array_get(p->kinds, i));
}

static const char *text_of(const struct proto *p, size_t i)
{
    return json_string_value(json_array_get(json_array_get(p->vocab, i), 0));
}

static json_t *unigram(const struct proto *p)
{
    return json_pack("{s:s,s:O,s:O,s:I,s:b}", "type", "Unigram", "vocab", p->vocab, "kinds",
                     p->kinds, "unk_id", (json_int_t)p->unk_id, "byte_fallback",
                     p->byte_fallback);
}

static json_t *bpe(const struct proto *p)
{
    json_t *vocab = json_object(), *scores = json_array();

    for (size_t i = 0; i < json_array_size(p->vocab); i++) {
        int kind = kind_of(p, i);

        json_object_set_new(vocab, text_of(p, i), json_integer((json_int_t)i));
        json_array_append(scores, kind == NORMAL || kind == USER_DEFINED
                                      ? json_array_get(json_array_get(p->vocab, i), 1)
                                      : json_null());
    }
    return json_pack("{s:s,s:o,s:o,s:s,s:b,s:b}", "type", "BPE", "vocab", vocab, "scores",
                     scores, "unk_token", text_of(p, (size_t)p->unk_id), "byte_fallback",
                     p->byte_fallback, "fuse_unk", 1);
}

/* Pieces that the user wants unsplit.  In a unigram model their scores achieve that. */
static json_t *kept_whole(const struct proto *p, bool added)
{
    json_t *list = json_array();

    for (size_t i = 0; i < json_array_size(p->vocab); i++) {
        if (kind_of(p, i) != USER_DEFINED)
            continue;
        if (added)
            json_array_append_new(list, json_pack("{s:I,s:s,s:b,s:b}", "id", (json_int_t)i,
                                                  "content", text_of(p, i), "normalized", 1,
                                                  "verbatim", 1));
        else
            json_array_append_new(list, json_string(text_of(p, i)));
    }
    return list;
}

/* Control pieces decode to nothing, the unknown one to a mark. */
static json_t *shown(const struct proto *p)
{
    json_t *list = json_array();

    for (size_t i = 0; i < json_array_size(p->vocab); i++) {
        if (kind_of(p, i) == CONTROL)
            json_array_append_new(list, json_pack("[I,s]", (json_int_t)i, ""));
        else if (kind_of(p, i) == UNKNOWN)
            json_array_append_new(list, json_pack("[I,s%]", (json_int_t)i, p->unk_surface,
                                                  p->n_unk_surface));
    }
    return list;
}

static int make_root(json_t **out, const struct proto *p, struct ckpt_err *err)
{
    char *map = base64_encode(p->charsmap, p->n_charsmap);
    json_t *root, *model;

    if (!map)
        return ckpt_nomem(err, p->n_charsmap);
    model = p->model_type == UNIGRAM ? unigram(p) : bpe(p);
    root = json_pack("{s:s,s:o,s:{s:s,s:s,s:b,s:b,s:b,s:b,s:o},s:{s:s,s:b,s:b},s:o,s:o}",
                     "version", "1.0", "added_tokens",
                     p->model_type == BPE ? kept_whole(p, true) : json_array(),
                     "normalizer", "type", "SentencePiece", "precompiled_charsmap", map,
                     "prefix", p->prefix, "suffix", p->suffix, "squeeze", p->squeeze, "escape",
                     p->escape, "whole", kept_whole(p, false),
                     "decoder", "type", "SentencePiece", "prefix", p->prefix, "squeeze",
                     p->squeeze, "shown", shown(p), "model", model);
    ckpt_free(map);
    *out = root;
    return root ? 0 : ckpt_nomem(err, p->n_charsmap);
}

static int32_t known_id(const struct proto *p, int64_t id)
{
    return id >= 0 && (size_t)id < json_array_size(p->vocab) ? (int32_t)id : -1;
}

int spm_read(json_t **out, struct spm_ids *ids, const unsigned char *bytes, size_t n,
             struct ckpt_err *err)
{
    static const char surface[] = " \xe2\x81\x87 ";
    struct proto p = {.unk_id = -1, .model_type = UNIGRAM, .bos = 1, .eos = 2, .pad = -1,
                      .prefix = true, .squeeze = true, .escape = true,
                      .unk_surface = (const unsigned char *)surface,
                      .n_unk_surface = sizeof surface - 1};
    int rc = read_proto(&p, bytes, n, err);

    *out = NULL;
    if (rc == 0 && (memchr(p.unk_surface, '\0', p.n_unk_surface) ||
                    utf8_valid_prefix(p.unk_surface, p.n_unk_surface) != p.n_unk_surface))
        rc = ckpt_fail(err, CKPT_EFORMAT, "unk_surface is not UTF-8");
    if (rc == 0)
        rc = make_root(out, &p, err);
    *ids = (struct spm_ids){known_id(&p, p.bos), known_id(&p, p.eos), known_id(&p, p.pad)};
    json_decref(p.vocab);
    json_decref(p.kinds);
    return rc;
}
