/* schedule - see schedule.h.  Expressions keep the reference's order, so that doubles agree. */
#include "trainer/optim/schedule.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "trainer/optim/keys.h"

#define PI 3.141592653589793

enum { LINEAR, COSINE, ONE_SQRT };      /* warmup_stable_decay's types */
enum { LOG, DS_LINEAR };                /* DeepSpeed's, which begin with their default */

static double at_least(double x, double low) { return x > low ? x : low; }
static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* -- transformers' ---------------------------------------------------------------------------- */

/* Progress after warmup, 0..1. */
static double progress(const struct schedule *s, int64_t step)
{
    int64_t span = s->total_steps - s->warmup_steps;

    return (double)(step - s->warmup_steps) / (double)(span > 1 ? span : 1);
}

static double rising(const struct schedule *s, int64_t step)
{
    return (double)step / (double)(s->warmup_steps > 1 ? s->warmup_steps : 1);
}

static double constant(const struct schedule *s, int64_t step)
{
    (void)s;
    (void)step;
    return 1.0;
}

static double constant_with_warmup(const struct schedule *s, int64_t step)
{
    return step < s->warmup_steps ? rising(s, step) : 1.0;
}

static double linear(const struct schedule *s, int64_t step)
{
    int64_t span = s->total_steps - s->warmup_steps;

    if (step < s->warmup_steps)
        return rising(s, step);
    return at_least((double)(s->total_steps - step) / (double)(span > 1 ? span : 1), 0.0);
}

static double wave(const struct schedule *s, double at)
{
    return 0.5 * (1.0 + cos(PI * s->key.num_cycles * 2.0 * at));
}

static double cosine(const struct schedule *s, int64_t step)
{
    return step < s->warmup_steps ? rising(s, step) : at_least(wave(s, progress(s, step)), 0.0);
}

static double floor_of(const struct schedule *s)
{
    return isnan(s->key.min_lr_rate) ? s->key.min_lr / s->lr : s->key.min_lr_rate;
}

static double above(double factor, double least)
{
    return at_least(factor * (1 - least) + least, 0.0);
}

static double cosine_with_min_lr(const struct schedule *s, int64_t step)
{
    return step < s->warmup_steps ? rising(s, step)
                                  : above(wave(s, progress(s, step)), floor_of(s));
}

/* get_cosine_with_min_lr_schedule_with_warmup_lr_rate: a step ahead of the others. */
static double cosine_warmup_with_min_lr(const struct schedule *s, int64_t step)
{
    double now = (double)step, warm = (double)s->warmup_steps, rate = s->key.warmup_lr_rate;

    if (step < s->warmup_steps && isnan(rate))
        return (now + 1.0) / at_least(warm, 1.0);
    if (step < s->warmup_steps)
        return rate + (1.0 - rate) * now / at_least(warm - 1, 1);
    return above(wave(s, (now - warm + 1.0) / at_least((double)s->total_steps - warm, 1.0)),
                 floor_of(s));
}

static double cosine_with_restarts(const struct schedule *s, int64_t step)
{
    double p = progress(s, step);

    if (step < s->warmup_steps)
        return rising(s, step);
    if (p >= 1.0)
        return 0.0;
    return at_least(0.5 * (1.0 + cos(PI * fmod(s->key.num_cycles * p, 1.0))), 0.0);
}

static double polynomial(const struct schedule *s, int64_t step)
{
    double end = s->key.lr_end, left;

    if (step < s->warmup_steps)
        return rising(s, step);
    if (step > s->total_steps || s->total_steps <= s->warmup_steps)
        return end / s->lr;
    left = 1 - (double)(step - s->warmup_steps) / (double)(s->total_steps - s->warmup_steps);
    return ((s->lr - end) * pow(left, s->key.power) + end) / s->lr;
}

static double inverse_sqrt(const struct schedule *s, int64_t step)
{
    int64_t timescale = s->key.timescale > 0 ? s->key.timescale
                        : s->warmup_steps    ? s->warmup_steps : 10000;

    if (step < s->warmup_steps)
        return rising(s, step);
    return 1.0 / sqrt((double)(step + (timescale - s->warmup_steps)) / (double)timescale);
}

