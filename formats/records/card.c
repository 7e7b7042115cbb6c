/* records/card - see records/card.h. */
#include "formats/records/card.h"

#include <fnmatch.h>
#include <string.h>
#include <yaml.h>

#include "formats/container/yaml_limits.h"
#include "libckpt/base/buf.h"
#include "libckpt/log.h"

#define MAX_README ((uint64_t)16 << 20)
#define MAX_PARTS  64               /* most components of a path or a pattern */

/* -- patterns --------------------------------------------------------------------------------- */

/* Find the start of each component of a path, and the end of the last; false when there are too
 * many. */
static bool names_of(const char *path, const char *name[MAX_PARTS + 1], size_t *n)
{
    *n = 0;
    for (const char *at = path;; at++) {
        if (*n == MAX_PARTS)
            return false;
        name[(*n)++] = at;
        at += strcspn(at, "/");
        if (!*at) {
            name[*n] = at + 1;
            return true;
        }
    }
}

static bool name_matches(const char *pattern, size_t n_pattern, const char *name, size_t n)
{
    char a[256], b[256];

    if (n_pattern >= sizeof a || n >= sizeof b)
        return false;
    memcpy(a, pattern, n_pattern);
    memcpy(b, name, n);
    a[n_pattern] = b[n] = '\0';
    return fnmatch(a, b, FNM_PERIOD) == 0;
}

bool card_matches(const char *pattern, const char *path)
{
    const char *p[MAX_PARTS + 1], *s[MAX_PARTS + 1];
    bool reach[MAX_PARTS + 1] = {true};     /* reach[k]: the pattern so far matches k components */
    size_t n_p, n_s;

    if (!names_of(pattern, p, &n_p) || !names_of(path, s, &n_s))
        return false;
    for (size_t i = 0; i < n_p; i++) {
        size_t len = (size_t)(p[i + 1] - p[i]) - 1;
        bool all = len == 2 && memcmp(p[i], "**", 2) == 0;

        if (all) {
            /* "**" matches any number of folders, also none; after the last "/" at least a file. */
            bool from_before = false;

            for (size_t k = 0; k <= n_s; k++) {
                bool was = reach[k];

                reach[k] = from_before || (was && i + 1 < n_p);
                from_before = (from_before || was) && k < n_s && *s[k] != '.';
            }
            continue;
        }
        for (size_t k = n_s; k > 0; k--)
            reach[k] = reach[k - 1] &&
                       name_matches(p[i], len, s[k - 1], (size_t)(s[k] - s[k - 1]) - 1);
        reach[0] = false;
    }
    return reach[n_s];
}

/* -- the text --------------------------------------------------------------------------------- */

struct card {
    yaml_document_t    doc;
    struct ckpt_arena *arena;
};

static const char *text_of(const struct card *c, const yaml_node_t *v)
{
    return v && v->type == YAML_SCALAR_NODE
               ? ckpt_arena_strndup(c->arena, (const char *)v->data.scalar.value,
                                    v->data.scalar.length)
               : NULL;
}

static yaml_node_t *node_at(struct card *c, const yaml_node_t *list, size_t i)
{
    return yaml_document_get_node(&c->doc, list->data.sequence.items.start[i]);
}

static size_t length_of(const yaml_node_t *list)
{
    return list && list->type == YAML_SEQUENCE_NODE
               ? (size_t)(list->data.sequence.items.top - list->data.sequence.items.start) : 0;
}

static yaml_node_t *member(struct card *c, const yaml_node_t *map, const char *key)
{
    if (!map || map->type != YAML_MAPPING_NODE)
        return NULL;
    for (yaml_node_pair_t *p = map->data.mapping.pairs.start; p < map->data.mapping.pairs.top;
         p++) {
        yaml_node_t *k = yaml_document_get_node(&c->doc, p->key);

        if (k && k->type == YAML_SCALAR_NODE && strcmp((char *)k->data.scalar.value, key) == 0)
            return yaml_document_get_node(&c->doc, p->value);
    }
    return NULL;
}

/* A path without leading "./", and after repeated slashes. */
static const char *below_here(const char *path)
{
    while (strncmp(path, "./", 2) == 0) {
        path += 2;
        while (*path == '/')
            path++;
    }
    return path;
}

