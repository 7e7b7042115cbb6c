/* schedule - see schedule.h.  Expressions keep the reference's order, so that doubles agree. */
#include "trainer/optim/schedule.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#define PI 3.141592653589793

static double at_least(double x, double low) { return x > low ? x : low; }

/* Progress after warmup, 0..1. */
static double progress(const struct schedule *s, int64_t step)
{
    int64_t span = s->total_steps - s->warmup_steps;

    return (double)(step - s->warmup_steps) / (double)(span > 1 ? span : 1);
}

static double constant(const struct schedule *s, int64_t step)
{
    (void)s;
    (void)step;
    return 1.0;
}

static double linear(const struct schedule *s, int64_t step)
{
    int64_t span = s->total_steps - s->warmup_steps;

    return at_least((double)(s->total_steps - step) / (double)(span > 1 ? span : 1), 0.0);
}

static double cosine(const struct schedule *s, int64_t step)
{
    return at_least(0.5 * (1.0 + cos(PI * s->num_cycles * 2.0 * progress(s, step))), 0.0);
}

static double cosine_with_min_lr(const struct schedule *s, int64_t step)
{
    double floor = s->min_lr / s->lr;
    double f = 0.5 * (1.0 + cos(PI * s->num_cycles * 2.0 * progress(s, step)));

    return at_least(f * (1 - floor) + floor, 0.0);
}

static double cosine_with_restarts(const struct schedule *s, int64_t step)
{
    double p = progress(s, step);

    if (p >= 1.0)
        return 0.0;
    return at_least(0.5 * (1.0 + cos(PI * fmod(s->num_cycles * p, 1.0))), 0.0);
}

static double polynomial(const struct schedule *s, int64_t step)
{
    double left;

    if (step > s->total_steps)
        return s->min_lr / s->lr;
    left = 1 - (double)(step - s->warmup_steps) / (double)(s->total_steps - s->warmup_steps);
    return ((s->lr - s->min_lr) * pow(left, s->power) + s->min_lr) / s->lr;
}

static double inverse_sqrt(const struct schedule *s, int64_t step)
{
    int64_t timescale = s->warmup_steps ? s->warmup_steps : 10000;

    return 1.0 / sqrt((double)(step + timescale - s->warmup_steps) / (double)timescale);
}

static const struct {
    const char *name;
    double    (*after_warmup)(const struct schedule *s, int64_t step);
    int         warms_up;
} rows[] = {
    [SCHEDULE_CONSTANT] = {"constant", constant, 0},
    [SCHEDULE_CONSTANT_WITH_WARMUP] = {"constant_with_warmup", constant, 1},
    [SCHEDULE_LINEAR] = {"linear", linear, 1},
    [SCHEDULE_COSINE] = {"cosine", cosine, 1},
    [SCHEDULE_COSINE_WITH_MIN_LR] = {"cosine_with_min_lr", cosine_with_min_lr, 1},
    [SCHEDULE_COSINE_WITH_RESTARTS] = {"cosine_with_restarts", cosine_with_restarts, 1},
    [SCHEDULE_POLYNOMIAL] = {"polynomial", polynomial, 1},
    [SCHEDULE_INVERSE_SQRT] = {"inverse_sqrt", inverse_sqrt, 1},
};

double schedule_end(enum schedule_kind kind, double min_lr)
{
    if (!isnan(min_lr))
        return min_lr;
    return kind == SCHEDULE_POLYNOMIAL ? 1e-7 : 0;
}

double schedule_lr(const struct schedule *s, int64_t step)
{
    if (rows[s->kind].warms_up && step < s->warmup_steps)
        return s->lr * ((double)step / (double)(s->warmup_steps > 1 ? s->warmup_steps : 1));
    return s->lr * rows[s->kind].after_warmup(s, step);
}

bool schedule_parse(enum schedule_kind *out, const char *name)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(rows[i].name, name) == 0) {
            *out = (enum schedule_kind)i;
            return true;
        }
    return false;
}

const char *schedule_name(enum schedule_kind kind) { return rows[kind].name; }

const char *schedule_names(void)
{
    return "constant constant_with_warmup linear cosine cosine_with_min_lr cosine_with_restarts "
           "polynomial inverse_sqrt";
}
