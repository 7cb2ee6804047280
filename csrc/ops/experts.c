/* ops/experts.c: every token's product with the matrices of the experts that were chosen for it.
 *
 *     expert_linear   y[..., j, n] = sum over d of x[..., j, d] * weight[e][n][d]  (+ bias[e][n]),  e = index[..., j]
 *     combine         y[..., d] = sum over j, ascending, of weights[..., j] * x[..., j, d]
 *
 * expert_linear: in x [..., D], one vector for all k choices, or [..., k D], one for each; index int64 [..., k];
 * weight [E][N][D], bias? [E][N]; out [..., k N]. The index -1 drops a choice: zeros; any other that is no expert's
 * gives NaN where it is computed, in an engine, and is refused elsewhere. combine: in x [..., k D], weights [..., k];
 * out [..., D]. Frame in, frame out.
 *
 * The choices of all frames of all streams are sorted by expert, in the order of frames: a histogram, its sums, and
 * pointers scattered by them. Then there is one product for each expert that has some, so that its weights are read
 * once per step; no row is copied, and the products write where results lie. A choice's sum is the product kernel's,
 * in the order that belongs to the weight's shape: whatever else an expert is given leaves no trace in it. */
#include <string.h>

#include "ops/back.h"
#include "ops/framewise.h"
#include "ops/packed.h"
#include "ops/registry.h"

enum { WEIGHT, BIAS };
enum { X, INDEX };
enum { DROPPED = -1 };
enum {
    PART = 4 * DS_PANEL_COLUMNS, /* columns of a task */
    WORTH_SPLITTING = 1 << 18    /* multiplications below which waking others costs more */
};

typedef struct sizes {
    size_t experts, n_out, depth, element;
    size_t choices; /* k */
    size_t tokens;  /* in a frame */
    bool each;      /* a vector for each choice */
} sizes;

static sizes expert_linear_sizes(const ds_op *op)
{
    const ds_signature *weight = &op->weight[WEIGHT], *x = &op->in[X], *index = &op->in[INDEX];
    sizes s = {.experts = (size_t)weight->shape[0],
               .n_out = (size_t)weight->shape[1],
               .depth = (size_t)weight->shape[2],
               .element = ds_op_element(op),
               .choices = ds_last_size(index),
               .tokens = 1,
               .each = x->shape[x->rank - 1] != weight->shape[2]};
    for (int i = 0; i + 1 < index->rank; i++)
        s.tokens *= (size_t)index->shape[i];
    return s;
}

static ds_status expert_linear_infer(ds_op *op)
{
    const sizes s = expert_linear_sizes(op);
    size_t most = 0, choices = 0;
    DS_TRY(ds_packed_check(&most, s.n_out, s.depth, s.element));
    DS_TRY(ds_size_mul(&most, most, s.experts));
    DS_TRY(ds_size_mul(&choices, s.tokens, s.choices));
    DS_TRY(ds_size_mul(&most, choices, s.n_out));
    DS_TRY(ds_size_mul(&op->scratch.per_out, choices, 2 * sizeof(void *)));
    DS_TRY(ds_size_mul(&op->scratch.per_call, s.experts + 1, 2 * sizeof(size_t)));
    op->out[0].shape[op->in[X].rank - 1] = (int64_t)(s.choices * s.n_out);
    const size_t outer = ds_back_outer_bytes(s.n_out, s.depth, s.element),
                 rows = ds_back_rows_bytes(s.depth, s.element);
    op->back_scratch.per_out = choices * 3 * sizeof(void *);
    op->back_scratch.per_call =
        ds_saturated_sum((outer > rows ? outer : rows) +
                             (s.n_out + s.experts + 1) * sizeof(double) + 8 * (size_t)DS_ALIGNMENT,
                         ds_back_packed_bytes(s.depth, s.n_out, s.element));
    op->shares = true;
    op->spread = s.choices < s.experts ? (double)s.experts / (double)s.choices : 1;
    return DS_OK;
}

static size_t expert_linear_prepared_bytes(const ds_op *op, const ds_real_kernels *k)
{
    const sizes s = expert_linear_sizes(op);
    return s.experts * ds_packed_bytes(k, k->format, s.n_out, s.depth);
}

static void expert_linear_prepare(const ds_op *op, void *prepared, const void *const *weights,
                                  const ds_real_kernels *k)
{
    const sizes s = expert_linear_sizes(op);
    const char *const bias = ds_op_has_weight(op, BIAS) ? weights[BIAS] : NULL;
    for (size_t e = 0; e < s.experts; e++)
        prepared =
            ds_packed_rows(k, prepared, weights, WEIGHT, e * s.n_out * s.depth * s.element, s.n_out,
                           s.depth, bias == NULL ? NULL : bias + e * s.n_out * s.element);
}

/* ---------------------------------------------------------------- values */
/* The choices of all rows: those of expert e are [first[e], first[e + 1]), in the order of frames. y: results, or their
 * slopes. */
