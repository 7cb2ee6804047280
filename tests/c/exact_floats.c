/* What `tests/c/test_exact_floats.py` compiles with the flags of others: expressions that a compiler which was told to
 * be fast computes otherwise, and what of the process's floating-point unit can be seen from outside. */
#include <math.h>
#include <stdint.h>
#include <string.h>

enum { N = 1003 };

uint64_t exact_floats_digest(void);
uint32_t exact_floats_control(void);

static uint64_t digest;

static void add(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    digest = (digest ^ bits) * UINT64_C(0x100000001B3);
}

static void add_floats(const float *x, int n)
{
    for (int i = 0; i < n; i++)
        add(x[i] == x[i] ? (double)x[i] : 1e300); /* which NaN it is does not count */
}

__attribute__((visibility("default"))) uint64_t exact_floats_digest(void)
{
    static volatile float numbers[N];
    static float x[N], y[N];
    digest = UINT64_C(0xCBF29CE484222325);
    for (int i = 0; i < N; i++)
        numbers[i] = sinf((float)(i * i % 97)) * (float)(i + 1) * 1.01f;
    for (int i = 0; i < N; i++)
        x[i] = numbers[i];
    float sum = 0, largest = x[0];
    for (int i = 0; i < N; i++) /* in this order */
        sum += x[i] * x[i];
    for (int i = 0; i < N; i++)
        largest = x[i] > largest ? x[i] : largest;
    add(sum);
    const float by = numbers[5], tiny = numbers[0] * 0 + 1e-42f, huge = numbers[1] * 0 + 3e38f;
    for (int i = 0; i < N; i++)
        y[i] = x[i] / by; /* not times its reciprocal */
    add_floats(y, N);
    const float parts[] = {x[7] / largest, x[8] / largest, x[9] / largest, x[10] / largest};
    add_floats(parts, 4); /* four divisions, not one */
    for (int i = 0; i < N; i++)
        y[i] = (float)((double)x[i] * 0.1 + 1.7); /* doubles */
    add_floats(y, N);
    for (int i = 0; i < N; i++)
        y[i] = x[i] * by + sum; /* two roundings */
    add_floats(y, N);
    for (int i = 0; i < N; i++)
        y[i] = (x[i] + sum) - sum; /* not x[i] */
    add_floats(y, N);
    for (int i = 0; i < N; i++)
        y[i] = 1.0f / sqrtf(x[i] * x[i] + 1.0f);
    add_floats(y, N);
    for (int i = 0; i < N; i++)
        y[i] = x[i] * tiny * 0.5f; /* denormal */
    add_floats(y, N);
    for (int i = 0; i < N; i++)
        y[i] = x[i] * huge * tiny; /* infinite on the way */
    add_floats(y, N);
    const float infinite = huge * 10.0f, nan = infinite - infinite;
    y[0] = nan != nan ? 1.0f : 2.0f;
    y[1] = isnan(nan * largest) ? 1.0f : 2.0f;
    y[2] = infinite > 3.4e38f && isinf(infinite) ? 1.0f : 2.0f;
    y[3] = largest > nan ? 1.0f : 2.0f;
    y[4] = infinite * (x[0] - x[0]);
    y[5] = copysignf(1.0f, 0.0f - (by - by));
    y[6] = copysignf(1.0f, -(by - by));
    y[7] = copysignf(1.0f, -tiny * 0.0f);
    y[8] = by / by + nan / nan;
    add_floats(y, 9);
    return digest;
}

/* The control bits of MXCSR, those that flush denormals among them; 0 on other processors. */
__attribute__((visibility("default"))) uint32_t exact_floats_control(void)
{
#ifdef __SSE__
    return __builtin_ia32_stmxcsr() & 0xFFC0u;
#else
    return 0;
#endif
}
