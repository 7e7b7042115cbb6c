/* secret - see secret.h. */
#include "libckpt/base/secret.h"

#include <ctype.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "libckpt/mem.h"

#define MOST      16            /* most secrets of a process */
#define WINDOW    10            /* consecutive letters and digits that identify a secret */
#define SHORTEST  4
#define ROUNDS    4             /* escapes nested in escapes */
#define MASK      "***"

/* Letters and digits, in lower case: how secrets and texts are compared. */
struct secret {
    char  *core;
    size_t n;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct secret known[MOST];
static atomic_size_t n_known;

static size_t core_of(char *dst, const char *text, size_t n)
{
    size_t k = 0;

    for (size_t i = 0; i < n; i++)
        if (isalnum((unsigned char)text[i]) && (unsigned char)text[i] < 128)
            dst[k++] = (char)tolower((unsigned char)text[i]);
    return k;
}

void ckpt_secret_add(const char *secret)
{
    size_t n = strlen(secret), k, i;
    char *core = ckpt_alloc(n + 1, 1);

    if (!core)
        return;
    k = core_of(core, secret, n);
    pthread_mutex_lock(&lock);
    for (i = 0; i < n_known; i++)
        if (known[i].n == k && memcmp(known[i].core, core, k) == 0)
            break;
    if (i == n_known && i < MOST && k >= SHORTEST) {
        known[i] = (struct secret){core, k};
        core = NULL;
        atomic_fetch_add(&n_known, 1);
    }
    pthread_mutex_unlock(&lock);
    ckpt_free(core);
}

static bool holds(const char *core, size_t n)
{
    for (size_t i = 0; i < n_known; i++) {
        const struct secret *s = &known[i];
        size_t w = s->n < WINDOW ? s->n : WINDOW;

        for (size_t at = 0; at + w <= s->n; at++)
            if (memmem(core, n, s->core + at, w))
                return true;
    }
    return false;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Parse up to `most` digits at s; returns how many there are. */
static size_t number(const char *s, size_t left, size_t most, int base, unsigned *value)
{
    size_t n = 0;

    *value = 0;
    while (n < most && n < left && hex_digit(s[n]) >= 0 && hex_digit(s[n]) < base)
        *value = *value * (unsigned)base + (unsigned)hex_digit(s[n++]);
    return n;
}

/* The length of the escape at s, 0 if there is none. */
static size_t escape(const char *s, size_t left, unsigned *value)
{
    size_t n;

    if (left >= 3 && *s == '%' && number(s + 1, left - 1, 2, 16, value) == 2)
        return 3;
    if (left >= 4 && s[0] == '\\' && s[1] == 'x' && number(s + 2, left - 2, 2, 16, value) == 2)
        return 4;
    if (left >= 6 && s[0] == '\\' && (s[1] == 'u' || s[1] == 'U') &&
        number(s + 2, left - 2, 4, 16, value) == 4)
        return 6;
    if (left < 4 || s[0] != '&' || s[1] != '#')
        return 0;
    n = s[2] == 'x' || s[2] == 'X' ? 3 : 2;
    n += number(s + n, left - n, 7, n == 3 ? 16 : 10, value);
    return n > 2 ? n + (n < left && s[n] == ';') : 0;
}

/* Decode one layer of escapes, in place. */
static size_t unescape(char *text, size_t n)
{
    size_t k = 0;

    for (size_t i = 0; i < n;) {
        unsigned value = (unsigned char)text[i];
        size_t step = escape(text + i, n - i, &value);

        text[k++] = (char)(step == 0 || value < 128 ? value : ' ');
        i += step ? step : 1;
    }
    return k;
}

static int base64_digit(char c)
{
    return c >= 'A' && c <= 'Z' ? c - 'A' : c >= 'a' && c <= 'z' ? c - 'a' + 26
           : c >= '0' && c <= '9' ? c - '0' + 52 : c == '+' || c == '-' ? 62
           : c == '/' || c == '_' ? 63 : -1;
}

/* Decode each run of base64 digits at each of the four alignments a group may have. */
static bool in_base64(const char *text, size_t n, char *work)
{
    for (size_t i = 0, end; i < n; i = end + 1) {
        for (end = i; end < n && base64_digit(text[end]) >= 0; end++)
            ;
        for (size_t from = i; end - i >= 8 && from < i + 4; from++) {
            unsigned bits = 0, n_bits = 0;
            size_t k = 0;

            for (size_t at = from; at < end; at++) {
                bits = bits << 6 | (unsigned)base64_digit(text[at]);
                n_bits += 6;
                if (n_bits >= 8)
                    work[k++] = (char)(bits >> (n_bits -= 8) & 255);
            }
            if (holds(work, core_of(work, work, k)))
                return true;
        }
    }
    return false;
}

bool ckpt_secret_in(const char *text, size_t n)
{
    char *plain, *work;
    bool found = false;

    if (n_known == 0 || n == 0)
        return false;
    plain = ckpt_alloc(n, 1);
    work = ckpt_alloc(n, 1);
    if (!plain || !work) {
        ckpt_free(plain);
        ckpt_free(work);
        return true;                    /* when in doubt, mask the word */
    }
    memcpy(plain, text, n);
    for (int i = 0; !found && i < ROUNDS; i++) {
        size_t before = n;

        found = holds(work, core_of(work, plain, n)) || in_base64(plain, n, work);
        n = unescape(plain, n);
        if (n == before)
            break;
    }
    explicit_bzero(plain, n);
    ckpt_free(plain);
    ckpt_free(work);
    return found;
}

/* What stands before the '@' of an address: a password, and where people put a token, a user of
 * http. */
static void mask_users(char *text)
{
    for (char *p = strstr(text, "://"); p; p = strstr(p, "://")) {
        bool web = (p - text >= 4 && memcmp(p - 4, "http", 4) == 0) ||
                   (p - text >= 5 && memcmp(p - 5, "https", 5) == 0);
        char *at, *from;

        p += 3;
        at = memrchr(p, '@', strcspn(p, "/?# \t\n\"'"));
        from = at && !web ? memchr(p, ':', (size_t)(at - p)) : NULL;
        from = at && web ? p : from ? from + 1 : NULL;
        if (!from || from == at)
            continue;
        if (at - from >= (ptrdiff_t)sizeof MASK - 1) {
            memcpy(from, MASK, sizeof MASK - 1);
            memmove(from + sizeof MASK - 1, at, strlen(at) + 1);
        } else {
            memset(from, '*', (size_t)(at - from));
        }
    }
}

void ckpt_secret_mask(char *text)
{
    size_t n, k = 0;

    mask_users(text);
    n = strlen(text);
    if (n_known == 0 || !ckpt_secret_in(text, n))
        return;
    for (size_t i = 0, end; i < n; i = end) {
        bool word = text[i] != ' ';

        for (end = i; end < n && (text[end] != ' ') == word; end++)
            ;
        if (end - i >= sizeof MASK - 1 && ckpt_secret_in(text + i, end - i)) {
            memcpy(text + k, MASK, sizeof MASK - 1);
            k += sizeof MASK - 1;
        } else {
            memmove(text + k, text + i, end - i);
            k += end - i;
        }
    }
    text[k] = '\0';
    if (ckpt_secret_in(text, k))        /* the secret spans more than one word */
        memcpy(text, MASK, sizeof MASK);
}