typedef struct chosen {
    sizes s;
    const ds_run *run;
    const ds_back *back; /* NULL: forward */
    void **y;
    const void **x;
    void **dx;           /* backward */
    size_t *first, *hit; /* hit: the experts that have some; forward */
    size_t n_hit, n_parts;
} chosen;

/* Results of a choice that is none. */
static void fill_unchosen(const sizes *s, char *y, int64_t e)
{
    if (e == DROPPED)
        memset(y, 0, s->n_out * s->element);
    else
        ds_fill_nan(y, s->n_out, s->element);
}

/* Counts every choice of every row (first[e + 1]), or puts it at first[e]++. */
static void each_choice(const ds_op *op, chosen *c, bool counting)
{
    const sizes *s = &c->s;
    const size_t vector = s->depth * s->element, result = s->n_out * s->element;
    ds_frames f;
    f.next = 0;
    while (c->back ? ds_back_next_frames(op, c->back, &f) : ds_next_frames(op, c->run, &f)) {
        char *const y = c->back ? (char *)(uintptr_t)f.g[0] : f.y[0];
        for (size_t i = 0; i < f.n * s->tokens * s->choices; i++) {
            const int64_t e = ((const int64_t *)f.x[INDEX])[i];
            const size_t token = (s->each ? i : i / s->choices) * vector;
            if (e < 0 || e >= (int64_t)s->experts) {
                if (counting && !c->back)
                    fill_unchosen(s, y + i * result, e);
            } else if (counting) {
                c->first[e + 1]++;
            } else {
                const size_t at = c->first[e]++;
                c->y[at] = y + i * result;
                c->x[at] = (const char *)f.x[X] + token;
                if (c->back)
                    c->dx[at] = f.dx[X] ? (char *)f.dx[X] + token : NULL;
            }
        }
    }
}

/* Lists them all; how many there are. */
static size_t list_choices(const ds_op *op, chosen *c)
{
    memset(c->first, 0, (c->s.experts + 1) * sizeof *c->first);
    each_choice(op, c, true);
    for (size_t e = 0; e < c->s.experts; e++) {
        if (c->hit && c->first[e + 1] > 0)
            c->hit[c->n_hit++] = e;
        c->first[e + 1] += c->first[e];
    }
    const size_t n = c->first[c->s.experts];
    each_choice(op, c, false);
    return n;
}

/* The first choice of expert e: all have moved on by one expert. */
static size_t first_of(const chosen *c, size_t e)
{
    return e == 0 ? 0 : c->first[e - 1];
}

/* A run of columns of one expert's product. */
static void expert_linear_task(void *context, size_t index)
{
    const chosen *c = context;
    const size_t e = c->hit[index / c->n_parts], part = index % c->n_parts;
    const size_t from = first_of(c, e), step = c->n_parts == 1 ? c->s.n_out : PART,
                 begin = part * step;
    const ds_packed *first = c->run->prepared;
    const ds_packed *weight = (const void *)((const char *)first + e * first->n_bytes);
    const ds_product p = {
        .weight = weight, .y = c->y + from, .x = c->x + from, .n_rows = c->first[e] - from};
    c->run->k->product(&p, begin, begin + step < c->s.n_out ? begin + step : c->s.n_out);
}

static void expert_linear_forward(const ds_op *op, const ds_run *run)
{
    chosen c = {.s = expert_linear_sizes(op), .run = run, .n_parts = 1};
    const size_t n = (size_t)run->frames_out * c.s.tokens * c.s.choices;
    c.y = run->scratch;
    void *const behind_y = c.y + n;
    c.x = behind_y;
    void *const behind_x = c.x + n;
    c.first = behind_x;
    c.hit = c.first + c.s.experts + 1;
    const size_t n_chosen = list_choices(op, &c);
    const bool split = n_chosen * c.s.depth >= WORTH_SPLITTING / c.s.n_out;
    if (split && ds_pool_threads(run->pool) > 1 && run->k->format != DS_FORMAT_ROWS)
        c.n_parts = (c.s.n_out + PART - 1) / PART;
    ds_pool_run(split ? run->pool : NULL, expert_linear_task, &c, c.n_hit * c.n_parts);
}

