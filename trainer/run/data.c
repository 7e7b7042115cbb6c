/* run/data - see run/data.h. */
#include "trainer/run/data.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libckpt/commit.h"
#include "libckpt/io/path.h"
#include "libckpt/log.h"
#include "trainer/data/prepare.h"
#include "formats/families/arch.h"
#include "formats/families/family.h"

static void data_close(struct data_set *d)
{
    loader_close(d->loader);
    data_source_close(d->source);
    records_close(d->records);
}

/* The records that are meant. */
static int open_records(struct data_set *d, const struct settings *s, const char *const *path,
                        size_t n, bool train, struct ckpt_err *err)
{
    struct records_opts opts = s->data.rows;
    int64_t most = train ? s->max_train_samples : s->max_eval_samples;
    int rc;

    opts.split = s->train_split_ratio > 0 && d->prepared ? NULL
                 : train ? s->train_split : s->eval_split;
    opts.stream_tokens = s->data.max_seq_length;
    opts.identity = settings_write(s) && strcmp(s->data_cache, "off") != 0;
    if ((rc = records_open_with(&d->records, path, n, &opts, err)) != 0)
        return rc;
    if (train && !d->prepared)
        records_slice(d->records, s->start_idx, s->end_idx > 0 ? s->end_idx : INT64_MAX);
    if (train && !d->prepared && s->num_shards > 0 &&
        (rc = records_shard(d->records, s->num_shards, s->shard_index, s->shard_strided,
                            err)) != 0)
        return rc;
    if (most > 0)
        records_slice(d->records, 0, most);
    return 0;
}

/* The last part of a path or URL, as the name of a folder. */
static void name_of(char name[256], const char *path)
{
    size_t n = strlen(path), from;

    while (n > 1 && path[n - 1] == '/')
        n--;
    for (from = n; from > 0 && path[from - 1] != '/'; from--)
        ;
    snprintf(name, 256, "%.*s", (int)(n - from > 200 ? 200 : n - from), path + from);
    for (char *c = name; *c; c++)
        if (strchr("*?[]", *c))
            *c = '_';
}

/* A run that writes nothing cuts into a folder for temporary files instead. */
static int cut_aside(struct run_data *r, char *dir, size_t size, struct prepare_opts *o,
                     struct ckpt_err *err)
{
    const char *tmp = getenv("TMPDIR");
    char first[4096];
    int rc = ckpt_path_dirs_ready(first, sizeof first, dir, err);

    if (rc)
        return rc;
    /* A name that others may guess: mkdir makes a new folder, or fails. */
    snprintf(r->scratch, sizeof r->scratch, "%s/ckpt-dry-run-%ld", tmp && *tmp ? tmp : "/tmp",
             (long)getpid());
    if (mkdir(r->scratch, 0700)) {
        rc = ckpt_fail_errno(err, CKPT_ECREATE, errno, "%s", r->scratch);
        r->scratch[0] = '\0';
        return rc;
    }
    o->dir = r->scratch;
    return prepare_path(dir, size, o, err);
}

/* Rank 0's part of cut_data: the folder at dir, unless it is there. */
static int make_cut(struct run_data *r, char *dir, size_t size, struct prepare_opts *o,
                    struct ckpt_err *err)
{
    const struct settings *s = r->settings;
    struct data_set all = {0};
    bool ready = false;
    int rc = open_records(&all, s, s->train, s->n_train, true, err);

    if (rc == 0)
        rc = prepare_ready(&ready, dir, o, records_count(all.records), err);
    if (rc == 0 && !ready && !settings_write(s))
        rc = cut_aside(r, dir, size, o, err);
    if (rc == 0 && !ready)
        rc = prepare_make(dir, o, all.records, err);
    records_close(all.records);
    return rc;
}

/* The folder that holds the data cut by `train_split_ratio`; the first rank makes it. */
static int cut_data(struct run_data *r, char *dir, size_t size, struct ckpt_err *err)
{
    const struct settings *s = r->settings;
    struct comm *comm = r->session->comm;
    char name[256];
    int rc;
    struct prepare_opts o = {
        .dir = s->data_dir, .name = name, .seed = s->seed,
        .train_ratio = s->train_split_ratio, .val_test_ratio = s->val_test_split_ratio,
    };

    o.config = s->data.rows.config ? s->data.rows.config : "default";
    name_of(name, s->dataset_name ? s->dataset_name : s->train[0]);
    rc = prepare_path(dir, size, &o, err);
    if (rc == 0 && comm->rank == 0)
        rc = make_cut(r, dir, size, &o, err);
    if ((rc = comm_agree(comm, rc, err)) != 0)
        return rc;
    comm_broadcast(comm, dir, (int64_t)size, CKPT_U8, 0);
    return comm_error(comm, err);
}

