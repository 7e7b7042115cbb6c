/*
 * texts - text files: all loaders here read them as data, except code, templates and
 * configurations that name code; see scan.h.
 */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "formats/container/pickle/danger.h"
#include "libckpt/base/json.h"
#include "libckpt/err.h"
#include "tools/inspect/scan/scan.h"

#define MAX_TEXT ((uint64_t)64 << 20)

static void put(struct scan *s, const struct subject *f, const char *what, enum verdict v,
                const char *reason)
{
    scan_put(s, f->path, what, SCAN_NOWHERE, "", v, reason);
}

/* -- templates ------------------------------------------------------------------------------- */

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static bool is_one_of(const char *const *words, const char *s, size_t n)
{
    while (*words && (strlen(*words) != n || strncmp(*words, s, n) != 0))
        words++;
    return *words;
}

/* Whether a word of a tag leads out of the sandbox; dot: it is an attribute. */
static const char *judge_word(const char *s, size_t n, bool dot)
{
    static const char *const dunder[] = {
        "class", "base", "bases", "mro", "subclasses", "globals", "builtins", "import", "init",
        "dict", "getattribute", "getattr", "reduce", "reduce_ex", "code", "closure", "self",
        "module", "func", "call", "new", "getitem", "loader", "spec", "wrapped",
        NULL};
    static const char *const words[] = {
        "lipsum", "get_flashed_messages", "url_for", "popen", "subprocess", "import_module",
        "func_globals", "gi_frame", "cr_frame", "f_globals", "f_builtins", "tb_frame", NULL};
    static const char *const after_dot[] = {"mro", "system", "eval", "exec", "environ", NULL};

    if (n > 4 && strncmp(s, "__", 2) == 0 && strncmp(s + n - 2, "__", 2) == 0 &&
        (dot || is_one_of(dunder, s + 2, n - 4)))
        return "asks for an attribute of Python's own";
    return is_one_of(words, s, n) || (dot && is_one_of(after_dot, s, n))
               ? "uses what reaches Python's own objects" : NULL;
}

/* Whether an escape in a tag's string encodes an underscore. */
static bool is_escape(const char *s, size_t n)
{
    return n > 4 && s[0] == '\\' &&
           (strncasecmp(s + 1, "x5f", 3) == 0 || strncasecmp(s + 1, "u005f", 5) == 0 ||
            strncmp(s + 1, "137", 3) == 0);
}

/* The construct within one tag that leads out of the sandbox. */
static const char *judge_tag(const char *s, size_t n)
{
    char before = ' ';                  /* the last character that is not a blank */

    for (size_t i = 0; i < n; i++) {
        size_t k = 0;
        const char *why;

        while (i + k < n && is_word(s[i + k]))
            k++;
        why = k ? judge_word(s + i, k, before == '.') : NULL;
        if (why)
            return why;
        if (k == 4 && before == '|' && strncmp(s + i, "attr", 4) == 0)
            return "asks for an attribute by name";
        if (is_escape(s + i, n - i))
            return "spells an underscore so that it is not seen";
        i += k ? k - 1 : 0;
        if (s[i] != ' ' && s[i] != '\n' && s[i] != '\t')
            before = s[i];
    }
    return NULL;
}

void scan_template(struct scan *s, const char *path, const char *what, const char *text, size_t n)
{
    const char *at = text, *end = text + n;

    while ((at = memchr(at, '{', (size_t)(end - at))) != NULL && end - at > 3) {
        char close[3] = {at[1] == '{' ? '}' : '%', '}', 0};
        const char *stop, *why;

        if (at[1] != '{' && at[1] != '%') {
            at++;
            continue;
        }
        stop = strstr(at + 2, close);
        why = judge_tag(at + 2, stop ? (size_t)(stop - at) - 2 : (size_t)(end - at) - 2);
        if (why) {
            scan_put(s, path, what, at - text, "template", SCAN_DANGEROUS, why);
            return;
        }
        at = stop ? stop : end;
        if (at == end)
            return;
    }
}

/* -- configurations that instantiate objects -------------------------------------------------- */

void scan_target(struct scan *s, const char *path, const char *key, const char *target)
{
    const char *dot = strrchr(target, '.');
    char module[1024], what[1400];
    const char *reason;
    enum verdict v;

    if (!dot || !pickle_name_is_plain(target) || (size_t)(dot - target) >= sizeof module)
        return;
    snprintf(module, sizeof module, "%.*s", (int)(dot - target), target);
    v = scan_judge(module, dot + 1, &reason);
    snprintf(what, sizeof what, "%s: %s", key, target);
    if (v == SCAN_DANGEROUS)
        scan_put(s, path, what, SCAN_NOWHERE, "called", v, reason);
    else
        scan_put(s, path, what, SCAN_NOWHERE, "called", SCAN_SUSPICIOUS,
                 "names a class that a loader would make");
}

/* Judge a line of YAML: tags that make Python objects, Hydra's targets. */
static void scan_line(struct scan *s, const struct subject *f, const char *line, size_t n)
{
    const char *tag = memmem(line, n, "!!python/", 9), *target = memmem(line, n, "_target_:", 9);
    char name[1024];

    if (tag) {
        snprintf(name, sizeof name, "%.*s", (int)strcspn(tag, " \t\r\n\"'"), tag);
        put(s, f, name, SCAN_DANGEROUS, "makes an object of Python's from YAML");
    }
    if (target) {
        target += 9;
        target += strspn(target, " \t\"'");
        snprintf(name, sizeof name, "%.*s", (int)strcspn(target, " \t\r\n\"'#,}"), target);
        scan_target(s, f->path, "_target_", name);
    }
}

