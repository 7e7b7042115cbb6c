/* aspects - one side of a run: random states, arguments, state, optimizer; see inspect.h. */
#include <fnmatch.h>
#include <math.h>
#include <string.h>

#include "formats/formats.h"
#include "formats/place.h"
#include "formats/hf/side_files.h"
#include "formats/torch/torch.h"
#include "libckpt/io/file_at.h"
#include "libckpt/base/json.h"
#include "libckpt/base/map.h"
#include "libckpt/io/pack.h"
#include "tools/inspect/inspect.h"

/* Open the file of that name in dir, or path itself when it was given as that file. */
static int open_part(struct ckpt_file **file, struct ckpt_dir *dir, const char *name,
                     const char *path, const struct cli *cli, struct ckpt_err *err)
{
    return dir ? ckpt_file_open_at(file, dir, name, err)
               : ckpt_path_file(file, path, cli->follow ? CKPT_FOLLOW : 0, err);
}

static int rng_file(struct out *o, json_t *list, const char *name, struct ckpt_file *file,
                    struct ckpt_err *err)
{
    struct torch_archive *a;
    json_t *one = NULL;
    int rc = torch_archive_open_any(&a, file, err);     /* takes it */

    if (rc)
        return rc;
    if (!inspect_is_rng(a))
        rc = ckpt_fail(err, CKPT_EUSAGE, "%s: --rng decodes random states, it has none", name);
    else
        rc = inspect_rng(o, name, a, true, &one, err);
    if (one) {
        json_object_set_new(one, "file", json_string(name));
        json_array_append_new(list, one);
    }
    torch_archive_close(a);
    return rc;
}

static int put_rng(struct out *o, struct ckpt_dir *dir, const char *path, const struct cli *cli,
                   struct ckpt_err *err)
{
    static const char *const glob[] = {"rng_state*.pth", "random_states_*.pkl"};
    struct ckpt_arena a = {0};
    struct ckpt_entry *entry = NULL;
    const char *slash = strrchr(path, '/');
    json_t *list = json_array();
    struct ckpt_file *file;
    size_t n = 0;
    int rc = dir ? ckpt_dir_list(dir, &a, &entry, &n, err) : 0;

    if (!dir && (rc = open_part(&file, NULL, NULL, path, cli, err)) == 0)
        rc = rng_file(o, list, slash ? slash + 1 : path, file, err);
    for (size_t i = 0; rc == 0 && i < n; i++)
        if (entry[i].is_file && (fnmatch(glob[0], entry[i].name, 0) == 0 ||
                                 fnmatch(glob[1], entry[i].name, 0) == 0)) {
            rc = open_part(&file, dir, entry[i].name, path, cli, err);
            if (rc == 0)
                rc = rng_file(o, list, entry[i].name, file, err);
        }
    if (rc == 0 && json_array_size(list) == 0)
        rc = ckpt_fail(err, CKPT_ENOTFOUND, "%s: --rng: no %s or %s in it", path, glob[0],
                       glob[1]);
    if (rc == 0)
        out_json(o, "rng", NULL, list);
    json_decref(list);
    ckpt_arena_release(&a);
    return rc;
}

static int put_state(struct out *o, const struct inspect_want *w, struct ckpt_dir *dir,
                     const char *path, const struct cli *cli, struct ckpt_err *err)
{
    struct ckpt_file *file;
    json_t *state = NULL;
    int rc = open_part(&file, dir, "trainer_state.json", path, cli, err);

    if (rc)
        return rc;
    rc = ckpt_json_read(&state, file, CKPT_JSON_MAX_BYTES, CKPT_JSON_PYTHON, err);
    if (rc == 0 && !json_is_array(json_object_get(state, "log_history")))
        rc = ckpt_fail(err, CKPT_EUSAGE, "%s: --state shows a trainer_state.json, it is none",
                       path);
    if (rc == 0)
        rc = inspect_trainer_state(o, state, true, cli->json);
    if (rc == 0 && w->curves)
        rc = inspect_gather_rows(w->curves, NULL, json_object_get(state, "log_history"), err);
    json_decref(state);
    ckpt_file_close(file);
    return rc;
}

int inspect_aspects(struct out *o, const struct inspect_want *w, const struct cli *cli,
                    const char *path, struct ckpt_err *err)
{
    struct ckpt_dir *dir = NULL;
    struct ckpt_file *file;
    int rc = 0;

    if (ckpt_path_is_dir(path))
        rc = ckpt_path_dir(&dir, path, cli->follow ? CKPT_FOLLOW : 0, err);
    if (rc == 0 && w->state)
        rc = put_state(o, w, dir, path, cli, err);
    if (rc == 0 && w->args) {
        rc = open_part(&file, dir, "training_args.bin", path, cli, err);
        if (rc == 0)
            rc = inspect_tree(o, file, true, err);
    }
    if (rc == 0 && w->rng)
        rc = put_rng(o, dir, path, cli, err);
    ckpt_dir_close(dir);
    return rc;
}

