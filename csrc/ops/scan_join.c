/* ops/scan_join.c: which steps of a chain are a linear recurrence, h = a h + b, and what reads it.
 *
 * Mamba's is exp(dt A) h + (dt x) B, read as the sum of h C: ten steps, most of which only write what the next one
 * reads. As one step they do the same in the same order, so that the bits are the same. A step joins only where what
 * it makes is read once and what it reads is still there when the joined step runs. */
#include "ops/scan_chain.h"

typedef struct joiner {
    ds_scan_chain *chain;
    int own[2 * CHAIN_NODES], n_own; /* steps that would be gone */
    int last;                        /* where the joined step would be */
    size_t n;
} joiner;

static bool same_place(chain_place a, chain_place b)
{
    return a.home == b.home && a.number == b.number;
}

static bool writes(const chain_step *s, chain_place place)
{
    if (s->kind == CHAIN_RECURRENCE && same_place(s->recurrence.h, place))
        return true;
    return s->kind != CHAIN_GONE && same_place(s->y, place);
}

static bool reads(const chain_step *s, chain_place place)
{
    const chain_recurrence *const p = &s->recurrence;
    if (s->kind == CHAIN_RECURRENCE)
        return same_place(p->before, place) || same_place(p->a[0].at, place) ||
               same_place(p->a[1].at, place) || same_place(p->b[0].at, place) ||
               same_place(p->b[1].at, place) || (p->summed && same_place(p->c.at, place));
    return s->kind != CHAIN_GONE &&
           (same_place(s->x[0], place) || (s->kind == CHAIN_BINARY && same_place(s->x[1], place)));
}

/* Which step before `before` made what a room holds there; -1: none, or it is no room. */
static int maker_of(const ds_scan_chain *chain, chain_place room, int before)
{
    int j = room.home == CHAIN_ROOM ? before - 1 : -1;
    while (j >= 0 && !writes(&chain->steps[j], room))
        j--;
    return j;
}

/* Whether step `reader` alone reads what step `maker` made. */
static bool only_reader(const ds_scan_chain *chain, int maker, int reader)
{
    const chain_place y = chain->steps[maker].y;
    bool there = true;
    for (int j = maker + 1; j < chain->n_steps && there; j++) {
        if (j != reader && reads(&chain->steps[j], y))
            return false;
        there = !writes(&chain->steps[j], y);
    }
    for (int i = 0; i < chain->n_moved; i++)
        if (there && same_place(chain->held[i], y))
            return false;
    return true;
}

/* Whether what a place holds behind step `from` is there when the joined step runs. */
static bool lasts(const joiner *j, chain_place place, int from)
{
    for (int k = from + 1; k < j->last; k++) {
        bool own = false;
        for (int i = 0; i < j->n_own; i++)
            own = own || j->own[i] == k;
        if (!own && writes(&j->chain->steps[k], place))
            return false;
    }
    return true;
}

/* Takes the step of one kind that made what step `reader` reads there, if nothing else reads it; -1: none. */
static int taken(joiner *j, chain_place place, int reader, chain_kind kind, int function)
{
    const int k = maker_of(j->chain, place, reader);
    const chain_step *const s = &j->chain->steps[k < 0 ? 0 : k];
    if (k < 0 || s->kind != kind || (kind != CHAIN_SPREAD && s->function != function) ||
        !only_reader(j->chain, k, reader))
        return -1;
    j->own[j->n_own++] = k;
    return k;
}

/* What step `reader` reads there: rows that are spread are read where they come from. */
static bool factor_of(joiner *j, chain_place place, int reader, chain_factor *f)
{
    const int k = maker_of(j->chain, place, reader);
    const chain_step *const s = &j->chain->steps[k < 0 ? 0 : k];
    *f = (chain_factor){place, place.step == 0 ? 0 : SIZE_MAX};
    if (k >= 0 && s->kind == CHAIN_SPREAD && s->rank == 2 && s->stride[1] <= 1 &&
        s->stride[0] >= 0 && s->x[0].home != CHAIN_ROOM && s->x[0].home != CHAIN_HELD &&
        (j->n == 0 || j->n == (size_t)s->size[1])) {
        j->n = (size_t)s->size[1];
        f->at = (chain_place){s->x[0].home, s->x[0].number, (size_t)s->stride[1]};
        f->row = (size_t)s->stride[0];
        taken(j, place, reader, CHAIN_SPREAD, 0);
        return true;
    }
    return lasts(j, place, reader);
}

