/* merge - see merge.h. */
#include "tools/merge/merge.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libckpt/io/pack.h"
#include "libckpt/io/path.h"
#include "tools/merge/card.h"
#include "tools/merge/packed.h"
#include "tools/merge/parts.h"
#include "tools/progress.h"

/* The format to write: that of --to, adjusted to the output's name. */
static int output_format(const char **format, const struct merge_want *w, const char *output,
                         struct ckpt_err *err)
{
    static const char *const torch[] = {".pt", ".pth", ".bin", NULL};
    bool stream = strcmp(output, "-") == 0, packed = ckpt_pack_of(output) != CKPT_PACK_NONE;
    bool st = ckpt_path_ends_in(output, ".safetensors"), gguf = ckpt_path_ends_in(output, ".gguf");
    bool pt = ckpt_path_ends_in_any(output, torch);

    *format = w->to ? w->to : w->extract ? "peft" : NULL;
    if (!*format && (w->world || w->stage))
        *format = "deepspeed";
    else if (!*format)
        *format = st || stream ? "safetensors" : pt ? "torch" : gguf ? "gguf" : "hf";
    else if (strcmp(*format, "safetensors") == 0 && !st && !stream && !gguf)
        *format = "hf";                 /* a directory of safetensors */
    if ((st && strcmp(*format, "safetensors") != 0) || (pt && strcmp(*format, "torch") != 0) ||
        (gguf && strcmp(*format, "gguf") != 0))
        return ckpt_fail(err, CKPT_EUSAGE, "--to %s does not go with the name %s", *format, output);
    if ((w->world || w->stage) && strcmp(*format, "deepspeed") != 0)
        return ckpt_fail(err, CKPT_EUSAGE, "--world and --stage cut a DeepSpeed checkpoint, --to "
                         "says %s", *format);
    if (opt_has(&w->given, "max_shard_size") && strcmp(*format, "hf") != 0 &&
        strcmp(*format, "dcp") != 0)
        return ckpt_fail(err, CKPT_EUSAGE, "--max-shard-size has no effect with --to %s, which is "
                         "not cut into shards of a size", *format);
    if (stream && strcmp(*format, "safetensors") != 0 && !merge_is_packed(output, *format))
        return ckpt_fail(err, CKPT_EUSAGE, "-o - writes safetensors, or a tar of a directory, --to "
                         "says %s", *format);
    if (packed && !merge_is_packed(output, *format))
        return ckpt_fail(err, CKPT_EUSAGE, "%s: --to %s is one file, an archive holds a directory",
                         output, *format);
    return 0;
}

/* Check options about adapters that require or exclude each other. */
static int check_adapters(const struct merge_want *w, const char *format, struct ckpt_err *err)
{
    bool peft = strcmp(format, "peft") == 0;

    if (w->extract && !w->base)
        return ckpt_fail(err, CKPT_EUSAGE, "--extract-adapter: --base says what was changed");
    if (w->extract && !peft)
        return ckpt_fail(err, CKPT_EUSAGE, "--extract-adapter writes an adapter, --to says %s",
                         format);
    if (peft && w->adapter.n && !w->extract)
        return ckpt_fail(err, CKPT_EUSAGE, "--to peft writes an adapter, --adapter makes a model");
    return 0;
}

int merge_hint_overwrite(bool file, struct ckpt_err *err)
{
    return ckpt_err_hint(err, file ? "--overwrite replaces it"
                                   : "it is a directory, --overwrite replaces files only");
}

/* The output's path must not be that of an input. */
static int refuse_overlap(const struct merge_want *w, const struct merge_job *job,
                          struct ckpt_err *err)
{
    struct stat in, out;

    if (stat(job->output, &out) != 0)
        return 0;
    for (size_t i = 0; i < job->n; i++)
        if (stat(job->input[i], &in) == 0 && in.st_dev == out.st_dev && in.st_ino == out.st_ino)
            return ckpt_fail(err, CKPT_ECREATE, "%s: is the input itself", job->output);
    if (w->overwrite && S_ISDIR(out.st_mode)) {
        ckpt_fail(err, CKPT_ECREATE, "%s: exists already", job->output);
        return merge_hint_overwrite(false, err);
    }
    return 0;
}

/* Nor may it be a file that is read, under any name: symbolic and hard links. */
static int refuse_source(const struct provenance *read, const struct merge_job *job,
                         struct ckpt_err *err)
{
    struct stat out;

