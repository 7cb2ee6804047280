/* ir/stairs.c: functions that repeat, made and combined.
 *
 * An operation goes over the intervals in which no operand changes its stretch. There its result repeats after
 * the least common multiple of the operands' periods, times the divisor where it divides; where it chooses
 * between operands, after the interval has been cut where the choice changes: the difference of the operands
 * repeats with a gain, so the periods in which its sign is mixed stand between those where it is one and those
 * where it is the other. One period is then evaluated, step by step.
 *
 * A stretch begins as early as its steps hold: what came before is compared with them, backwards. */
#include "ir/stairs.h"

#include <string.h>

static ds_status multiply_period(int64_t *a, int64_t factor)
{
    DS_CHECK(factor <= DS_MOST_PERIOD / *a, DS_LIMIT,
             "the model's period is longer than %d input frames", DS_MOST_PERIOD);
    *a *= factor;
    return DS_OK;
}

ds_status ds_extend_period(int64_t *a, int64_t b)
{
    return multiply_period(a, b / ds_greatest_divisor(*a, b));
}

static const char too_large[] =
    "the model is too large, for how irregularly its frames come, to analyse";

ds_status ds_stairs_spend(ds_stairs_maker *m, int64_t n_looks)
{
    DS_CHECK((m->work -= n_looks) >= 0, DS_LIMIT, "%s", too_large);
    return DS_OK;
}

