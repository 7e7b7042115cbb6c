/* inspect - choose the file here that reports on a path; see inspect.h. */
#include "tools/inspect/inspect.h"

#include <string.h>
#include <unistd.h>

#include "formats/formats.h"
#include "formats/quant/quant.h"
#include "formats/torch/torch.h"
#include "libckpt/base/json.h"
#include "libckpt/io/pack.h"
#include "libckpt/io/path.h"
#include "tools/inspect/page/curves.h"

static int open_source(struct ckpt_source **out, const struct inspect_want *w,
                       const struct cli *cli, const char *path, struct ckpt_err *err)
{
    struct ckpt_open_opts opts = {.tag = w->tag, .optimizer = w->optimizer,
                                  .follow = cli->follow, .spool = cli_spool(),
                                  .part = w->part, .n_part = w->n_part};

    return ckpt_open(out, path, &opts, err);
}

/* A JSON file: a run's state, or any other, shown unchanged. */
static int json_file(struct out *o, const struct inspect_want *w, bool for_programs,
                     struct ckpt_file *file, struct ckpt_err *err)
{
    json_t *json;
    int rc = ckpt_json_read(&json, file, CKPT_JSON_MAX_BYTES, CKPT_JSON_PYTHON, err);

    if (rc)
        return rc;
    if (json_object_get(json, "log_history") && json_object_get(json, "global_step")) {
        rc = inspect_trainer_state(o, json, w->plot, for_programs);
        if (rc == 0 && w->curves)
            rc = inspect_gather_rows(w->curves, NULL, json_object_get(json, "log_history"), err);
    } else if (w->plot) {
        rc = ckpt_fail(err, CKPT_EUSAGE, "%s: --plot draws a trainer_state.json, it is none",
                       ckpt_file_name(file));
    } else {
        out_str(o, "format", "format", "json");
        out_json(o, "value", "value", json);
    }
    json_decref(json);
    return rc;
}

/* A checkpoint directory: progress of the run, then its parts. */
static int run_directory(struct out *o, const struct inspect_want *w, const struct cli *cli,
                         const char *path, struct ckpt_err *err)
{
    struct ckpt_open_opts opts = {.follow = cli->follow, .spool = cli_spool(), .part = w->part,
                                  .n_part = w->n_part};
    struct ckpt_dir *dir;
    struct ckpt_file *f = NULL;
    json_t *state = NULL;
    int rc = formats_open_dir(&dir, path, &opts, err);

    if (rc || !dir)
        return rc;
    if (w->plot && w->glob.n) {
        rc = ckpt_fail(err, CKPT_EUSAGE, "%s: --glob has no effect with --plot of a "
                       "trainer_state.json, which has two curves", path);
    } else if (ckpt_dir_has(dir, "trainer_state.json")) {
        rc = ckpt_file_open_at(&f, dir, "trainer_state.json", err);
        if (rc == 0)
            rc = ckpt_json_read(&state, f, CKPT_JSON_MAX_BYTES, CKPT_JSON_PYTHON, err);
        if (rc == 0)
            inspect_run_summary(o, state, w->plot && !cli->json);
        if (rc == 0 && w->curves)
            inspect_run_log(o, state);
        if (rc == 0 && w->curves)
            rc = inspect_gather_run(o, w->curves, dir, inspect_best_checkpoint(state), err);
        if (rc == 0)
            rc = inspect_run(o, dir, err);
    } else if (w->plot) {
        rc = ckpt_fail(err, CKPT_EUSAGE, "%s: --plot: no trainer_state.json in it", path);
    } else if (ckpt_dir_has(dir, "random_states_0.pkl")) {
        rc = inspect_run(o, dir, err);  /* accelerate's save_state */
    } else if (w->curves) {
        rc = inspect_gather_run(o, w->curves, dir, NULL, err);
    }
    json_decref(state);
    ckpt_file_close(f);
    ckpt_dir_close(dir);
    return rc;
}

