/*
 * Runs one operator over whole streams, in one piece and in random chunks.
 *
 *     op_streams s = {.op = op, .n_rows = 3, .in = ..., .n_in = ..., .want = ..., .n_want = ...};
 *     check_streams(&s);
 *
 * The driver's integers decide what each call gets and gives, as in an executor. Windows and
 * results are exact allocations, so that the address sanitizer sees a step beside them; a window may
 * begin earlier than is needed, and a stream's total may run ahead of what is known of it. Rows join
 * and end in different calls. The pieces, laid end to end, must be the whole's bytes; the whole must
 * be what the test wants.
 */
#ifndef OP_STREAM_H
#define OP_STREAM_H

#include <math.h>
#include <string.h>

#include "check.h"
#include "ops/op.h"

enum { STREAM_ROWS = 4, STREAM_INPUTS = 3 };

typedef struct op_streams {
    const ds_op *op; /* one output */
    const void *const *weights;
    const ds_real_kernels *k;
    size_t n_rows;
    const char *in[STREAM_INPUTS][STREAM_ROWS]; /* all frames */
    int64_t n_in[STREAM_INPUTS][STREAM_ROWS];
    const char *want[STREAM_ROWS];
    int64_t n_want[STREAM_ROWS];
    double tolerance; /* of real results; 0: all bits */
} op_streams;

static uint64_t random_state = 1;

static int64_t random_in(int64_t low, int64_t high)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return low + (int64_t)((random_state >> 33) % (uint64_t)(high - low + 1));
}

static void *exact_copy(const void *from, size_t n_bytes)
{
    void *memory = malloc(n_bytes);
    CHECK(memory != NULL || n_bytes == 0);
    if (n_bytes != 0 && from != NULL) {
        memcpy(memory, from, n_bytes);
    } else if (n_bytes != 0) {
        memset(memory, 0xAA, n_bytes);
    }
    return memory;
}

/* How far one row is. */
typedef struct row_state {
    ds_pair in[STREAM_INPUTS];
    int64_t ahead[STREAM_INPUTS]; /* total - known, until the end limits it */
    ds_pair out;
    void *carried;
    char *result;
    bool ended;
} row_state;

/* Moves a row on by random numbers of frames (or, `longest` < 0, to the end). */
static void advance(const op_streams *s, size_t r, int64_t longest, row_state *row,
                    ds_counts *count)
{
    const bool lockstep = (s->op->def->flags & DS_OP_LOCKSTEP) != 0;
    int64_t shared = random_in(0, longest > 0 ? longest : 0);
    bool complete = true;
    for (int i = 0; i < s->op->n_inputs; i++) {
        const int64_t all = s->n_in[i][r];
        int64_t known =
            row->in[i].known + (lockstep ? shared : random_in(0, longest > 0 ? longest : 0));
        known = longest < 0 || known > all ? all : known;
        const int64_t total = known + row->ahead[lockstep ? 0 : i];
        count[i].before = row->in[i];
        row->in[i] = count[i].now = (ds_pair){known, total < all ? total : all};
        complete = complete && known == all;
    }
    row->ended = complete && (longest < 0 || random_in(0, 2) == 0);
    if (row->ended) {
        for (int i = 0; i < s->op->n_inputs; i++) {
            row->in[i] = count[i].now = (ds_pair){s->n_in[i][r], s->n_in[i][r]};
        }
    }
}

/* The frames of value input i that row r may read in this call. */
static ds_window make_window(const op_streams *s, int i, size_t r, const ds_counts *count,
                             int64_t m0)
{
    int64_t first[DS_MAX_INPUTS];
    ds_op_need(s->op, m0, first);
    int64_t at = first[i] < count->before.known ? first[i] : count->before.known;
    at -= random_in(0, at < 2 ? at : 2);
    const size_t n_bytes = ds_signature_bytes(&s->op->in[i]);
    const int64_t n = count->now.known - at;
    return (ds_window){exact_copy(s->in[i][r] + (size_t)at * n_bytes, (size_t)n * n_bytes), at, n};
}

