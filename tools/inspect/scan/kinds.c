/* kinds - recognise a file's format by its first bytes, and choose its judge; see scan.h. */
#include <string.h>

#include "formats/container/zip_walk.h"
#include "libckpt/err.h"
#include "libckpt/io/archive.h"
#include "libckpt/io/spool.h"
#include "tools/inspect/scan/scan.h"

#define HEAD_BYTES  512u
#define MAX_DEPTH   16          /* nested containers */
#define PIECE       ((size_t)1 << 20)

struct head {
    unsigned char b[HEAD_BYTES];
    size_t        n;
};

static bool begins(const struct head *h, const char *magic, size_t n)
{
    return h->n >= n && memcmp(h->b, magic, n) == 0;
}

/* -- recognised by first bytes, nothing is executed ------------------------------------------ */

static const struct {
    const char *magic;
    size_t      n;
} inert[] = {
    {"\x89PNG\r\n\x1a\n", 8}, {"\xff\xd8\xff", 3}, {"GIF8", 4}, {"OggS", 4}, {"fLaC", 4},
    {":W&B", 4},
};

static bool is_inert(const struct head *h)
{
    for (size_t i = 0; i < sizeof inert / sizeof inert[0]; i++)
        if (begins(h, inert[i].magic, inert[i].n))
            return true;
    if (begins(h, "RIFF", 4) && h->n > 12)
        return memcmp(h->b + 8, "WAVE", 4) == 0 || memcmp(h->b + 8, "WEBP", 4) == 0;
    /* TensorBoard: a length, its checksum, and an event with the file version. */
    for (size_t i = 12; i + 12 < h->n && i < 64; i++)
        if (memcmp(h->b + i, "brain.Event:", 12) == 0)
            return true;
    return false;
}

/* The name of a format that a system or an interpreter executes directly. */
static const char *native(const struct head *h)
{
    static const struct { const char *magic; size_t n; const char *what; } kinds[] = {
        {"\x7f" "ELF", 4, "a program or library of this system"},
        {"MZ", 2, "a program or library of Windows"},
        {"\xcf\xfa\xed\xfe", 4, "a program or library of macOS"},
        {"\xca\xfe\xba\xbe", 4, "a program of macOS, or a Java class"},
        {"\0asm", 4, "a WebAssembly program"},
    };

    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (begins(h, kinds[i].magic, kinds[i].n))
            return kinds[i].what;
    if (h->n > 16 && memcmp(h->b + 2, "\r\n", 2) == 0 && h->b[1] >= 0x0c && h->b[1] <= 0x0f)
        return "compiled Python";       /* 3.7 and later: its number, CR LF */
    return NULL;
}

static const char *unread(const struct head *h)
{
    static const struct { const char *magic; size_t n; const char *what; } kinds[] = {
        {"7z\xbc\xaf\x27\x1c", 6, "a 7z archive"}, {"Rar!", 4, "a rar archive"},
        {"MSCF", 4, "a cabinet archive"}, {"%PDF", 4, "a PDF"},
        {"\x08\x03\x12", 3, "an ONNX model or another protobuf"},
        {"\x08\x07\x12", 3, "an ONNX model or another protobuf"},
        {"\x08\x08\x12", 3, "an ONNX model or another protobuf"},
        {"\xd0\xcf\x11\xe0", 4, "an OLE document"},
    };

    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (begins(h, kinds[i].magic, kinds[i].n))
            return kinds[i].what;
    return h->n > 8 && memcmp(h->b + 4, "TFL3", 4) == 0 ? "a TensorFlow Lite model" : NULL;
}

/* -- text ------------------------------------------------------------------------------------ */

static bool is_text_byte(unsigned char c)
{
    return c >= 0x20 ? c != 0x7f : c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == 0x1b;
}

/* Whether no byte of the file is one that text cannot contain. */
static bool is_text(struct ckpt_file *file, const struct head *h)
{
    uint64_t size = ckpt_file_size(file), at = 0;
    size_t whole = ckpt_utf8_prefix(h->b, h->n);
    struct ckpt_err ignored = {0};
    unsigned char *buf;
    bool text = whole + 4 > h->n;       /* the head may end inside a character */

    buf = text ? ckpt_alloc_buffer(PIECE) : NULL;
    text = buf;
    while (text && at < size) {
        size_t n = size - at < PIECE ? (size_t)(size - at) : PIECE;

        text = ckpt_file_read_at(file, buf, n, at, &ignored) == 0;
        for (size_t i = 0; text && i < n; i++)
            text = is_text_byte(buf[i]);
        at += n;
    }
    ckpt_free(buf);
    return text;
}

/* -- the chooser ----------------------------------------------------------------------------- */

static bool is_safetensors(const struct head *h, uint64_t size)
{
    uint64_t n = 0;

    for (size_t i = 8; i-- > 0;)
        n = n << 8 | h->b[i];
    return h->n > 9 && n >= 2 && n <= size - 8 && h->b[8] == '{';
}

static bool is_zlib(const struct head *h)
{
    return h->n > 8 &&
           ((h->b[0] == 0x78 && (h->b[0] * 256 + h->b[1]) % 31 == 0 && !(h->b[1] & 0x20)) ||
            memcmp(h->b, "ZF0x", 4) == 0);
}

typedef int judge_fn(struct scan *, const struct subject *, struct ckpt_err *);