/* *tagged: it has DeepSpeed's tags; where not, opening it has said that --tag picks nothing. */
static int source_path(struct out *o, bool *tagged, const struct inspect_want *w, struct cli *cli,
                       const char *path, struct ckpt_err *err)
{
    struct inspect_want page = *w;
    struct quant_told told = {0};
    struct ckpt_source *src;
    bool dir = ckpt_path_is_dir(path);
    bool packed = strcmp(path, "-") == 0 || ckpt_pack_of(path) != CKPT_PACK_NONE;
    int rc;

    dir = dir || packed;
    if ((w->plot || w->rows >= 0) && !dir && !ckpt_path_is_remote(path) &&
        access(path, F_OK) != 0)
        return ckpt_fail(err, CKPT_ENOTFOUND, "%s: no such file or directory", path);
    if (w->plot && !dir)
        return ckpt_fail(err, CKPT_EUSAGE, "%s: --plot draws a trainer_state.json, it is none",
                         path);
    if (w->rows >= 0)
        return ckpt_fail(err, CKPT_EUSAGE, "%s: --rows shows data, this holds tensors", path);
    rc = open_source(&src, w, cli, path, err);
    if (rc)
        return rc;
    *tagged = strcmp(ckpt_source_format(src), "deepspeed") == 0;
    if (w->html && !w->stats)           /* a page has histograms, which need the values */
        rc = quant_tell(&told, src, err);
    page.stats |= w->html && rc == 0 && (told.n == 0 || told.is_read);
    if (rc == 0 && ((page.stats && !w->tree) || w->tensor))
        rc = inspect_see_values(o, &src, w->tensor, err);
    if (rc == 0 && dir && !w->tree)
        rc = run_directory(o, w, cli, path, err);
    if (rc == 0 && w->tree)
        rc = inspect_modules(o, w, src, !cli->json, err);
    else if (rc == 0 && w->tensor)
        rc = inspect_tensor(o, src, w->tensor, err);
    else if (rc == 0 && !w->plot)
        rc = inspect_source(o, &page, src, (int)cli->jobs, err);
    if (rc == 0 && w->optimizer && !w->tensor && !w->plot)
        rc = inspect_optimizer(o, src, w, cli, path, err);
    ckpt_source_close(src);
    return rc;
}

/* The given option that concerns tensors, for a file that has none. */
const char *inspect_tensors_asked(const struct inspect_want *w)
{
    return w->tensor ? "--tensor" : w->stats ? "--stats"
           : w->digest ? "--digest" : w->optimizer ? "--optimizer" : NULL;
}

bool inspect_shown_as_values(const struct inspect_want *w, const struct cli *cli,
                             const char *path)
{
    struct ckpt_err ignored = {0};
    struct ckpt_file *file;
    bool yes;

    if (!ckpt_path_is_file(path))
        return false;
    if (ckpt_path_ends_in(path, ".json"))
        return true;
    if (ckpt_path_file(&file, path, cli->follow ? CKPT_FOLLOW : 0, &ignored))
        return false;
    yes = w->tree ? inspect_is_torch(file) : inspect_is_values(file);
    ckpt_file_close(file);
    return yes;
}

/* A file shown as values; 1 when it is not such a file. */
static int special_file(struct out *o, const struct inspect_want *w, const struct cli *cli,
                        const char *path, struct ckpt_err *err)
{
    bool json = ckpt_path_ends_in(path, ".json");
    struct ckpt_file *file;
    int rc;

    if (!inspect_shown_as_values(w, cli, path))
        return 1;
    if (w->tree && json)
        return ckpt_fail(err, CKPT_EUSAGE, "%s: --tree shows a torch file or a checkpoint, it is "
                         "none", path);
    if (w->plot && !json)
        return ckpt_fail(err, CKPT_EUSAGE, "%s: --plot draws a trainer_state.json, it is none",
                         path);
    if (inspect_tensors_asked(w) || w->glob.n)
        return ckpt_fail(err, CKPT_EUSAGE, "%s: %s needs a checkpoint, this is shown as values",
                         path, w->glob.n ? "--glob" : inspect_tensors_asked(w));
    if ((rc = ckpt_path_file(&file, path, cli->follow ? CKPT_FOLLOW : 0, err)) != 0)
        return rc;
    if (!json)
        return inspect_tree(o, file, false, err);       /* takes the file */
    rc = json_file(o, w, cli->json, file, err);
    ckpt_file_close(file);
    return rc;
}

/* List the tensors of a file that must not be loaded; CKPT_ENOTFOUND when it has none. */
static int list_refused(struct out *o, const struct inspect_want *w, const struct cli *cli,
                        const char *path, struct ckpt_err *err)
{
    struct ckpt_source *src = NULL;
    struct ckpt_file *file;
    int rc = ckpt_path_file(&file, path, cli->follow ? CKPT_FOLLOW : 0, err);

    if (rc == 0)
        rc = torch_look(&src, file, err);       /* takes it */
    if (rc == 0)
        rc = ckpt_source_count(src) ? inspect_source(o, w, src, (int)cli->jobs, err)
                                    : CKPT_ENOTFOUND;
    ckpt_source_close(src);
    return rc;
}

/*
 * A torch file that is refused because loading it would execute something: its content is shown
 * all the same, and the error stays.
 */
