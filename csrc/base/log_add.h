/* The logarithm of a sum of two numbers that are given by their logarithms. */
#pragma once
#include <math.h>

/* log(exp(a) + exp(b)), exact where one of them is minus infinity. */
static inline double ds_log_add(double a, double b)
{
    const double high = a > b ? a : b, low = a > b ? b : a;
    return isinf(low) ? high : high + log1p(exp(low - high));
}
