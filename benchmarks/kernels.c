/* benchmarks/kernels.c: times of y = x . W^T by our packed product and by OpenBLAS; kernels.py builds
 * it, runs it and makes the table.
 *
 *     kernels ISA ROUNDS MICROSECONDS RING_MB WALL CELL...      CELL: NxKxM, then c (cold) or h (hot)
 *
 * Prints per cell and candidate one line of samples, nanoseconds per call:
 *
 *     NxKxMc candidate 1234.5 1230.1 ...
 *
 * Candidates, all in one thread, take turns in every round, beginning with another one in each:
 *   ours    the product of instruction set ISA, weights packed
 *   nt, nn  sgemm, row major, W as [N][K] or as [K][N]
 *   vt, vn  sgemv over the same two, only for one row
 *   read    a plain read of the N K weights
 *   fma     a loop of M N K fused multiply-adds in registers
 * A sample is as many calls as fill MICROSECONDS. Hot: always the same weight, run once before the clock
 * starts. Cold: all candidates walk one ring of RING_MB, each going on where the one before it ended, so
 * that what a call reads was last touched a whole ring ago; the ring holds random numbers, which serve
 * every layout alike. x and y are small and warm, rows contiguous. */
#define _GNU_SOURCE
#include <immintrin.h>
#include <math.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "kernels/kernels.h"

enum { ROW_MAJOR = 101, NO_TRANSPOSE = 111, TRANSPOSE = 112 };
void scipy_cblas_sgemm(int order, int transpose_a, int transpose_b, int m, int n, int k,
                       float alpha, const float *a, int lda, const float *b, int ldb, float beta,
                       float *c, int ldc);
void scipy_cblas_sgemv(int order, int transpose, int m, int n, float alpha, const float *a, int lda,
                       const float *x, int step_x, float beta, float *y, int step_y);
char *scipy_openblas_get_corename(void);

typedef struct cell {
    size_t n, k, m;
    bool cold;
    float *x, *y;
    const void **x_rows;
    void **y_rows;
    const ds_real_kernels *kernels;
    ds_packed packed; /* of the hot weight; cold ones have data of their own */
    bool wide;        /* 512-bit registers */
    size_t weight_bytes;
} cell;

static volatile float sink;

static void die(const char *what)
{
    (void)fprintf(stderr, "kernels: %s\n", what);
    exit(1);
}

static void *memory(size_t n_bytes)
{
    const size_t page = (size_t)2 << 20;
    const size_t size = (n_bytes + page - 1) / page * page;
    void *const p = aligned_alloc(page, size);
    if (p == NULL) {
        die("out of memory");
    }
    (void)madvise(p, size, MADV_HUGEPAGE);
    return p;
}

static void fill(float *to, size_t n)
{
    static uint64_t state = 88172645463325252U;
    for (size_t i = 0; i < n; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        to[i] = (float)(int32_t)(state >> 32) * 0x1p-31F;
    }
}

/* ---------------------------------------------------------------- candidates */

static void run_ours(const cell *c, const float *w)
{
    ds_packed weight = c->packed;
    weight.data = w;
    static _Alignas(64) char workspace[DS_WORKSPACE_BYTES];
    (void)ds_workspace_lend(workspace);
    const ds_product p = {.weight = &weight, .y = c->y_rows, .x = c->x_rows, .n_rows = c->m};
    ds_product_run(c->kernels, &p, NULL);
}

static void run_nt(const cell *c, const float *w)
{
    scipy_cblas_sgemm(ROW_MAJOR, NO_TRANSPOSE, TRANSPOSE, (int)c->m, (int)c->n, (int)c->k, 1, c->x,
                      (int)c->k, w, (int)c->k, 0, c->y, (int)c->n);
}