/* ---------------------------------------------------------------- looking */
/* Index of the last of some structures, whose first members ascend, that begins with `at` or less. */
static size_t find(const void *items, size_t item_bytes, size_t first, size_t n, int64_t at)
{
    size_t low = first, high = first + n;
    while (high - low > 1) {
        const size_t middle = (low + high) / 2;
        const void *item = (const char *)items + middle * item_bytes;
        if (*(const int64_t *)item <= at)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Index of the stretch that n lies in. */
static size_t stretch_of(const ds_stairs *f, int64_t n)
{
    return find(f->stretches, sizeof *f->stretches, 0, f->n_stretches, n);
}

static int64_t end_of(const ds_stairs *f, size_t i)
{
    return i + 1 < f->n_stretches ? f->stretches[i + 1].start : DS_NEVER;
}

/* Index of the step of stretch s that holds at `at` from a period's beginning. */
static size_t step_of(const ds_stairs *f, const ds_flight *s, int64_t at)
{
    return find(f->steps, sizeof *f->steps, s->first, s->n, at);
}

/* As if stretch s went on for ever on both sides. */
static int64_t value_in(const ds_stairs *f, const ds_flight *s, int64_t n)
{
    const int64_t periods = ds_floor_div(n - s->origin, s->period);
    const int64_t at = n - s->origin - periods * s->period;
    const int64_t gained = ds_expr_apply(DS_EXPR_MUL, periods, s->gain, 0);
    return ds_expr_apply(DS_EXPR_ADD, f->steps[step_of(f, s, at)].value, gained, 0);
}

static int64_t after_in(const ds_stairs *f, const ds_flight *s, int64_t n)
{
    if (s->n == 1 && s->gain == 0)
        return DS_NEVER;
    const int64_t begin = s->origin + ds_floor_div(n - s->origin, s->period) * s->period;
    const size_t next = step_of(f, s, n - begin) + 1;
    return begin + (next < s->first + s->n ? f->steps[next].at : s->period);
}

int64_t ds_stairs_at(const ds_stairs *f, int64_t n)
{
    return value_in(f, &f->stretches[stretch_of(f, n)], n);
}

int64_t ds_stairs_after(const ds_stairs *f, int64_t n)
{
    const size_t i = stretch_of(f, n);
    const int64_t end = end_of(f, i), next = after_in(f, &f->stretches[i], n);
    return next < end ? next : end;
}

bool ds_stairs_same(const ds_stairs *f, const ds_stairs *g)
{
    return f == g ||
           (f->n_stretches == g->n_stretches && f->n_steps == g->n_steps &&
            memcmp(f->stretches, g->stretches, f->n_stretches * sizeof *f->stretches) == 0 &&
            memcmp(f->steps, g->steps, f->n_steps * sizeof *f->steps) == 0);
}

/* ---------------------------------------------------------------- making */
static ds_status begin_stretch(ds_stairs_maker *m, ds_stairs *f, int64_t start, int64_t period)
{
    DS_GROW(&m->arena, f->stretches, f->n_stretches, f->stretches_capacity);
    f->stretches[f->n_stretches++] = (ds_flight){start, start, period, 0, f->n_steps, 0};
    return DS_OK;
}

enum { MOST_BYTES = 3 << 24 }; /* of the functions that a node takes */

/* Of the last stretch; nothing where the value stays. */
static ds_status add_step(ds_stairs_maker *m, ds_stairs *f, int64_t at, int64_t value)
{
    ds_flight *s = &f->stretches[f->n_stretches - 1];
    DS_TRY(ds_stairs_spend(m, 4));
    if (s->n && f->steps[f->n_steps - 1].value == value)
        return DS_OK;
    DS_GROW(&m->arena, f->steps, f->n_steps, f->steps_capacity);
    DS_CHECK(m->arena.n_held <= MOST_BYTES, DS_LIMIT, "%s", too_large);
    f->steps[f->n_steps++] = (ds_stair){at, value};
    s->n++;
    return DS_OK;
}

ds_status ds_stairs_constant(ds_stairs_maker *m, const ds_stairs **f, int64_t value)
{
    return ds_stairs_line(m, f, 1, 0, value);
}

ds_status ds_stairs_line(ds_stairs_maker *m, const ds_stairs **f, int64_t period, int64_t gain,
                         int64_t plus)
{
    int64_t whole = 1;
    ds_stairs *made;
    DS_TRY(ds_extend_period(&whole, period));
    DS_PUSH_ZEROED(&m->arena, made, 1);
    DS_TRY(begin_stretch(m, made, 0, period));
    made->stretches[0].gain = gain;
    for (int64_t at = 0; at < period;) {
        const int64_t value = (int64_t)((ds_wide)at * gain / period);
        DS_TRY(add_step(m, made, at, value + plus));
        at = gain ? (int64_t)(((ds_wide)(value + 1) * period + gain - 1) / gain) : period;
    }
    *f = made;
    return DS_OK;
}

ds_status ds_stairs_keep(ds_arena *arena, const ds_stairs **f)
{
    ds_stairs *made;
    DS_PUSH_COPY(arena, made, *f, 1);
    DS_PUSH_COPY(arena, made->stretches, (*f)->stretches, (*f)->n_stretches);
    DS_PUSH_COPY(arena, made->steps, (*f)->steps, (*f)->n_steps);
    *f = made;
    return DS_OK;
}

/* The steps are those of g. */
ds_status ds_stairs_next(ds_stairs_maker *m, const ds_stairs **f, const ds_stairs *g)
{
    ds_stairs *made;
    DS_PUSH_COPY(&m->arena, made, g, 1);
    DS_PUSH_COPY(&m->arena, made->stretches, g->stretches, g->n_stretches);
    if (end_of(made, 0) == 1) {
        made->stretches++;
        made->n_stretches--;
    }
    for (size_t i = 0; i < made->n_stretches; i++) {
        made->stretches[i].start -= made->stretches[i].start > 0;
        made->stretches[i].origin--;
    }
    *f = made;
    return DS_OK;
}

/* ---------------------------------------------------------------- as early and as short as may be */
/* The least u such that, from u to `end`, stretch s of f holds in place of stretch was; at least `start`. */
static ds_status agree_from(ds_stairs_maker *m, const ds_stairs *f, const ds_flight *was,
                            const ds_flight *s, int64_t start, int64_t end, int64_t *u)
{
    *u = start;
    for (int64_t n = start; n < end;) {
        const int64_t a = after_in(f, was, n), b = after_in(f, s, n), next = a < b ? a : b;
        DS_TRY(ds_stairs_spend(m, 1));
        if (value_in(f, was, n) != value_in(f, s, n))
            *u = next < end ? next : end;
        n = next;
    }
    return DS_OK;
}

static void drop_last(ds_stairs *f)
{
    f->n_stretches--;
    f->n_steps = f->stretches[f->n_stretches].first;
}

/* Takes the last stretch but one out. */
static void drop_before_last(ds_stairs *f)
{
    ds_flight *was = &f->stretches[f->n_stretches - 2], *s = was + 1;
    memmove(&f->steps[was->first], &f->steps[s->first], s->n * sizeof *f->steps);
    s->first = was->first;
    f->n_steps = s->first + s->n;
    *was = *s;
    f->n_stretches--;
}

/* The last stretch, which goes up to `end`, joins those before it as far as they say the same. */
static ds_status join(ds_stairs_maker *m, ds_stairs *f, int64_t end)
{
    while (f->n_stretches > 1) {
        ds_flight *s = &f->stretches[f->n_stretches - 1], *was = s - 1;
        int64_t u;
        if (end - s->start <= s->period) { /* it does not repeat: perhaps the former just goes on */
            DS_TRY(agree_from(m, f, was, s, s->start, end, &u));
            if (u == s->start) {
                drop_last(f);
                return DS_OK;
            }
        }
        /* Where both repeat, what they say in one period that they share decides on all. */
        const int64_t length = s->start - was->start;
        const int64_t times = s->period / ds_greatest_divisor(was->period, s->period);
        const int64_t shared =
            length <= was->period || times > length / was->period ? length : times * was->period;
        DS_TRY(agree_from(m, f, was, s, s->start - shared, s->start, &u));
        if (u > was->start) {
            const bool same = u == s->start - shared &&
                              (ds_wide)times * was->gain == (ds_wide)(shared / s->period) * s->gain;
            if (!same) {
                s->start = u;
                return DS_OK;
            }
            if (was->period <= s->period) {
                drop_last(f);
                return DS_OK;
            }
            u = was->start;
        }
        s->start = u;
        drop_before_last(f);
    }
    return DS_OK;
}

/* Whether the last stretch repeats after a `part`-th of its period already. */
static ds_status has_shorter_period(ds_stairs_maker *m, const ds_stairs *f, int64_t part, bool *has)
{
    const ds_flight *s = ds_stairs_last(f);
    ds_flight ahead = *s;
    const int64_t gain = s->gain / part;
    ahead.origin -= s->period / part;
    *has = s->period % part == 0 && s->gain % part == 0;
    for (int64_t n = s->origin; n < s->origin + s->period && *has;) {
        const int64_t a = after_in(f, s, n), b = after_in(f, &ahead, n);
        DS_TRY(ds_stairs_spend(m, 1));
        *has = value_in(f, &ahead, n) == value_in(f, s, n) + gain;
        n = a < b ? a : b;
    }
    return DS_OK;
}

static ds_status shorten_period(ds_stairs_maker *m, ds_stairs *f)
{
    ds_flight *s = &f->stretches[f->n_stretches - 1];
    int64_t rest = s->period;
    for (int64_t part = 2; rest > 1; part++) {
        if (part * part > rest)
            part = rest;
        for (; rest % part == 0; rest /= part) {
            bool has;
            DS_TRY(has_shorter_period(m, f, part, &has));
            if (!has)
                continue;
            s->period /= part;
            s->gain /= part;
            while (f->steps[s->first + s->n - 1].at >= s->period)
                s->n--;
            f->n_steps = s->first + s->n;
        }
    }
    return DS_OK;
}

/* ---------------------------------------------------------------- combining */
typedef struct operation {
    ds_stairs_maker *m;
    ds_stairs *f;
    ds_expr_code code;
    const ds_stairs *in[3];
    const ds_flight *now[3]; /* where the interval lies */
    int n_in;
} operation;

static int64_t in_at(const operation *o, int i, int64_t n)
{
    return i < o->n_in ? value_in(o->in[i], o->now[i], n) : 0;
}

static int64_t result_at(const operation *o, int64_t n)
{
    return ds_expr_apply(o->code, in_at(o, 0, n), in_at(o, 1, n), in_at(o, 2, n));
}

static bool is_constant(const ds_flight *s)
{
    return s->n == 1 && s->gain == 0;
}

/* Whether the stretch has one step per period, upwards. */
static bool is_line(const ds_flight *s)
{
    return s->n == 1 && s->gain > 0;
}

/* A quotient of a line by a constant changes at the next multiple, not at each step. */
static bool is_quotient_of_line(const operation *o)
{
    const bool divides = o->code == DS_EXPR_FLOORDIV || o->code == DS_EXPR_CEILDIV;
    return divides && is_line(o->now[0]) && is_constant(o->now[1]) && in_at(o, 1, 0) > 0;
}

static int64_t after_quotient(const operation *o, int64_t n)
{
    const ds_flight *s = o->now[0];
    const ds_wide by = in_at(o, 1, n), quotient = result_at(o, n);
    const ds_wide wanted = o->code == DS_EXPR_FLOORDIV ? (quotient + 1) * by : quotient * by + 1;
    const ds_wide missing = wanted - o->in[0]->steps[s->first].value;
    const ds_wide next = s->origin + (missing + s->gain - 1) / s->gain * s->period;
    if (next <= n) /* where counts saturate */
        return n + 1;
    return next < DS_NEVER ? (int64_t)next : DS_NEVER;
}

static int64_t after(const operation *o, int64_t n)
{
    int64_t next = DS_NEVER;
    if (is_quotient_of_line(o))
        return after_quotient(o, n);
    /* A condition that holds from here on is no reason to look. */
    const bool holds = o->code == DS_EXPR_SELECT && is_line(o->now[0]) && in_at(o, 0, n) > 0;
    for (int i = holds ? 1 : 0; i < o->n_in; i++) {
        const int64_t own = after_in(o->in[i], o->now[i], n);
        next = own < next ? own : next;
    }
    return next;
}

/* The result from start to end, where it repeats after `period`, if it goes on for so long. */
static ds_status append(operation *o, int64_t start, int64_t end, int64_t period)
{
    if (start >= end)
        return DS_OK;
    const bool repeats = end - start > period;
    const int64_t stop = repeats ? start + period : end;
    DS_TRY(begin_stretch(o->m, o->f, start, stop - start));
    for (int64_t n = start; n < stop; n = after(o, n))
        DS_TRY(add_step(o->m, o->f, n - start, result_at(o, n)));
    if (repeats)
        o->f->stretches[o->f->n_stretches - 1].gain = result_at(o, stop) - result_at(o, start);
    return join(o->m, o->f, end);
}

/* What a choice hangs on: whether it is positive. */
static int64_t margin_at(const operation *o, int64_t n)
{
    return o->code == DS_EXPR_SELECT
               ? in_at(o, 0, n)
               : ds_expr_apply(DS_EXPR_SUB, in_at(o, 0, n), in_at(o, 1, n), 0);
}

/* start + n periods, at most end. */
static int64_t whole_periods(int64_t start, int64_t end, int64_t n, int64_t period)
{
    return n >= (end - start + period - 1) / period ? end : start + n * period;
}

/* Number of periods, from the first, in which a margin that gets smaller by `loss` each is positive. */
static int64_t positive_for(int64_t margin, int64_t loss)
{
    return margin > 0 ? (margin - 1) / loss + 1 : 0;
}

static ds_status append_choice(operation *o, int64_t start, int64_t end, int64_t period)
{
    int64_t least = DS_NEVER, most = -DS_NEVER;
    for (int64_t n = start; n < end && n - start < period; n = after(o, n)) {
        const int64_t margin = margin_at(o, n);
        DS_TRY(ds_stairs_spend(o->m, 1));
        least = margin < least ? margin : least;
        most = margin > most ? margin : most;
    }
    const int64_t gain =
        end - start > period ? margin_at(o, start + period) - margin_at(o, start) : 0;
    if (gain == 0)
        return append(o, start, end, period);
    /* not positive: 1 - margin is */
    const int64_t uniform = gain < 0 ? positive_for(least, -gain) : positive_for(1 - most, gain);
    const int64_t mixed = gain < 0 ? positive_for(most, -gain) : positive_for(1 - least, gain);
    const int64_t a = whole_periods(start, end, uniform, period);
    const int64_t b = whole_periods(start, end, mixed, period);
    DS_TRY(append(o, start, a, period));
    DS_TRY(append(o, a, b, b - a));
    return append(o, b, end, period);
}

/* How long the result takes to repeat, given how long its operands take: a quotient's floor repeats when the
 * dividend has gained a multiple of the divisor. */
static ds_status result_period(const operation *o, int64_t start, int64_t *period)
{
    const ds_flight *a = o->now[0], *b = o->now[1];
    if (o->code == DS_EXPR_MUL) {
        DS_CHECK(is_constant(a) || is_constant(b) || (a->gain == 0 && b->gain == 0), DS_LIMIT,
                 "counts that are products of each other don't repeat");
    } else if (o->code == DS_EXPR_FLOORDIV || o->code == DS_EXPR_CEILDIV) {
        DS_CHECK(is_constant(b) || (a->gain == 0 && b->gain == 0), DS_LIMIT,
                 "counts that are divided by each other don't repeat");
        const int64_t by = in_at(o, 1, start);
        if (a->gain != 0 && by != 0) {
            const int64_t gain = *period / a->period * a->gain;
            return multiply_period(period, (by < 0 ? -by : by) / ds_greatest_divisor(gain, by));
        }
    }
    return DS_OK;
}

static ds_status append_interval(operation *o, int64_t start, int64_t end)
{
    int64_t period = 1;
    ds_status status = DS_OK;
    for (int i = 0; i < o->n_in && status == DS_OK; i++)
        if (!is_constant(o->now[i]))
            status = ds_extend_period(&period, o->now[i]->period);
    if (status == DS_OK)
        status = result_period(o, start, &period);
    if (status != DS_OK && end - start <= DS_MOST_PERIOD)
        return append(o, start, end, end - start); /* it ends before it could repeat */
    DS_TRY(status);
    return o->code == DS_EXPR_MIN || o->code == DS_EXPR_MAX || o->code == DS_EXPR_SELECT
               ? append_choice(o, start, end, period)
               : append(o, start, end, period);
}

static ds_status combine(operation *o)
{
    size_t at[3] = {0, 0, 0};
    for (int64_t start = 0; start < DS_NEVER;) {
        int64_t end = DS_NEVER;
        for (int i = 0; i < o->n_in; i++) {
            while (end_of(o->in[i], at[i]) <= start)
                at[i]++;
            o->now[i] = &o->in[i]->stretches[at[i]];
            const int64_t own = end_of(o->in[i], at[i]);
            end = own < end ? own : end;
        }
        DS_TRY(append_interval(o, start, end));
        start = end;
    }
    return shorten_period(o->m, o->f);
}

ds_status ds_stairs_apply(ds_stairs_maker *m, const ds_stairs **f, ds_expr_code code,
                          const ds_stairs *a, const ds_stairs *b, const ds_stairs *c)
{
    operation o = {.m = m, .code = code, .in = {a, b, c}, .n_in = c ? 3 : 2};
    DS_TRY(ds_stairs_spend(m, 64)); /* what making a function costs */
    DS_PUSH_ZEROED(&m->arena, o.f, 1);
    DS_TRY(combine(&o));
    *f = o.f;
    return DS_OK;
}

ds_status ds_stairs_apply_k(ds_stairs_maker *m, const ds_stairs **f, ds_expr_code code,
                            const ds_stairs *a, int64_t k)
{
    const ds_stairs *constant;
    DS_TRY(ds_stairs_constant(m, &constant, k));
    return ds_stairs_apply(m, f, code, a, constant, NULL);
}

ds_status ds_stairs_mask(ds_stairs_maker *m, const ds_stairs **f, const ds_stairs *a,
                         const ds_stairs *condition)
{
    const ds_stairs *zero;
    *f = a;
    if (!condition)
        return DS_OK;
    DS_TRY(ds_stairs_constant(m, &zero, 0));
    return ds_stairs_apply(m, f, DS_EXPR_SELECT, condition, a, zero);
}

/* ---------------------------------------------------------------- what they amount to */
bool ds_stairs_ascends(const ds_stairs *f)
{
    for (size_t i = 0; i < f->n_stretches; i++) {
        const ds_flight *s = &f->stretches[i];
        const ds_stair *steps = &f->steps[s->first];
        const int64_t end = end_of(f, i);
        for (size_t k = 1; k < s->n; k++)
            if (steps[k].value < steps[k - 1].value)
                return false;
        const bool again = s->start < s->origin || end - s->origin > s->period;
        if ((again && steps[0].value + s->gain < steps[s->n - 1].value) ||
            (end < DS_NEVER && ds_stairs_at(f, end) < value_in(f, s, end - 1)))
            return false;
    }
    return true;
}

/* The most that stretch s of f is above stretch t of g from `from` to before `to`. Where one does not change, the
 * other decides: so only the changes of that one are looked at which has fewer. */
static ds_status look_apart(ds_stairs_maker *m, const ds_stairs *f, const ds_flight *s,
                            const ds_stairs *g, const ds_flight *t, int64_t from, int64_t to,
                            int64_t *most)
{
    const bool by_f = is_constant(s) ||
                      (!is_constant(t) && (ds_wide)s->n * t->period <= (ds_wide)t->n * s->period);
    for (int64_t n = from; n < to;) {
        const int64_t next = by_f ? after_in(f, s, n) : after_in(g, t, n),
                      end = next < to ? next : to;
        const int64_t at = by_f ? n : end - 1;
        const int64_t apart = ds_expr_apply(DS_EXPR_SUB, value_in(f, s, at), value_in(g, t, at), 0);
        DS_TRY(ds_stairs_spend(m, 1));
        *most = apart > *most ? apart : *most;
        n = end;
    }
    return DS_OK;
}

/* By how much it grows in so many periods of its own as there are in `period`. */
static int64_t gained(const ds_flight *s, int64_t period)
{
    return is_constant(s) ? 0 : ds_expr_apply(DS_EXPR_MUL, period / s->period, s->gain, 0);
}

ds_status ds_stairs_apart(ds_stairs_maker *m, const ds_stairs *f, const ds_stairs *g, int64_t *most,
                          int64_t *gain, int64_t *period)
{
    *most = -DS_NEVER;
    for (size_t i = 0, k = 0; i < f->n_stretches && k < g->n_stretches;) {
        const ds_flight *s = &f->stretches[i], *t = &g->stretches[k];
        const int64_t start = s->start > t->start ? s->start : t->start;
        const int64_t f_end = end_of(f, i), g_end = end_of(g, k),
                      end = f_end < g_end ? f_end : g_end;
        const bool last = end == DS_NEVER;
        *period = is_constant(s) ? 1 : s->period;
        const ds_status status = ds_extend_period(period, is_constant(t) ? 1 : t->period);
        if (status != DS_OK && (last || end - start > DS_MOST_PERIOD))
            return status;
        const bool once = status != DS_OK || end - start <= *period;
        DS_TRY(look_apart(m, f, s, g, t, start, once ? end : start + *period, most));
        *gain = ds_expr_apply(DS_EXPR_SUB, gained(s, *period), gained(t, *period), 0);
        if (!once && !last && *gain > 0) /* the last period holds the largest */
            DS_TRY(look_apart(m, f, s, g, t, end - *period, end, most));
        i += f_end == end;
        k += g_end == end;
    }
    return DS_OK;
}

static ds_status look(ds_stairs_maker *m, const ds_stairs *f, const ds_flight *s, int64_t from,
                      int64_t to, ds_stairs_summary *sum)
{
    for (int64_t n = from; n < to; n = after_in(f, s, n)) {
        const int64_t value = value_in(f, s, n);
        DS_TRY(ds_stairs_spend(m, 1));
        sum->most = value > sum->most ? value : sum->most;
        if (value > 0 && sum->positive < 0)
            sum->positive = n;
        if (value != 0 && sum->nonzero < 0)
            sum->nonzero = n;
    }
    return DS_OK;
}

ds_status ds_stairs_summarise(ds_stairs_maker *m, const ds_stairs *f, ds_stairs_summary *sum)
{
    *sum = (ds_stairs_summary){-DS_NEVER, -1, -1};
    for (size_t i = 0; i < f->n_stretches; i++) {
        const ds_flight *s = &f->stretches[i];
        const int64_t end = end_of(f, i), second = s->start + s->period;
        const bool once = end <= second;
        DS_TRY(look(m, f, s, s->start, once ? end : second, sum));
        if (!once && s->gain != 0 && sum->nonzero < 0)
            sum->nonzero = second;
        if (!once && s->gain > 0 && end < DS_NEVER) /* the last period holds the largest */
            DS_TRY(look(m, f, s, end - s->period, end, sum));
    }
    return DS_OK;
}