static double warmup_stable_decay(const struct schedule *s, int64_t step)
{
    const struct schedule_keys *k = &s->key;
    int64_t stable = k->num_stable_steps >= 0
                         ? k->num_stable_steps
                         : s->total_steps - s->warmup_steps - k->num_decay_steps;
    double p = rising(s, step);

    if (step < s->warmup_steps)
        return above(k->warmup_type == LINEAR   ? p
                     : k->warmup_type == COSINE ? 0.5 * (1.0 - cos(PI * p)) : 1.0 - sqrt(1.0 - p),
                     k->min_lr_ratio);
    if (step < s->warmup_steps + stable)
        return 1.0;
    if (step >= s->warmup_steps + stable + k->num_decay_steps)
        return k->min_lr_ratio;
    p = (double)(step - s->warmup_steps - stable) / (double)larger(1, k->num_decay_steps);
    return above(k->decay_type == LINEAR   ? 1.0 - p
                 : k->decay_type == COSINE ? wave(s, p) : 1.0 - sqrt(p), k->min_lr_ratio);
}

/* torch's ReduceLROnPlateau, whose reductions so far are replayed. */
static double plateau(const struct schedule *s, double base, int64_t step)
{
    double lr = base;

    (void)step;
    for (int64_t i = 0; i < s->plateau.reductions; i++) {
        double next = at_least(lr * s->key.factor, s->key.min_lr);

        if (lr - next > s->key.eps)
            lr = next;
    }
    return lr;
}

static bool better(const struct schedule *s, double a)
{
    double best = s->plateau.best, t = s->key.threshold;
    bool max = s->key.mode == 1, absolute = s->key.threshold_mode == 1;

    if (max)
        return a > (absolute ? best + t : best * (t + 1.0));
    return a < (absolute ? best - t : best * (1.0 - t));
}

bool schedule_measure(struct schedule *s, double metric)
{
    if (s->kind != SCHEDULE_REDUCE_ON_PLATEAU)
        return false;
    s->plateau.seen++;
    if (better(s, metric)) {
        s->plateau.best = metric;
        s->plateau.bad = 0;
    } else {
        s->plateau.bad++;
    }
    if (s->plateau.cooling > 0) {
        s->plateau.cooling--;
        s->plateau.bad = 0;
    }
    if (s->plateau.bad <= s->key.patience)
        return false;
    s->plateau.reductions++;
    s->plateau.cooling = s->key.cooldown;
    s->plateau.bad = 0;
    return true;
}

/* -- DeepSpeed's ------------------------------------------------------------------------------ */

static int64_t ds_warmup(const struct schedule *s)
{
    return larger(2, s->key.warmup_num_steps >= 0 ? s->key.warmup_num_steps : s->warmup_steps);
}

static int64_t ds_total(const struct schedule *s)
{
    return s->key.total_num_steps >= 0 ? s->key.total_num_steps : s->total_steps;
}

/* The share of the rise that is done: `last` is DeepSpeed's last_batch_iteration. */
static double ds_gamma(const struct schedule *s, int64_t last)
{
    double n = (double)ds_warmup(s);

    return s->key.warmup_type == LOG ? 1.0 / log(n) * log((double)(last + 1)) : (double)last / n;
}

/* A rate that counts from its own ends, for parameters of another peak than the run's. */
static double as_share(const struct schedule *s, double base, double lr)
{
    return base == s->lr ? lr : lr * (base / s->lr);
}

static double between(const struct schedule *s, double base, double gamma)
{
    double low = s->key.warmup_min_lr;
    double high = isnan(s->key.warmup_max_lr) ? s->lr : s->key.warmup_max_lr;

    return as_share(s, base, low + (high - low) * gamma);
}

static double warmup_lr(const struct schedule *s, double base, int64_t step)
{
    int64_t last = step - 1;

    return between(s, base, last < 0 ? 0.0 : last < ds_warmup(s) ? ds_gamma(s, last) : 1.0);
}