static void run_nn(const cell *c, const float *w)
{
    scipy_cblas_sgemm(ROW_MAJOR, NO_TRANSPOSE, NO_TRANSPOSE, (int)c->m, (int)c->n, (int)c->k, 1,
                      c->x, (int)c->k, w, (int)c->n, 0, c->y, (int)c->n);
}

static void run_vt(const cell *c, const float *w)
{
    scipy_cblas_sgemv(ROW_MAJOR, NO_TRANSPOSE, (int)c->n, (int)c->k, 1, w, (int)c->k, c->x, 1, 0,
                      c->y, 1);
}

static void run_vn(const cell *c, const float *w)
{
    scipy_cblas_sgemv(ROW_MAJOR, TRANSPOSE, (int)c->k, (int)c->n, 1, w, (int)c->n, c->x, 1, 0, c->y,
                      1);
}

/* Roofs, for 512-bit and 256-bit registers: V(f) is a function of <immintrin.h>. */
#define DEFINE_ROOFS(name, isa, VECTOR, LANES, V, KEEP)                                        \
    __attribute__((target(isa))) static void read_##name(const float *w, size_t n)             \
    {                                                                                          \
        VECTOR s0 = V(setzero_ps)(), s1 = s0, s2 = s0, s3 = s0;                                \
        for (size_t i = 0; i + 4 * LANES <= n; i += 4 * LANES) {                               \
            s0 = V(add_ps)(s0, V(loadu_ps)(w + i));                                            \
            s1 = V(add_ps)(s1, V(loadu_ps)(w + i + LANES));                                    \
            s2 = V(add_ps)(s2, V(loadu_ps)(w + i + 2 * LANES));                                \
            s3 = V(add_ps)(s3, V(loadu_ps)(w + i + 3 * LANES));                                \
        }                                                                                      \
        float out[LANES];                                                                      \
        V(storeu_ps)(out, V(add_ps)(V(add_ps)(s0, s1), V(add_ps)(s2, s3)));                    \
        sink = out[0];                                                                         \
    }                                                                                          \
    __attribute__((target(isa))) static void fma_##name(size_t n)                              \
    {                                                                                          \
        const VECTOR a = V(set1_ps)(0.5F), b = V(set1_ps)(0.25F);                              \
        VECTOR s0 = a, s1 = a, s2 = a, s3 = a, s4 = a, s5 = a, s6 = a, s7 = a, s8 = a, s9 = a; \
        for (size_t i = 0; i < n; i += 10 * LANES) {                                           \
            s0 = V(fmadd_ps)(s0, a, b);                                                        \
            s1 = V(fmadd_ps)(s1, a, b);                                                        \
            s2 = V(fmadd_ps)(s2, a, b);                                                        \
            s3 = V(fmadd_ps)(s3, a, b);                                                        \
            s4 = V(fmadd_ps)(s4, a, b);                                                        \
            s5 = V(fmadd_ps)(s5, a, b);                                                        \
            s6 = V(fmadd_ps)(s6, a, b);                                                        \
            s7 = V(fmadd_ps)(s7, a, b);                                                        \
            s8 = V(fmadd_ps)(s8, a, b);                                                        \
            s9 = V(fmadd_ps)(s9, a, b);                                                        \
            __asm__ volatile(""                                                                \
                             : KEEP(s0), KEEP(s1), KEEP(s2), KEEP(s3), KEEP(s4), KEEP(s5),     \
                               KEEP(s6), KEEP(s7), KEEP(s8), KEEP(s9));                        \
        }                                                                                      \
    }
#define V512(f) _mm512_##f
#define V256(f) _mm256_##f
#define KEEP_REGISTER(s) "+v"(s)
#define KEEP_REGISTER_256(s) "+x"(s)
DEFINE_ROOFS(512, "avx512f,fma", __m512, 16, V512, KEEP_REGISTER)
DEFINE_ROOFS(256, "avx2,fma", __m256, 8, V256, KEEP_REGISTER_256)

static void run_read(const cell *c, const float *w)
{
    (c->wide ? read_512 : read_256)(w, c->n * c->k);
}