/* -- a whole text ---------------------------------------------------------------------------- */

/* Whether it is a site-packages .pth file: at start-up Python executes its lines that begin with
 * import. */
static bool is_path_file(const struct subject *f, const char *text)
{
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, "import ", 7) == 0 || strncmp(line, "import\t", 7) == 0)
            return ckpt_path_ends_in(f->path, ".pth");
    }
    return false;
}

static bool is_code(const struct subject *f, const char *text)
{
    static const char *const tails[] = {".py", ".pyw", ".pyx", ".sh", ".bash", ".ps1", ".bat",
                                        ".cmd", ".js", ".rb", ".pl", ".lua", ".cu", NULL};

    return ckpt_path_ends_in_any(f->path, tails) || strncmp(text, "#!", 2) == 0;
}

/* Whether it is TorchScript's code inside its archive: a small language, but its operators can
 * write files. */
static bool is_script(const struct subject *f)
{
    return strstr(f->path, "/code/__torch__") != NULL;
}

static void scan_script(struct scan *s, const struct subject *f, const char *text)
{
    static const char *const ops[] = {"aten.save(", "aten.from_file(", "torch.save(",
                                      "torch.from_file(", "ops.aten.save", NULL};

    for (size_t i = 0; ops[i]; i++)
        if (strstr(text, ops[i])) {
            put(s, f, ops[i], SCAN_DANGEROUS, "opens or writes files");
            return;
        }
    put(s, f, "TorchScript", SCAN_NOTE, "runs when the model is called, and opens no files");
}

/* Judge JSON lines, each a document; false when a line is not JSON. */
static bool scan_lines(struct scan *s, const struct subject *f, const char *text)
{
    struct ckpt_err ignored = {0};
    json_t *json;

    for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        size_t n = strcspn(line, "\n");

        if (strspn(line, " \t\r") >= n)
            continue;
        if (ckpt_json_parse(&json, line, n, CKPT_JSON_PYTHON, &ignored))
            return false;
        scan_json(s, f->path, json);
        json_decref(json);
    }
    return true;
}

static int scan_document(struct scan *s, const struct subject *f, const char *text, size_t n,
                         struct ckpt_err *err)
{
    json_t *json;

    if (ckpt_json_parse(&json, text, n, CKPT_JSON_PYTHON, err) == 0) {
        scan_json(s, f->path, json);
        json_decref(json);
        return 0;
    }
    if (err->code != CKPT_ENOMEM &&
        (scan_lines(s, f, text) || !ckpt_path_ends_in(f->path, ".json"))) {
        ckpt_err_clear(err);            /* a text that only begins like JSON */
        return 0;
    }
    return scan_refused(s, f->path, err);
}

static int scan_content(struct scan *s, const struct subject *f, const char *text, size_t n,
                        struct ckpt_err *err)
{
    static const char *const templates[] = {".jinja", ".jinja2", ".j2", NULL};
    static const char *const yaml[] = {".yaml", ".yml", NULL};
    static const char *const models[] = {".pt", ".bin", ".pkl", ".pickle", ".pth", ".ckpt", ".th",
                                         ".joblib", ".dill", NULL};
    size_t blank = strspn(text, " \t\r\n");

    if (strncmp(text, "version https://git-lfs", 23) == 0)
        put(s, f, "a Git LFS pointer", SCAN_UNJUDGED, "the file itself was not fetched");
    else if (is_script(f))
        scan_script(s, f, text);
    else if (is_path_file(f, text))
        put(s, f, "a path file with code", SCAN_DANGEROUS,
            "Python runs it at its start when it lies among its packages");
    else if (is_code(f, text))
        put(s, f, scan_base(f->path), SCAN_SUSPICIOUS,
            "is code: a loader that trusts the model runs it");
    else if (ckpt_path_ends_in_any(f->path, models))
        put(s, f, "a text", SCAN_DAMAGED, "is called a model and is none");
    if (ckpt_path_ends_in_any(f->path, templates))
        scan_template(s, f->path, "a chat template", text, n);
    for (const char *line = text; line && ckpt_path_ends_in_any(f->path, yaml);
         line = strchr(line, '\n')) {
        line += *line == '\n';
        scan_line(s, f, line, strcspn(line, "\n"));
    }
    return text[blank] == '{' || text[blank] == '[' || ckpt_path_ends_in(f->path, ".json")
               ? scan_document(s, f, text, n, err) : 0;
}

int scan_text(struct scan *s, const struct subject *f, struct ckpt_err *err)
{
    struct ckpt_arena a = {0};
    char *text;
    size_t n;
    int rc;

    if (ckpt_file_size(f->file) > MAX_TEXT) {
        static const char *const rows[] = {".jsonl", ".csv", ".tsv", ".txt", NULL};

        if (!ckpt_path_ends_in_any(f->path, rows))
            put(s, f, "a text of more than 64 MiB", SCAN_UNJUDGED, "is longer than is looked at");
        return 0;
    }
    if (ckpt_file_slurp(f->file, &a, MAX_TEXT, &text, &n, err))
        rc = scan_refused(s, f->path, err);
    else
        rc = scan_content(s, f, text, n, err);
    ckpt_arena_release(&a);
    return rc;
}