static int refused(struct out *o, const struct inspect_want *w, const struct cli *cli,
                   const char *path, struct ckpt_err *err)
{
    struct ckpt_err other = {0};
    struct ckpt_file *file;

    if (list_refused(o, w, cli, path, &other) &&
        (ckpt_path_file(&file, path, cli->follow ? CKPT_FOLLOW : 0, &other) ||
         inspect_tree(o, file, false, &other)))
        return ckpt_err_code(err);
    out_str(o, "refused", "refused", err->text);
    err->hint[0] = '\0';                /* the hint recommends this tool */
    if (out_end(o, &other))
        *err = other;
    return 0;
}

int inspect_finish(struct out *o, const struct inspect_want *w, struct ckpt_err *err)
{
    struct ckpt_buf text;
    int rc;

    if (!w->html)
        return out_end(o, err);
    rc = out_take(o, &text, err);
    if (rc == 0)
        rc = inspect_html(w, &text, err);
    ckpt_buf_release(&text);
    return rc;
}

/*
 * A hostile file must not be shown as if it were fine, whatever was asked about it.  Folders and
 * archives are searched only where all their bytes are read anyway.
 */
static int look_for_danger(struct out *o, const struct inspect_want *w, const struct cli *cli,
                           const char *path, struct ckpt_err *err)
{
    struct ckpt_err scan = {0};

    if (strcmp(path, "-") == 0 || ckpt_path_is_remote(path) || w->n_part ||
        (!w->verify && (!ckpt_path_is_file(path) || ckpt_pack_of(path) != CKPT_PACK_NONE)) ||
        inspect_scan_quietly(cli, path, &scan) != CKPT_EREFUSED)
        return 0;
    *err = scan;
    out_str(o, "refused", "refused", err->text);
    return ckpt_err_code(err);
}

/* As inspect_finish, after failure rc (0: none) with its text in err; returns rc. */
static int finish_failed(struct out *o, const struct inspect_want *w, int rc, struct ckpt_err *err)
{
    struct ckpt_err print = {0};
    int unprinted = inspect_finish(o, w, &print);

    if (unprinted)
        *err = print;
    return unprinted ? unprinted : rc;
}

static int inspect_into(struct out *o, const struct inspect_want *w, struct cli *cli,
                        const char *path, struct ckpt_err *err)
{
    struct inspect_want again = *w;
    struct ckpt_err other = {0};
    bool data = false, tagged = true;
    int rc, found;

    out_str(o, "path", "path", path);
    if (w->scan) {                      /* complete output, whatever the verdict */
        rc = inspect_scan(o, cli, path, err);
        return finish_failed(o, w, rc, err);
    }
    if (w->verify_signature) {
        rc = inspect_signature(o, w, cli, path, err);
        return finish_failed(o, w, rc, err);
    }
    if (w->verify && !w->n_part && ckpt_path_is_dir(path)) {
        rc = inspect_whole(o, cli, path, err);
        if (rc) {                       /* report missing files */
            inspect_name_older(w, cli, path, err);
            return finish_failed(o, w, rc, err);
        }
    }
    rc = w->rng || w->args || w->state ? inspect_aspects(o, w, cli, path, err)
                                       : special_file(o, w, cli, path, err);
    if (rc == 1) {
        rc = inspect_data(o, w, cli, path, err);
        data = rc != 1;
    }
    if (rc == 1)
        rc = source_path(o, &tagged, w, cli, path, err);
    found = rc == CKPT_EUNSUPPORTED ? inspect_data_dir(o, w, cli, path, &other) : 1;
    if (found != 1) {
        *err = other;
        rc = found;
        data |= rc == 0;
    }
    if (rc == CKPT_EREFUSED && !inspect_tensors_asked(w) && refused(o, w, cli, path, err) == 0)
        return ckpt_err_code(err);
    again.tag = tagged ? w->tag : NULL;
    if (rc == 0 && w->verify && !data)
        rc = inspect_verify(o, &again, cli, path, err);
    if (rc == 0)                        /* show a dangerous file all the same */
        return finish_failed(o, w, look_for_danger(o, w, cli, path, err), err);
    if (w->verify && !err->hint[0])
        inspect_name_older(w, cli, path, err);
    out_abort(o);
    return rc;
}

int inspect_path(const struct inspect_want *w, struct cli *cli, const char *path,
                 struct ckpt_err *err)
{
    struct page_curves curves = {0};
    struct inspect_want page = *w;
    bool json = cli->json;
    struct out *o;
    int rc;

    if (json && w->plot)
        return ckpt_fail(err, CKPT_EUSAGE, "--plot has no effect with --json, which has every "
                         "number of the curves");
    if ((rc = out_new(&o, json || w->html, err)) != 0)
        return rc;
    cli->json = json || w->html;        /* a page is made of the document for programs */
    page.curves = w->html ? &curves : NULL;
    rc = inspect_into(o, &page, cli, path, err);
    page_curves_release(&curves);
    cli->json = json;
    return rc == 0 && w->html ? cli_artifact(cli, w->html, NULL, err) : rc;
}
