/* ops/fft.c: discrete Fourier transforms over the last feature axis of every frame.
 *
 *     rfft   x [..., n]                -> real, imaginary parts [..., n / 2 + 1]
 *     irfft  parts [..., size / 2 + 1] -> y [..., size];  its inverse
 *     fft    parts [..., n]            -> parts [..., n]
 *     ifft   parts [..., n]            -> parts [..., n];  its inverse
 *
 *     y[k] = sum_j x[j] exp(-2 pi i j k / n); inverses have +, and divide by n
 *
 * Complex numbers are two inputs or outputs, which have all counts in common. irfft reads no imaginary part of the
 * first number, nor of the last where size is even: those of real numbers are zero. What transforms of a size need
 * besides is made once (prepare).
 *
 * Source: torch.fft.rfft, irfft, fft, ifft. */
#include "ops/back.h"
#include "ops/framewise.h"
#include "ops/registry.h"

enum { SIZE };

static const int64_t FFT_LIMIT = (int64_t)1 << 24; /* of a size */

static const ds_attr_def irfft_attrs[] = {
    {"size", DS_ATTR_INT, .required = true, .doc = "numbers of an output", .range = DS_FROM_1},
    {0}};

static int64_t *fft_last(ds_signature *signature)
{
    return &signature->shape[signature->rank - 1];
}

/* Of real numbers, or of complex ones where there are no others. */
static int64_t fft_size(const ds_op *op)
{
    const ds_signature *in = &op->in[0];
    return op->def->member == DS_FFT_REAL_INVERSE ? op->attr[SIZE].i : in->shape[in->rank - 1];
}

static ds_status fft_infer(ds_op *op)
{
    const ds_fft_kind kind = (ds_fft_kind)op->def->member;
    const int64_t n = fft_size(op), bins = n / 2 + 1;
    DS_CHECK(n <= FFT_LIMIT, DS_LIMIT, "%s: its size must be at most %lld, got %lld", op->def->name,
             (long long)FFT_LIMIT, (long long)n);
    if (kind == DS_FFT_REAL_INVERSE) {
        DS_CHECK(*fft_last(&op->out[0]) == bins, DS_SHAPE,
                 "irfft: %lld numbers come of %lld in the last feature dimension, got %lld",
                 (long long)n, (long long)bins, (long long)*fft_last(&op->out[0]));
        *fft_last(&op->out[0]) = n;
    }
    if (kind == DS_FFT_REAL)
        *fft_last(&op->out[0]) = *fft_last(&op->out[1]) = bins;
    op->scratch.per_call = ds_fft_scratch(kind, (size_t)n, ds_op_element(op));
    const ds_fft_kind other = (ds_fft_kind)(kind ^ 1);
    op->back_scratch.per_call = ds_fft_scratch(other, (size_t)n, ds_op_element(op)) +
                                ds_fft_table_bytes(other, (size_t)n, ds_op_element(op)) +
                                4 * (size_t)(n + 1) * sizeof(double) + 8 * (size_t)DS_ALIGNMENT;
    return DS_OK;
}

static size_t fft_prepared_bytes(const ds_op *op, const ds_real_kernels *k)
{
    return ds_fft_table_bytes((ds_fft_kind)op->def->member, (size_t)fft_size(op), k->element);
}

static void fft_prepare(const ds_op *op, void *prepared, const void *const *weights,
                        const ds_real_kernels *k)
{
    (void)weights;
    k->fft_table(prepared, (ds_fft_kind)op->def->member, (size_t)fft_size(op));
}

static void fft_frames(const ds_op *op, const ds_run *run, const ds_frames *f)
{
    const ds_fft fft = {.kind = (ds_fft_kind)op->def->member,
                        .n = (size_t)fft_size(op),
                        .table = run->prepared,
                        .scratch = run->scratch};
    const ds_signature *in = &op->in[0];
    run->k->fft(&fft, f->y, f->x, f->n * ds_elements(in) / ds_last_size(in));
}
DS_FRAMEWISE_FORWARD(fft)

/* The transpose of a transform is the other of its pair, but for factors: those of what goes in, and of what comes out;
 * a real transform's numbers that stand for two are met twice one way and once the other. */
