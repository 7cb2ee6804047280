/* ops/back.c: slopes of rows and of matrices as products. */
#include "ops/back.h"

#include <string.h>

#include "base/transpose.h"
#include "ops/sums.h"

void ds_back_add_sums(const ds_real_kernels *k, void *y, const double *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ds_sums_set_real(y, k->element, i, ds_sums_real(y, k->element, i) + x[i]);
}

size_t ds_back_packed_bytes(size_t n_cols, size_t depth, size_t element)
{
    const size_t columns =
        ds_saturated_sum(n_cols, DS_PANEL_COLUMNS) / DS_PANEL_COLUMNS * DS_PANEL_COLUMNS;
    return ds_saturated_sum(
        ds_aligned(sizeof(ds_packed)),
        ds_aligned(ds_saturated_product(ds_saturated_product(columns, depth), element)));
}

/* ---------------------------------------------------------------- rows */

size_t ds_back_rows_bytes(size_t n_cols, size_t element)
{
    return ds_aligned(DS_BACK_ROWS * sizeof(void *)) +
           ds_saturated_product(DS_BACK_ROWS, ds_saturated_product(n_cols, element)) + DS_ALIGNMENT;
}

void ds_back_rows(const ds_run *run, const ds_packed *weight, void *const *dx, const void *const *g,
                  size_t n_rows, ds_room room)
{
    const size_t n_bytes = weight->n_cols * run->k->element;
    void **y = ds_room_take(&room, DS_BACK_ROWS * sizeof *y);
    char *const rows = ds_room_take(&room, DS_BACK_ROWS * n_bytes);
    for (size_t i = 0; i < DS_BACK_ROWS; i++)
        y[i] = rows + i * n_bytes;
    for (size_t first = 0, n; first < n_rows; first += n) {
        n = n_rows - first < DS_BACK_ROWS ? n_rows - first : DS_BACK_ROWS;
        const ds_product p = {.weight = weight, .y = y, .x = g + first, .n_rows = n};
        ds_product_run(run->k, &p, run->pool);
        for (size_t i = 0; i < n; i++)
            if (dx[first + i])
                ds_back_add(run->k, dx[first + i], y[i], weight->n_cols);
    }
}

/* ---------------------------------------------------------------- matrices */

size_t ds_back_outer_bytes(size_t n_g, size_t n_x, size_t element)
{
    const size_t slab = ds_saturated_product(DS_BACK_ROWS, element);
    size_t n = ds_aligned(ds_saturated_product(n_g, slab));
    n = ds_saturated_sum(n, ds_aligned(ds_saturated_product(n_x, slab)));
    n = ds_saturated_sum(n, ds_back_packed_bytes(n_x, DS_BACK_ROWS, element));
    n = ds_saturated_sum(n,
                         ds_aligned(ds_saturated_product(n_g, ds_saturated_product(n_x, element))));
    return ds_saturated_sum(n, 2 * ds_aligned(n_g * sizeof(void *)));
}

/* Rows that are as far from each other as the first two. */
static bool evenly(const void *const *rows, size_t n_rows, ptrdiff_t *step)
{
    bool even = true;
    *step = n_rows > 1 ? (const char *)rows[1] - (const char *)rows[0] : *step;
    for (size_t row = 2; even && row < n_rows; row++)
        even = (const char *)rows[row] - (const char *)rows[row - 1] == *step;
    return even;
}

/* to[i][row] = from[row][i] */
static void turn_rows(void *to, const void *const *from, size_t n_rows, size_t n, size_t element)
{
    ptrdiff_t step = (ptrdiff_t)(n * element);
    if (element == sizeof(float) && evenly(from, n_rows, &step)) {
        ds_transpose(to, from[0], (int64_t)n_rows, (int64_t)n, step, (int64_t)(n_rows * element));
        return;
    }
    for (size_t row = 0; row < n_rows; row++)
        for (size_t i = 0; i < n; i++)
            ds_sums_set_real(to, element, i * n_rows + row, ds_sums_real(from[row], element, i));
}

/* Rows as the columns of a packed weight, whose depth they are. */
static void pack_rows(const ds_run *run, ds_packed *packed, const void *const *x, size_t n_rows,
                      size_t n, ds_room room)
{
    const size_t element = run->k->element, n_bytes = n * element;
    const void *at = x[0];
    ptrdiff_t step = (ptrdiff_t)n_bytes;
    if (!evenly(x, n_rows, &step) || step % (ptrdiff_t)element != 0) {
        char *const rows = ds_room_take(&room, n_rows * n_bytes);
        for (size_t row = 0; row < n_rows; row++)
            memcpy(rows + row * n_bytes, x[row], n_bytes);
        at = rows;
        step = (ptrdiff_t)n_bytes;
    }
    const ds_weight_layout columns = ds_layout_turned(n_rows, step / (ptrdiff_t)element);
    ds_pack(run->k, run->k->format, packed, at, n, &columns, NULL);
}