static double warmup_decay_lr(const struct schedule *s, double base, int64_t step)
{
    int64_t last = step - 1, warm = ds_warmup(s);

    if (last < warm)
        return between(s, base, last < 0 ? 0.0 : ds_gamma(s, last));
    return between(s, base, at_least((double)(ds_total(s) - last) /
                                         at_least(1.0, (double)(ds_total(s) - warm)), 0.0));
}

static double warmup_cosine_lr(const struct schedule *s, double base, int64_t step)
{
    int64_t last = step - 1, warm = ds_warmup(s);
    double least = s->key.warmup_min_ratio, end = s->key.cos_min_ratio, p;

    if (last < 0)
        return 0.0;
    if (last < warm)
        return base * (least + ds_gamma(s, last) * (1.0 - least));
    p = (double)(last - warm + 1) / (double)larger(1, ds_total(s) - warm);
    p = p < 1.0 ? p : 1.0;
    return base * at_least(end + (1.0 - end) * ((1 + cos(PI * p)) / 2), 0.0);
}

/* The height in OneCycle's cycle, 0 to 1. */
static double cycle_height(const struct schedule *s, int64_t step)
{
    const struct schedule_keys *k = &s->key;
    double first = (double)k->cycle_first_step_size;
    double second = k->cycle_second_step_size >= 0 ? (double)k->cycle_second_step_size : first;
    double total = first + second, ratio = first / total;
    double x = 1. + (double)step / total - floor(1 + (double)step / total);
    double height = x <= ratio ? x / ratio : (x - 1) / (ratio - 1);
    double at = fmod((double)step, total);
    int64_t stairs = x <= ratio || k->cycle_second_stair_count < 0 ? k->cycle_first_stair_count
                                                                   : k->cycle_second_stair_count;

    if (stairs > 0)
        height = floor(at <= first ? at * (double)stairs / first
                                   : (total - at) * (double)stairs / second) / (double)stairs;
    return height;
}

/* Intervals of decay after the cycle; negative inside of it. */
static double cycle_decay(const struct schedule *s, int64_t step)
{
    const struct schedule_keys *k = &s->key;
    int64_t total = k->cycle_first_step_size + (k->cycle_second_step_size >= 0
                                                    ? k->cycle_second_step_size
                                                    : k->cycle_first_step_size);

    if (step - 1 < total)
        return -1;
    return k->decay_step_size ? (double)(step - total) / (double)k->decay_step_size : 0;
}

static double one_cycle(const struct schedule *s, double base, int64_t step)
{
    const struct schedule_keys *k = &s->key;
    double decay = cycle_decay(s, step), low = k->cycle_min_lr;
    double high = isnan(k->cycle_max_lr) ? s->lr : k->cycle_max_lr;

    return as_share(s, base, decay < 0 ? low + (high - low) * cycle_height(s, step)
                                       : low / (1 + k->decay_lr_rate * decay));
}

bool schedule_betas(const struct schedule *s, int64_t step, double *beta1, double *beta2)
{
    const struct schedule_keys *k = &s->key;
    double decay = cycle_decay(s, step);

    if (s->kind != SCHEDULE_ONE_CYCLE || !k->cycle_momentum)
        return false;
    *beta2 = 0.99;
    *beta1 = step == 0   ? k->cycle_min_mom
             : decay < 0 ? k->cycle_max_mom - (k->cycle_max_mom - k->cycle_min_mom) *
                                                  cycle_height(s, step)
                         : k->cycle_max_mom * (1 + k->decay_mom_rate * decay);
    return true;
}

/* -- the table -------------------------------------------------------------------------------- */

#define CYCLE_KEYS "cycle_min_lr cycle_max_lr decay_lr_rate cycle_first_step_size " \
    "cycle_second_step_size cycle_first_stair_count cycle_second_stair_count decay_step_size " \
    "cycle_momentum cycle_min_mom cycle_max_mom decay_mom_rate"
#define WARM_KEYS "warmup_min_lr warmup_max_lr warmup_num_steps warmup_type"