/* -- optimizer ------------------------------------------------------------------------------- */

/* One tensor of an optimizer's state: "name|exp_avg", or "state.0.exp_avg" of optimizer.pt. */
struct moment { size_t index, param, part; };

#define GROUP_VALUES 1000000    /* parameter indices in groups */
#define MAX_PARTS 8             /* kinds of state per parameter */

struct moments {
    struct moment   *item;
    size_t           n, n_param, n_part;
    char            *part[MAX_PARTS];
    char           **param;
    struct ckpt_arena arena;
};

/* Where to split a state tensor's name, or NULL. */
static const char *cut_of(const struct ckpt_tensor *t)
{
    const char *bar = strrchr(t->name, '|'), *dot = strrchr(t->name, '.');

    if (bar && t->kind == CKPT_OPTIM)
        return bar;
    return strncmp(t->name, "state.", 6) == 0 && dot > t->name + 6 ? dot : NULL;
}

static int gather(struct moments *m, const struct ckpt_source *src, struct ckpt_err *err)
{
    struct ckpt_map *seen = NULL;
    size_t count = ckpt_source_count(src);
    int rc = ckpt_map_new(&seen, count, err);

    m->item = ckpt_alloc(count + 1, sizeof *m->item);
    m->param = ckpt_alloc(count + 1, sizeof *m->param);
    if (rc == 0 && (!m->item || !m->param))
        rc = ckpt_nomem(err, count * sizeof *m->item);
    for (size_t i = 0; rc == 0 && i < count; i++) {
        const struct ckpt_tensor *t = ckpt_source_tensor(src, i);
        const char *cut = cut_of(t);
        size_t part = 0, param;

        if (!cut)
            continue;
        while (part < m->n_part && strcmp(m->part[part], cut + 1) != 0)
            part++;
        if (part == MAX_PARTS)
            continue;
        if (part == m->n_part)
            m->part[m->n_part++] = ckpt_arena_printf(&m->arena, "%s", cut + 1);
        param = ckpt_map_get(seen, t->name, (size_t)(cut - t->name));
        if (param == CKPT_MAP_NONE) {
            param = m->n_param++;
            m->param[param] = ckpt_arena_strndup(&m->arena, t->name, (size_t)(cut - t->name));
            rc = ckpt_map_add(seen, t->name, (size_t)(cut - t->name), param, err);
        }
        if (!m->part[part] || !m->param[param])
            rc = ckpt_nomem(err, strlen(t->name));
        m->item[m->n++] = (struct moment){.index = i, .param = param, .part = part};
    }
    ckpt_map_free(seen);
    return rc;
}

/* One row per parameter: the norm of each of its moments, or the value of a scalar. */
static int put_moments(struct out *o, struct moments *m, const struct tensor_measure *measure,
                       struct ckpt_err *err)
{
    struct out_column column[1 + MAX_PARTS] = {{"name", "parameter", OUT_LEFT}};
    double *value = ckpt_alloc(m->n_param * m->n_part + 1, sizeof *value);

    if (!value)
        return ckpt_nomem(err, m->n_param * m->n_part * sizeof *value);
    for (size_t k = 0; k < m->n_param * m->n_part; k++)
        value[k] = NAN;
    for (size_t i = 0; i < m->n; i++) {
        const struct stats *s = &measure[i].s;
        double norm = sqrt(s->m2 + (double)s->n * s->mean * s->mean);

        value[m->item[i].param * m->n_part + m->item[i].part] = s->n == 1 ? s->mean : norm;
    }
    for (size_t k = 0; k < m->n_part; k++)
        column[1 + k] = (struct out_column){m->part[k], m->part[k], OUT_RIGHT};
    out_table(o, "optimizer_state", column, 1 + m->n_part);
    for (size_t p = 0; p < m->n_param; p++) {
        out_cell_str(o, m->param[p]);
        for (size_t k = 0; k < m->n_part; k++)
            out_cell_known(o, value[p * m->n_part + k]);
    }
    out_table_end(o);
    ckpt_free(value);
    return 0;
}

/* The hyper-parameters of each group. */
static void put_groups(struct out *o, const json_t *groups)
{
    static const struct out_column columns[] = {
        {"group", "group", OUT_RIGHT}, {"lr", "lr", OUT_RIGHT}, {"betas", "betas", OUT_LEFT},
        {"eps", "eps", OUT_RIGHT}, {"weight_decay", "weight decay", OUT_RIGHT},
        {"parameters", "parameters", OUT_RIGHT},
    };
    size_t i;
    json_t *g;

    if (!json_array_size(groups))
        return;
    out_table(o, "optimizer_groups", columns, 6);
    json_array_foreach ((json_t *)groups, i, g) {
        out_cell_int(o, (int64_t)i);
        for (size_t k = 1; k < 5; k++)
            out_cell_value(o, json_object_get(g, columns[k].key));
        out_cell_int(o, (int64_t)json_array_size(json_object_get(g, "params")));
    }
    out_table_end(o);
}

