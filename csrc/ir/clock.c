/* ir/clock.c: the ticks of several rates, whether positions are within the skew, and all that are. */
#include "ir/clock.h"

ds_status ds_clock_init(ds_clock *clock, const ds_rate *rates, size_t n_inputs, int64_t skew)
{
    DS_CHECK(skew >= 0 && skew < (int64_t)1 << 31, DS_ARGUMENT,
             "skew: expected 0 to 2147483647 frames, got %lld", (long long)skew);
    clock->n_inputs = n_inputs;
    /* One second is `common` ticks: a multiple of every rate's numerator. */
    int64_t common = 1, slowest = 0;
    clock->n_moving = 0;
    for (size_t i = 0; i < n_inputs; i++) {
        int64_t num = rates[i].num;
        if (num == 0 && i > 0)
            continue;
        clock->n_moving++;
        DS_CHECK(num > 0 && num <= (int64_t)1 << 31 &&
                     common <= ((int64_t)1 << 40) / num * ds_greatest_divisor(common, num),
                 DS_ARGUMENT, "input %zu: its rate has no practical common clock with the others",
                 i);
        common = common / ds_greatest_divisor(common, num) * num;
    }
    int64_t shared = 0;
    for (size_t i = 0; i < n_inputs; i++) {
        ds_rate r = rates[i];
        clock->tick[i] = 0;
        if (r.num == 0)
            continue;
        DS_CHECK(r.den > 0 && r.den <= ((int64_t)1 << 50) / (common / r.num), DS_ARGUMENT,
                 "input %zu: its rate has no practical common clock with the others", i);
        clock->tick[i] = common / r.num * r.den;
        shared = ds_greatest_divisor(clock->tick[i], shared);
    }
    for (size_t i = 0; i < n_inputs; i++) {
        clock->tick[i] /= shared; /* inputs of one rate: 1 each */
        if (clock->tick[i] > slowest)
            slowest = clock->tick[i];
    }
    clock->limit = slowest > DS_NEVER / (skew + 1) ? DS_NEVER : slowest * (skew + 1);
    return DS_OK;
}

bool ds_clock_together(const ds_clock *clock, const int64_t *frames)
{
    if (clock->n_moving < 2)
        return true;
    ds_wide first = (ds_wide)frames[0] * clock->tick[0], last = first;
    for (size_t i = 1; i < clock->n_inputs; i++) {
        ds_wide t = (ds_wide)frames[i] * clock->tick[i];
        if (clock->tick[i] == 0)
            continue;
        first = t < first ? t : first;
        last = t > last ? t : last;
    }
    return last - first < clock->limit;
}

void ds_clock_offsets(const ds_clock *c, size_t i, int64_t *low, int64_t *high)
{
    *low = *high = 0;
    if (c->tick[i] == 0)
        return;
    const int64_t late = c->tick[i] - ds_greatest_divisor(c->tick[0], c->tick[i]);
    *low = -((c->limit - 1) / c->tick[i]);
    *high = (c->limit + late - 1) / c->tick[i];
}

/* The frames of input i, its lead before input 0 in ticks; the mask stays only where its position is one. */
static ds_status add_input(const ds_clock *c, ds_stairs_maker *m, size_t i, int64_t offset,
                           const ds_stairs **frames, const ds_stairs **lead, const ds_stairs **mask)
{
    const int64_t common = ds_greatest_divisor(c->tick[0], c->tick[i]);
    const int64_t gain = c->tick[0] / common, period = c->tick[i] / common;
    const ds_stairs *exact;
    DS_TRY(ds_stairs_line(m, frames, period, gain, offset + 1));
    if (c->n_moving > 1) {
        DS_TRY(
            ds_stairs_mask(m, mask, *mask, *frames)); /* one more than its position, not below 0 */
        DS_TRY(ds_stairs_apply_k(m, frames, DS_EXPR_MAX, *frames, 1));
        /* What the division by the period leaves, of which whole periods in the gain are no part. */
        DS_TRY(ds_stairs_line(m, &exact, 1, gain % period, 0));
        DS_TRY(ds_stairs_line(m, lead, period, gain % period, 0));
        DS_TRY(ds_stairs_apply_k(m, lead, DS_EXPR_MUL, *lead, period));
        DS_TRY(ds_stairs_apply(m, lead, DS_EXPR_SUB, *lead, exact, NULL));
        DS_TRY(ds_stairs_apply_k(m, lead, DS_EXPR_MUL, *lead, common));
        DS_TRY(ds_stairs_apply_k(m, lead, DS_EXPR_ADD, *lead, offset * c->tick[i]));
    }
    return ds_stairs_apply_k(m, frames, DS_EXPR_ADD, *frames, -1);
}

ds_status ds_clock_functions(const ds_clock *c, ds_stairs_maker *m, const int64_t *offsets,
                             const ds_stairs **frames, const ds_stairs **mask)
{
    const ds_stairs *lead = NULL, *first = NULL, *last = NULL, *room;
    *mask = NULL;
    if (c->n_moving > 1)
        DS_TRY(ds_stairs_constant(m, mask, 1));
    for (size_t i = 0; i < c->n_inputs; i++) {
        if (c->tick[i] == 0) {
            DS_TRY(ds_stairs_constant(m, &frames[i], 1));
            continue;
        }
        DS_TRY(add_input(c, m, i, offsets[i], &frames[i], &lead, mask));
        if (i == 0) {
            first = last = lead;
            continue;
        }
        DS_TRY(ds_stairs_apply(m, &first, DS_EXPR_MAX, first, lead, NULL));
        DS_TRY(ds_stairs_apply(m, &last, DS_EXPR_MIN, last, lead, NULL));
    }
    if (c->n_moving < 2)
        return DS_OK;
    /* Further apart than the limit is what has not 0 < limit + last - first. */
    DS_TRY(ds_stairs_apply(m, &room, DS_EXPR_SUB, last, first, NULL));
    DS_TRY(ds_stairs_apply_k(m, &room, DS_EXPR_ADD, room, c->limit));
    return ds_stairs_mask(m, mask, *mask, room);
}
