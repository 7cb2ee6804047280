/* kernels/turn.h: sine and cosine in double, by their series; what tables of Fourier transforms, rotations by position
 * and distances of attention are made of, with the same bits everywhere. */
#pragma once

#include <math.h>

/* A polynomial in z by Horner's rule, the highest coefficient first; step(sum, z, c): sum z + c, rounded once or twice. */
#define DSK_HORNER_2(step, z, a, b) step(a, z, b)
#define DSK_HORNER_3(step, z, a, b, ...) DSK_HORNER_2(step, z, step(a, z, b), __VA_ARGS__)
#define DSK_HORNER_4(step, z, a, b, ...) DSK_HORNER_3(step, z, step(a, z, b), __VA_ARGS__)
#define DSK_HORNER_5(step, z, a, b, ...) DSK_HORNER_4(step, z, step(a, z, b), __VA_ARGS__)
#define DSK_HORNER_6(step, z, a, b, ...) DSK_HORNER_5(step, z, step(a, z, b), __VA_ARGS__)
#define DSK_HORNER_7(step, z, a, b, ...) DSK_HORNER_6(step, z, step(a, z, b), __VA_ARGS__)
#define DSK_HORNER_8(step, z, a, b, ...) DSK_HORNER_7(step, z, step(a, z, b), __VA_ARGS__)
#define DSK_HORNER_9(step, z, a, b, ...) DSK_HORNER_8(step, z, step(a, z, b), __VA_ARGS__)
#define DSK_HORNER_10(step, z, a, b, ...) DSK_HORNER_9(step, z, step(a, z, b), __VA_ARGS__)
#define DSK_HORNER_11(step, z, a, b, ...) DSK_HORNER_10(step, z, step(a, z, b), __VA_ARGS__)
#define DSK_HORNER_12(step, z, a, b, ...) DSK_HORNER_11(step, z, step(a, z, b), __VA_ARGS__)
#define DSK_HORNER_13(step, z, a, b, ...) DSK_HORNER_12(step, z, step(a, z, b), __VA_ARGS__)
#define DSK_TIMES_PLUS(sum, z, c) ((sum) * (z) + (c))

/* |r| <= pi / 4. */
static inline void dsk_turn(double r, double *sine, double *cosine)
{
    const double z = r * r;
    *sine = r + r * z *
                    DSK_HORNER_9(DSK_TIMES_PLUS, z, -1.0 / 121645100408832000,
                                 1.0 / 355687428096000, -1.0 / 1307674368000, 1.0 / 6227020800,
                                 -1.0 / 39916800, 1.0 / 362880, -1.0 / 5040, 1.0 / 120, -1.0 / 6);
    *cosine =
        1 + z * DSK_HORNER_10(DSK_TIMES_PLUS, z, 1.0 / 2432902008176640000, -1.0 / 6402373705728000,
                              1.0 / 20922789888000, -1.0 / 87178291200, 1.0 / 479001600,
                              -1.0 / 3628800, 1.0 / 40320, -1.0 / 720, 1.0 / 24, -1.0 / 2);
}

/* Of any angle: it is taken modulo a quarter of a turn with what pi / 2 lacks in double, so that none is too far. */
static inline void dsk_turn_far(double angle, double *sine, double *cosine)
{
    const double quarters = rint(angle * 0x1.45f306dc9c883p-1 /* 2 / pi */);
    double r = fma(quarters, -0x1.921fb54442d18p0, angle), s, c;
    r = fma(quarters, -0x1.1a62633145c07p-54, r);
    dsk_turn(r, &s, &c);
    const int quarter = (int)(quarters - 4 * floor(quarters / 4));
    *sine = quarter % 2 != 0 ? c : s;
    *cosine = quarter % 2 != 0 ? s : c;
    if (quarter >= 2)
        *sine = -*sine;
    if (quarter == 1 || quarter == 2)
        *cosine = -*cosine;
}
