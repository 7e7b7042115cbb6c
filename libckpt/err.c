/* err - see err.h. */
#include "libckpt/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/base/buf.h"
#include "libckpt/base/secret.h"

/* One row per code: its exit status and the reason word when a caller gives none. */
static const struct {
    int         code;
    int         status;
    const char *reason;
} codes[] = {
    {CKPT_OK, 0, ""},
    {CKPT_ENOTFOUND, 66, "not-found"},
    {CKPT_EFORMAT, 65, "malformed"},
    {CKPT_EUNSUPPORTED, 65, "unsupported"},
    {CKPT_EMISMATCH, 65, "mismatch"},
    {CKPT_ELIMIT, 65, "budget"},
    {CKPT_EREFUSED, 77, "refused"},
    {CKPT_ECREATE, 73, "cannot-create"},
    {CKPT_EIO, 74, "io"},
    {CKPT_ENOMEM, 71, "no-memory"},
    {CKPT_EDEVICE, 69, "unavailable"},
    {CKPT_ECOMM, 75, "peer-dead"},
    {CKPT_ESTATE, 70, "bug"},
    {CKPT_EUSAGE, 64, "usage"},
    {CKPT_ECONFIG, 78, "configuration"},
    {CKPT_EPROTOCOL, 76, "protocol"},
    {CKPT_ESTOPPED, 75, "stopped"},
    {CKPT_ENO, 1, "no"},
};

#define N_CODES (sizeof codes / sizeof codes[0])

int ckpt_err_status(int code)
{
    for (size_t i = 0; i < N_CODES; i++)
        if (codes[i].code == code)
            return codes[i].status;
    return 70;
}

static const char *default_reason(int code)
{
    for (size_t i = 0; i < N_CODES; i++)
        if (codes[i].code == code)
            return codes[i].reason;
    return "bug";
}

/* Bytes of one well-formed, harmless UTF-8 character at s, or 0 when it must be escaped. */
static size_t plain_char(const unsigned char *s, size_t left)
{
    size_t n = s[0] < 0x80 ? 1 : s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
    uint32_t c;

    if (s[0] < 0x20 || s[0] == 0x7f || n > left || !ckpt_utf8_valid(s, n))
        return 0;
    if (n == 1)
        return 1;
    c = n == 2 ? s[0] & 0x1fu : n == 3 ? s[0] & 0x0fu : s[0] & 0x07u;
    for (size_t i = 1; i < n; i++)
        c = c << 6 | (s[i] & 0x3fu);
    /* C1 controls, bidirectional marks, embeddings, isolates, and line separators. */
    if ((c >= 0x80 && c < 0xa0) || c == 0x61c || c == 0x200e || c == 0x200f ||
        (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069))
        return 0;
    return n;
}

/* The letter that is known after a backslash, of white space that ends or fills lines; else 0. */
static char escape_letter(unsigned char byte)
{
    return byte == '\n' ? 'n' : byte == '\t' ? 't' : byte == '\r' ? 'r' : '\0';
}

char *ckpt_err_escape(char *dst, size_t dst_size, const char *src, size_t src_len)
{
    static const char hex[] = "0123456789abcdef";
    const unsigned char *s = (const unsigned char *)src;
    size_t at = 0, mark = 0;            /* mark: where "..." still fits */

    if (dst_size == 0)
        return dst;
    for (size_t i = 0; i < src_len;) {
        bool ascii = s[i] >= 0x20 && s[i] < 0x7f;
        char letter = escape_letter(s[i]);
        size_t n = ascii ? 1 : plain_char(s + i, src_len - i), need = n ? n : letter ? 2 : 4;

        if (at + need + 1 > dst_size) {
            at = mark;
            for (int k = 0; k < 3 && at + 1 < dst_size; k++)
                dst[at++] = '.';
            break;
        }
        if (n) {
            memcpy(dst + at, s + i, n);
        } else {
            dst[at] = '\\';
            dst[at + 1] = letter ? letter : 'x';
            if (!letter) {
                dst[at + 2] = hex[s[i] >> 4];
                dst[at + 3] = hex[s[i] & 15];
            }
        }
        at += need;
        i += n ? n : 1;
        if (at + 4 <= dst_size)
            mark = at;
    }
    dst[at] = '\0';
    return dst;
}

