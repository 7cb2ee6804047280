/* ops: every operator, and many variations of each: in chunks it gives the bits that it gives in one piece, whoever
 * else is in the batch, in place too, in every variant of the kernels the same. That these are the right values is
 * for the laws to say. */
#include "every_op.h"

enum { VARIATIONS = SOME_OF(9), OF_LARGER = SOME_OF(4), RENAMED = 1024 };
/* The longest rows: of what has many weights, a few times as many as kernels take at once. */
enum { LONG = 200, LONG_OF_LARGER = 48, MANY_WEIGHTS = 4096 };

/* Sizes that kernels have ways of their own for, beside the small ones of every_op. */
static const char *const larger[] = {
#define LARGER OP_TEXT
#define BLOCKS OP_TEXT
#include "op_cases.def"
};

/* ---------------------------------------------------------------- random data */

static char *random_values(const ds_signature *s, int64_t n, int64_t n_rows)
{
    const size_t n_elements = (size_t)(n * ds_signature_elements(s));
    char *data = exact_room(n_elements * ds_dtype_bytes(s->dtype));
    for (size_t i = 0; i < n_elements; i++) {
        const float single = (float)random_below(1 << 20) / (float)(1 << 19) - 1.0f;
        const double real = (double)single;
        const int64_t integer = n_rows > 0 ? random_below(n_rows) : random_in(-9, 9);
        const int16_t small = (int16_t)random_in(-32768, 32767);
        const uint8_t truth = (uint8_t)random_below(2);
        const void *const from[] = {[DS_F32] = &single,
                                    [DS_F64] = &real,
                                    [DS_I64] = &integer,
                                    [DS_BOOL] = &truth,
                                    [DS_I16] = &small};
        memcpy(data + i * ds_dtype_bytes(s->dtype), from[s->dtype], ds_dtype_bytes(s->dtype));
    }
    return data;
}

/* Lengths of a row's inputs that the operator does not refuse; false where it refuses all that are tried. */
static bool random_lengths(const ds_op *op, int64_t longest, int64_t *lengths)
{
    for (int tries = 0; tries < 100; tries++) {
        const int64_t most = random_below(3) == 0 ? 4 : random_below(8) == 0 ? longest : 24;
        const int64_t n = random_in(0, most);
        const bool alike = op->def != &ds_op_cut && op->def != &ds_op_put;
        ds_pair pairs[DS_MAX_INPUTS];
        for (int i = 0; i < op->n_inputs; i++) {
            lengths[i] = i == 0 || alike ? n : random_in(0, most);
            pairs[i] = (ds_pair){lengths[i], lengths[i]};
        }
        if (ds_op_check(op, pairs, true) == DS_OK)
            return true;
    }
    return false;
}

/* ---------------------------------------------------------------- one operator */

/* Whether two streams gave the same bits; of a NaN, where kernels differ, nothing but that it is one. */
static bool same_results(const ds_op *op, const op_stream *a, const op_stream *b, bool any_nan)
{
    for (int o = 0; o < op->n_outputs; o++) {
        const size_t n_bytes = (size_t)a->n[o] * ds_signature_bytes(&op->out[o]);
        const size_t size = ds_dtype_bytes(op->out[o].dtype);
        if (a->n[o] != b->n[o])
            return false;
        for (size_t at = 0; at < n_bytes; at += size) {
            float f[2] = {0};
            double d[2] = {0};
            const bool single = op->out[o].dtype == DS_F32, real = op->out[o].dtype == DS_F64;
            memcpy(single ? (void *)&f[0] : (void *)&d[0], a->y[o] + at, size);
            memcpy(single ? (void *)&f[1] : (void *)&d[1], b->y[o] + at, size);
            const bool nan =
                (single && isnan(f[0]) && isnan(f[1])) || (real && isnan(d[0]) && isnan(d[1]));
            if (memcmp(a->y[o] + at, b->y[o] + at, size) != 0 && !(any_nan && nan))
                return false;
        }
    }
    return true;
}

