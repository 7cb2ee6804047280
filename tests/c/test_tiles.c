/* Products by tiles, compared with the reference: the kernel's own text with tile units in plain C, so that it is
 * tested on every machine. Where there are such units test_kernels_product compares them themselves. */
#include "kernels/narrow.h"
#include "kernels/variants.h"
#include "test_kernels.h"

enum { DSK_PANEL = DS_PANEL_COLUMNS };
#define NAME(kernel) tiles_##kernel
#include "kernels/ref/product_cells.inc"

/* Eight tiles, of 16 lines of 64 bytes at most, of which the configuration says how many there are. */
static _Alignas(64) char tiles[8][16][64];
static size_t lines[8];
static bool shaped;

static void tile_move(int t, char *to, const char *from, size_t stride, bool store)
{
    CHECK(shaped);
    for (size_t i = 0; i < lines[t]; i++)
        memcpy(store ? to + i * stride : tiles[t][i], store ? tiles[t][i] : from + i * stride, 64);
}

static void tile_int8(int c, int a, int b)
{
    for (size_t m = 0; m < lines[a]; m++)
        for (size_t n = 0; n < 16; n++) {
            int32_t sum;
            memcpy(&sum, tiles[c][m] + 4 * n, sizeof sum);
            for (size_t k = 0; k < 64; k++)
                sum += (uint8_t)tiles[a][m][k] * (int8_t)tiles[b][k / 4][4 * n + k % 4];
            memcpy(tiles[c][m] + 4 * n, &sum, sizeof sum);
        }
}

static float tile_bf16_number(const char *from)
{
    const float x =
        ds_float_of_bits((uint32_t)(uint8_t)from[0] << 16 | (uint32_t)(uint8_t)from[1] << 24);
    return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x;
}

static void tile_bf16(int c, int a, int b)
{
    float left[16][32], right[16][32]; /* lines of a, columns of b */
    for (size_t i = 0; i < 16; i++)
        for (size_t k = 0; k < 32; k++) {
            left[i][k] = tile_bf16_number(tiles[a][i] + 2 * k);
            right[i][k] = tile_bf16_number(tiles[b][k / 2] + 4 * i + 2 * (k % 2));
        }
    for (size_t m = 0; m < lines[a]; m++)
        for (size_t n = 0; n < 16; n++) {
            float sum, chain[2] = {0, 0};
            memcpy(&sum, tiles[c][m] + 4 * n, sizeof sum);
            for (size_t k = 0; k < 32; k++)
                chain[k % 2] = tiles_flushed_fma(left[m][k], right[n][k], chain[k % 2]);
            sum = tiles_flushed_sum(sum, tiles_flushed_sum(chain[0], chain[1]));
            memcpy(tiles[c][m] + 4 * n, &sum, sizeof sum);
        }
}

#define TILE_SHAPES(s)                 \
    do {                               \
        for (size_t t = 0; t < 8; t++) \
            lines[t] = (s)->lines[t];  \
        shaped = (s)->palette == 1;    \
    } while (0)
#define TILE_ZERO(t) memset(tiles[t], 0, sizeof tiles[t])
#define TILE_LOAD(t, from, stride) tile_move(t, NULL, from, stride, false)
#define TILE_PASS TILE_LOAD
#define TILE_STORE(t, to, stride) tile_move(t, to, NULL, stride, true)
#define TILE_INT8 tile_int8
#define TILE_BF16 tile_bf16
#define TILE_RELEASE() (shaped = false)
#include "kernels/x86_amx/tiles.inc"

enum { MOST_ROWS = 300 };

/* Numbers of all sizes; of the first rows some below the normal range, of the second one that is not finite. */
static void fill_rows(float *x, size_t n_rows, size_t depth)
{
    fill(x, sizeof *x, n_rows * depth, -1, 1);
    for (size_t k = 0; k < depth; k++) {
        const float scale = k % 3 == 0 ? 0x1p-120f : k % 3 == 1 ? 0x1p-127f : 1;
        x[k] *= scale;
    }
    if (n_rows > 1 && depth > 0)
        x[depth + random_size(0, depth - 1)] = random_bits() >> 63 ? NAN : INFINITY;
}