    if (strcmp(job->output, "-") == 0 || stat(job->output, &out) != 0 ||
        !provenance_has(read, &out))
        return 0;
    return ckpt_fail(err, CKPT_ECREATE, "%s: is a file that is read", job->output);
}

/* The input's own metadata, without its record of provenance. */
static int take_metadata(json_t **out, const struct ckpt_source *src, struct ckpt_err *err)
{
    const json_t *theirs = json_object_get(ckpt_source_info(src), "metadata");

    *out = json_is_object(theirs) ? json_copy((json_t *)theirs) : json_object();
    if (!*out)
        return ckpt_nomem(err, 64);
    json_object_del(*out, CKPT_RECORD_KEY);
    return 0;
}

/* Parts of an output being made. */
struct making {
    const struct ckpt_source *origin;   /* below all views, or NULL */
    struct ckpt_dir          *run;      /* directory whose states are copied, or NULL */
    const char               *format, *output;
    struct provenance        *record;
};

/* After a failure to create the output: what --overwrite does about that which is in the way. */
static int hint_overwrite(const struct merge_want *w, const struct making *m, struct ckpt_err *err)
{
    bool folder = !merge_is_file(m->format) && !merge_is_packed(m->output, m->format);
    struct stat st;

    if (err->code != CKPT_ECREATE || stat(m->output, &st) != 0)
        return ckpt_err_code(err);
    if (folder && S_ISDIR(st.st_mode))
        return merge_hint_overwrite(false, err);
    if (folder)
        return ckpt_err_hint(err, "a directory is to be written, --overwrite replaces files by "
                             "files only");
    return w->overwrite || !S_ISREG(st.st_mode) ? ckpt_err_code(err)
                                                : merge_hint_overwrite(true, err);
}

/* The sink's options, but for metadata and record. */
static struct ckpt_create_opts create_opts(const struct ckpt_source *src, const struct making *m,
                                           const struct merge_want *w, bool packed)
{
    bool stream = !packed && strcmp(m->output, "-") == 0;
    struct ckpt_create_opts create = {
        .max_shard_bytes = w->max_shard_size, .info = ckpt_source_info(src),
        .origin = m->origin, .run = m->run,
        .zero_stage = (int)w->stage, .world_size = (int)w->world,
        .flags = w->overwrite && !packed ? CKPT_REPLACE : 0,
        .stream_fd = stream ? STDOUT_FILENO : 0,
    };

    create.n_extra = ckpt_source_extras(src, &create.extra);
    return create;
}

/* Refuse what write_out would refuse before it copies. */
static int try_out(const struct ckpt_source *src, const struct making *m,
                   const struct merge_want *w, const char *first, struct ckpt_err *err)
{
    bool packed = merge_is_packed(m->output, m->format);
    struct ckpt_create_opts create = create_opts(src, m, w, packed);
    const char *path = first ? first : m->output;
    struct ckpt_sink *sink;
    char aside[4352];
    int rc = 0;

    create.flags |= CKPT_DRY_RUN;
    if (packed && !first) {
        rc = merge_packed_ready(aside, m->output, cli_spool(), w->overwrite ? CKPT_REPLACE : 0,
                                err);
        path = aside;
    }
    if (rc == 0)
        rc = ckpt_create(&sink, m->format, path, ckpt_source_tensors(src), &create, err);
    return rc ? hint_overwrite(w, m, err) : 0;
}

/* Create the sink and copy everything into it; the record's digests are computed meanwhile. */
static int write_out(struct ckpt_source *src, const struct making *m, const struct merge_want *w,
                     const struct cli *cli, struct ckpt_err *err)
{
    const char *format = m->format, *output = m->output;
    struct provenance *record = m->record;
    bool packed = merge_is_packed(output, format), stream = !packed && strcmp(output, "-") == 0;
    unsigned flags = w->overwrite ? CKPT_REPLACE : 0;
    struct merge_packed *archive = NULL;
    const char *path = output;
    json_t *metadata = NULL;
    struct ckpt_create_opts create = create_opts(src, m, w, packed);
    struct progress *p = progress_new(cli, output, true);
    struct ckpt_copy_opts copy = {.workers = (size_t)cli->jobs, .progress = progress_tick,
                                  .progress_ctx = p, .stop = &cli_stop};
    struct ckpt_sink *sink = NULL;
    int rc = take_metadata(&metadata, src, err);

    create.metadata = metadata;
    if (rc == 0 && strcmp(w->provenance, "none") != 0)      /* a stream's header comes first and
                                                               cannot wait */
        rc = provenance_text(record, !stream, (size_t)cli->jobs, &create.record, err);
    if (rc == 0 && packed)
        rc = merge_packed_begin(&archive, &path, output, cli_spool(), flags, err);
    if (rc == 0)
        rc = ckpt_create(&sink, format, path, ckpt_source_tensors(src), &create, err);
    if (rc)
        rc = hint_overwrite(w, m, err);
    if (rc == 0)
        rc = ckpt_copy(sink, src, &copy, err);
    if (rc == 0)
        rc = provenance_finish(record, err);
    progress_end(p);
    if (rc == 0) {
        rc = ckpt_sink_commit(sink, err);
        sink = NULL;
    }
    ckpt_sink_abort(sink);
    if (rc == 0 && packed) {
        rc = merge_packed_commit(archive, &cli_stop, err);
        archive = NULL;
    }
    merge_packed_abort(archive);
    json_decref(metadata);
    return rc;
}