typedef struct trial {
    const ds_op *op;
    const void *weights[EVERY_OP_WEIGHTS];
    char *x[MAX_ROWS][DS_MAX_INPUTS];
    int64_t lengths[MAX_ROWS][DS_MAX_INPUTS];
    op_stream reference[MAX_ROWS]; /* each alone, in one piece, by the plain kernels */
} trial;

static bool try_kernels(trial *t, const ds_kernels *kernels)
{
    const ds_op *op = t->op;
    const bool overwrites = (op->def->flags & DS_OP_INPLACE) != 0 && op->same_counts &&
                            ds_signature_bytes(&op->in[0]) == ds_signature_bytes(&op->out[0]);
    driven d = drive(op, &kernels->real[ds_op_real(op) == DS_F64], t->weights);
    op_stream alone[MAX_ROWS];
    bool good = true;
    for (size_t r = 0; r < MAX_ROWS; r++) {
        alone[r] = open_op_stream(&d, t->x[r], t->lengths[r], false);
        feed_op_whole(&d, &alone[r]);
        if (kernels->isa == DS_ISA_REF)
            t->reference[r] = alone[r];
        good = good && same_results(op, &alone[r], &t->reference[r], true);
    }
    for (int in_place = 0; in_place <= (overwrites ? 1 : 0); in_place++) {
        op_stream pieces[MAX_ROWS];
        for (size_t r = 0; r < MAX_ROWS; r++)
            pieces[r] = open_op_stream(&d, t->x[r], t->lengths[r], true);
        feed_op(&d, pieces, MAX_ROWS, in_place == 1);
        for (size_t r = 0; r < MAX_ROWS; r++) {
            good = good && same_results(op, &pieces[r], &alone[r], false);
            close_op_stream(&d, &pieces[r]);
        }
    }
    for (size_t r = 0; r < MAX_ROWS && kernels->isa != DS_ISA_REF; r++)
        close_op_stream(&d, &alone[r]);
    drive_no_more(&d);
    return good;
}

static void print_op(const op_text *text)
{
    fprintf(stderr, "%s(", text->def->name);
    for (size_t i = 0; i < text->n_attrs; i++) {
        const ds_attr *a = &text->attrs[i];
        fprintf(stderr, "%s=", a->name);
        if (a->kind == DS_ATTR_CHOICE)
            fprintf(stderr, "%s ", a->text);
        else if (a->kind == DS_ATTR_REAL)
            fprintf(stderr, "%g ", a->value.x);
        for (int k = 0; k < a->value.n_ints || (k == 0 && a->kind == DS_ATTR_INT); k++)
            fprintf(stderr, "%d ", (int)(a->kind == DS_ATTR_INT ? a->value.i : a->value.ints[k]));
    }
    for (size_t i = 0; i < text->n_in + text->n_weights; i++) {
        char shape[64];
        const ds_signature *s = i < text->n_in ? &text->in[i] : &text->weights[i - text->n_in];
        fprintf(stderr, "; %s %s%s", i < text->n_in ? "input" : "weight", ds_dtype_name(s->dtype),
                ds_signature_text(s, shape, sizeof shape));
    }
    fprintf(stderr, ")\n");
}

/* Whether there is such an operator, and it was tried. */
static bool try_op(const op_text *text)
{
    ds_op *op = NULL;
    const ds_kernels *all[8];
    const size_t n_all = ds_kernels_list(all, 8);
    const ds_isa best = ds_cpu_best();
    trial t = {.op = NULL};
    if (create_op(&op, text) != DS_OK)
        return false;
    t.op = op;
    int64_t n_indices = 0, n_elements = 0;
    for (int i = 0; i < op->n_weights; i++) {
        if (ds_op_has_weight(op, i)) {
            t.weights[i] = random_values(&op->weight[i], 1, 0);
            n_indices = op->weight[0].shape[0];
            n_elements += ds_signature_elements(&op->weight[i]);
        }
    }
    bool fits = true;
    for (size_t r = 0; r < MAX_ROWS && fits; r++) {
        fits = random_lengths(op, n_elements > MANY_WEIGHTS ? LONG_OF_LARGER : LONG, t.lengths[r]);
        for (int i = 0; i < op->n_inputs && fits; i++)
            t.x[r][i] = random_values(&op->in[i], t.lengths[r][i], n_indices);
    }
    for (size_t v = 0; v < n_all && fits; v++) {
        if (all[v]->isa <= best && !try_kernels(&t, all[v])) {
            print_op(text);
            CHECK(!"the same bits in pieces, and by all kernels");
        }
    }
    const driven d = {.op = op};
    for (size_t r = 0; r < MAX_ROWS; r++) {
        close_op_stream(&d, &t.reference[r]);
        for (int i = 0; i < op->n_inputs; i++)
            free(t.x[r][i]);
    }
    for (int i = 0; i < op->n_weights; i++)
        free((void *)(uintptr_t)t.weights[i]);
    ds_op_destroy(op);
    return fits;
}