static void run_fma(const cell *c, const float *w)
{
    (void)w;
    (c->wide ? fma_512 : fma_256)(c->m * c->n * c->k);
}

typedef struct candidate {
    const char *name;
    void (*run)(const cell *c, const float *w);
    enum { ANY, PACKED, ROWS_N, ROWS_K } layout;
    bool one_row;
} candidate;

static const candidate candidates[] = {
    {"ours", run_ours, PACKED, false}, {"nt", run_nt, ROWS_N, false},
    {"nn", run_nn, ROWS_K, false},     {"vt", run_vt, ROWS_N, true},
    {"vn", run_vn, ROWS_K, true},      {"read", run_read, ANY, false},
    {"fma", run_fma, ANY, false},
};
enum { N_CANDIDATES = sizeof candidates / sizeof *candidates, MAX_ROUNDS = 1000 };

/* ---------------------------------------------------------------- measuring */

static clockid_t clock_id = CLOCK_THREAD_CPUTIME_ID;

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(clock_id, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

typedef struct ring {
    float *start;
    size_t n_bytes, at;
} ring;

/* n calls, nanoseconds each. */
static double sample(const cell *c, const candidate *which, const float *hot, ring *r, size_t n)
{
    if (!c->cold) {
        which->run(c, hot);
    }
    const double begin = now();
    for (size_t i = 0; i < n; i++) {
        const float *w = hot;
        if (c->cold) {
            r->at = r->at + 2 * c->weight_bytes > r->n_bytes ? 0 : r->at + c->weight_bytes;
            w = r->start + r->at / sizeof(float);
        }
        which->run(c, w);
    }
    return (now() - begin) / (double)n;
}

/* Weights of every layout, and a check that all candidates give the same. */
static void prepare(cell *c, const float *weight, float **layouts, void *block)
{
    layouts[ANY] = layouts[ROWS_N];
    const ds_weight_layout rows = {
        .n_taps = 1, .n_inner = 1, .n_channels = c->k, .col = (ptrdiff_t)c->k, .channel = 1};
    ds_pack(c->kernels, c->kernels->format, block, weight, c->n, &rows, NULL);
    c->packed = *(const ds_packed *)block;
    layouts[PACKED] = (float *)((char *)block + ((const char *)c->packed.data - (char *)block));
    for (size_t n = 0; n < c->n; n++) {
        for (size_t k = 0; k < c->k; k++) {
            layouts[ROWS_N][n * c->k + k] = weight[n * c->k + k];
            layouts[ROWS_K][k * c->n + n] = weight[n * c->k + k];
        }
    }
    for (size_t i = 0; i < N_CANDIDATES; i++) {
        const candidate *const which = &candidates[i];
        if (which->layout == ANY || (which->one_row && c->m > 1)) {
            continue;
        }
        which->run(c, layouts[which->layout]);
        for (size_t j = 0; j < c->m * c->n; j += 7) {
            double sum = 0;
            for (size_t k = 0; k < c->k; k++) {
                sum += (double)c->x[j / c->n * c->k + k] * (double)weight[j % c->n * c->k + k];
            }
            if (!(fabs(sum - (double)c->y[j]) < 1e-3)) {
                (void)fprintf(stderr, "kernels: %s: %g instead of %g\n", which->name,
                              (double)c->y[j], sum);
                exit(1);
            }
        }
    }
}

static void measure(cell *c, const char *label, size_t n_rounds, double nanoseconds, ring *r)
{
    static double times[N_CANDIDATES][MAX_ROUNDS];
    const size_t packed_bytes = ds_packed_bytes(c->kernels, c->kernels->format, c->n, c->k);
    c->weight_bytes = (packed_bytes + 4095) / 4096 * 4096;
    c->x = memory(c->m * c->k * sizeof(float));
    c->y = memory(c->m * c->n * sizeof(float));
    c->x_rows = memory(c->m * sizeof(void *));
    c->y_rows = memory(c->m * sizeof(void *));
    for (size_t m = 0; m < c->m; m++) {
        c->x_rows[m] = c->x + m * c->k;
        c->y_rows[m] = c->y + m * c->n;
    }
    float *const weight = memory(c->n * c->k * sizeof(float));
    void *const block = memory(packed_bytes);
    float *layouts[] = {NULL, NULL, memory(c->weight_bytes), memory(c->weight_bytes)};
    fill(c->x, c->m * c->k);
    fill(weight, c->n * c->k);
    prepare(c, weight, layouts, block);

    size_t n_calls[N_CANDIDATES];
    for (size_t round = 0; round <= n_rounds; round++) {
        for (size_t turn = 0; turn < N_CANDIDATES; turn++) {
            const size_t i = (turn + round) % N_CANDIDATES;
            const candidate *const which = &candidates[i];
            if (which->one_row && c->m > 1) {
                continue;
            }
            const size_t n = round == 0 ? 3 : n_calls[i];
            const double t = sample(c, which, layouts[which->layout], r, n);
            if (round == 0) { /* only to learn how many calls fill a sample */
                n_calls[i] = (size_t)(nanoseconds / (t > 20 ? t : 20)) + 1;
            } else {
                times[i][round - 1] = t;
            }
        }
    }
    for (size_t i = 0; i < N_CANDIDATES; i++) {
        if (candidates[i].one_row && c->m > 1) {
            continue;
        }
        (void)printf("%s %s", label, candidates[i].name);
        for (size_t round = 0; round < n_rounds; round++) {
            (void)printf(" %.1f", times[i][round]);
        }
        (void)printf("\n");
    }
    (void)fflush(stdout);
    free(c->x);
    free(c->y);
    free((void *)c->x_rows);
    free((void *)c->y_rows);
    free(weight);
    free(block);
    free(layouts[ROWS_N]);
    free(layouts[ROWS_K]);
}

static const ds_kernels *kernels_named(const char *name)
{
    const ds_kernels *all[8];
    const size_t n = ds_kernels_list(all, 8);
    for (size_t i = 0; i < n && i < 8; i++) {
        if (strcmp(all[i]->name, name) == 0 && all[i]->isa <= ds_cpu_best()) {
            return all[i];
        }
    }
    die("no such instruction set here");
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc < 6) {
        die("usage: kernels ISA ROUNDS MICROSECONDS RING_MB WALL CELL...");
    }
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET((size_t)sched_getcpu(), &cpus);
    (void)sched_setaffinity(0, sizeof cpus, &cpus);

    const ds_kernels *const kernels = kernels_named(argv[1]);
    const size_t n_rounds = strtoul(argv[2], NULL, 10);
    const double nanoseconds = strtod(argv[3], NULL) * 1000;
    ring r = {NULL, strtoul(argv[4], NULL, 10) << 20, 0};
    if (n_rounds == 0 || n_rounds > MAX_ROUNDS) {
        die("ROUNDS must be 1 to 1000");
    }
    if (strtoul(argv[5], NULL, 10) != 0) {
        clock_id = CLOCK_MONOTONIC;
    }
    r.start = memory(r.n_bytes);
    fill(r.start, r.n_bytes / sizeof(float));
    (void)printf("openblas %s\n", scipy_openblas_get_corename());
    for (int i = 6; i < argc; i++) {
        cell c = {.kernels = &kernels->real[0], .wide = kernels->isa >= DS_ISA_X86_V4};
        char state;
        if (sscanf(argv[i], "%zux%zux%zu%c", &c.n, &c.k, &c.m, &state) != 4) {
            die("a cell is NxKxMc or NxKxMh");
        }
        c.cold = state == 'c';
        measure(&c, argv[i], n_rounds, nanoseconds, &r);
    }
    return 0;
}
