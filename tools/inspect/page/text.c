/* text - see text.h. */
#include "tools/inspect/page/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/base/json.h"
#include "libckpt/err.h"
#include "libckpt/io/path.h"

static const char *entity_of(char c)
{
    return c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '"' ? "&quot;"
           : c == '\'' ? "&#39;" : NULL;
}

/* Bytes of the character at s; 0 when it is none that a page may contain. */
static size_t character(const char *s, size_t left)
{
    unsigned char c = (unsigned char)*s;
    size_t n = c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;

    if (n > left || !ckpt_utf8_valid(s, n) || (c < 0x20 && c != '\n' && c != '\t') || c == 0x7f)
        return 0;
    /* C1 controls; U+FFFE and U+FFFF, which XML does not have */
    if ((c == 0xc2 && (unsigned char)s[1] < 0xa0) ||
        (n == 3 && (memcmp(s, "\xef\xbf\xbe", 3) == 0 || memcmp(s, "\xef\xbf\xbf", 3) == 0)))
        return 0;
    return n;
}

void page_text(struct ckpt_buf *b, const char *s, size_t most)
{
    size_t len = strlen(s), n;

    for (size_t at = 0; at < len; at += n ? n : 1) {
        const char *entity = entity_of(s[at]);

        n = character(s + at, len - at);
        if (most && at + n > most) {
            ckpt_buf_put_str(b, "\u2026");
            break;
        }
        if (entity)
            ckpt_buf_put_str(b, entity);
        else if (n)
            ckpt_buf_put(b, s + at, n);
        else
            ckpt_buf_put_str(b, "\ufffd");
    }
}

void page_words(struct ckpt_buf *b, const char *key)
{
    static const struct { const char *end; const char *word; } ends[] = {
        {"_bytes", ""}, {" per second", "/s"}, {"_per_second", "/s"},
    };
    const char *word = "";
    char words[100];
    size_t n = 0, len = strlen(key);

    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        if (len > strlen(ends[i].end) && ckpt_path_ends_in(key, ends[i].end)) {
            len -= strlen(ends[i].end);
            word = ends[i].word;
            break;
        }
    for (; n < len && n + 1 < sizeof words; n++)
        words[n] = key[n] == '_' ? ' ' : key[n];
    words[n] = '\0';
    if (strncmp(words, "gpu ", 4) == 0) /* of nvidia-smi's columns, which name a CPU so too */
        page_text(b, "Device", 0);
    else if (words[0] >= 'a' && words[0] <= 'z')
        words[0] = (char)(words[0] - 'a' + 'A');
    page_text(b, words + (strncmp(words, "gpu ", 4) == 0 ? 3 : 0), 0);
    ckpt_buf_put_str(b, word);
}

/* "5e-05" -> "5e-5", "1e+20" -> "1e20". */
static void tidy_exponent(char *s)
{
    char *e = strchr(s, 'e'), *from;

    if (!e)
        return;
    from = ++e;
    if (*from == '-')
        e++;
    if (*from == '-' || *from == '+')
        from++;
    while (*from == '0' && from[1])
        from++;
    memmove(e, from, strlen(from) + 1);
}

/* A comma before every third digit of the integral part. */
static void group(char dst[PAGE_NUMBER], const char *s)
{
    size_t sign = *s == '-', digits = strspn(s + sign, "0123456789"), at = 0;

    for (size_t i = 0; s[i] && at + 3 < PAGE_NUMBER; i++) {
        if (i > sign && i < sign + digits && (sign + digits - i) % 3 == 0)
            dst[at++] = ',';
        dst[at++] = s[i];
    }
    dst[at] = '\0';
}

char *page_number(char dst[PAGE_NUMBER], double v, int digits)
{
    char plain[PAGE_NUMBER];
    double size = fabs(v);

    if (!isfinite(v)) {
        snprintf(dst, PAGE_NUMBER, "%s", isnan(v) ? "NaN" : v > 0 ? "\u221e" : "\u2212\u221e");
        return dst;
    }
    if (v == floor(v) && size < 1e15)
        snprintf(plain, sizeof plain, "%.0f", v == 0 ? 0 : v);
    else if (size >= 1 && size < 1e7 && size >= pow(10, digits - 1))
        snprintf(plain, sizeof plain, "%.*f", size < 1e4 ? 1 : 0, v);
    else
        snprintf(plain, sizeof plain, "%.*g", digits, v);
    if (strchr(plain, 'e')) {
        tidy_exponent(plain);
        snprintf(dst, PAGE_NUMBER, "%s", plain);
    } else {
        group(dst, plain);
    }
    return dst;
}

char *page_short(char dst[PAGE_NUMBER], double v)
{
    static const struct { double at; const char *unit; } units[] = {
        {1e15, "P"}, {1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e4, "k"},
    };
    double size = fabs(v);

    for (size_t i = 0; i < 5; i++)
        if (size >= units[i].at && size < 1e18) {
            double unit = units[i].at == 1e4 ? 1e3 : units[i].at;

            snprintf(dst, PAGE_NUMBER, "%.4g%s", v / unit, units[i].unit);
            return dst;
        }
    return page_number(dst, v, 4);
}

char *page_bytes(char dst[PAGE_NUMBER], double v)
{
    static const char *const unit[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    size_t i = 0;

    for (; v >= 1000 && i < 5; i++)
        v /= 1000;
    snprintf(dst, PAGE_NUMBER, i ? "%.2f %s" : "%.0f %s", v, unit[i]);
    return dst;
}

char *page_seconds(char dst[PAGE_NUMBER], double v)
{
    if (!(v >= 0 && v < 1e9))
        return page_number(dst, v, 4);
    if (v < 120)
        snprintf(dst, PAGE_NUMBER, "%.*f s", v < 0.1 ? 4 : v < 10 ? 2 : 1, v);
    else if (v < 7200)
        snprintf(dst, PAGE_NUMBER, "%.0f min %.0f s", floor(v / 60), floor(fmod(v, 60)));
    else
        snprintf(dst, PAGE_NUMBER, "%.0f h %.0f min", floor(v / 3600), floor(fmod(v, 3600) / 60));
    return dst;
}

/* A number with the unit that its key says. */
static char *with_unit(char dst[PAGE_NUMBER], const char *key, double v)
{
    return ckpt_path_ends_in(key, "bytes") ? page_bytes(dst, v)
           : strncmp(key, "device_memory_", 14) == 0 ? page_bytes(dst, v * 1048576)     /* MiB */
           : ckpt_path_ends_in(key, "_runtime") ? page_seconds(dst, v)
           : strcmp(key, "total_flos") == 0 ? page_short(dst, v) : page_number(dst, v, 5);
}

void page_value(struct ckpt_buf *b, const char *key, const json_t *v, size_t most)
{
    struct ckpt_err ignored = {0};
    char number[PAGE_NUMBER];
    struct ckpt_buf json;

    if (json_is_string(v)) {
        page_text(b, json_string_value(v), most);
    } else if (json_is_number(v)) {
        ckpt_buf_put_str(b, with_unit(number, key, json_number_value(v)));
    } else if (json_is_boolean(v)) {
        ckpt_buf_put_str(b, json_is_true(v) ? "yes" : "no");
    } else if (v && !json_is_null(v)) {
        ckpt_buf_init(&json, SIZE_MAX);
        if (ckpt_json_write(&json, v, most > 1000 ? 1 : 0, false, &ignored) == 0 &&
            ckpt_buf_str(&json))
            page_text(b, (const char *)json.data, most);
        ckpt_buf_release(&json);
    }
}