/* Patterns: one, or a list of them, of a split. */
static int add_patterns(struct card *c, struct card_config *config, const char *split,
                        const yaml_node_t *v, struct ckpt_err *err)
{
    bool one = v && v->type == YAML_SCALAR_NODE;
    size_t n = one ? 1 : length_of(v);
    struct card_files *more = ckpt_arena_alloc(c->arena, config->n + n + 1, sizeof *more);

    if (!more)
        return ckpt_nomem(err, (config->n + n) * sizeof *more);
    if (n == 0)
        return ckpt_fail(err, CKPT_EFORMAT, "configuration \"%s\": no pattern of its split \"%s\"",
                         config->name, split);
    if (config->n)
        memcpy(more, config->files, config->n * sizeof *more);
    for (size_t i = 0; i < n; i++) {
        const char *text = text_of(c, one ? v : node_at(c, v, i));

        text = text ? below_here(text) : NULL;
        if (!text || !*text || *text == '/' || strstr(text, "..") || strstr(text, "://"))
            return ckpt_fail(err, CKPT_EREFUSED, "configuration \"%s\": data_files \"%.200s\" is "
                             "no pattern of files below the folder", config->name,
                             text ? text : "");
        if (*config->data_dir)
            text = ckpt_arena_printf(c->arena, "%s/%s", config->data_dir, text);
        if (!text)
            return ckpt_nomem(err, 1);
        more[config->n++] = (struct card_files){split, text};
    }
    config->files = more;
    return 0;
}

static int read_files(struct card *c, struct card_config *config, const yaml_node_t *v,
                      struct ckpt_err *err)
{
    yaml_node_t *first = length_of(v) ? node_at(c, v, 0) : NULL;
    int rc;

    if (!v)
        return 0;
    if (!first || first->type != YAML_MAPPING_NODE)
        return add_patterns(c, config, "train", v, err);
    for (size_t i = 0; i < length_of(v); i++) {
        yaml_node_t *one = node_at(c, v, i);
        const char *split = text_of(c, member(c, one, "split"));

        if (!split || !*split)
            return ckpt_fail(err, CKPT_EFORMAT, "configuration \"%s\": data_files[%zu] has no "
                             "split", config->name, i);
        if ((rc = add_patterns(c, config, split, member(c, one, "path"), err)) != 0)
            return rc;
    }
    return 0;
}

/* Note keys that make no difference here, or are unknown. */
static void tell_unknown(struct card *c, const char *name, const yaml_node_t *map)
{
    static const char *const known[] = {"config_name", "default", "data_dir", "data_files",
                                        "description", "version", "features", "drop_labels"};

    for (yaml_node_pair_t *p = map->data.mapping.pairs.start; p < map->data.mapping.pairs.top;
         p++) {
        yaml_node_t *k = yaml_document_get_node(&c->doc, p->key);
        const char *key = k && k->type == YAML_SCALAR_NODE ? (char *)k->data.scalar.value : "?";
        size_t i = 0;

        while (i < sizeof known / sizeof *known && strcmp(known[i], key) != 0)
            i++;
        if (i == sizeof known / sizeof *known)
            ckpt_log(CKPT_LOG_WARNING, "README.md: configuration \"%.100s\": %.100s is not "
                     "looked at", name, key);
    }
}

static int read_config(struct card *c, struct card_config *config, yaml_node_t *v,
                       struct ckpt_err *err)
{
    const char *flag = text_of(c, member(c, v, "default")), *dir;
    size_t n;

    config->name = text_of(c, member(c, v, "config_name"));
    if (!config->name)
        return ckpt_fail(err, CKPT_EFORMAT, "a configuration without config_name");
    config->is_default = flag && (strcmp(flag, "true") == 0 || strcmp(flag, "True") == 0);
    dir = text_of(c, member(c, v, "data_dir"));
    dir = dir ? below_here(dir) : NULL;
    n = dir ? strlen(dir) : 0;
    while (n > 0 && dir[n - 1] == '/')
        n--;
    config->data_dir = ckpt_arena_strndup(c->arena, dir ? dir : "", strcmp(dir ? dir : "", ".") ? n
                                                                                              : 0);
    if (!config->data_dir)
        return ckpt_nomem(err, n);
    if (*config->data_dir && !ckpt_file_path_is_clean(config->data_dir))
        return ckpt_fail(err, CKPT_EREFUSED, "configuration \"%s\": data_dir \"%.200s\" is no "
                         "folder below this one", config->name, config->data_dir);
    tell_unknown(c, config->name, v);
    return read_files(c, config, member(c, v, "data_files"), err);
}