/* Refuse tensors that can only be listed, before anything is written. */
static int refuse_unread(const struct ckpt_source *src, const char *input, struct ckpt_err *err)
{
    for (size_t i = 0; i < ckpt_source_count(src); i++) {
        const struct ckpt_tensor *t = ckpt_source_tensor(src, i);

        if (!t->unread)
            continue;
        ckpt_fail(err, CKPT_EUNSUPPORTED, "%s: tensor %s: %s", input, t->name, t->unread);
        return ckpt_err_hint(err, "--exclude '%s' leaves it out", t->name);
    }
    return 0;
}

/* An adapter with --no-merge is written in PEFT's format by default. */
static bool stays_adapter(const struct merge_want *w, const struct ckpt_source *origin,
                          const char *format)
{
    return !w->merge && !w->to && origin && strcmp(format, "hf") == 0 &&
           strcmp(ckpt_source_format(origin), "peft") == 0;
}

int merge_run(const struct merge_want *want, struct cli *cli, const struct merge_job *job,
              struct ckpt_err *err)
{
    struct merge_want all = *want, *w = &all;
    const struct ckpt_source *origin = NULL;
    struct provenance *record = NULL;
    struct ckpt_source *src = NULL;
    struct ckpt_dir *run = NULL;
    struct ckpt_arena a = {0};
    struct making made;
    const char *format;
    int rc = output_format(&format, w, job->output, err);

    if (rc == 0)
        rc = check_adapters(w, format, err);
    if (rc == 0 && strcmp(format, "peft") == 0 && !w->extract)
        w->merge = false;               /* it stays an adapter */
    else if (rc == 0)
        rc = merge_split_excludes(w, &a, err);
    w->shards = rc == 0 && (strcmp(format, "deepspeed") == 0 || strcmp(format, "universal") == 0);
    if (rc == 0 && !w->optimizer)
        w->optimizer = w->shards ? "keep" : "drop";
    if (rc == 0)
        rc = refuse_overlap(w, job, err);
    if (rc == 0)
        rc = provenance_new(&record, w, err);
    if (rc == 0)
        rc = merge_open(&src, &origin, w, job, format, cli->follow, record, err);
    if (rc == 0 && ckpt_source_count(src) == 0)
        rc = ckpt_fail(err, CKPT_ENOTFOUND, "%s: no tensor to write", job->input[0]);
    if (rc == 0)
        rc = refuse_source(record, job, err);
    if (rc == 0 && stays_adapter(w, origin, format))
        format = "peft";
    if (rc == 0)
        rc = refuse_unread(src, job->input[0], err);
    if (rc == 0)
        rc = merge_check_result(src, origin, job, format, err);
    if (rc == 0)
        rc = merge_keep_states(&run, src, origin, w, job, format, err);
    if (rc == 0)
        rc = merge_card(&src, w, job, format, cli->follow, err);
    made = (struct making){origin, run, format, job->output, record};
    if (rc == 0)
        rc = w->dry_run ? try_out(src, &made, w, job->first, err)
                        : write_out(src, &made, w, cli, err);
    if (rc == 0 && w->dry_run)
        rc = merge_plan(src, cli, format, job, err);
    if (rc == 0 && w->verify && !w->dry_run && strcmp(job->output, "-") != 0)
        rc = merge_verify(src, job->output, strcmp(w->optimizer, "keep") == 0 ||
                                            strcmp(format, "dcp") == 0, cli, err);
    provenance_free(record);
    ckpt_source_close(src);
    ckpt_arena_release(&a);
    return rc;
}
