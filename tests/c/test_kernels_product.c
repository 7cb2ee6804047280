/* product, pack and depthwise: their definition, and its bits in every variant. */
#include "test_kernels.h"

enum { LAYOUTS = SOME_OF(120), DEPTHWISE = SOME_OF(180), PARTS = SOME_OF(24) };
enum { CHAIN = 256, MAX_ROWS = 20, COLUMNS = 70 };

/* The definition once more, without blocks: one output. Element i of x and w by steps. */
static double plain(size_t element, const void *x, size_t x_step, const void *w, size_t w_step,
                    size_t depth, const double *bias)
{
    double sum = 0, chain = 0;
    for (size_t k = 0; k < depth; k++) {
        const double a = get(x, element, k * x_step);
        const double b = get(w, element, k * w_step);
        chain = element == sizeof(float) ? (double)fmaf((float)a, (float)b, (float)chain)
                                         : fma(a, b, chain);
        if (k % CHAIN == CHAIN - 1 || k + 1 == depth) {
            sum = k < CHAIN ? chain : sum + chain;
            sum = element == sizeof(float) ? (double)(float)sum : sum;
            chain = 0;
        }
    }
    sum += bias != NULL ? *bias : 0;
    return element == sizeof(float) ? (double)(float)sum : sum;
}

static const void *at(const void *array, size_t element, size_t i)
{
    return (const char *)array + i * element;
}

/* One product: rows of x at random, perhaps overlapping, places; rows of y with gaps between. */
typedef struct problem {
    size_t element, n_rows, n_cols, depth;
    void *weight, *bias, *x;
    const void *rows[MAX_ROWS];
    size_t y_at[MAX_ROWS], y_elements;
} problem;

static problem problem_new(size_t element, size_t n_rows, size_t n_cols, size_t depth)
{
    problem p = {element, n_rows, n_cols, depth, NULL, NULL, NULL, {NULL}, {0}, 0};
    const size_t n_x = n_rows * (depth + 3) + 1;
    p.weight = malloc((n_cols * depth + 1) * element);
    p.bias = random_bits() >> 63 ? malloc((n_cols + 1) * element) : NULL;
    p.x = malloc(n_x * element);
    CHECK(p.weight != NULL && p.x != NULL);
    fill(p.weight, element, n_cols * depth, -1, 1);
    fill(p.x, element, n_x, -1, 1);
    if (p.bias != NULL)
        fill(p.bias, element, n_cols, -1, 1);
    const size_t step = random_size(0, depth + 3);
    const bool scattered = random_size(0, 3) == 0;
    for (size_t m = 0; m < n_rows; m++) {
        p.rows[m] = at(p.x, element, scattered ? random_size(0, n_x - depth - 1) : m * step);
        p.y_at[m] = p.y_elements;
        p.y_elements += n_cols + random_size(0, 2);
    }
    return p;
}

static void problem_free(problem *p)
{
    free(p->weight);
    free(p->bias);
    free(p->x);
}

/* Runs it: all of y, gaps included. */
static guarded run(const problem *p, const ds_real_kernels *kernels)
{
    const ds_weight_layout rows_packed = rows_of(p->depth);
    guarded packed = guarded_new(ds_packed_bytes(kernels, kernels->format, p->n_cols, p->depth));
    ds_pack(kernels, kernels->format, packed.data, p->weight, p->n_cols, &rows_packed, p->bias);
    guarded y = guarded_new(p->y_elements * p->element);
    void *rows[MAX_ROWS];
    for (size_t m = 0; m < p->n_rows; m++)
        rows[m] = (char *)y.data + p->y_at[m] * p->element;
    const ds_product product = {
        .weight = packed.data, .y = rows, .x = p->rows, .n_rows = p->n_rows};
    ds_product_run(kernels, &product, NULL);
    guarded_free(packed);
    return y;
}