/* ---------------------------------------------------------------- variations */

typedef struct variation {
    op_text text;
    char choice[DS_MAX_ATTRS][24];
} variation;

static int64_t random_attr(ds_attr_range range)
{
    return range == DS_0_OR_1     ? random_below(2)
           : random_below(8) == 0 ? random_in(0, 20)
                                  : random_in(range == DS_FROM_1 ? 1 : 0, 4);
}

static int n_choices(const ds_attr_def *def)
{
    int n = 1;
    for (const char *at = def->choices; (at = strchr(at, '|')) != NULL; at++)
        n++;
    return n;
}

static void vary_attr(variation *v, const ds_attr_def *def)
{
    size_t k = 0;
    while (k < v->text.n_attrs && strcmp(v->text.attrs[k].name, def->name) != 0)
        k++;
    ds_attr *attr = &v->text.attrs[k];
    if (k == v->text.n_attrs) {
        *attr = (ds_attr){.name = def->name, .kind = def->kind};
        attr->value.n_ints = def->kind == DS_ATTR_INTS ? (int)random_below(5) : 0;
        v->text.n_attrs++;
    }
    attr->value.i = random_attr(def->range);
    attr->value.x = (double)random_in(-3, 6) / 2.0;
    for (int i = 0; i < attr->value.n_ints; i++)
        attr->value.ints[i] = random_below(2) == 0 ? attr->value.ints[i] : random_in(0, 4);
    if (def->kind == DS_ATTR_CHOICE) {
        const char *at = def->choices;
        for (int n = (int)random_below(n_choices(def)); n > 0; n--)
            at = strchr(at, '|') + 1;
        CHECK(strcspn(at, "|") < sizeof v->choice[k]);
        (void)snprintf(v->choice[k], sizeof v->choice[k], "%.*s", (int)strcspn(at, "|"), at);
        attr->text = v->choice[k];
    }
}

/* Other attributes, extents (equal ones stay equal), types and rates; most of them are refused. */
static void vary(variation *v)
{
    static const ds_dtype types[] = {DS_F32, DS_F32, DS_F64, DS_F64, DS_I64, DS_I16, DS_BOOL};
    static const ds_rate rates[] = {{1, 1}, {2, 1}, {3, 1}, {1, 2}, {3, 2}};
    const ds_dtype type = types[random_below(7)];
    const bool resize = random_below(2) == 0;
    int64_t renamed[RENAMED];
    for (int i = 0; i < RENAMED; i++)
        renamed[i] = resize && i < 10 && random_below(2) == 0 ? random_in(1, 9) : i;
    for (const ds_attr_def *a = v->text.def->attrs; a != NULL && a->name != NULL; a++)
        if (random_below(2) == 0)
            vary_attr(v, a);
    for (size_t i = 0; i < v->text.n_in + v->text.n_weights; i++) {
        const bool is_input = i < v->text.n_in;
        ds_signature *s = is_input ? &v->text.in[i] : &v->text.weights[i - v->text.n_in];
        for (int d = 0; d < s->rank; d++)
            s->shape[d] = renamed[s->shape[d]];
        s->dtype = s->dtype == DS_F32 ? type : s->dtype;
    }
    if (v->text.n_in > 1 && random_below(2) == 0) {
        v->text.in[0].rate = rates[random_below(5)];
        v->text.in[1].rate = rates[0];
    }
}