static const struct {
    const char *name;
    double    (*factor)(const struct schedule *s, int64_t step);    /* of the peak; or: */
    double    (*rate)(const struct schedule *s, double base, int64_t step);
    const char *keys;
} rows[SCHEDULE_KINDS] = {
    [SCHEDULE_CONSTANT] = {"constant", constant, NULL, ""},
    [SCHEDULE_CONSTANT_WITH_WARMUP] = {"constant_with_warmup", constant_with_warmup, NULL, ""},
    [SCHEDULE_LINEAR] = {"linear", linear, NULL, ""},
    [SCHEDULE_COSINE] = {"cosine", cosine, NULL, "num_cycles"},
    [SCHEDULE_COSINE_WITH_MIN_LR] = {"cosine_with_min_lr", cosine_with_min_lr, NULL,
                                     "num_cycles min_lr min_lr_rate"},
    [SCHEDULE_COSINE_WARMUP_WITH_MIN_LR] = {"cosine_warmup_with_min_lr", cosine_warmup_with_min_lr,
                                            NULL, "num_cycles min_lr min_lr_rate warmup_lr_rate"},
    [SCHEDULE_COSINE_WITH_RESTARTS] = {"cosine_with_restarts", cosine_with_restarts, NULL,
                                       "num_cycles"},
    [SCHEDULE_POLYNOMIAL] = {"polynomial", polynomial, NULL, "lr_end power"},
    [SCHEDULE_INVERSE_SQRT] = {"inverse_sqrt", inverse_sqrt, NULL, "timescale"},
    [SCHEDULE_WARMUP_STABLE_DECAY] = {"warmup_stable_decay", warmup_stable_decay, NULL,
                                      "num_decay_steps num_stable_steps warmup_type decay_type "
                                      "min_lr_ratio num_cycles"},
    [SCHEDULE_REDUCE_ON_PLATEAU] = {"reduce_lr_on_plateau", NULL, plateau,
                                    "mode factor patience threshold threshold_mode cooldown min_lr "
                                    "eps"},
    [SCHEDULE_WARMUP_LR] = {"WarmupLR", NULL, warmup_lr, WARM_KEYS},
    [SCHEDULE_WARMUP_DECAY_LR] = {"WarmupDecayLR", NULL, warmup_decay_lr,
                                  WARM_KEYS " total_num_steps"},
    [SCHEDULE_WARMUP_COSINE_LR] = {"WarmupCosineLR", NULL, warmup_cosine_lr,
                                   "total_num_steps warmup_min_ratio warmup_num_steps "
                                   "cos_min_ratio warmup_type"},
    [SCHEDULE_ONE_CYCLE] = {"OneCycle", NULL, one_cycle, CYCLE_KEYS},
};