static void test_reference(const ds_real_kernels *kernels)
{
    const size_t element = kernels->element;
    static const size_t depths[] = {0, 1, 5, 255, 256, 257, 512, 513, 600};
    for (size_t d = 0; d < sizeof depths / sizeof *depths; d++) {
        problem p = problem_new(element, random_size(1, 4), random_size(1, 40), depths[d]);
        guarded y = run(&p, kernels);
        for (size_t m = 0; m < p.n_rows; m++) {
            for (size_t n = 0; n < p.n_cols; n++) {
                const double bias = p.bias != NULL ? get(p.bias, element, n) : 0;
                const void *const w = at(p.weight, element, n * p.depth);
                const double expected =
                    plain(element, p.rows[m], 1, w, 1, p.depth, p.bias != NULL ? &bias : NULL);
                const double got = get(y.data, element, p.y_at[m] + n);
                CHECK(memcmp(&expected, &got, sizeof got) == 0);
                long double exact = (long double)bias, sizes = fabsl((long double)bias);
                for (size_t k = 0; k < p.depth; k++) {
                    const long double term =
                        (long double)get(p.rows[m], element, k) * (long double)get(w, element, k);
                    exact += term;
                    sizes += fabsl(term);
                }
                const long double roundings = (long double)(p.depth < CHAIN ? p.depth : CHAIN) + 4;
                CHECK(fabsl((long double)got - exact) <= roundings * unit_of(element) * sizes);
            }
        }
        guarded_free(y);
        problem_free(&p);
    }
}

static void compare(const problem *p, const variants *all)
{
    guarded expected = run(p, all->k[0]);
    for (size_t v = 1; v < all->n; v++) {
        guarded y = run(p, all->k[v]);
        CHECK(memcmp(y.data, expected.data, y.n_bytes) == 0); /* gaps between rows too */
        guarded_free(y);
    }
    /* Each row alone. */
    for (size_t v = 0; v < all->n; v++) {
        for (size_t m = 0; m < p->n_rows && p->n_rows > 1; m += v == 0 ? 7 : 1) {
            problem one = *p;
            one.n_rows = 1;
            one.rows[0] = p->rows[m];
            one.y_at[0] = 0;
            one.y_elements = p->n_cols;
            guarded y = run(&one, all->k[v]);
            CHECK(memcmp(y.data, at(expected.data, p->element, p->y_at[m]), y.n_bytes) == 0);
            guarded_free(y);
        }
    }
    guarded_free(expected);
}

static void test_variants(const variants *all)
{
    static const size_t depths[] = {0, 1, 2, 3, 17, 64, 255, 256, 257, 511, 512, 513, 600};
    const size_t element = all->element;
    for (size_t d = 0; d < sizeof depths / sizeof *depths; d++) {
        /* Deep ones by some numbers of columns each. */
        const size_t step = COLUMNS / (size_t)SOME_OF(depths[d] < 64 ? COLUMNS : COLUMNS / 5);
        for (size_t n_cols = 1 + d % step; n_cols <= COLUMNS; n_cols += step) {
            const size_t n_rows = depths[d] < 64 ? random_size(1, MAX_ROWS) : random_size(1, 4);
            problem p = problem_new(element, n_rows, n_cols, depths[d]);
            compare(&p, all);
            problem_free(&p);
        }
    }
    for (size_t n_rows = 0; n_rows <= MAX_ROWS; n_rows++) {
        problem p = problem_new(element, n_rows, random_size(1, 300), random_size(0, 40));
        compare(&p, all);
        problem_free(&p);
        p = problem_new(element, n_rows, random_size(0, 70), random_size(250, 270));
        compare(&p, all);
        problem_free(&p);
    }
}

/* Sizes are exact, and say what pack writes: panels, or where the weight lies. */
static void test_sizes(const ds_real_kernels *k, bool is_reference)
{
    const size_t head = (sizeof(ds_packed) + 63) / 64 * 64;
    CHECK(k->format == (is_reference ? DS_FORMAT_RAW : DS_FORMAT_PANELS));
    for (size_t n_cols = 0; n_cols < 100; n_cols += 11) {
        for (size_t depth = 0; depth < 9; depth++) {
            const size_t panels = (n_cols + 31) / 32 * 32 * depth * k->element;
            CHECK(ds_packed_bytes(k, k->format, n_cols, depth) ==
                  head + (is_reference ? 0 : (panels + 63) / 64 * 64));
        }
    }
}