/* So many variations, and another for each of the choices that attributes have, where they are asked for. */
static void try_variations(const char *words, int wanted, bool choices)
{
    op_text text = read_op(words);
    if (!try_op(&text)) {
        fprintf(stderr, "%s: %s\n", words, ds_last_error());
        CHECK(!"every text is an operator");
    }
    for (const ds_attr_def *a = text.def->attrs; choices && a != NULL && a->name != NULL; a++)
        wanted += a->kind == DS_ATTR_CHOICE ? n_choices(a) : 0;
    for (int tried = 0, tries = 0; tried < wanted && tries < 40 * wanted; tries++) {
        variation v = {.text = text};
        vary(&v);
        tried += try_op(&v.text);
    }
    free_op_text(&text);
}

/* ---------------------------------------------------------------- need */

/* Whether outputs from m on depend on this frame of the input. */
static bool depends(const driven *d, char **x, const int64_t *length, const op_stream *whole,
                    int64_t m, int64_t frame)
{
    const size_t in_bytes = ds_signature_bytes(&d->op->in[0]);
    const size_t at = (size_t)m * ds_signature_bytes(&d->op->out[0]);
    char *bytes = x[0] + (size_t)frame * in_bytes;
    for (size_t i = 2; i < in_bytes; i += sizeof(float))
        bytes[i] = (char)(bytes[i] ^ 0x55);
    op_stream changed = open_op_stream(d, x, length, false);
    feed_op_whole(d, &changed);
    for (size_t i = 2; i < in_bytes; i += sizeof(float))
        bytes[i] = (char)(bytes[i] ^ 0x55);
    const size_t n_bytes = (size_t)(whole->n[0] - m) * ds_signature_bytes(&d->op->out[0]);
    const bool differs = memcmp(changed.y[0] + at, whole->y[0] + at, n_bytes) != 0;
    close_op_stream(d, &changed);
    return differs;
}

/* Of operators that read all that lies between, need is the first frame that an output depends on. */
static void test_need_is_tight(void)
{
    static const char *const texts[] = {
#define TIGHT OP_TEXT
#include "op_cases.def"
    };
    for (size_t k = 0; k < sizeof texts / sizeof texts[0]; k++) {
        enum { N = 60 };
        op_text text = read_op(texts[k]);
        ds_op *op = NULL;
        CHECK(create_op(&op, &text) == DS_OK);
        char *x[DS_MAX_INPUTS] = {random_values(&op->in[0], N, 0)};
        const void *weight = op->n_weights > 0 ? random_values(&op->weight[0], 1, 0) : NULL;
        driven d = drive(op, &ds_kernels_for(DS_ISA_REF)->real[0], &weight);
        const int64_t length[DS_MAX_INPUTS] = {N};
        op_stream whole = open_op_stream(&d, x, length, false);
        feed_op_whole(&d, &whole);
        for (int64_t m = 0; m < 12; m++) {
            int64_t first[DS_MAX_INPUTS];
            ds_op_need(op, m, first);
            if (!depends(&d, x, length, &whole, m, first[0]) ||
                (first[0] > 0 && depends(&d, x, length, &whole, m, first[0] - 1))) {
                fprintf(stderr, "%s: frame %d is needed for output %d\n", texts[k], (int)first[0],
                        (int)m);
                CHECK(!"need is tight");
            }
        }
        close_op_stream(&d, &whole);
        drive_no_more(&d);
        free((void *)(uintptr_t)weight);
        free(x[0]);
        ds_op_destroy(op);
        free_op_text(&text);
    }
}

/* With a number, so many times as many variations. */
int main(int argc, char **argv)
{
    const int times = argc > 1 ? atoi(argv[1]) : 1;
    count_memory();
    for (size_t i = 0; i < N_EVERY_OP; i++)
        try_variations(every_op[i], VARIATIONS * times, true);
    for (size_t i = 0; i < sizeof larger / sizeof larger[0]; i++)
        try_variations(larger[i], OF_LARGER * times, false);
    test_need_is_tight();
    return check_report();
}