static void try_product(ds_stored stored, size_t n_rows, size_t n_cols, size_t depth)
{
    ds_real_kernels k = ds_kernels_for(DS_ISA_REF)->real[0];
    k.stored = stored;
    float *const weight = malloc((n_cols * depth + 1) * sizeof(float));
    float *const bias = random_bits() >> 63 ? malloc(n_cols * sizeof(float)) : NULL;
    float *const x = malloc((n_rows * depth + 1) * sizeof(float));
    CHECK(weight != NULL && x != NULL);
    fill(weight, sizeof(float), n_cols * depth, -1, 1);
    for (size_t i = 0; i < n_cols * depth; i += 7)
        weight[i] *= 0x1p-10f;
    fill_rows(x, n_rows, depth);
    if (bias != NULL)
        fill(bias, sizeof(float), n_cols, -1, 1);
    const size_t size = ds_packed_bytes(&k, DS_FORMAT_CELLS, n_cols, depth);
    ds_packed *const packed = aligned_alloc(64, size);
    const ds_weight_layout layout = rows_of(depth);
    CHECK(packed != NULL);
    ds_pack(&k, DS_FORMAT_CELLS, packed, weight, n_cols, &layout, bias);

    const size_t begin = random_size(0, (n_cols - 1) / DSK_PANEL) * DSK_PANEL;
    const size_t end = random_bits() >> 63 ? n_cols : random_size(begin, n_cols);
    guarded y[2];
    const void *rows[MOST_ROWS];
    for (size_t m = 0; m < n_rows; m++)
        rows[m] = x + m * depth;
    for (int i = 0; i < 2; i++) {
        void *out[MOST_ROWS];
        y[i] = guarded_new(n_rows * n_cols * sizeof(float));
        for (size_t m = 0; m < n_rows; m++)
            out[m] = (float *)y[i].data + m * n_cols;
        if (i == 0)
            tiles_product_cells(packed, out, rows, n_rows, begin, end);
        else
            tiles_product(stored, packed, out, rows, n_rows, begin, end);
    }
    CHECK(!shaped); /* tiles are given back */
    CHECK(same(y[0].data, y[1].data, sizeof(float), n_rows * n_cols));
    guarded_free(y[0]);
    guarded_free(y[1]);
    free(packed);
    free(weight);
    free(bias);
    free(x);
}

#ifdef __SANITIZE_ADDRESS__ /* what it finds comes of few; that values are right is for all */
enum { LARGEST = 33 * 130, LARGEST_SPLIT = 33 * 130 };
#else
enum { LARGEST = 300 * 1100, LARGEST_SPLIT = 33 * 1100 };
#endif

int main(void)
{
    static const size_t n_rows[] = {1, 2, 15, 16, 17, 31, 32, 33, 48, 63, 65, 300};
    static const size_t depths[] = {0, 1, 5, 31, 32, 33, 63, 64, 65, 130, 520, 1100};
    for (size_t stored = DS_STORED_BF16; stored <= DS_STORED_SPLIT; stored++) {
        for (size_t i = 0; i < sizeof n_rows / sizeof *n_rows; i++)
            for (size_t j = 0; j < sizeof depths / sizeof *depths; j++)
                if (n_rows[i] * depths[j] <= (stored == DS_STORED_SPLIT ? LARGEST_SPLIT : LARGEST))
                    try_product((ds_stored)stored, n_rows[i],
                                random_size(1, n_rows[i] > 100 ? 40 : 100), depths[j]);
        try_product((ds_stored)stored, 5, 33,
                    stored == DS_STORED_INT8 ? DS_INT8_DEPTH : DS_BF16_DEPTH);
    }
    return check_report();
}