/* Whether a sentence begins with name, or with a path in which name is a part. */
static bool begins_with(const char *text, const char *name, size_t n)
{
    size_t end = strcspn(text, ":");

    for (const char *at = strstr(text, name); n > 0 && at && at < text + end;
         at = strstr(at + 1, name))
        if ((at == text || at[-1] == '/') && (at[n] == ':' || at[n] == '/'))
            return true;
    return false;
}

/* Format and escape, then append to the sentence (with front: prepend). */
static void say(struct ckpt_err *err, bool front, const char *sep, const char *fmt, va_list ap)
{
    char raw[sizeof err->text], old[sizeof err->text];
    size_t len;

    if (vsnprintf(raw, sizeof raw, fmt, ap) < 0)
        raw[0] = '\0';
    ckpt_secret_mask(raw);
    len = strlen(raw);
    if (!front) {
        ckpt_err_escape(err->text, sizeof err->text, raw, len);
        return;
    }
    memcpy(old, err->text, sizeof old);
    ckpt_err_escape(err->text, sizeof err->text, raw, len);
    len = strlen(err->text);
    if (begins_with(old, err->text, len)) {     /* told once */
        memcpy(err->text, old, sizeof old);
        return;
    }
    snprintf(err->text + len, sizeof err->text - len, "%s%s", sep, old);
}

static void set_code(struct ckpt_err *err, int code, const char *reason)
{
    err->code = code;
    err->hint[0] = '\0';
    snprintf(err->reason, sizeof err->reason, "%s", reason);
}

int ckpt_fail(struct ckpt_err *err, int code, const char *fmt, ...)
{
    va_list ap;

    set_code(err, code, default_reason(code));
    va_start(ap, fmt);
    say(err, false, "", fmt, ap);
    va_end(ap);
    return code;
}

int ckpt_fail_as(struct ckpt_err *err, int code, const char *reason, const char *fmt, ...)
{
    va_list ap;

    set_code(err, code, reason);
    va_start(ap, fmt);
    say(err, false, "", fmt, ap);
    va_end(ap);
    return code;
}

int ckpt_fail_errno(struct ckpt_err *err, int code, int errnum, const char *fmt, ...)
{
    va_list ap;
    char why[128];
    size_t len;

    if (errnum == ENOMEM || errnum == EMFILE || errnum == ENFILE)
        code = CKPT_ENOMEM;
    set_code(err, code, default_reason(code));
    va_start(ap, fmt);
    say(err, false, "", fmt, ap);
    va_end(ap);
    len = strlen(err->text);
    snprintf(err->text + len, sizeof err->text - len, ": %s",
             strerror_r(errnum, why, sizeof why));
    return code;
}

int ckpt_err_in(struct ckpt_err *err, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    say(err, true, ": ", fmt, ap);
    va_end(ap);
    return ckpt_err_code(err);
}

int ckpt_err_hint(struct ckpt_err *err, const char *fmt, ...)
{
    va_list ap;
    char raw[sizeof err->hint];

    va_start(ap, fmt);
    if (vsnprintf(raw, sizeof raw, fmt, ap) < 0)
        raw[0] = '\0';
    va_end(ap);
    ckpt_secret_mask(raw);
    ckpt_err_escape(err->hint, sizeof err->hint, raw, strlen(raw));
    return ckpt_err_code(err);
}

int ckpt_err_code(struct ckpt_err *err)
{
    return err->code ? err->code : ckpt_fail(err, CKPT_ESTATE, "a call failed without a reason");
}

void ckpt_err_clear(struct ckpt_err *err) { memset(err, 0, sizeof *err); }
