/* kernels/product.c: runs a product, its columns perhaps split among threads.
 *
 * A part is a run of whole panels: no sum is split, so the bits don't know of it. */
#include "kernels/kernels.h"

/* Multiplications below which waking others costs more than they save: some microseconds. */
enum { PRODUCT_WORTH_SPLITTING = 1 << 18, PRODUCT_PARTS = 64 };

/* Columns that are read forwards where the last come first: a few panels, so that caches hold many such runs. */
enum { PRODUCT_TURN = 128 };

typedef struct product_split {
    const ds_real_kernels *k;
    const ds_product *p;
    size_t n_cols, n_parts; /* columns of y */
} product_split;

/* Where part i begins: panels, as equal as can be. */
static size_t product_part(const product_split *s, size_t i)
{
    const size_t n_panels = (s->n_cols + DS_PANEL_COLUMNS - 1) / DS_PANEL_COLUMNS;
    const size_t col = n_panels * i / s->n_parts * DS_PANEL_COLUMNS;
    return col < s->n_cols ? col : s->n_cols;
}

/* Columns [begin, end), in which order the caller says. */
static void product_columns(const product_split *s, size_t begin, size_t end)
{
    const bool narrow = s->p->weight->format == DS_FORMAT_CELLS; /* rows are narrowed each time */
    const size_t turn = narrow ? 4 * PRODUCT_TURN : PRODUCT_TURN;
    while (s->p->backwards && end - begin > turn) {
        const size_t from = begin + (end - begin - 1) / turn * turn;
        s->k->product(s->p, from, end);
        end = from;
    }
    s->k->product(s->p, begin, end);
}

static void product_run_part(void *context, size_t index)
{
    const product_split *s = context;
    product_columns(s, product_part(s, index), product_part(s, index + 1));
}

size_t ds_product_workspace(size_t n_cols, bool glu, size_t element)
{
    return glu ? DS_PRODUCT_SLAB * n_cols * element : 0;
}

void ds_product_run(const ds_real_kernels *k, const ds_product *p, ds_pool *pool)
{
    const bool glu = p->epilogue != NULL && p->epilogue->glu;
    k = p->weight->format == DS_FORMAT_CELLS ? k->own : k; /* no library knows them */
    product_split s = {.k = k,
                       .p = p,
                       .n_cols = glu ? p->weight->n_cols / 2 : p->weight->n_cols,
                       .n_parts = ds_pool_threads(pool)};
    const size_t n_panels = s.n_cols / DS_PANEL_COLUMNS;
    const bool whole = k->format == DS_FORMAT_ROWS || (glu && s.n_cols % DS_PANEL_COLUMNS != 0);
    s.n_parts = s.n_parts < n_panels ? s.n_parts : n_panels;
    s.n_parts = s.n_parts < PRODUCT_PARTS ? s.n_parts : PRODUCT_PARTS;
    if (whole)
        k->product(p, 0, s.n_cols);
    else if (s.n_parts < 2 ||
             p->n_rows * p->weight->depth < PRODUCT_WORTH_SPLITTING / p->weight->n_cols)
        product_columns(&s, 0, s.n_cols);
    else
        ds_pool_run(pool, product_run_part, &s, s.n_parts);
}