/* One call with the given rows. */
static void stream_call(const op_streams *s, row_state *rows, const size_t *active, size_t n_active,
                        int64_t longest, bool in_place)
{
    const ds_op *op = s->op;
    const size_t in_bytes = ds_signature_bytes(&op->in[0]),
                 out_bytes = ds_signature_bytes(&op->out[0]);
    ds_window in[STREAM_INPUTS * STREAM_ROWS] = {{0}};
    ds_target out[STREAM_ROWS];
    ds_counts count[STREAM_INPUTS * STREAM_ROWS], own[STREAM_INPUTS];
    bool ended[STREAM_ROWS];
    void *carried[STREAM_ROWS];
    ds_run run = {.n_rows = n_active,
                  .in = in,
                  .out = out,
                  .count = count,
                  .ended = ended,
                  .weights = s->weights,
                  .k = s->k,
                  .carried = op->n_carried > 0 ? (void *const *)carried : NULL};
    for (size_t j = 0; j < n_active; j++) {
        row_state *row = &rows[active[j]];
        const ds_pair before = row->out;
        advance(s, active[j], longest, row, own);
        ended[j] = row->ended;
        carried[j] = row->carried;
        ds_op_counts(op, row->in, row->ended, &row->out);
        CHECK(before.known <= row->out.known && before.total <= row->out.total);
        CHECK(row->out.known <= row->out.total && row->out.total <= s->n_want[active[j]]);
        CHECK(ds_op_check(op, row->in, row->ended) == DS_OK);
        out[j] = (ds_target){NULL, before.known, row->out.known};
        const size_t n_bytes = (size_t)(out[j].m1 - out[j].m0) * out_bytes;
        for (int i = 0; i < op->n_inputs; i++) {
            count[(size_t)i * n_active + j] = own[i];
            if (i < ds_op_n_values(op)) {
                in[(size_t)i * n_active + j] = make_window(s, i, active[j], &own[i], before.known);
            }
        }
        if (in_place) {
            CHECK(own[0].now.known == out[j].m1 && in_bytes == out_bytes);
            free((void *)(uintptr_t)in[j].data);
            out[j].data = exact_copy(s->in[0][active[j]] + (size_t)out[j].m0 * in_bytes, n_bytes);
            in[j] = (ds_window){out[j].data, out[j].m0, out[j].m1 - out[j].m0};
        } else {
            out[j].data = exact_copy(NULL, n_bytes);
        }
        run.frames_in += own[0].now.known - own[0].before.known;
        run.frames_out += out[j].m1 - out[j].m0;
    }
    op->def->forward(op, &run);
    for (size_t j = 0; j < n_active; j++) {
        const size_t n_bytes = (size_t)(out[j].m1 - out[j].m0) * out_bytes;
        if (n_bytes != 0) {
            memcpy(rows[active[j]].result + (size_t)out[j].m0 * out_bytes, out[j].data, n_bytes);
        }
        free(out[j].data);
        for (int i = in_place ? 1 : 0; i < op->n_inputs; i++) {
            free((void *)(uintptr_t)in[(size_t)i * n_active + j].data);
        }
    }
}

static bool close_enough(const op_streams *s, const char *got, const char *want, size_t n_elements)
{
    const ds_dtype dtype = s->op->out[0].dtype;
    if (s->tolerance <= 0.0 || (dtype != DS_F32 && dtype != DS_F64)) {
        return n_elements == 0 || memcmp(got, want, n_elements * ds_dtype_bytes(dtype)) == 0;
    }
    for (size_t i = 0; i < n_elements; i++) {
        const double a = dtype == DS_F32 ? (double)((const float *)(const void *)got)[i]
                                         : ((const double *)(const void *)got)[i];
        const double b = dtype == DS_F32 ? (double)((const float *)(const void *)want)[i]
                                         : ((const double *)(const void *)want)[i];
        const bool equal = a >= b && a <= b; /* infinities too */
        const double size = fabs(b) > 1.0 ? fabs(b) : 1.0;
        if (!equal && !(isnan(a) && isnan(b)) && !(fabs(a - b) <= s->tolerance * size)) {
            fprintf(stderr, "%s: element %zu is %g, expected %g\n", s->op->def->name, i, a, b);
            return false;
        }
    }
    return true;
}

/* Runs all rows to their ends; results[r] receives all frames (to be freed). */
static void run_streams(const op_streams *s, int64_t longest, bool in_place, char **results)
{
    row_state rows[STREAM_ROWS] = {{.ended = false}};
    const size_t out_bytes = ds_signature_bytes(&s->op->out[0]);
    for (size_t r = 0; r < s->n_rows; r++) {
        rows[r].result = exact_copy(NULL, (size_t)s->n_want[r] * out_bytes);
        rows[r].carried = calloc(1, s->op->carried_bytes + 1);
        for (int i = 0; i < s->op->n_inputs; i++) {
            rows[r].ahead[i] = longest < 0 ? 0 : random_in(0, 3);
        }
    }
    for (int call = 0; call < 10000; call++) {
        size_t active[STREAM_ROWS], n_active = 0, n_left = 0;
        for (size_t r = 0; r < s->n_rows; r++) {
            n_left += rows[r].ended ? 0 : 1;
            if (!rows[r].ended && (longest < 0 || random_in(0, 3) > 0)) {
                active[n_active++] = r;
            }
        }
        if (n_left == 0) {
            break;
        }
        stream_call(s, rows, active, n_active, longest, in_place);
    }
    for (size_t r = 0; r < s->n_rows; r++) {
        CHECK(rows[r].ended && rows[r].out.known == s->n_want[r]);
        results[r] = rows[r].result;
        free(rows[r].carried);
    }
}

static inline void check_streams(const op_streams *s)
{
    const ds_op *op = s->op;
    const size_t n_elements = (size_t)ds_signature_elements(&op->out[0]);
    const size_t out_bytes = ds_signature_bytes(&op->out[0]);
    const bool in_place = (op->def->flags & DS_OP_INPLACE) != 0 && op->same_counts &&
                          ds_signature_bytes(&op->in[0]) == out_bytes;
    char *whole[STREAM_ROWS], *pieces[STREAM_ROWS];
    run_streams(s, -1, false, whole);
    for (size_t r = 0; r < s->n_rows; r++) {
        CHECK(close_enough(s, whole[r], s->want[r], (size_t)s->n_want[r] * n_elements));
    }
    static const int64_t longest[] = {1, 3, 12};
    for (int i = 0; i < (in_place ? 6 : 3); i++) {
        run_streams(s, longest[i % 3], i >= 3, pieces);
        for (size_t r = 0; r < s->n_rows; r++) {
            CHECK(s->n_want[r] == 0 ||
                  memcmp(pieces[r], whole[r], (size_t)s->n_want[r] * out_bytes) == 0);
            free(pieces[r]);
        }
    }
    for (size_t r = 0; r < s->n_rows; r++) {
        free(whole[r]);
    }
}

#endif
