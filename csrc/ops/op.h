/* ops/op.h: the contract that every streaming operator fulfils.
 *
 * A definition is data (name, attributes, inputs and outputs, flags) and six functions: infer, counts,
 * need, check, forward and backward, plus prepare for weights that pass once through a kernel's
 * own layout. An operator never sees chunks: its forward gets, per row, windows of its inputs at absolute
 * positions and produces the outputs [m0, m1). Offline is the same forward with m0 = 0, m1 = total.
 *
 * The slope of an array is the gradient of the loss with respect to it. Backward gets what forward had, the slopes
 * of the outputs [m0, m1) and of what it carried out, and makes of them slopes of windows, of weights and of what
 * was carried in. It knows neither chunks nor what becomes of these (exec/back.h).
 *
 * The driver (ds_op_counts, ds_op_need, ds_op_check) does what no operator states: clamps, edges that are
 * missing, the end of a stream. */
#pragma once
#include "base/status.h"
#include "kernels/kernels.h"
#include "ops/expr.h"

/* Attributes and frames stay below 2^40 in size, so that no product of a few of them overflows unseen. */
#define DS_INT_LIMIT ((int64_t)1 << 40)

enum {
    DS_MAX_ATTRS = 10,
    DS_MAX_INTS = 16, /* in one attribute */
    DS_MAX_INPUTS = 16,
    DS_MAX_OUTPUTS = 16,
    DS_MAX_WEIGHTS = 128,
    DS_MAX_CARRIED = 32,
    DS_MAX_SAVED = 4
};

typedef enum ds_attr_kind {
    DS_ATTR_INT,    /* value.i */
    DS_ATTR_REAL,   /* value.x */
    DS_ATTR_INTS,   /* value.ints, value.n_ints */
    DS_ATTR_CHOICE, /* value.i = index in choices */
    DS_ATTR_TEXT,   /* value.text, which the operator's infer makes its own */
} ds_attr_kind;

/* What an attribute that is a number may be; DS_AXIS: a feature dimension of input 0, from 0. */
typedef enum ds_attr_range { DS_ANY, DS_FROM_0, DS_FROM_1, DS_0_OR_1, DS_AXIS } ds_attr_range;

typedef struct ds_attr_def {
    const char *name;
    ds_attr_kind kind;
    bool required;
    int64_t i;           /* default */
    double x;            /* default */
    const char *choices; /* "zeros|replicate|reflect" */
    const char *doc;
    ds_attr_range range;
    int64_t most; /* of an integer that has a range; 0: it has no bound */
} ds_attr_def;

typedef struct ds_attr_value {
    int64_t i;
    double x;
    int64_t ints[DS_MAX_INTS];
    int n_ints;
    const char *text; /* NULL for all other kinds */
} ds_attr_value;

/* What a caller gives for one attribute; text is for choices and texts. */
typedef struct ds_attr {
    const char *name;
    ds_attr_kind kind;
    ds_attr_value value;
    const char *text;
} ds_attr;

/* An array that an operator carries from call to call, zero at the start of a stream. */
typedef struct ds_carried {
    const char *name;
    ds_signature array; /* rate unused */
    size_t offset;      /* in the carried block; filled by ds_op_create */
} ds_carried;

/* What of a call backward reads; what is not named is not kept for it. DS_READS_X << i: the windows of input i. */
enum { DS_READS_Y = 1, DS_READS_CARRIED = 2, DS_READS_X = 4 };
#define DS_READS_ALL_X (~3U)

typedef enum ds_saved_per {
    DS_PER_OUT, /* frame of output 0 */
    DS_PER_IN,  /* new frame of input 0 */
    DS_PER_ROW
} ds_saved_per;

/* An array that forward writes for backward, rows one after another. */
typedef struct ds_saved {
    ds_saved_per per;
    size_t n_bytes; /* of each */
} ds_saved;

/* Scratch bytes = per_call + per_row * rows + per_in * frames_in + per_out * frames_out. */
typedef struct ds_scratch {
    size_t per_call, per_row, per_in, per_out;
} ds_scratch;