static bool by_length(const struct settings *s)
{
    return strcmp(s->train_sampling_strategy, "group_by_length") == 0;
}

/* About how often each of n records will be asked for. */
static int64_t passes(const struct run_data *r, int64_t n, bool train)
{
    const struct settings *s = r->settings;
    double steps = (double)s->max_steps, whole;

    if (!train)
        return s->eval_steps > 0 || s->eval_on_start || strcmp(s->eval_strategy, "epoch") == 0
                   ? 2 : 1;
    whole = s->max_steps <= 0 ? s->num_train_epochs
            : steps * (double)(s->per_device_train_batch_size * s->gradient_accumulation_steps *
                               r->session->comm->world_size) / (double)(n > 0 ? n : 1);
    return (int64_t)ceil(whole) + (s->packing || by_length(s));
}

/* Padding as transformers' tokenizers and attention masks have it, where that is the same here. */
static int padding_opts(struct data_opts *o, const struct run_data *r, struct ckpt_err *err)
{
    const struct session *s = r->session;
    const struct arch *a = s->arch;
    const json_t *said = json_object_get(a->config, "pad_token_id");
    const char *side = r->settings->padding_side;
    int64_t id = s->tokenizer ? tokenizer_pad(s->tokenizer) : -1;
    int64_t most = arch_max_positions(a);
    bool window = false;

    for (int64_t l = 0; l < a->num_hidden_layers; l++)
        window |= arch_window(a, l) > 0;
    if (id < 0 && json_is_integer(said))
        id = json_integer_value(said);
    o->padded = true;
    o->pad_id = (int32_t)id;
    o->pad_before = strcmp(side, "left") == 0 ||
                    (strcmp(side, "auto") == 0 && s->tokenizer &&
                     tokenizer_pads_left(s->tokenizer));
    if (a->stack != ARCH_DECODER || window || a->num_experts > 0 || a->pos_from_ids ||
        (a->pos_from_mask && a->pos != ARCH_POS_ALIBI))
        return ckpt_fail(err, CKPT_ECONFIG, "`loss_on_padding` is not done for %s: causal decoders "
                         "without experts, attention window and positions by the mask are",
                         a->family->model_type);
    if (o->pad_before && a->pos != ARCH_POS_ALIBI)
        return ckpt_fail(err, CKPT_ECONFIG, "`padding_side left` is done for ALiBi alone: "
                         "`padding_side right` pads %s", a->family->model_type);
    if (id < 0 || id >= a->vocab_size)
        return ckpt_fail(err, CKPT_ECONFIG, "`loss_on_padding`: neither the tokenizer nor "
                         "config.json says which id pads (pad_token, pad_token_id)");
    if (most > 0 && o->max_seq_length > most)
        return ckpt_fail(err, CKPT_ECONFIG, "`max_seq_length %lld` pads beyond the model's %lld "
                         "positions", (long long)o->max_seq_length, (long long)most);
    return 0;
}

/* Files may be empty, or slices, shards and ratios may leave nothing of them. */
static int check_any(const struct data_set *d, const char *const *path, size_t n, bool train,
                     struct ckpt_err *err)
{
    if (records_count(d->records) > 0)
        return 0;
    return ckpt_fail(err, CKPT_EFORMAT, "%s%s: no records to %s, or the options leave none",
                     path[0], n > 1 ? " and others" : "", train ? "train on" : "evaluate");
}