static void expert_linear_backward(const ds_op *op, const ds_back *b)
{
    chosen c = {.s = expert_linear_sizes(op), .run = b->run, .back = b};
    const sizes *s = &c.s;
    const ds_run *run = b->run;
    ds_room room = {b->scratch};
    const size_t n = (size_t)run->frames_out * s->tokens * s->choices;
    const ds_weight_layout turned = ds_layout_turned(s->n_out, (ptrdiff_t)s->depth),
                           rows = ds_layout_rows(s->depth);
    c.y = ds_room_take(&room, n * sizeof *c.y);
    c.x = ds_room_take(&room, n * sizeof *c.x);
    c.dx = ds_room_take(&room, n * sizeof *c.dx);
    c.first = ds_room_take(&room, (s->experts + 1) * sizeof *c.first);
    ds_packed *const packed =
        ds_room_take(&room, ds_back_packed_bytes(s->depth, s->n_out, s->element));
    (void)list_choices(op, &c);
    for (size_t e = 0; e < s->experts; e++) {
        const size_t from = first_of(&c, e), n_rows = c.first[e] - from;
        const size_t matrix = e * s->n_out * s->depth * s->element;
        const void *const *const g = (const void *const *)(c.y + from);
        if (n_rows == 0)
            continue;
        ds_pack(run->k, run->k->format, packed, (const char *)run->weights[WEIGHT] + matrix,
                s->depth, &turned, NULL);
        ds_back_rows(run, packed, c.dx + from, g, n_rows, room);
        if (b->dweights[WEIGHT])
            ds_back_outer(run, (char *)b->dweights[WEIGHT] + matrix, &rows, g, s->n_out, c.x + from,
                          n_rows, room);
        if (op->n_weights > BIAS && b->dweights[BIAS])
            ds_back_column_sums(run, (char *)b->dweights[BIAS] + e * s->n_out * s->element, g,
                                n_rows, s->n_out, room);
    }
}

const ds_op_def ds_op_expert_linear = {
    DS_OPERATOR_OF(expert_linear, "Products with the matrices of chosen experts.", 2, 1, 2),
    .flags = DS_OP_LOCKSTEP | DS_OP_PACKS,
    .shapes = "[.., in_features|choices*in_features]: float; [.., choices]: int64; "
              "weight [experts, out_features, in_features]: float; "
              "bias? [experts, out_features]: float",
    .infer = expert_linear_infer,
    DS_PREPARED(expert_linear),
    .narrows = ds_narrows_rows,
    .indices = "expert",
    .least_index = DROPPED,
    .checked_input = INDEX,
    .forward = expert_linear_forward,
    .backward = expert_linear_backward,
    .reads = DS_READS_ALL_X};

/* ---------------------------------------------------------------- combine */

static ds_status combine_infer(ds_op *op)
{
    const ds_signature *x = &op->in[0], *weights = &op->in[1];
    op->out[0].shape[x->rank - 1] /= weights->shape[weights->rank - 1];
    op->scratch.per_call = (size_t)op->out[0].shape[x->rank - 1] * ds_op_element(op);
    return DS_OK;
}

static void combine_frames(const ds_op *op, const ds_run *run, const ds_frames *f)
{
    const ds_signature *in = op->in, *out = &op->out[0];
    const size_t k = ds_last_size(&in[1]), n = ds_last_size(out);
    const size_t element = ds_op_element(op), row = n * element;
    const size_t n_tokens = f->n * ds_elements(&in[1]) / k;
    const char *x = f->x[0], *w = f->x[1];
    for (size_t i = 0; i < n_tokens; i++) {
        char *const y = (char *)f->y[0] + i * row;
        for (size_t j = 0; j < k; j++, x += row, w += element) {
            run->k->binary(DS_BINARY_MUL, j == 0 ? y : run->scratch, x, w, n, 1, 0);
            if (j > 0)
                run->k->binary(DS_BINARY_ADD, y, y, run->scratch, n, 1, 1);
        }
    }
}
DS_FRAMEWISE_FORWARD(combine)

DS_FOR_ELEMENT void combine_token(void *dx, void *dw, const void *g, const void *x, const void *w,
                                  size_t k, size_t n, size_t element)
{
    for (size_t j = 0; j < k; j++) {
        double along = 0;
        for (size_t i = 0; i < n; i++) {
            const double slope = ds_sums_real(g, element, i);
            along += slope * ds_sums_real(x, element, j * n + i);
            if (dx)
                ds_back_add_real(dx, element, j * n + i, slope * ds_sums_real(w, element, j));
        }
        if (dw)
            ds_back_add_real(dw, element, j, along);
    }
}

static void combine_slopes(const ds_op *op, const ds_back *b, const ds_frames *f)
{
    const ds_signature *in = op->in, *out = &op->out[0];
    const size_t k = ds_last_size(&in[1]), n = ds_last_size(out);
    const size_t element = ds_op_element(op), row = n * element;
    const size_t n_tokens = f->n * ds_elements(&in[1]) / k;
    (void)b;
    for (size_t i = 0; i < n_tokens; i++)
        DS_BY_ELEMENT(combine_token, element, f->dx[0] ? (char *)f->dx[0] + i * k * row : NULL,
                      f->dx[1] ? (char *)f->dx[1] + i * k * element : NULL,
                      (const char *)f->g[0] + i * row, (const char *)f->x[0] + i * k * row,
                      (const char *)f->x[1] + i * k * element, k, n);
}
DS_FRAMEWISE_BACKWARD(combine)

const ds_op_def ds_op_combine = {
    DS_OPERATOR_OF(combine, "Sums of what experts gave, weighted, in the order of choices.", 2, 1,
                   2),
    .flags = DS_OP_LOCKSTEP | DS_OP_REAL,
    .shapes = "[.., choices*n]; [.., choices]",
    .infer = combine_infer,
    .forward = combine_forward,
    .backward = combine_backward,
    .reads = DS_READS_ALL_X};