#define MOST 1e15
#define REAL(key, low, high) \
    {#key, KEYS_REAL, offsetof(struct schedule_keys, key), low, high, NULL}
#define COUNT(key, low) {#key, KEYS_INT, offsetof(struct schedule_keys, key), low, MOST, NULL}
#define WORD(key, words) {#key, KEYS_WORD, offsetof(struct schedule_keys, key), 0, 0, words}

static const struct keys_row key_rows[] = {
    REAL(num_cycles, 0, 1e9), REAL(power, 0, 1e3), REAL(min_lr, 0, 1e3), REAL(lr_end, 0, 1e3),
    REAL(min_lr_rate, 0, 1), REAL(warmup_lr_rate, 0, 1), REAL(min_lr_ratio, 0, 1),
    COUNT(timescale, 1), COUNT(num_decay_steps, 0), COUNT(num_stable_steps, 0),
    WORD(warmup_type, "linear cosine 1-sqrt"), WORD(decay_type, "linear cosine 1-sqrt"),
    WORD(mode, "min max"), WORD(threshold_mode, "rel abs"), REAL(factor, 0, 0.999999999),
    REAL(threshold, 0, 1e9), REAL(eps, 0, 1), COUNT(patience, 0), COUNT(cooldown, 0),
    REAL(warmup_min_lr, 0, 1e3), REAL(warmup_max_lr, 0, 1e3), REAL(warmup_min_ratio, 0, 1),
    REAL(cos_min_ratio, 0, 1), COUNT(warmup_num_steps, 0), COUNT(total_num_steps, 1),
    REAL(cycle_min_lr, 0, 1e3), REAL(cycle_max_lr, 0, 1e3), REAL(decay_lr_rate, 0, 1e9),
    REAL(cycle_min_mom, 0, 1), REAL(cycle_max_mom, 0, 1), REAL(decay_mom_rate, -1, 1e9),
    COUNT(cycle_first_step_size, 1), COUNT(cycle_second_step_size, 1),
    COUNT(cycle_first_stair_count, 0), COUNT(cycle_second_stair_count, 0),
    COUNT(decay_step_size, 0),
    {"cycle_momentum", KEYS_BOOL, offsetof(struct schedule_keys, cycle_momentum), 0, 0, NULL},
};

/* DeepSpeed's word for the same key. */
static const struct keys_row ds_rows[] = {WORD(warmup_type, "log linear")};

/* The defaults of the references' signatures. */
static struct schedule_keys defaults(enum schedule_kind kind)
{
    return (struct schedule_keys){
        .num_cycles = kind == SCHEDULE_COSINE_WITH_RESTARTS ? 1 : 0.5, .power = 1,
        .min_lr = NAN, .lr_end = 1e-7, .min_lr_rate = NAN, .warmup_lr_rate = NAN, .timescale = -1,
        .num_decay_steps = -1, .num_stable_steps = -1, .decay_type = COSINE, .factor = 0.1,
        .threshold = 1e-4, .eps = 1e-8, .patience = 10, .warmup_max_lr = NAN,
        .cos_min_ratio = 0.0001, .warmup_num_steps = -1, .total_num_steps = -1, .cycle_min_lr = NAN,
        .cycle_max_lr = NAN, .cycle_first_step_size = 2000, .cycle_second_step_size = -1,
        .cycle_second_stair_count = -1, .cycle_momentum = true, .cycle_min_mom = 0.8,
        .cycle_max_mom = 0.9,
    };
}

static bool deepspeeds(enum schedule_kind kind) { return kind >= SCHEDULE_WARMUP_LR; }

static int set_keys(struct schedule *s, const char *kwargs, struct ckpt_err *err)
{
    const char *name = rows[s->kind].name;
    struct keys_row all[sizeof key_rows / sizeof key_rows[0]];
    struct keys_table t = {"lr_scheduler_kwargs", all, sizeof all / sizeof all[0]};

    for (size_t i = 0; i < t.n; i++)
        all[i] = deepspeeds(s->kind) && strcmp(key_rows[i].name, ds_rows[0].name) == 0
                     ? ds_rows[0] : key_rows[i];
    return keys_set(&s->key, &t, kwargs, rows[s->kind].keys, name, err);
}

/* The setting `min_lr` is the end of the schedules that have one. */
static int set_end(struct schedule *s, double min_lr, const char *kwargs, struct ckpt_err *err)
{
    bool poly = s->kind == SCHEDULE_POLYNOMIAL;
    const char *key = poly ? "lr_end" : "min_lr";

    if (!isnan(min_lr) && keys_word(rows[s->kind].keys, key, strlen(key)) < 0)
        return ckpt_fail(err, CKPT_ECONFIG, "`min_lr` is not used by %s, only by "
                         "cosine_with_min_lr, cosine_warmup_with_min_lr, polynomial and "
                         "reduce_lr_on_plateau", rows[s->kind].name);
    if (!isnan(min_lr) && keys_has(kwargs, key))
        return ckpt_fail(err, CKPT_ECONFIG, "`min_lr` and %s in `lr_scheduler_kwargs` exclude each "
                         "other", key);
    if (!isnan(min_lr))
        *(poly ? &s->key.lr_end : &s->key.min_lr) = min_lr;
    if (!isnan(s->key.min_lr) && !isnan(s->key.min_lr_rate))
        return ckpt_fail(err, CKPT_ECONFIG, "`lr_scheduler_kwargs`: min_lr and min_lr_rate exclude "
                         "each other");
    if (isnan(s->key.min_lr))
        s->key.min_lr = 0;
    return 0;
}

/* A key's value; NaN: none. */
static double number_at(const struct schedule_keys *key, const struct keys_row *r)
{
    const char *at = (const char *)key + r->at;

    if (r->kind == KEYS_REAL)
        return *(const double *)(const void *)at;
    if (r->kind == KEYS_WORD)
        return *(const int *)(const void *)at;
    if (r->kind == KEYS_BOOL)
        return *(const bool *)(const void *)at;
    return *(const int64_t *)(const void *)at < 0 ? NAN
                                                  : (double)*(const int64_t *)(const void *)at;
}

bool schedule_key(struct schedule_value *out, const struct schedule *s, size_t i)
{
    struct schedule_keys plain = defaults(s->kind);
    const char *word, *words;
    size_t n = keys_word_at(&word, rows[s->kind].keys, i), k = 0;
    const struct keys_row *r;
    double usual;

    if (n == 0)
        return false;
    while (strlen(key_rows[k].name) != n || strncmp(key_rows[k].name, word, n) != 0)
        k++;                                    /* each key of a kind has a row */
    r = &key_rows[k];
    *out = (struct schedule_value){.name = r->name, .is_int = r->kind != KEYS_REAL};
    out->number = number_at(&s->key, r);
    usual = number_at(&plain, r);
    out->given = !isnan(out->number) && out->number != usual &&
                 !(r->at == offsetof(struct schedule_keys, min_lr) && !isnan(s->key.min_lr_rate));
    snprintf(out->text, sizeof out->text, isnan(out->number) ? "none" : "%.10g", out->number);
    words = deepspeeds(s->kind) && strcmp(r->name, ds_rows[0].name) == 0 ? ds_rows[0].words
                                                                         : r->words;
    if (r->kind == KEYS_WORD && (n = keys_word_at(&word, words, (size_t)out->number)) > 0) {
        out->is_int = false;
        out->number = NAN;
        snprintf(out->text, sizeof out->text, "%.*s", (int)n, word);
    }
    return true;
}

static int check(const struct schedule *s, struct ckpt_err *err)
{
    const struct schedule_keys *k = &s->key;

    if (s->kind == SCHEDULE_POLYNOMIAL && !(k->lr_end < s->lr))
        return ckpt_fail(err, CKPT_ECONFIG, "polynomial ends at `min_lr %g`: it must be smaller "
                         "than `learning_rate %g`", k->lr_end, s->lr);
    if (s->kind == SCHEDULE_WARMUP_STABLE_DECAY && k->num_decay_steps < 0)
        return ckpt_fail(err, CKPT_ECONFIG, "warmup_stable_decay needs num_decay_steps in "
                         "`lr_scheduler_kwargs`");
    if (s->kind == SCHEDULE_ONE_CYCLE && isnan(k->cycle_min_lr))
        return ckpt_fail(err, CKPT_ECONFIG, "OneCycle needs cycle_min_lr in "
                         "`lr_scheduler_kwargs`");
    return 0;
}

int schedule_init(struct schedule *s, const char *name, double lr, double min_lr,
                  const char *kwargs, struct ckpt_err *err)
{
    int rc;

    *s = (struct schedule){.lr = lr};
    if (!schedule_parse(&s->kind, name))
        return ckpt_fail(err, CKPT_ECONFIG, "`lr_scheduler_type %s` is no schedule", name);
    s->key = defaults(s->kind);
    if ((rc = set_keys(s, kwargs, err)) != 0 || (rc = set_end(s, min_lr, kwargs, err)) != 0)
        return rc;
    s->plateau.best = s->key.mode == 1 ? -INFINITY : INFINITY;
    return check(s, err);
}

void schedule_span(struct schedule *s, int64_t warmup_steps, int64_t total_steps)
{
    s->warmup_steps = warmup_steps;
    s->total_steps = total_steps;
}

double schedule_lr(const struct schedule *s, double base, int64_t step)
{
    return rows[s->kind].rate ? rows[s->kind].rate(s, base, step)
                              : base * rows[s->kind].factor(s, step);
}

bool schedule_parse(enum schedule_kind *out, const char *name)
{
    for (size_t i = 0; i < SCHEDULE_KINDS; i++)
        if (strcmp(rows[i].name, name) == 0) {
            *out = (enum schedule_kind)i;
            return true;
        }
    return false;
}

const char *schedule_name(enum schedule_kind kind) { return rows[kind].name; }
const char *schedule_key_names(enum schedule_kind kind) { return rows[kind].keys; }