static int data_open(struct data_set *d, const struct run_data *r, const char *const *path,
                     size_t n, bool train, struct ckpt_err *err)
{
    const struct settings *s = r->settings;
    struct data_opts opts = data_settings_opts(&s->data);
    struct loader_opts lo = {
        .micro_batch = train ? s->per_device_train_batch_size : s->per_device_eval_batch_size,
        .packing = train && s->packing,
        .max_tokens = s->per_device_train_batch_size * s->data.max_seq_length,
        .grad_accum = train ? s->gradient_accumulation_steps : 1,
        .seed = s->data_seed >= 0 ? (uint64_t)s->data_seed : s->seed,
        .shuffle = train && strcmp(s->train_sampling_strategy, "sequential") != 0,
        .tail = !train ? SHUFFLE_MASK : s->dataloader_drop_last ? SHUFFLE_DROP : SHUFFLE_WRAP,
        .distributed = train && strcmp(s->train_sampling_strategy, "distributed") == 0,
        .by_length = train && by_length(s),
        .rank = r->session->comm->rank, .world_size = r->session->comm->world_size,
    };
    int rc;

    opts.stop = r->stop;
    opts.pair = session_pair(r->session);
    if ((rc = data_settings_pair(&opts.pair, &s->data, err)) != 0)
        return rc;
    opts.cache = !settings_write(s) || strcmp(s->data_cache, "off") == 0 ? DATA_CACHE_OFF
                : strcmp(s->data_cache, "on") == 0 ? DATA_CACHE_ON : DATA_CACHE_AUTO;
    opts.excess = strcmp(s->excess_length_strategy, "drop") == 0    ? DATA_EXCESS_DROP
                  : strcmp(s->excess_length_strategy, "raise") == 0 ? DATA_EXCESS_RAISE
                                                                    : DATA_EXCESS_TRUNCATE;
    opts.chat_dir = r->session->tokenizer_dir;
    opts.vocab_size = r->session->arch->vocab_size;
    if (s->loss_on_padding && (rc = padding_opts(&opts, r, err)) != 0)
        return rc;
    opts.max_positions = arch_max_positions(r->session->arch);
    if ((rc = open_records(d, s, path, n, train, err)) != 0 ||
        (rc = check_any(d, path, n, train, err)) != 0)
        return rc;
    opts.passes = passes(r, records_count(d->records), train);
    if ((rc = data_source_open(&d->source, d->records, r->session->tokenizer, &opts,
                               err)) != 0 ||
        (rc = data_settings_check_bad(&s->data, d->source, err)) != 0)
        return rc;
    if (data_source_dropped(d->source) > 0 && r->session->comm->rank == 0)
        ckpt_log(CKPT_LOG_NOTE, "%lld of %lld records to %s are dropped: they have more tokens "
                 "than `max_seq_length %lld`", (long long)data_source_dropped(d->source),
                 (long long)records_count(d->records), train ? "train on" : "evaluate",
                 (long long)s->data.max_seq_length);
    return loader_open(&d->loader, d->source, &lo, err);
}

/* Files that are named one by one are of every split: a split of these is all of them. */
static void warn_of_same(const struct run_data *r)
{
    const struct settings *s = r->settings;
    struct stat st;
    bool whole = !strpbrk(s->eval_split, "[+") && (!s->train_split || !strchr(s->train_split, '['));

    for (size_t i = 0; whole && i < s->n_train; i++)
        whole = stat(s->train[i], &st) == 0 && S_ISREG(st.st_mode);
    if (whole && s->start_idx == 0 && s->end_idx == 0 && r->session->comm->rank == 0)
        ckpt_log(CKPT_LOG_WARNING, "`eval_split %s`: %s has no splits: evaluations are of the "
                 "records that are trained on; `train_split_ratio` keeps some for evaluation",
                 s->eval_split, s->train[0]);
}

static int open_given(struct run_data *r, struct ckpt_err *err)
{
    const struct settings *s = r->settings;
    bool same = s->n_eval == 0 && s->eval_split;
    int rc;

    if ((rc = data_open(&r->train, r, s->train, s->n_train, true, err)) != 0)
        return rc;
    if (!same && s->n_eval == 0)
        return 0;
    if (same)
        warn_of_same(r);
    return data_open(&r->eval, r, same ? s->train : s->eval, same ? s->n_train : s->n_eval, false,
                     err);
}

static int open_cut(struct run_data *r, struct ckpt_err *err)
{
    char dir[4096], train[4160], eval[4160];
    const char *path = train;
    int rc;

    if ((rc = cut_data(r, dir, sizeof dir, err)) != 0)
        return rc;
    snprintf(train, sizeof train, "%s/training.jsonl", dir);
    snprintf(eval, sizeof eval, "%s/validation.jsonl", dir);
    r->train.prepared = r->eval.prepared = true;
    rc = data_open(&r->train, r, &path, 1, true, err);
    if (rc || r->settings->val_test_split_ratio <= 0)
        return rc;
    path = eval;
    return data_open(&r->eval, r, &path, 1, false, err);
}

int run_data_open(struct run_data *r, const struct settings *s, struct session *session,
                  const volatile int *stop, struct ckpt_err *err)
{
    r->settings = s;
    r->session = session;
    r->stop = stop;
    return s->train_split_ratio > 0 ? open_cut(r, err) : open_given(r, err);
}

void run_data_close(struct run_data *r)
{
    struct ckpt_err err = {0};

    data_close(&r->train);
    data_close(&r->eval);
    if (*r->scratch && ckpt_outdir_remove(r->scratch, &err))
        ckpt_log(CKPT_LOG_WARNING, "%s", err.text);
}