enum {
    /* Combines its value inputs frame by frame: they must progress equally (sync). */
    DS_OP_LOCKSTEP = 1,
    DS_OP_INPLACE = 2,  /* output 0 may overwrite input 0 where both have equal frames and bytes */
    DS_OP_VARIADIC = 4, /* any number of inputs from n_inputs up, all of one rate */
    /* prepare writes ds_packed objects alone; what they hold whole is not read raw. */
    DS_OP_PACKS = 8,
    DS_OP_REAL = 16,         /* all that is read is float or double, of one type */
    DS_OP_NEEDS_FRAMES = 32, /* presets needs_frames */
    DS_OP_MEMORY = 64, /* inputs after the first are given once, with the start, of any length */
    DS_OP_WHOLE = 256, /* every instance needs the whole stream */
    /* Of every output one frame, which leaves when the stream ends; each call reads its new frames only. */
    DS_OP_AT_END = 512,
    DS_OP_PLACED = 1024, /* what becomes of a frame depends on its position */
    DS_OP_BODY = 2048,   /* it has as many outputs as the bodies say that it is given */
    /* Calculus ends here: outputs are constants to it, though they may be real. */
    DS_OP_CONSTANT = 4096
};

/* ELEMENTS: steps that are the same for all columns alone. */
enum { DS_FINISHES_STEPS = 1, DS_FINISHES_GLU = 2, DS_FINISHES_ELEMENTS = 4 };

typedef struct ds_op ds_op;
struct ds_move;

/* One execution for a ragged batch. Arrays over inputs and rows are [input][row]. */
typedef struct ds_run {
    size_t n_rows;
    const ds_window *in;    /* [n_inputs][n_rows]; counted-only inputs have data NULL */
    const ds_target *out;   /* [n_outputs][n_rows] */
    const ds_counts *count; /* [n_inputs][n_rows] */
    const bool *ended;      /* [n_rows]; now.total of an ended row is its final length */
    void *const *carried; /* [n_rows], updated in place; NULL where the operator carries nothing */
    const void *prepared; /* what prepare wrote; NULL where ds_op_prepared_bytes is 0 */
    const void *const *weights;     /* raw, torch's layout; NULL for an absent one */
    const ds_real_kernels *k;       /* kernels of the operator's real type */
    ds_pool *pool;                  /* for products where rows are few; NULL: none */
    const struct ds_finish *finish; /* what follows the products (ops/fused.h); NULL: nothing */
    void *scratch;                  /* 64-byte aligned, op->scratch's bytes */
    void *const *saved;             /* [n_saved], for backward; NULL: not wanted */
    void *ahead;     /* what def->ahead has made of these frames; NULL: forward makes it */
    bool only_ahead; /* forward makes it, and nothing else */
    const ds_drop
        *drop; /* in training, of operators that drop within themselves; NULL: nothing is dropped */
    int64_t frames_in, frames_out; /* over all rows: new frames of input 0, frames of output 0 */
} ds_run;

/* Slopes of frames [at, at + n), to the end of a window. `at` may lie behind the window's, unless the operator sees the
 * whole stream at once: what is before it is not wanted. data NULL: none are. */
typedef struct ds_slope {
    void *data;
    int64_t at, n;
} ds_slope;

/* The frames that a row has of output 0, those of all outputs, and those of value inputs in their place. Backward has
 * slopes of outputs, and what slopes of inputs are added to, too; NULL where there are none. */
typedef struct ds_frames {
    size_t next, row, n; /* next: the first row that is looked at, for others; n >= 1 */
    const void *x[DS_MAX_INPUTS];
    void *y[DS_MAX_OUTPUTS];
    const void *g[DS_MAX_OUTPUTS];
    void *dx[DS_MAX_INPUTS];
} ds_frames;

/* One execution read backwards. */
typedef struct ds_back {
    /* As forward had it, but for what backward does not read: windows and targets have no data there. Targets hold
     * the outputs, carried what came in, saved what forward wrote; nothing is prepared, unless an operator has bodies. */
    const ds_run *run;
    const void *const *dy; /* [n_outputs][n_rows]: slopes of frames [m0, m1), of real outputs */
    const ds_slope *dx;    /* [n_values][n_rows]: added to */
    /* [n_rows], laid out as what is carried: on entry of what went out, on return of what came in. A row that starts
     * leaves zeros: what it began with, if that is an input or a weight, gets its slope here. */
    void *const *dcarried;
    void *const *dweights; /* [n_weights]: added to; NULL: not wanted */
    void *scratch;         /* as run's, op->back_scratch's bytes */
} ds_back;