/* Weights in any order of their axes, backwards too, give what the same weight as rows gives. */
static void test_layouts(const ds_real_kernels *k)
{
    for (int round = 0; round < LAYOUTS; round++) {
        const size_t n[4] = {random_size(1, 70), random_size(1, 5), random_size(1, 4),
                             random_size(1, round % 10 == 0 ? 300 : 40)};
        const size_t depth = n[1] * n[2] * n[3];
        problem p = problem_new(k->element, round % 3 == 0 ? 1 : random_size(0, 5), n[0], depth);
        guarded expected = run(&p, k);

        size_t order[4] = {0, 1, 2, 3}, total = 1, first = 0;
        ptrdiff_t step[4];
        for (size_t i = 3; i > 0; i--) {
            const size_t j = random_size(0, i), kept = order[i];
            order[i] = order[j];
            order[j] = kept;
        }
        for (size_t i = 0; i < 4; i++) {
            const size_t axis = order[i];
            const bool backwards = random_size(0, 3) == 0;
            step[axis] = backwards ? -(ptrdiff_t)total : (ptrdiff_t)total;
            first += backwards ? (n[axis] - 1) * total : 0;
            total *= n[axis];
        }
        void *const weight = malloc(total * k->element);
        CHECK(weight != NULL);
        for (size_t i = 0; i < total; i++) {
            const size_t index[4] = {i / depth, i / (n[2] * n[3]) % n[1], i / n[3] % n[2],
                                     i % n[3]};
            ptrdiff_t to = (ptrdiff_t)first;
            for (size_t axis = 0; axis < 4; axis++)
                to += (ptrdiff_t)index[axis] * step[axis];
            put(weight, k->element, (size_t)to, get(p.weight, k->element, i));
        }
        const ds_weight_layout layout = {.n_taps = n[1],
                                         .n_inner = n[2],
                                         .n_channels = n[3],
                                         .col = step[0],
                                         .tap = step[1],
                                         .inner = step[2],
                                         .channel = step[3]};
        guarded packed = guarded_new(ds_packed_bytes(k, k->format, n[0], depth));
        ds_pack(k, k->format, packed.data, at(weight, k->element, first), n[0], &layout, p.bias);
        guarded y = guarded_new(expected.n_bytes);
        void *rows[MAX_ROWS];
        for (size_t m = 0; m < p.n_rows; m++)
            rows[m] = (char *)y.data + p.y_at[m] * p.element;
        const ds_product product = {
            .weight = packed.data, .y = rows, .x = p.rows, .n_rows = p.n_rows};
        ds_product_run(k, &product, NULL);
        CHECK(memcmp(y.data, expected.data, y.n_bytes) == 0);
        if (k->format != DS_FORMAT_RAW && k->stored == DS_STORED_WIDE) { /* and back, every bit */
            void *const again = calloc(total, k->element);
            CHECK(again != NULL);
            ds_unpack(packed.data, (char *)again + first * k->element);
            CHECK(memcmp(again, weight, total * k->element) == 0);
            free(again);
        }
        guarded_free(packed);
        guarded_free(y);
        guarded_free(expected);
        free(weight);
        problem_free(&p);
    }
}

