/* secrets - see secrets.h. */
#include "tools/push/secrets.h"

#include <string.h>

#include "libckpt/mem.h"

#define MOST_BYTES ((uint64_t)4 << 20)
#define LETTERS    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
#define UPPER      "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

struct shape {
    const char *begin, *letters;
    size_t      least, most;        /* letters after begin */
    const char *kind;
};

/* The lengths are those of the tokens, or a little less. */
static const struct shape shapes[] = {
    {"hf_", LETTERS, 30, 64, "a token of the Hub"},
    {"AKIA", UPPER, 16, 16, "a key id of AWS"},
    {"ghp_", LETTERS, 36, 255, "a token of GitHub"},
    {"gho_", LETTERS, 36, 255, "a token of GitHub"},
    {"ghs_", LETTERS, 36, 255, "a token of GitHub"},
    {"github_pat_", LETTERS "_", 40, 255, "a token of GitHub"},
};

static bool is_private_key(const char *text)
{
    static const char begin[] = "-----BEGIN ";
    size_t n = strcspn(text, "\r\n");
    const char *end;

    if (strncmp(text, begin, strlen(begin)) != 0 || n > 80)
        return false;
    end = strstr(text, "PRIVATE KEY-----");
    return end && end < text + n;
}

/* What kind of secret text begins with, or NULL. */
static const char *kind_of(const char *text)
{
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const struct shape *s = &shapes[i];
        size_t n = strlen(s->begin), k;

        if (strncmp(text, s->begin, n) != 0)
            continue;
        k = strspn(text + n, s->letters);
        if (k >= s->least && k <= s->most)
            return s->kind;
    }
    return is_private_key(text) ? "a private key" : NULL;
}

static size_t line_of(const char *text, const char *at)
{
    size_t line = 1;

    while ((text = memchr(text, '\n', (size_t)(at - text))) != NULL) {
        line++;
        text++;
    }
    return line;
}

int secrets_refuse(struct ckpt_file *file, struct ckpt_err *err)
{
    struct ckpt_arena arena = {0};
    const char *kind;
    size_t n = 0;
    char *text;
    int rc;

    if (ckpt_file_size(file) > MOST_BYTES)
        return 0;
    rc = ckpt_file_slurp(file, &arena, MOST_BYTES, &text, &n, err);
    if (rc == 0 && strlen(text) == n)
        for (const char *at = text; rc == 0 && (at = strpbrk(at, "hAg-")) != NULL; at++)
            if ((at == text || !strchr(LETTERS "_-", at[-1])) && (kind = kind_of(at)) != NULL)
                rc = ckpt_fail_as(err, CKPT_EREFUSED, "secret", "%s: line %zu holds %s",
                                  ckpt_file_name(file), line_of(text, at), kind);
    ckpt_arena_release(&arena);
    return rc ? ckpt_err_hint(err, "--allow-secrets publishes it nevertheless, --exclude leaves it "
                              "out") : 0;
}