typedef struct ds_op_def {
    const char *name; /* torch's name where it has one */
    const char *doc;
    int n_inputs; /* least number */
    int n_outputs;
    int n_values; /* the first n_values inputs are read, the others only counted; -1: all are read */
    unsigned flags;
    int member;               /* which of a family's operators this is; the family's own numbers */
    const ds_attr_def *attrs; /* ended by a NULL name */
    const char
        *shapes; /* of inputs and weights, in words (ops/shapes.h); NULL: any inputs, no weights */
    /* Reads attr, in, weight; checks them; fills out, carried, scratch, whole. NULL: out is as in. */
    ds_status (*infer)(ds_op *op);
    /* Roots: known and total of each output, in turn. NULL: every output has input 0's pair. */
    void (*counts)(const ds_op *op, ds_program *p);
    /* Root i: the first frame of value input i that outputs >= m of output 0 may read. NULL: m. */
    void (*need)(const ds_op *op, ds_program *p);
    /* Roots in pairs: (when, value): value must be <= 0; when is a constant: 1 at the end, 0 always.
     * NULL: none. */
    void (*check)(const ds_op *op, ds_program *p);
    /* Fails with what is wrong, of a check that fails. */
    ds_status (*fail_check)(const ds_op *op, const ds_pair *in);
    /* What the integers of an input are called that are indices, from least_index to weight 0's first size - 1: others
     * are refused (DS_INDEX) before any state changes, where they are a graph's own. Those that are computed are looked
     * at in eager calls only, and what follows of wrong ones is NaN. NULL: there are none. */
    const char *indices;
    int64_t least_index; /* 0; or -1, which is none */
    int checked_input;   /* theirs */
    /* Bytes of the weights as these kernels want them, exact; NULL: none, the raw ones are read. */
    size_t (*prepared_bytes)(const ds_op *op, const ds_real_kernels *k);
    /* How many of them, the first ones, are ds_packed objects; NULL: all, where DS_OP_PACKS, else none. */
    size_t (*packed_bytes)(const ds_op *op, const ds_real_kernels *k);
    /* Writes them. Where k->borrows they may point at the raw ones, which must outlive them. */
    void (*prepare)(const ds_op *op, void *prepared, const void *const *weights,
                    const ds_real_kernels *k);
    /* Whether float weight i may be stored narrow: the elements of it that belong to one output channel, which are
     * beside each other and share a scale in int8 unless there is scale_of; 0: not. NULL: no weight may. */
    size_t (*narrows)(const ds_op *op, int i);
    /* Where channels are no runs: every element behind the weight's first axis has a scale, in each group of input
     * channels; the first place that has the same one. */
    size_t (*scale_of)(const ds_op *op, size_t place);
    /* Stores what its bodies' operators hold as op->stored and op->products say. Errors: as ds_op_store. NULL: it has no
     * bodies. */
    ds_status (*store)(const ds_op *op);
    void (*forward)(const ds_op *op, const ds_run *run);
    /* How many reals forward makes of a frame of input 0 by itself, before it sees any other: they can be made ahead, of
     * many frames, where a loop has that input before the others. NULL: none. */
    size_t (*ahead)(const ds_op *op);
    /* Adds to slopes, in a fixed order. It can't fail and allocates nothing. It runs where forward ran. */
    void (*backward)(const ds_op *op, const ds_back *b);
    unsigned reads; /* op->reads, unless infer says else */
    /* Of operators that only move elements: lists what goes where (ops/move.h); DS_MOVE_... */
    void (*pieces)(const ds_op *op, const struct ds_move *move);
    unsigned moves;
    void (*release)(ds_op *op); /* releases what infer left in `own`; NULL: nothing */
} ds_op_def;