/* Parts of the columns by several threads, and every epilogue, against the product and the kernels one by one. */
static void test_parts(const ds_real_kernels *k, ds_pool *pool)
{
    /* Of the reference's products of halves, which take ten times as long, each length of an epilogue once. */
    const int rounds = k->stored == DS_STORED_SPLIT ? PARTS / 4 : PARTS;
    for (int round = 0; round < rounds; round++) {
        const bool glu = round % 3 == 0;
        const size_t e = k->element, depth = random_size(300, 700);
        const size_t n_cols = 2 * (round % 2 == 0 ? 32 * random_size(2, 6) : random_size(40, 200));
        const size_t n_rows = random_size(1, 2) == 1 ? random_size(1, 5) : random_size(60, 80);
        const size_t n_out = glu ? n_cols / 2 : n_cols;
        const ds_weight_layout layout = rows_of(depth);
        guarded weight = guarded_new(n_cols * depth * e), bias = guarded_new(n_cols * e);
        guarded x = guarded_new(n_rows * depth * e), other = guarded_new(n_rows * n_out * e);
        guarded constants = guarded_new(4 * n_out * e),
                packed = guarded_new(ds_packed_bytes(k, k->format, n_cols, depth));
        guarded workspace = guarded_new(ds_product_workspace(n_cols, glu, e));
        guarded sums = guarded_new(n_rows * n_cols * e), y = guarded_new(n_rows * n_out * e);
        guarded *const filled[] = {&weight, &bias, &x, &other, &constants};
        for (size_t i = 0; i < sizeof filled / sizeof *filled; i++)
            fill(filled[i]->data, e, filled[i]->n_bytes / e, -1, 1);
        ds_pack(k, k->format, packed.data, weight.data, n_cols, &layout, bias.data);
        void *to[80], *plain[80];
        const void *from[80], *rows[80];
        for (size_t m = 0; m < n_rows; m++) {
            from[m] = at(x.data, e, m * depth);
            rows[m] = at(other.data, e, m * n_out);
            to[m] = (char *)y.data + m * n_out * e;
            plain[m] = (char *)sums.data + m * n_cols * e;
        }
        ds_product product = {.weight = packed.data, .y = plain, .x = from, .n_rows = n_rows};
        k->product(&product, 0, n_cols);

        /* y = batch norm of (constant - silu(.)), then times the other rows, then plus one number */
        const ds_epilogue_step steps[] = {
            {.kind = DS_STEP_UNARY, .function = DS_UNARY_SILU},
            {.kind = DS_STEP_BINARY,
             .function = DS_BINARY_SUB,
             .operand = constants.data,
             .swapped = true},
            {.kind = DS_STEP_COLUMNS, .operand = constants.data, .n = n_out},
            {.kind = DS_STEP_BINARY, .function = DS_BINARY_MUL, .rows = rows},
            {.kind = DS_STEP_BINARY,
             .function = DS_BINARY_ADD,
             .operand = constants.data,
             .one = true}};
        const ds_epilogue epilogue = {.glu = glu, .steps = steps, .n_steps = (size_t)round % 6};
        product.y = to;
        product.epilogue = &epilogue;
        product.workspace = workspace.data;
        product.backwards = round % 5 < 2;
        ds_product_run(k, &product, round % 4 == 0 ? NULL : pool);

        for (size_t m = 0; m < n_rows; m++) { /* in place, row by row */
            char *const z = plain[m], *const c = constants.data;
            if (glu) {
                char gate[500 * sizeof(double)];
                k->unary(DS_UNARY_SIGMOID, gate, z + n_out * e, n_out, NULL);
                k->binary(DS_BINARY_MUL, z, z, gate, n_out, 1, 1);
            }
            if (epilogue.n_steps > 0)
                k->unary(DS_UNARY_SILU, z, z, n_out, NULL);
            if (epilogue.n_steps > 1)
                k->binary(DS_BINARY_SUB, z, c, z, n_out, 1, 1);
            if (epilogue.n_steps > 2) {
                k->column_scale(z, z, 1, n_out, c, c + n_out * e, c + 2 * n_out * e,
                                c + 3 * n_out * e);
            }
            if (epilogue.n_steps > 3)
                k->binary(DS_BINARY_MUL, z, z, rows[m], n_out, 1, 1);
            if (epilogue.n_steps > 4)
                k->binary(DS_BINARY_ADD, z, z, c, n_out, 1, 0);
            CHECK(memcmp(z, to[m], n_out * e) == 0);
        }
        guarded *const all[] = {&weight, &bias,      &x,    &other, &constants,
                                &packed, &workspace, &sums, &y};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            guarded_free(*all[i]);
    }
}

/* What one row holds touches no other. */
static void test_nan_stays_in_its_row(const ds_real_kernels *k)
{
    problem p = problem_new(k->element, 9, 33, 20);
    for (size_t m = 0; m < p.n_rows; m++)
        p.rows[m] = at(p.x, p.element, m * p.depth);
    put(p.x, p.element, 4 * p.depth + 7, (double)NAN);
    guarded y = run(&p, k);
    for (size_t m = 0; m < p.n_rows; m++)
        for (size_t n = 0; n < p.n_cols; n++)
            CHECK(isnan(get(y.data, p.element, p.y_at[m] + n)) == (m == 4));
    guarded_free(y);
    problem_free(&p);
}

