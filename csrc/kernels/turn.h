/* kernels/turn.h: sine and cosine in double, by their series; what tables of Fourier transforms, rotations by position
 * and distances of attention are made of, with the same bits everywhere. */
#pragma once

#include <math.h>

/* |r| <= pi / 4. */
static inline void dsk_turn(double r, double *sine, double *cosine)
{
    const double z = r * r;
    double s = -1.0 / 121645100408832000, c = 1.0 / 2432902008176640000;
    s = s * z + 1.0 / 355687428096000;
    s = s * z - 1.0 / 1307674368000;
    s = s * z + 1.0 / 6227020800;
    s = s * z - 1.0 / 39916800;
    s = s * z + 1.0 / 362880;
    s = s * z - 1.0 / 5040;
    s = s * z + 1.0 / 120;
    s = s * z - 1.0 / 6;
    *sine = r + r * z * s;
    c = c * z - 1.0 / 6402373705728000;
    c = c * z + 1.0 / 20922789888000;
    c = c * z - 1.0 / 87178291200;
    c = c * z + 1.0 / 479001600;
    c = c * z - 1.0 / 3628800;
    c = c * z + 1.0 / 40320;
    c = c * z - 1.0 / 720;
    c = c * z + 1.0 / 24;
    c = c * z - 1.0 / 2;
    *cosine = 1 + z * c;
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