struct ds_op {
    const ds_op_def *def;
    int n_inputs, n_outputs, n_weights;
    ds_attr_value attr[DS_MAX_ATTRS]; /* in the order of def->attrs */
    ds_signature in[DS_MAX_INPUTS];
    ds_signature weight[DS_MAX_WEIGHTS]; /* dtype 0: absent */
    /* filled by infer */
    ds_signature out[DS_MAX_OUTPUTS]; /* preset to input 0's signature */
    ds_carried carried[DS_MAX_CARRIED];
    int n_carried;
    size_t carried_bytes; /* by ds_op_create */
    void *own;            /* of this instance alone; released by def->release */
    ds_scratch scratch, back_scratch;
    unsigned reads; /* DS_READS_..., of which backward needs what it names */
    ds_saved saved[DS_MAX_SAVED];
    int n_saved;
    /* This instance needs the whole stream (bidirectional, circular): nothing leaves before the end, everything
     * is kept; refused unless buffering is asked for. */
    bool whole;
    /* torch refuses a stream of no frames in input 0, or of too few for one frame of an output: it has no outputs
     * (a total of -1). Others make of no frames what their counts say. */
    bool needs_frames;
    /* Outputs, a bit each, that have one frame, at the end, and so rate 0; preset by DS_OP_AT_END. */
    unsigned at_end;
    /* A token reads one part of the weights in so many (experts); preset to 1. */
    double spread;
    /* Its forward shares what it does among run->pool, and better than by frames. What others do, which carry nothing
     * and don't wait for the whole stream, is shared by the frames of their outputs. */
    bool shares;
    /* DS_FINISHES_...: what may be fused to this instance's products, all of which go through
     * ds_run_product; preset to none. */
    unsigned finishes;
    ds_stored stored; /* how prepare stores its weights; by ds_op_store, as is: */
    bool products;    /* its rows are stored so, too, where it multiplies them with these */
    /* By ds_op_create: the pair of output 0, and of each of its rate, is input 0's, always: counts say so. */
    bool same_counts;
    ds_program counts, need, check;
    ds_allocator allocator;
};

/* ---------------------------------------------------------------- registry (data) */
/* All definitions, in the order of ops/registry.c; fills *n. Returns view (static). */
const ds_op_def *const *ds_op_defs(size_t *n);
const ds_op_def *ds_op_find(const char *name); /* NULL where there is none */
/* Choice number i of an attribute, of *n_bytes. Returns view (static). */
const char *ds_attr_choice(const ds_attr_def *attr, int64_t i, size_t *n_bytes);

/* ---------------------------------------------------------------- instances */
/* Makes an operator for given attributes, input and weight signatures (an absent optional weight has
 * dtype 0). Errors: DS_ARGUMENT, DS_SHAPE, DS_DTYPE, DS_NO_MEMORY, with a message that names the operator. */
ds_status ds_op_create(ds_op **op, const ds_allocator *allocator, const ds_op_def *def,
                       const ds_attr *attrs, size_t n_attrs, const ds_signature *inputs,
                       size_t n_inputs, const ds_signature *weights, size_t n_weights);
/* Makes one from integers that are data: what a user declares in another language (declared.c). counts: roots known
 * and total of each output in turn; need: one root per input. Both are copied. Errors: DS_ARGUMENT for programs that
 * refer to what is not there, DS_NO_MEMORY. */
ds_status ds_op_declare(ds_op **op, const ds_allocator *allocator, const ds_signature *inputs,
                        size_t n_inputs, const ds_signature *outputs, size_t n_outputs,
                        const ds_program *counts, const ds_program *need);
void ds_op_destroy(ds_op *op);
size_t ds_scratch_bytes(const ds_scratch *scratch, size_t n_rows, int64_t frames_in,
                        int64_t frames_out);
size_t ds_op_scratch_bytes(const ds_op *op, size_t n_rows, int64_t frames_in, int64_t frames_out);
/* Whether it has a backward and outputs that have slopes. */
bool ds_op_differentiable(const ds_op *op);
/* Whether its outputs are constants to calculus. */
bool ds_op_constant(const ds_op *op);
/* Lets a new operator's weights be stored so, as far as they may be, and rows. Errors: DS_LIMIT where products are
 * too deep for what rows are stored in. */
ds_status ds_op_store(ds_op *op, ds_narrowing how);
/* The most elements of a weight that share a scale where they are stored narrow; 0: no weight may be. */
size_t ds_op_narrows(const ds_op *op);
/* Whether its products are of floats, by tile units. */
bool ds_op_splits(const ds_op *op);
/* In what its products are: "fp32", "fp32-tiles", "bf16", "int8". */
const char *ds_products_name(const ds_op *op);
/* How weight number i is stored; its values are those that this can say. */
ds_stored ds_op_stored(const ds_op *op, int i);
/* The scales of a weight that is narrow, in int8: [channels], or as the weight, its first axis being groups. */
ds_signature ds_op_scales(const ds_op *op, int i);
/* Narrows such a weight: fills its scales, if it has some, its elements as they are stored, and as floats (NULL: not
 * wanted; may be `from`). Returns how many there are; or the first that is beyond the format's range, where it stops,
 * before it writes that. */