/* The judge of a file with that beginning, or that name; NULL when there is none. */
static judge_fn *judge_of(const struct subject *f, const struct head *h)
{
    static const char *const named_zip[] = {".npz", ".zip", ".keras", ".mar", NULL};
    static const struct { const char *tail; judge_fn *judge; } named[] = {
        {".safetensors", scan_safetensors}, {".gguf", scan_gguf}, {".npy", scan_npy},
        {".tar", scan_tar}, {".gz", scan_packed}, {".tgz", scan_packed}, {".bz2", scan_packed},
        {".xz", scan_packed}, {".zst", scan_packed}, {".parquet", scan_arrow},
    };

    if (begins(h, "PK\003\004", 4) || begins(h, "PK\005\006", 4))
        return scan_zip;
    if (ckpt_spool_is_compressed(h->b, h->n))
        return scan_packed;
    if (ckpt_archive_is_tar(h->b, h->n))
        return scan_tar;
    if (begins(h, "GGUF", 4))
        return scan_gguf;
    if (begins(h, "\x93NUMPY", 6))
        return scan_npy;
    if (begins(h, "\x89HDF\r\n\x1a\n", 8))
        return scan_hdf5;
    if (begins(h, "PAR1", 4) || begins(h, "ARROW1", 6) || begins(h, "\xff\xff\xff\xff", 4))
        return scan_arrow;
    if (is_safetensors(h, ckpt_file_size(f->file)))
        return scan_safetensors;
    if (h->n > 2 && h->b[0] == 0x80 && h->b[1] <= 5)
        return scan_pickles;
    if (f->rest)
        return NULL;                    /* the name is not that of the content */
    for (size_t i = 0; i < sizeof named / sizeof named[0]; i++)
        if (ckpt_path_ends_in(f->path, named[i].tail))
            return named[i].judge;
    return ckpt_path_ends_in_any(f->path, named_zip) ? scan_zip : NULL;
}

static void put(struct scan *s, const struct subject *f, const char *what, enum verdict v,
                const char *reason)
{
    scan_put(s, f->path, what, SCAN_NOWHERE, "", v, reason);
}

/* Whether a subject is only alignment. */
static bool is_zeros(const struct subject *f)
{
    uint64_t size = ckpt_file_size(f->file);
    struct ckpt_err ignored = {0};
    unsigned char buf[4096];

    return size <= sizeof buf && ckpt_file_read_at(f->file, buf, (size_t)size, 0, &ignored) == 0 &&
           buf[0] == 0 && memcmp(buf, buf + 1, (size_t)size - 1) == 0;
}

/* Unknown bytes: report pickles in them, and that nothing else is known. */
static int scan_unknown(struct scan *s, const struct subject *f, const struct head *h,
                        struct ckpt_err *err)
{
    const char *code = native(h), *kind = unread(h);
    int64_t before = s->count[SCAN_DANGEROUS];
    int rc = scan_hidden(s, f, err);

    if (rc || s->count[SCAN_DANGEROUS] > before)
        return rc;
    if (code) {
        put(s, f, code, SCAN_SUSPICIOUS, "runs when something loads it");
        return 0;
    }
    rc = f->rest ? 1 : scan_words(s, f, err);
    if (rc != 1)
        return rc;
    if (f->rest)
        put(s, f, "bytes that no format has a place for", SCAN_UNJUDGED,
            "nothing says what they are");
    else
        put(s, f, kind ? kind : "bytes of no known format", SCAN_UNJUDGED,
            "no reader here can say what loading it would run");
    return 0;
}

/* A file without magic: a pickle stream, a text, or unknown bytes. */
static int scan_unmarked(struct scan *s, const struct subject *f, const struct head *h,
                         struct ckpt_err *err)
{
    bool text = is_text(f->file, h);

    if (!f->rest && scan_is_pickle(f, text))
        return is_zlib(h) ? scan_zlib(s, f, err) : scan_pickles(s, f, err);
    if (text)
        return scan_text(s, f, err);
    if (is_zlib(h))
        return scan_zlib(s, f, err);
    return (f->rest && is_zeros(f)) || (!f->rest && is_inert(h)) ? 0
                                                                 : scan_unknown(s, f, h, err);
}

int scan_subject(struct scan *s, const struct subject *f, struct ckpt_err *err)
{
    static const char *const may_be_empty[] = {
        ".lock", ".gitkeep", ".keep", "__init__.py", ".validate_storage_marker", ".txt", ".md",
        ".log", ".jsonl", ".csv", ".tsv", NULL};
    uint64_t size = ckpt_file_size(f->file);
    struct head h = {.n = size < HEAD_BYTES ? (size_t)size : HEAD_BYTES};
    judge_fn *judge;
    int rc;

    if (f->depth == 0)
        s->read += size;
    if (size == 0) {
        if (!f->rest)
            put(s, f, "an empty file",
                f->depth || ckpt_path_ends_in_any(f->path, may_be_empty) ? SCAN_NOTE : SCAN_DAMAGED,
                "holds nothing");
        return 0;
    }
    if (f->depth > MAX_DEPTH) {
        put(s, f, "containers in each other", SCAN_UNJUDGED, "more than 16");
        return 0;
    }
    if (ckpt_file_read_at(f->file, h.b, h.n, 0, err))
        return scan_refused(s, f->path, err);
    judge = judge_of(f, &h);
    rc = judge ? judge(s, f, err) : scan_unmarked(s, f, &h, err);
    /* A file of another format may also end as a zip file, which programs find from its end. */
    if (rc == 0 && judge != scan_zip && judge != scan_packed && judge != scan_tar &&
        zip_ends_here(f->file)) {
        put(s, f, "a zip file behind something else", SCAN_SUSPICIOUS,
            "readers disagree about what it is");
        rc = scan_zip(s, f, err);
    }
    return rc;
}
