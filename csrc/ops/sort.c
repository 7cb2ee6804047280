/* ops/sort.c: the last feature axis of every frame in order.
 *
 *     sort   values[..., i] the i-th of x, indices[..., i] where it stood   (torch.sort, stable)
 *
 * Equal elements keep their order; NaN counts as larger than all numbers. All counts are those of the input. */
#include <string.h>

#include "ops/framewise.h"
#include "ops/packed.h"
#include "ops/registry.h"

enum { SORT_DESCENDING };

static const ds_attr_def sort_attrs[] = {
    {"descending", DS_ATTR_INT, .doc = "1: from the largest to the smallest", .range = DS_0_OR_1},
    {0}};

static int64_t sort_size(const ds_op *op)
{
    return op->in[0].shape[op->in[0].rank - 1];
}

static ds_status sort_infer(ds_op *op)
{
    DS_TRY(ds_require_features(op));
    op->out[1].dtype = DS_I64;
    return ds_size_mul(&op->scratch.per_call, (size_t)sort_size(op), sizeof(int64_t));
}

typedef struct sort_row {
    const void *x;
    bool wide, descending;
} sort_row;

static double sort_value(const sort_row *row, int64_t i)
{
    return row->wide ? ((const double *)row->x)[i] : (double)((const float *)row->x)[i];
}

/* Whether element b must stand before a, which comes before it. */
static bool sort_swaps(const sort_row *row, int64_t a, int64_t b)
{
    double low = sort_value(row, b), high = sort_value(row, a);
    if (row->descending) {
        const double other = low;
        low = high;
        high = other;
    }
    return low < high || (high != high && low == low);
}

/* Merges runs of doubling length between index and spare; the result is in index. */
static void sort_indices(const sort_row *row, int64_t *index, int64_t *spare, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        index[i] = i;
    for (int64_t width = 1; width < n; width *= 2) {
        for (int64_t begin = 0; begin < n; begin += 2 * width) {
            const int64_t middle = begin + width < n ? begin + width : n;
            const int64_t end = middle + width < n ? middle + width : n;
            int64_t a = begin, b = middle;
            for (int64_t i = begin; i < end; i++) {
                const bool second = b < end && (a == middle || sort_swaps(row, index[a], index[b]));
                spare[i] = second ? index[b++] : index[a++];
            }
        }
        memcpy(index, spare, (size_t)n * sizeof *index);
    }
}

static void sort_forward(const ds_op *op, const ds_run *run)
{
    const int64_t n = sort_size(op), n_elements = ds_signature_elements(&op->in[0]);
    const size_t element = ds_op_element(op);
    for (size_t r = 0; r < run->n_rows; r++) {
        const ds_target *const values = &run->out[r], *const indices = &run->out[run->n_rows + r];
        for (int64_t m = values->m0; m < values->m1; m++) {
            const char *x = ds_at(&run->in[r], m, (size_t)n_elements * element);
            char *y = ds_to(values, m, (size_t)n_elements * element);
            int64_t *index = ds_to(indices, m, (size_t)n_elements * sizeof *index);
            for (int64_t i = 0; i < n_elements; i += n, index += n) {
                const sort_row row = {x + (size_t)i * element, op->in[0].dtype == DS_F64,
                                      op->attr[SORT_DESCENDING].i != 0};
                sort_indices(&row, index, run->scratch, n);
                for (int64_t j = 0; j < n; j++)
                    memcpy(y + (size_t)(i + j) * element, x + (size_t)(i + index[j]) * element,
                           element);
            }
        }
    }
}

const ds_op_def ds_op_sort = {
    DS_OPERATOR_OF(sort, "The last feature dimension in order, and where its elements stood.", 1, 2,
                   1),
    .flags = DS_OP_REAL, .attrs = sort_attrs, .infer = sort_infer, .forward = sort_forward};
