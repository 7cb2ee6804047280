/* ir/clock.c: the ticks of several rates, and whether positions are within the skew. */
#include "ir/clock.h"

static int64_t gcd(int64_t a, int64_t b)
{
    while (b) {
        int64_t r = a % b;
        a = b;
        b = r;
    }
    return a;
}

ds_status ds_clock_init(ds_clock *clock, const ds_rate *rates, size_t n_inputs, int64_t skew)
{
    DS_CHECK(skew >= 0 && skew < (int64_t)1 << 31, DS_ARGUMENT,
             "skew: expected 0 to 2147483647 frames, got %lld", (long long)skew);
    clock->n_inputs = n_inputs;
    /* One second is `common` ticks: a multiple of every rate's numerator. */
    int64_t common = 1, slowest = 0;
    for (size_t i = 0; i < n_inputs; i++) {
        int64_t num = rates[i].num;
        DS_CHECK(num > 0 && num <= (int64_t)1 << 31 && common <= ((int64_t)1 << 40) / num * gcd(common, num),
                 DS_ARGUMENT, "input %zu: its rate has no practical common clock with the others", i);
        common = common / gcd(common, num) * num;
    }
    int64_t shared = 0;
    for (size_t i = 0; i < n_inputs; i++) {
        ds_rate r = rates[i];
        DS_CHECK(r.den > 0 && r.den <= ((int64_t)1 << 50) / (common / r.num), DS_ARGUMENT,
                 "input %zu: its rate has no practical common clock with the others", i);
        clock->tick[i] = common / r.num * r.den;
        shared = gcd(clock->tick[i], shared);
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
    if (clock->n_inputs < 2)
        return true;
    __extension__ typedef __int128 wide; /* positions times ticks go beyond 64 bits */
    wide first = (wide)frames[0] * clock->tick[0], last = first;
    for (size_t i = 1; i < clock->n_inputs; i++) {
        wide t = (wide)frames[i] * clock->tick[i];
        first = t < first ? t : first;
        last = t > last ? t : last;
    }
    return last - first < clock->limit;
}