/* The text between the first two lines of "---". */
static bool front_matter(const char **text, size_t *n)
{
    const char *end;

    if (*n >= 3 && memcmp(*text, "\xef\xbb\xbf", 3) == 0)
        *text += 3, *n -= 3;
    if (*n < 4 || memcmp(*text, "---", 3) != 0 || ((*text)[3] != '\n' && (*text)[3] != '\r'))
        return false;
    *text += 3;
    end = strstr(*text, "\n---");
    if (!end)
        return false;
    *n = (size_t)(end - *text) + 1;
    return true;
}

static int read_document(struct card *c, struct card_config **out, size_t *n, struct ckpt_err *err)
{
    yaml_node_t *list = member(c, yaml_document_get_root_node(&c->doc), "configs");
    size_t all = length_of(list);
    struct card_config *config;
    int rc;

    if (all == 0)
        return 0;
    config = ckpt_arena_alloc(c->arena, all, sizeof *config);
    if (!config)
        return ckpt_nomem(err, all * sizeof *config);
    memset(config, 0, all * sizeof *config);
    for (size_t i = 0; i < all; i++)
        if ((rc = read_config(c, &config[i], node_at(c, list, i), err)) != 0)
            return rc;
    *out = config;
    *n = all;
    return 0;
}

int card_parse(struct card_config **out, size_t *n, const char *text, size_t len,
               const char *name, struct ckpt_arena *arena, struct ckpt_err *err)
{
    struct card c = {.arena = arena};
    yaml_parser_t parser;
    int rc = 0;

    *out = NULL;
    *n = 0;
    if (!front_matter(&text, &len))
        return 0;
    if (yaml_check_limits(text, len, err))
        return ckpt_err_in(err, "README.md");
    if (!yaml_parser_initialize(&parser))
        return ckpt_nomem(err, sizeof parser);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, len);
    if (yaml_parser_load(&parser, &c.doc)) {
        rc = read_document(&c, out, n, err);
        yaml_document_delete(&c.doc);
        if (rc)
            ckpt_err_in(err, "README.md");
    } else {
        ckpt_log(CKPT_LOG_WARNING, "%s: line %zu: no YAML in front of it: %s; the files' "
                 "names tell what they are", name, parser.problem_mark.line + 1,
                 parser.problem ? parser.problem : "out of memory");
    }
    yaml_parser_delete(&parser);
    return rc;
}

int card_read(struct card_config **out, size_t *n, struct ckpt_dir *dir,
              struct ckpt_arena *arena, struct ckpt_err *err)
{
    struct ckpt_file *file;
    char *text;
    size_t len;
    int rc;

    *out = NULL;
    *n = 0;
    if (!ckpt_dir_has(dir, "README.md"))
        return 0;
    rc = ckpt_file_open_at(&file, dir, "README.md", err);
    if (rc)
        return rc;
    rc = ckpt_file_slurp(file, arena, MAX_README, &text, &len, err);
    if (rc == 0)
        rc = card_parse(out, n, text, len, ckpt_file_name(file), arena, err);
    ckpt_file_close(file);
    return rc;
}

/* -- choosing --------------------------------------------------------------------------------- */

static int not_chosen(const struct card_config *all, size_t n, const char *name, const char *path,
                      struct ckpt_err *err)
{
    struct ckpt_buf names;
    const char *list;
    int rc;

    ckpt_buf_init(&names, 1000);
    for (size_t i = 0; i < n; i++)
        ckpt_buf_printf(&names, "%s%.80s", i ? ", " : "", all[i].name);
    list = names.len && ckpt_buf_ok(&names) ? ckpt_buf_str(&names) : "too many to name";
    if (name) {
        rc = ckpt_fail(err, CKPT_ENOTFOUND, "%.300s: no configuration \"%.80s\" in README.md; "
                       "there are: %.400s", path, name, list);
    } else {
        ckpt_fail(err, CKPT_EUSAGE, "%.300s: several configurations in README.md: %.400s", path,
                  list);
        rc = ckpt_err_hint(err, "name one with --dataset-config, as in --dataset-config '%.80s'",
                           all[0].name);
    }
    ckpt_buf_release(&names);
    return rc;
}

int card_pick(const struct card_config **out, const struct card_config *all, size_t n,
              const char *name, const char *path, struct ckpt_err *err)
{
    const struct card_config *named = NULL, *marked = NULL;

    for (size_t i = 0; i < n; i++) {
        if (strcmp(all[i].name, name ? name : "default") == 0)
            named = &all[i];
        if (all[i].is_default)
            marked = &all[i];
    }
    *out = named || name ? named : marked ? marked : n == 1 ? &all[0] : NULL;
    if (!name && marked)
        *out = marked;
    return *out ? 0 : not_chosen(all, n, name, path, err);
}