/* What step `reader` reads there as a product. */
static bool product_of(joiner *j, chain_place place, int reader, chain_factor *f)
{
    const int k = taken(j, place, reader, CHAIN_BINARY, DS_BINARY_MUL);
    f[0] = (chain_factor){{CHAIN_ONE, 0, 0}, 0};
    if (k < 0)
        return factor_of(j, place, reader, f + 1);
    if (!factor_of(j, j->chain->steps[k].x[0], k, f) ||
        !factor_of(j, j->chain->steps[k].x[1], k, f + 1))
        return false;
    if (f[0].at.step == 0)
        return true;
    const chain_factor first = f[0];
    f[0] = f[1];
    f[1] = first;
    return true;
}

/* The step that sums what h is multiplied by, if all between the two is its own; else -1. */
static int sum_of(joiner *j, int add, chain_recurrence *p)
{
    for (int s = add + 1; s < j->chain->n_steps; s++) {
        const chain_step *const sum = &j->chain->steps[s];
        const int n_own = j->n_own;
        if (sum->kind != CHAIN_SUM)
            continue;
        const int last = j->last, mul = taken(j, sum->x[0], s, CHAIN_BINARY, DS_BINARY_MUL);
        const chain_step *const m = &j->chain->steps[mul < 0 ? 0 : mul];
        const bool second = mul > add && same_place(m->x[1], p->h);
        j->last = s;
        bool fits = mul > add && (second || same_place(m->x[0], p->h)) &&
                    factor_of(j, m->x[second ? 0 : 1], mul, &p->c) && p->c.at.step == 1 &&
                    (j->n == 0 || j->n == j->chain->n_sum);
        fits = fits && j->n_own - n_own == s - add - 1;
        for (int i = n_own; i < j->n_own; i++)
            fits = fits && j->own[i] > add;
        if (fits) {
            j->n = j->chain->n_sum;
            p->sums = sum->y;
            return s;
        }
        j->last = last;
        j->n_own = n_own;
        return -1;
    }
    return -1;
}

/* Whether step `add` adds to what was carried, times something: operand `side` of it is that product. */
static bool recurrence_at(joiner *j, int add, int side, chain_recurrence *p)
{
    const chain_step *const s = &j->chain->steps[add];
    const int mul = taken(j, s->x[side], add, CHAIN_BINARY, DS_BINARY_MUL);
    const chain_step *const m = &j->chain->steps[mul < 0 ? 0 : mul];
    const int held = mul >= 0 && m->x[1].home == CHAIN_HELD ? 1 : 0;
    if (mul < 0 || m->x[held].home != CHAIN_HELD || !lasts(j, m->x[held], mul))
        return false;
    const int exponential = taken(j, m->x[1 - held], mul, CHAIN_UNARY, DS_UNARY_EXP);
    *p = (chain_recurrence){.before = m->x[held], .h = s->y, .exponential = exponential >= 0};
    return product_of(j, exponential >= 0 ? j->chain->steps[exponential].x[0] : m->x[1 - held],
                      exponential >= 0 ? exponential : mul, p->a) &&
           product_of(j, s->x[1 - side], add, p->b);
}

void ds_scan_join_recurrences(ds_scan_chain *chain)
{
    for (int k = 0; k < chain->n_steps; k++)
        for (int side = 0; side < 2; side++) {
            joiner j = {.chain = chain, .last = k};
            chain_recurrence p;
            if (chain->steps[k].kind != CHAIN_BINARY || chain->steps[k].function != DS_BINARY_ADD ||
                !recurrence_at(&j, k, side, &p))
                continue;
            const int sum = sum_of(&j, k, &p);
            p.summed = sum >= 0;
            p.n = j.n;
            if (j.n > 0 && (chain->tile % j.n != 0 || chain->n % j.n != 0))
                continue;
            for (int i = 0; i < j.n_own; i++)
                chain->steps[j.own[i]].kind = CHAIN_GONE;
            if (sum >= 0)
                chain->steps[k].kind = CHAIN_GONE;
            chain_step *const joined = &chain->steps[sum >= 0 ? sum : k];
            joined->kind = CHAIN_RECURRENCE;
            joined->y = sum >= 0 ? p.sums : p.h;
            joined->recurrence = p;
            break;
        }
    int n = 0;
    for (int k = 0; k < chain->n_steps; k++)
        if (chain->steps[k].kind != CHAIN_GONE)
            chain->steps[n++] = chain->steps[k];
    chain->n_steps = n;
}