static void test_depthwise(const variants *all)
{
    const size_t element = all->element;
    for (int round = 0; round < DEPTHWISE; round++) {
        const size_t n_rows = random_size(0, 11), n_channels = random_size(0, 80);
        const size_t n_taps = round % 20 == 0 ? random_size(250, 530) : random_size(0, 33);
        const size_t tap_stride = n_channels + random_size(0, 4);
        const size_t step = random_size(0, tap_stride); /* rows overlap */
        const ds_taps places = {tap_stride, random_size(1, 9), random_size(0, 9 * tap_stride)};
        const size_t n_x = (9 * n_taps + 9 + n_rows) * tap_stride + n_channels;
        void *const x = malloc((n_x + 1) * element);
        char *const window = malloc((n_taps * n_channels + 1) * element);
        void *const weight = malloc((n_taps * n_channels + 1) * element);
        void *const bias = round % 2 == 0 ? malloc((n_channels + 1) * element) : NULL;
        CHECK(x != NULL && weight != NULL && window != NULL);
        fill(x, element, n_x, -1, 1);
        fill(weight, element, n_taps * n_channels, -1, 1);
        if (bias != NULL)
            fill(bias, element, n_channels, -1, 1);
        guarded expected = guarded_new(n_rows * (n_channels + 1) * element);
        for (size_t v = 0; v < all->n; v++) {
            guarded y = guarded_new(expected.n_bytes);
            void *out[11] = {NULL};
            const void *in[11] = {NULL};
            for (size_t m = 0; m < n_rows; m++) {
                out[m] = (char *)y.data + m * (n_channels + 1) * element;
                in[m] = at(x, element, m * step);
            }
            const ds_packed taps = {.format = DS_FORMAT_TAPS,
                                    .n_cols = n_channels,
                                    .depth = n_taps,
                                    .data = weight,
                                    .bias = bias};
            const ds_product product = {.weight = &taps, .y = out, .x = in, .n_rows = n_rows};
            all->k[v]->depthwise(&product, places);
            if (v == 0)
                memcpy(expected.data, y.data, y.n_bytes);
            CHECK(memcmp(expected.data, y.data, y.n_bytes) == 0);
            for (size_t m = 0; v == 0 && m < n_rows; m++) {
                for (size_t t = 0; t < n_taps; t++)
                    memcpy(window + t * n_channels * element,
                           at(in[m], element,
                              t / places.inner * places.outer + t % places.inner * tap_stride),
                           n_channels * element);
                for (size_t c = 0; c < n_channels; c++) {
                    const double b = bias != NULL ? get(bias, element, c) : 0;
                    const double one =
                        plain(element, at(window, element, c), n_channels, at(weight, element, c),
                              n_channels, n_taps, bias != NULL ? &b : NULL);
                    CHECK(one == get(out[m], element, c));
                }
            }
            guarded_free(y);
        }
        guarded_free(expected);
        free(x);
        free(window);
        free(weight);
        free(bias);
    }
}

/* Some rows and some panels are so small that products, or sums, count as zero; others hold zeros alone. */
static void test_tiny(const variants *all)
{
    static const double scales[] = {1, 0x1p-40, 0x1p-63, 0x1p-66, 0x1p-100, 0x1p-135, 0};
    enum { SCALES = sizeof scales / sizeof *scales };
    for (int round = 0; round < SOME_OF(60); round++) {
        const size_t n_rows = random_size(1, MAX_ROWS), depth = random_size(1, 300);
        problem p = problem_new(sizeof(float), n_rows, random_size(1, 140), depth);
        float *const w = p.weight, *const x = p.x;
        double scale = 1;
        for (size_t i = 0; i < p.n_cols * depth; i++) {
            scale = i % (32 * depth) == 0 ? scales[random_size(0, SCALES - 1)] : scale;
            w[i] = random_size(0, 30) == 0 ? 0 : (float)(scale * (double)w[i]);
        }
        for (size_t i = 0; i < n_rows * (depth + 3); i++) {
            scale = i % (depth + 3) == 0 ? scales[random_size(0, SCALES - 1)] : scale;
            x[i] = random_size(0, 30) == 0 ? 0 : (float)(scale * (double)x[i]);
        }
        /* No bias is taken for zero, nor its sum. */
        for (size_t j = 0; p.bias != NULL && j < p.n_cols; j++)
            ((float *)p.bias)[j] *= round % 2 == 0 ? 0 : (float)scales[random_size(0, SCALES - 1)];
        compare(&p, all);
        problem_free(&p);
    }
    for (int exponent = -116; exponent < -108; exponent++) { /* of 131 131 - 130 132, which is 1 */
        const size_t gap = random_size(1, 2);
        problem p = problem_new(sizeof(float), random_size(1, MAX_ROWS), 40, 3);
        float *const w = p.weight, *const x = p.x;
        memset(x, 0, 3 * sizeof *x);
        x[0] = ldexpf(131, -50);
        x[gap] = ldexpf(130, -50);
        for (size_t m = 0; m < p.n_rows; m++)
            p.rows[m] = x;
        for (size_t j = 0; j < p.n_cols; j++) {
            memset(w + j * 3, 0, 3 * sizeof *w);
            w[j * 3] = ldexpf(131, exponent + 50 - 14);
            w[j * 3 + gap] = ldexpf(-132, exponent + 50 - 14);
            if (p.bias != NULL) /* whose sum is below 2^-126, where it is not 0 */
                ((float *)p.bias)[j] = j % 2 == 0 ? 0 : ldexpf(-1 + 0x1p-10f, exponent - 14);
        }
        compare(&p, all);
        problem_free(&p);
    }
}