static double fft_factor_in(ds_fft_kind kind, size_t n, size_t i)
{
    return kind == DS_FFT_REAL && i != 0 && 2 * i != n ? 0.5 : 1;
}

static double fft_factor_out(ds_fft_kind kind, size_t n, size_t i)
{
    if (kind == DS_FFT_REAL_INVERSE)
        return (i == 0 || 2 * i == n ? 1.0 : 2.0) / (double)n;
    return kind == DS_FFT_COMPLEX_INVERSE ? 1 / (double)n : (double)n;
}

/* One row: slopes of outputs from element at_g on, of inputs from at_x on. */
static void fft_row_back(const ds_op *op, const ds_real_kernels *k, const ds_fft *f, char *room,
                         void *const *dx, const void *const *g, size_t at_x, size_t at_g)
{
    const ds_fft_kind kind = (ds_fft_kind)op->def->member;
    const size_t element = k->element, n_x = ds_last_size(&op->in[0]),
                 n_g = ds_last_size(&op->out[0]), step = (f->n + 1) * element;
    void *const from[2] = {room, room + step}, *const to[2] = {room + 2 * step, room + 3 * step};
    const void *const given[2] = {from[0], from[1]};
    for (int o = 0; o < op->n_outputs; o++)
        for (size_t i = 0; i < n_g; i++)
            ds_sums_set_real(from[o], element, i,
                             ds_sums_real(g[o], element, at_g + i) * fft_factor_in(kind, f->n, i));
    k->fft(f, to, given, 1);
    for (int d = 0; d < op->n_inputs; d++)
        for (size_t i = 0; i < n_x && dx[d]; i++) {
            const bool none = kind == DS_FFT_REAL_INVERSE && d == 1 && (i == 0 || 2 * i == f->n);
            if (!none) /* imaginary parts of what is real are not read */
                ds_back_add_real(dx[d], element, at_x + i,
                                 fft_factor_out(kind, f->n, i) * ds_sums_real(to[d], element, i));
        }
}

static void fft_backward(const ds_op *op, const ds_back *b)
{
    const ds_real_kernels *k = b->run->k;
    const size_t n = (size_t)fft_size(op), n_x = ds_last_size(&op->in[0]),
                 n_g = ds_last_size(&op->out[0]);
    ds_room room = {b->scratch};
    ds_fft fft = {.kind = (ds_fft_kind)(op->def->member ^ 1), .n = n};
    void *const table = ds_room_take(&room, ds_fft_table_bytes(fft.kind, n, k->element));
    fft.scratch = ds_room_take(&room, ds_fft_scratch(fft.kind, n, k->element));
    fft.table = table;
    k->fft_table(table, fft.kind, n);
    ds_frames f;
    for (f.next = 0; ds_back_next_frames(op, b, &f);)
        for (size_t i = 0; i < f.n * ds_elements(&op->in[0]) / n_x; i++)
            fft_row_back(op, k, &fft, room.at, f.dx, f.g, i * n_x, i * n_g);
}

#define FFT(op, kind, inputs, outputs, text)                                                     \
    DS_OPERATOR_OF(op, text, inputs, outputs, -1), .member = DS_FFT_##kind,                      \
        .flags = DS_OP_REAL | DS_OP_LOCKSTEP | DS_OP_NEEDS_FRAMES, .shapes = "[.., n]; [.., n]", \
        .infer = fft_infer, DS_PREPARED(fft), .forward = fft_forward, .backward = fft_backward

const ds_op_def ds_op_rfft = {
    FFT(rfft, REAL, 1, 2, "Fourier transform of real numbers: real and imaginary parts.")};

const ds_op_def ds_op_irfft = {
    FFT(irfft, REAL_INVERSE, 2, 1, "Real numbers from their Fourier transform's parts."),
    .attrs = irfft_attrs};

const ds_op_def ds_op_fft = {FFT(fft, COMPLEX, 2, 2, "Fourier transform of complex numbers.")};

const ds_op_def ds_op_ifft = {
    FFT(ifft, COMPLEX_INVERSE, 2, 2, "Complex numbers from their Fourier transform.")};