/* Adds a line of a slope to where the layout has it. */
static void add_line(const ds_real_kernels *k, char *dw, const ds_weight_layout *l,
                     const char *line, size_t n)
{
    const ptrdiff_t element = (ptrdiff_t)k->element;
    if (l->channel == 1 && l->n_taps * l->n_inner == 1) {
        ds_back_add(k, dw, line, n);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const size_t tap = i / l->n_channels;
        char *const to = dw + ((ptrdiff_t)(tap / l->n_inner) * l->tap +
                               (ptrdiff_t)(tap % l->n_inner) * l->inner +
                               (ptrdiff_t)(i % l->n_channels) * l->channel) *
                                  element;
        ds_back_add_real(to, k->element, 0, ds_sums_real(line, k->element, i));
    }
}

void ds_back_outer(const ds_run *run, void *dw, const ds_weight_layout *layout,
                   const void *const *g, size_t n_g, const void *const *x, size_t n_rows,
                   ds_room room)
{
    const size_t n_x = layout->n_taps * layout->n_inner * layout->n_channels;
    const size_t element = run->k->element, slab = DS_BACK_ROWS * element;
    char *const turned = ds_room_take(&room, n_g * slab);
    ds_packed *const packed = ds_room_take(&room, ds_back_packed_bytes(n_x, DS_BACK_ROWS, element));
    char *const lines = ds_room_take(&room, n_g * n_x * element);
    void **const y = ds_room_take(&room, n_g * sizeof *y);
    const void **const rows = ds_room_take(&room, n_g * sizeof *rows);
    for (size_t first = 0, n; first < n_rows; first += n) {
        n = n_rows - first < DS_BACK_ROWS ? n_rows - first : DS_BACK_ROWS;
        turn_rows(turned, g + first, n, n_g, element);
        pack_rows(run, packed, x + first, n, n_x, room);
        for (size_t i = 0; i < n_g; i++) {
            y[i] = lines + i * n_x * element;
            rows[i] = turned + i * n * element;
        }
        const ds_product p = {.weight = packed, .y = y, .x = rows, .n_rows = n_g};
        ds_product_run(run->k, &p, run->pool);
        for (size_t i = 0; i < n_g; i++)
            add_line(run->k, (char *)dw + (ptrdiff_t)i * layout->col * (ptrdiff_t)element, layout,
                     y[i], n_x);
    }
}

void ds_back_column_sums(const ds_run *run, void *sum, const void *const *g, size_t n_rows,
                         size_t n, ds_room room)
{
    double *const sums = ds_room_take(&room, n * sizeof(double));
    memset(sums, 0, n * sizeof *sums);
    for (size_t row = 0; row < n_rows; row++)
        run->k->column_sums(sums, g[row], 1, n, NULL);
    ds_back_add_sums(run->k, sum, sums, n);
}

/* ---------------------------------------------------------------- sums */

size_t ds_back_sums_bytes(const ds_op *op)
{
    size_t n_bytes = 0;
    for (int i = 0; i < op->n_weights; i++)
        if (ds_op_has_weight(op, i))
            n_bytes += ds_aligned(ds_elements(&op->weight[i]) * sizeof(double));
    return n_bytes;
}

void ds_back_sums_begin(const ds_op *op, const ds_back *b, double **sums, ds_room *room)
{
    for (int i = 0; i < DS_SUMMED; i++) {
        const bool wanted = ds_op_has_weight(op, i) && b->dweights[i];
        const size_t n = wanted ? ds_elements(&op->weight[i]) : 0;
        sums[i] = wanted ? ds_room_take(room, n * sizeof(double)) : NULL;
        if (wanted)
            memset(sums[i], 0, n * sizeof(double));
    }
}

void ds_back_sums_end(const ds_op *op, const ds_back *b, double *const *sums)
{
    for (int i = 0; i < DS_SUMMED; i++)
        if (sums[i])
            ds_back_add_sums(b->run->k, b->dweights[i], sums[i], ds_elements(&op->weight[i]));
}

/* ---------------------------------------------------------------- frames */

bool ds_back_next_frames(const ds_op *op, const ds_back *b, ds_frames *f)
{
    const ds_run *run = b->run;
    if (!ds_next_frames(op, run, f))
        return false;
    for (int i = 0; i < ds_op_n_values(op); i++)
        f->dx[i] = ds_slope_at(&b->dx[(size_t)i * run->n_rows + f->row], run->out[f->row].m0,
                               ds_signature_bytes(&op->in[i]));
    for (int o = 0; o < op->n_outputs; o++)
        f->g[o] = b->dy[(size_t)o * run->n_rows + f->row];
    return true;
}