size_t ds_op_narrowed(const ds_op *op, int i, const float *from, float *scales, char *stored,
                      float *wide);
/* Fills to [n] with what elements stand for; int8 has n_runs runs with as many scales each. */
void ds_widen(ds_stored stored, const void *elements, size_t n, const float *scales, size_t n_runs,
              size_t n_scales, float *to);
/* Bytes that ds_op_prepare writes for these kernels; 0: it needs not be called. */
size_t ds_op_prepared_bytes(const ds_op *op, const ds_real_kernels *k);
/* Calls op->def->prepare. */
void ds_op_prepare(const ds_op *op, void *prepared, const void *const *weights,
                   const ds_real_kernels *k);
/* Number of inputs whose values are read. */
int ds_op_n_values(const ds_op *op);
/* Whether output frames depend on the input frames of their position, and on nothing else. */
bool ds_op_framewise(const ds_op *op);

/* ---------------------------------------------------------------- the driver */
/* Counts of all outputs from those of all inputs, for one stream. */
void ds_op_counts(const ds_op *op, const ds_pair *in, bool ended, ds_pair *out);
/* First frame of each value input that is still needed when m frames of output 0 are known; DS_NEVER
 * or >= 0. Counted-only inputs get DS_NEVER. */
void ds_op_need(const ds_op *op, int64_t m, int64_t *first);
/* DS_SHAPE with a message where a check fails for these counts. */
ds_status ds_op_check(const ds_op *op, const ds_pair *in, bool ended);
/* DS_INDEX with a message where new frames of its checked input hold an index that is none. */
ds_status ds_op_check_values(const ds_op *op, const void *values, int64_t n_frames);

/* ---------------------------------------------------------------- helpers for infer */
/* DS_DTYPE unless input i is float or double (and equal to input 0 and to all weights). */
ds_status ds_op_require_real(const ds_op *op);
/* DS_SHAPE unless weight i is present with exactly this shape. */
ds_status ds_op_require_weight(const ds_op *op, int i, const char *name, int rank,
                               const int64_t *shape);
bool ds_op_has_weight(const ds_op *op, int i);
/* Bytes of one element of input 0. */
size_t ds_op_element(const ds_op *op);
/* Elements of a frame that was checked, and those that are one behind the other along its last dimension. */
static inline size_t ds_elements(const ds_signature *signature)
{
    return (size_t)ds_signature_elements(signature);
}
static inline size_t ds_last_size(const ds_signature *signature)
{
    return (size_t)signature->shape[signature->rank - 1];
}
static inline bool ds_is_real(ds_dtype dtype)
{
    return dtype == DS_F32 || dtype == DS_F64;
}
/* The real type whose kernels a run gets: the first of the read inputs, weights and outputs that is
 * float or double; float where none is. */
ds_dtype ds_op_real(const ds_op *op);

/* ---------------------------------------------------------------- helpers for forward */
/* Frame `position` of a window whose frames have n_bytes each; NULL has a frame 0. */
static inline const void *ds_at(const ds_window *w, int64_t position, size_t n_bytes)
{
    const size_t offset = (size_t)(position - w->at) * n_bytes;
    return offset > 0 ? (const char *)w->data + offset : w->data;
}
/* Weight i as the run has it; NULL where it is absent. */
static inline const void *ds_run_weight(const ds_op *op, const ds_run *run, int i)
{
    return ds_op_has_weight(op, i) ? run->weights[i] : NULL;
}
/* Goes on to the next row that has frames; false where there is none. Set `next` to 0 at first. */
bool ds_next_frames(const ds_op *op, const ds_run *run, ds_frames *f);
/* Slopes of the frames from `position` on; NULL where they are not wanted. */
static inline void *ds_slope_at(const ds_slope *s, int64_t position, size_t n_bytes)
{
    return s->data == NULL || position < s->at
               ? NULL
               : (char *)s->data + (size_t)(position - s->at) * n_bytes;
}
/* Array i of what row r carries. */
static inline void *ds_run_carried(const ds_op *op, const ds_run *run, size_t r, int i)
{
    return (char *)run->carried[r] + op->carried[i].offset;
}
/* Frame `position` of a target; NULL has a frame 0. */
static inline void *ds_to(const ds_target *t, int64_t position, size_t n_bytes)
{
    const size_t offset = (size_t)(position - t->m0) * n_bytes;
    return offset > 0 ? (char *)t->data + offset : t->data;
}
