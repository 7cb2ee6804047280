/* The dispatch, and products by OpenBLAS against the reference, for every way that rows can lie. */
#include "test_kernels.h"

static void test_dispatch(void)
{
    const ds_kernels *all[MAX_VARIANTS];
    const size_t n = ds_kernels_list(all, MAX_VARIANTS);
    CHECK(ds_kernels_list(NULL, 0) == n);
    CHECK(ds_kernels_for(DS_ISA_REF) == all[0]);
    CHECK(strcmp(all[0]->name, "ref") == 0);
    for (size_t i = 0; i < n; i++) {
        CHECK(i == 0 || all[i]->isa > all[i - 1]->isa);
        CHECK(ds_kernels_for(all[i]->isa) == all[i]);
        CHECK(strcmp(all[i]->name, ds_isa_name(all[i]->isa)) == 0);
    }
    CHECK(ds_kernels_for(all[n - 1]->isa) == all[n - 1]);
    CHECK(ds_kernels_for(ds_cpu_best())->isa <= all[n - 1]->isa);
}

static void test_blas_table(ds_isa isa)
{
    const ds_kernels *const own = ds_kernels_for(isa);
    const ds_kernels *const blas = ds_kernels_blas(isa);
    char name[64];
    snprintf(name, sizeof name, "%s+openblas", own->name);
    CHECK(strcmp(blas->name, name) == 0);
    CHECK(blas->isa == own->isa);
    for (size_t i = 0; i < 2; i++) {
        CHECK(blas->real[i].element == own->real[i].element);
        CHECK(blas->real[i].product != own->real[i].product);
        CHECK(blas->real[i].unary == own->real[i].unary);
        CHECK(blas->real[i].lstm_cell == own->real[i].lstm_cell);
    }
}

/* One product; x_at and y_at: where rows begin. */
static void test_rows(const ds_real_kernels *blas, const ds_real_kernels *ref, size_t n_rows,
                      const size_t *x_at, const size_t *y_at, size_t n_x, size_t n_y, size_t n_cols,
                      size_t depth, bool with_bias)
{
    const size_t e = ref->element;
    CHECK(blas->format == DS_FORMAT_ROWS);
    CHECK(ds_packed_bytes(blas, blas->format, n_cols, depth) ==
          (sizeof(ds_packed) + 63) / 64 * 64 + (n_cols * depth * e + 63) / 64 * 64);
    guarded x = guarded_new(n_x * e), weight = guarded_new(n_cols * depth * e);
    guarded bias = guarded_new(n_cols * e),
            panels = guarded_new(ds_packed_bytes(blas, blas->format, n_cols, depth));
    guarded plain = guarded_new(ds_packed_bytes(ref, ref->format, n_cols, depth));
    guarded y = guarded_new(n_y * e), expected = guarded_new(n_y * e);
    fill(x.data, e, n_x, -1, 1);
    fill(weight.data, e, n_cols * depth, -1, 1);
    fill(bias.data, e, n_cols, -1, 1);
    for (size_t i = 0; i < n_y; i++) { /* what y held must not matter */
        put(y.data, e, i, (double)NAN);
        put(expected.data, e, i, (double)NAN);
    }
    const ds_weight_layout rows = rows_of(depth);
    const void *const b = with_bias ? bias.data : NULL;
    ds_pack(blas, blas->format, panels.data, weight.data, n_cols, &rows, b);
    ds_pack(ref, ref->format, plain.data, weight.data, n_cols, &rows, b);
    void *out[64], *expected_out[64];
    const void *in[64];
    for (size_t m = 0; m < n_rows; m++) {
        in[m] = (char *)x.data + x_at[m] * e;
        out[m] = (char *)y.data + y_at[m] * e;
        expected_out[m] = (char *)expected.data + y_at[m] * e;
    }
    ds_product product = {.weight = panels.data, .y = out, .x = in, .n_rows = n_rows};
    ds_product_run(blas, &product, NULL);
    product.weight = plain.data;
    product.y = expected_out;
    ds_product_run(ref, &product, NULL);
    const double unit = e == sizeof(float) ? 0x1p-24 : 0x1p-53;
    for (size_t i = 0; i < n_y; i++) {
        const double got = get(y.data, e, i), want = get(expected.data, e, i);
        CHECK(isnan(want) ? isnan(got) : fabs(got - want) <= unit * (double)(4 * depth + 4));
    }
    guarded_free(x);
    guarded_free(weight);
    guarded_free(bias);
    guarded_free(panels);
    guarded_free(plain);
    guarded_free(y);
    guarded_free(expected);
}

static void test_products(const ds_real_kernels *blas, const ds_real_kernels *ref)
{
    for (int round = 0; round < 600; round++) {
        const size_t n_rows = random_size(0, 40), n_cols = random_size(0, 50);
        const size_t depth = random_size(0, 70);
        size_t x_at[64], y_at[64], x = 0, y = 0;
        /* Rows lie apart, overlap, coincide; the distance changes now and then, in x or in y. */
        size_t x_step = random_size(0, depth + 5), y_gap = random_size(0, 3);
        for (size_t m = 0; m < n_rows; m++) {
            x_at[m] = x;
            y_at[m] = y;
            if (random_size(0, 9) == 0 && round % 2 == 0) {
                x_step = random_size(0, depth + 5);
                y_gap = random_size(0, 3);
            }
            x += x_step;
            y += n_cols + y_gap;
        }
        if (round % 5 == 0) { /* x backwards: no gemm has a negative distance */
            for (size_t m = 0; m < n_rows / 2; m++) {
                const size_t kept = x_at[m];
                x_at[m] = x_at[n_rows - 1 - m];
                x_at[n_rows - 1 - m] = kept;
            }
        }
        if (round % 7 == 0) { /* and y */
            for (size_t m = 0; m < n_rows / 2; m++) {
                const size_t kept = y_at[m];
                y_at[m] = y_at[n_rows - 1 - m];
                y_at[n_rows - 1 - m] = kept;
            }
        }
        test_rows(blas, ref, n_rows, x_at, y_at, x + depth + 1, y + 1, n_cols, depth,
                  round % 3 != 0);
    }
}

int main(void)
{
    test_dispatch();
    ds_blas_set_threads(1);
    if (ds_kernels_blas(DS_ISA_REF) == NULL) {
        CHECK(ds_kernels_blas(DS_ISA_X86_AMX) == NULL);
        CHECK(ds_blas_description() == NULL);
        return check_report();
    }
    CHECK(strstr(ds_blas_description(), "OpenBLAS") != NULL);
    test_blas_table(DS_ISA_REF);
    test_blas_table(DS_ISA_X86_AMX);
    const ds_kernels *const blas = ds_kernels_blas(DS_ISA_REF);
    const ds_kernels *const ref = ds_kernels_for(DS_ISA_REF);
    for (size_t i = 0; i < 2; i++)
        test_products(&blas->real[i], &ref->real[i]);
    return check_report();
}