static int put_states(struct out *o, struct ckpt_source *src, const json_t *groups, int jobs,
                      struct ckpt_err *err)
{
    struct moments m = {0};
    struct tensor_measure *measure = NULL;
    size_t *index = NULL;
    int rc = gather(&m, src, err);

    if (rc == 0) {
        measure = ckpt_alloc(m.n + 1, sizeof *measure);
        index = ckpt_alloc(m.n + 1, sizeof *index);
        rc = measure && index ? 0 : ckpt_nomem(err, m.n * sizeof *measure);
    }
    for (size_t i = 0; rc == 0 && i < m.n; i++)
        index[i] = m.item[i].index;
    if (rc == 0)
        rc = inspect_measure(measure, src, index, m.n, INSPECT_STATS, jobs, err);
    if (rc == 0)
        put_groups(o, groups);
    if (rc == 0 && m.n)
        rc = put_moments(o, &m, measure, err);
    ckpt_free(m.item);
    ckpt_free(m.param);
    ckpt_arena_release(&m.arena);
    ckpt_free(measure);
    ckpt_free(index);
    return rc;
}

/* Open the optimizer's file: path itself, or in the directory that path leads to; NULL if there
 * is none. */
static int find_optimizer(struct ckpt_file **file, struct ckpt_dir **dir,
                          const struct inspect_want *w, const struct cli *cli, const char *path,
                          struct ckpt_err *err)
{
    struct ckpt_open_opts opts = {.tag = w->tag, .follow = cli->follow, .spool = cli_spool(),
                                  .part = w->part, .n_part = w->n_part};
    const char *name;
    int rc;

    *file = NULL;
    *dir = NULL;
    if (ckpt_path_is_file(path) && ckpt_pack_of(path) == CKPT_PACK_NONE)
        return ckpt_path_file(file, path, cli->follow ? CKPT_FOLLOW : 0, err);
    if (strcmp(path, "-") == 0)
        return 0;
    rc = formats_open_dir(dir, path, &opts, err);
    if (rc || !*dir)
        return rc;
    name = side_files_optimizer(*dir);
    return name ? ckpt_file_open_at(file, *dir, name, err) : 0;
}

/* Read its groups from the pickle.  *groups stays NULL for any other file. */
static int read_groups(json_t **groups, struct ckpt_file *file, struct ckpt_err *err)
{
    struct torch_archive *a = NULL;
    struct ckpt_file *own;
    int rc = file_part(&own, file, 0, ckpt_file_size(file), ckpt_file_name(file), err);

    if (rc == 0)
        rc = torch_archive_open(&a, own, err);          /* takes it */
    if (rc == 0 && value_get(torch_archive_root(a), "param_groups"))
        *groups = value_to_json(value_get(torch_archive_root(a), "param_groups"), GROUP_VALUES);
    torch_archive_close(a);
    return rc;
}

static bool has_moments(const struct ckpt_source *src)
{
    for (size_t i = 0; i < ckpt_source_count(src); i++)
        if (ckpt_source_tensor(src, i)->kind == CKPT_OPTIM)
            return true;
    return false;
}

int inspect_optimizer(struct out *o, struct ckpt_source *src, const struct inspect_want *w,
                      const struct cli *cli, const char *path, struct ckpt_err *err)
{
    static const struct ckpt_open_opts none;
    struct ckpt_source *states = NULL;
    struct ckpt_file *file = NULL;
    struct ckpt_dir *dir = NULL;
    struct ckpt_place place;
    json_t *groups = NULL;
    int rc;

    if (has_moments(src))
        return put_states(o, src, json_object_get(ckpt_source_info(src), "param_groups"),
                          (int)cli->jobs, err);
    rc = find_optimizer(&file, &dir, w, cli, path, err);
    if (rc == 0 && file && inspect_is_torch(file)) {
        rc = read_groups(&groups, file, err);
        if (rc == 0 && dir) {
            rc = place_of_file(&place, file, err);      /* takes it */
            file = NULL;
        }
        if (rc == 0 && dir) {
            rc = ckpt_format_torch.open(&states, &place, &none, err);
            if (rc)
                place_close(&place);
        }
        if (rc == 0 && (groups || states))
            rc = put_states(o, states ? states : src, groups, (int)cli->jobs, err);
    }
    if (rc == 0 && !groups)
        ckpt_log(CKPT_LOG_NOTE, "%s: no optimizer's state in it", path);
    json_decref(groups);
    ckpt_source_close(states);
    ckpt_file_close(file);
    ckpt_dir_close(dir);
    return rc;
}