/* Products of cells: rows are stored as the weight is. */
static void test_cells(const variants *floats, ds_stored stored, ds_pool *pool)
{
    ds_real_kernels kernels[MAX_VARIANTS];
    variants cells = {.element = sizeof(float)};
    for (size_t v = 0; v < floats->n; v++) {
        if (stored == DS_STORED_SPLIT && v > 0 && !floats->k[v]->tiles)
            continue; /* by tiles only, but for the reference */
        ds_real_kernels *const k = &kernels[cells.n];
        *k = *floats->k[v];
        k->format = DS_FORMAT_CELLS;
        k->stored = stored;
        cells.k[cells.n++] = k;
        test_layouts(k);
        test_parts(k, pool);
    }
    test_tiny(&cells);
    test_variants(&cells);
}

/* Panels of narrow numbers give what the reference makes of the same numbers as floats. */
static void test_narrow(const variants *floats, ds_stored stored)
{
    for (size_t v = 1; v < floats->n; v++) {
        ds_real_kernels k = *floats->k[v];
        k.stored = stored;
        for (size_t n_rows = 0; n_rows <= MAX_ROWS; n_rows++) {
            const size_t depth = random_size(1, n_rows % 5 == 0 ? 600 : 40);
            problem p = problem_new(sizeof(float), n_rows, random_size(1, 150), depth);
            const ds_weight_layout rows = rows_of(depth);
            guarded packed = guarded_new(ds_packed_bytes(&k, k.format, p.n_cols, depth));
            guarded y = run(&p, &k);
            ds_pack(&k, k.format, packed.data, p.weight, p.n_cols, &rows, p.bias);
            CHECK(((const ds_packed *)packed.data)->stored == stored);
            ds_unpack(packed.data, p.weight);
            guarded expected = run(&p, floats->k[0]);
            CHECK(memcmp(y.data, expected.data, y.n_bytes) == 0);
            guarded_free(packed);
            guarded_free(y);
            guarded_free(expected);
            problem_free(&p);
        }
    }
}

/* With a word, `fp16`, `bf16`, `int8` or `split`, products of weights that are stored so alone. */
int main(int argc, char **argv)
{
    static const struct {
        const char *word;
        ds_stored stored;
        bool panels, cells;
    } ways[] = {{"fp16", DS_STORED_FP16, true, false},
                {"bf16", DS_STORED_BF16, true, true},
                {"int8", DS_STORED_INT8, true, true},
                {"split", DS_STORED_SPLIT, false, true}};
    ds_pool *pool = NULL;
    CHECK(ds_pool_create(&pool, NULL, 3) == DS_OK);
    const variants reals[] = {variants_of(0), variants_of(1)};
    for (const variants *all = reals; argc < 2 && all < reals + 2; all++) {
        for (size_t v = 0; v < all->n; v++) {
            test_sizes(all->k[v], v == 0);
            test_layouts(all->k[v]);
            test_parts(all->k[v], pool);
            test_nan_stays_in_its_row(all->k[v]);
        }
        test_reference(all->k[0]);
        test_variants(all);
        test_depthwise(all);
    }
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        if (argc > 1 && strcmp(argv[1], ways[i].word) != 0)
            continue;
        if (ways[i].panels)
            test_narrow(&reals[0], ways[i].stored);
        if (ways[i].cells)
            test_cells(&reals[0], ways[i].stored, pool);
    }
    ds_pool_destroy(pool);
    return check_report();
}
