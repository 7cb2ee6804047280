/* dreamstream.h - the public C API of DreamStream, a streaming engine for neural models.
 *
 * A model is loaded once and shared by all threads; each sequence is a stream of it, which takes its
 * chunks one after the other and gives back what the whole model would have said, as soon as that is
 * final:
 *
 *     ds_model *model = NULL;
 *     ds_stream *stream = NULL;
 *     DS_TRY(ds_model_load(&model, "tagger.dsm", NULL));
 *     DS_TRY(ds_stream_open(&stream, model));
 *     while (more) {
 *         ds_input in = {samples, n_samples, 0};
 *         ds_output out;
 *         DS_TRY(ds_stream_step(stream, &out, &in, last ? DS_END : 0));
 *         use(out.data, out.n_frames);              // views, until the stream's next step
 *     }
 *     ds_stream_close(stream);
 *     ds_model_close(model);
 *
 * Conventions, which hold for every declaration below:
 *
 * Errors. A function that can fail returns a ds_status. On failure its outputs and all state are
 *   as they were before the call, and ds_last_error() tells in words what went wrong. The library
 *   never prints, aborts or exits.
 *
 * Ownership. "borrows": uses the argument during the call only (what holds where nothing is
 *   said). "keeps": uses it later too; the caller lets it outlive the object. "copies": makes its
 *   own. "takes": becomes the owner. "returns owned": the caller releases it. "returns view": the
 *   library owns it, and it is valid as long as stated. "fills": writes into the caller's memory.
 *
 * Thread. "any": may be called from any thread at any time, beside any other call. "one per stream":
 *   any thread, but a stream that another call is using is refused with DS_BUSY.
 *
 * Objects. A pointer to a model or stream that was closed, or never was one, is refused with
 *   DS_CLOSED as long as its address has not been given to a new one. Closing an object while
 *   another thread is in a call with it is refused with DS_BUSY.
 *
 * Stack. 64 KB are enough for a thread that calls the library. Where OpenBLAS is built in it keeps another
 *   144 KB for each thread, which some systems take from the memory of the thread's stack.
 *
 * Structs that begin with `struct_size` may grow at their end: set it to sizeof of the struct, and the
 *   rest to zero (DS_MODEL_OPTIONS_INIT). The library reads and fills as much as the caller has, so a
 *   program that was compiled with an older header runs unchanged: options that it does not have are
 *   zero, the default. A newer program than the library: options beyond what the library knows must be
 *   zero, else the call fails with DS_ARGUMENT; what it does not know of an info it leaves as it is.
 *   A struct_size below that of the first version, or above 4096, is refused with DS_ARGUMENT.
 *
 * Floating point. The library computes with round to nearest and denormal numbers, in every thread,
 *   whatever the host has set, and leaves the host's setting as it was. Where the same bits are
 *   promised, that is so for all numbers and infinities; a NaN stays a NaN, but its sign and payload
 *   may differ between instruction sets. */
#ifndef DREAMSTREAM_H
#define DREAMSTREAM_H

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define DS_API
#else
#define DS_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- version -------------------------------------------------------------------------------- */

#define DS_VERSION_MAJOR 0
#define DS_VERSION_MINOR 1
#define DS_VERSION_PATCH 0
#define DS_VERSION_STRING "0.1.0"

/* The binary interface: it changes only if programs must be compiled anew. One that was compiled
 * with an equal or lower number runs. */
#define DS_ABI_VERSION 1

/* Returns DS_ABI_VERSION of the library that is running. Cannot fail. Thread: any. */
DS_API uint32_t ds_abi_version(void);

/* Returns the version of the library that is running, "major.minor.patch"; compare it with
 * DS_VERSION_STRING, the version of this header. Returns view, valid for ever. Cannot fail.
 * Thread: any. */
DS_API const char *ds_version(void);

/* ---- status --------------------------------------------------------------------------------- */

/* What a call came to. The numbers are pinned: they never change their meaning, and new ones are
 * added at the end, so callers treat a number that they don't know as a failure. */
typedef enum ds_status {
    DS_OK = 0,             /* done */
    DS_SHAPE = 1,          /* an array's shape, or sizes that don't fit each other */
    DS_DTYPE = 2,          /* an element type that is not supported here, or types mixed */
    DS_FORMAT = 3,         /* a file or byte string is not what it should be */
    DS_STREAM_ID = 4,      /* an id is unknown, given twice, or already live */
    DS_MISMATCH = 5,       /* start, end, lengths, rates or positions of streams disagree */
    DS_NOT_STREAMABLE = 6, /* the layer would need the future without bound */
    DS_BUSY = 7,           /* another thread is using this stream or session */
    DS_LIMIT = 8,          /* a limit was reached: of streams, of a buffer, of the system */
    DS_MODE = 9,           /* not possible in this mode (offline, online, train) */
    DS_CLOSED = 10,        /* the object was closed */
    DS_NO_MEMORY = 11,     /* the allocator gave none */
    DS_CAPTURE = 12,       /* the model does something that can't be compiled */
    DS_INTERNAL = 13,      /* a fault in DreamStream itself: please report it */
    DS_ARGUMENT = 14,      /* an argument that is never valid, such as a NULL pointer */
    DS_INDEX = 15          /* a stream's values hold an index that is out of range */
} ds_status;

/* Returns the name of `status` as it is spelled above ("DS_SHAPE"), "DS_UNKNOWN" for a number
 * that is none. Returns view, valid for ever. Cannot fail. Thread: any. */
DS_API const char *ds_status_name(ds_status status);

/* Returns the message of the last call that failed *in the calling thread*: UTF-8, one line, ""
 * if none has failed yet. Calls that succeed leave it alone, so look at the status first. It
 * can be printed whatever it quotes: control characters of names are written as \x1b (in infos, names
 * are what the file holds).
 * Returns view, valid until the next call that fails in this thread. Cannot fail. Thread: any. */
DS_API const char *ds_last_error(void);

/* Returns the status of `call` from the function that it stands in, if it is not DS_OK. */
#define DS_TRY(call)                             \
    do {                                         \
        const ds_status ds_try_status_ = (call); \
        if (ds_try_status_ != DS_OK)             \
            return ds_try_status_;               \
    } while (0)

/* ---- element types -------------------------------------------------------------------------- */

/* Element type of an array at the border of the library. The numbers are pinned. */
typedef enum ds_dtype {
    DS_F32 = 1,  /* float, IEEE 754 binary32 */
    DS_F64 = 2,  /* double, IEEE 754 binary64 */
    DS_I64 = 3,  /* int64_t */
    DS_BOOL = 4, /* one byte, 0 or 1; as an input whatever is not 0 is 1 */
    DS_I16 = 5   /* int16_t: audio samples */
} ds_dtype;

/* ---- memory --------------------------------------------------------------------------------- */

/* Where the library gets its memory. Both functions are called from any thread, and from several
 * at a time. */
typedef struct ds_allocator {
    /* Handed to both functions; the caller lets it outlive every object made with it. */
    void *context;

    /* Returns `n_bytes` (at least 1) of memory whose address is a multiple of `alignment` (a power
     * of two), or NULL if there is none, upon which the call that asked fails with DS_NO_MEMORY. */
    void *(*allocate)(void *context, size_t n_bytes, size_t alignment);

    /* Takes back what `allocate` gave; `n_bytes` is the number then asked for. Never with NULL. */
    void (*release)(void *context, void *pointer, size_t n_bytes);
} ds_allocator;

/* Makes `allocator` (copied; its context is kept) the one that objects created from now on use;
 * NULL brings back the C library's. Meant to be called at the start, while nothing is allocated;
 * it is safe later too, because each object remembers the allocator that it was made with, and
 * grows and is released through that one.
 * Errors: DS_ARGUMENT if one of the functions is NULL. Thread: any. */
DS_API ds_status ds_set_allocator(const ds_allocator *allocator);

/* ---- log ------------------------------------------------------------------------------------ */

/* How much a log message matters. The numbers are pinned. */
typedef enum ds_log_level {
    DS_LOG_DEBUG = 1,  /* of use to those who look for a fault */
    DS_LOG_INFO = 2,   /* what was chosen: instruction set, threads, kernels */
    DS_LOG_WARNING = 3 /* works, but not as one would expect */
} ds_log_level;

/* Receives one message: `level` is a ds_log_level, `message` (borrowed: gone after the call) UTF-8
 * without a line end. Called in whichever thread has something to say, several at a time; must
 * not call the library. */
typedef void (*ds_log_callback)(void *context, int level, const char *message);

/* Sends the library's messages to `callback` with `context` (kept); NULL, the state at the start,
 * drops them. A thread that is just logging may still call the former callback shortly after this
 * returns, so its context stays valid while calls are under way. Errors: none, always DS_OK.
 * Thread: any. */
DS_API ds_status ds_set_log(ds_log_callback callback, void *context);

/* ---- backends ------------------------------------------------------------------------------- */

/* A backend is a set of kernels: one per instruction set ("ref", plain C; "x86_v3", AVX2 and FMA;
 * "x86_v4", AVX-512; "x86_bf16", its instruction for bf16, too; "x86_amx", tile units, too; "arm_v8",
 * the vectors of 64-bit ARM), each also with products by OpenBLAS ("x86_v4+openblas") where that is built in.
 * Those without OpenBLAS give the same bits as each other. */
typedef struct ds_backend_info {
    size_t struct_size; /* set by the caller */
    const char *name;   /* view, valid for ever */
    int32_t usable;     /* 1 if this machine can run it, else 0 */
    int32_t bitwise;    /* 1 if answers don't depend on batch and chunks, to the bit, else 0 */
} ds_backend_info;

/* Returns how many backends were compiled in. Cannot fail. Thread: any. */
DS_API size_t ds_backend_count(void);

/* Fills `*info` with backend `index`, counted from 0, the plainest first.
 * Errors: DS_ARGUMENT (NULL, struct_size, no such index). Thread: any. */
DS_API ds_status ds_backend_at(ds_backend_info *info, size_t index);

/* ---- models --------------------------------------------------------------------------------- */

/* A compiled model: its graph and weights, and the streams that run on it. */
typedef struct ds_model ds_model;

typedef struct ds_model_options {
    size_t struct_size; /* sizeof(ds_model_options) */
    /* Of one step, up to 1024; 0: DREAMSTREAM_THREADS of the environment, else 1. */
    uint32_t threads;
    uint32_t max_streams; /* most streams that may be open; 0: no limit */
    /* A name of ds_backend_at, forced; NULL: the best up to DREAMSTREAM_ISA, with OpenBLAS where the
     * model was compiled so and DREAMSTREAM_BLAS is not "none". */
    const char *backend;
    /* Of all that belongs to this model (copied; its context is kept until the model is gone); NULL:
     * ds_set_allocator's. */
    const ds_allocator *allocator;
    /* 1: reads a file into memory instead of mapping it, for files that may be changed in place; else 0. */
    int32_t copy;
    /* The most bytes that its nodes, its weights, one stream and a step of one frame may take together, and the most of
     * any step; 0: 2 GiB and four times the file's for the former, the machine's memory for the latter. Counted before
     * anything but nodes is made: of a file that asks for more, nothing but DS_LIMIT comes. */
    uint64_t max_bytes;
} ds_model_options;

#define DS_MODEL_OPTIONS_INIT {sizeof(ds_model_options), 0, 0, NULL, NULL, 0, 0}

/* Loads the model file `path` and fills `*model` (returns owned). The file is mapped: its weights take
 * no memory of this process where the backend reads them as they are, and processes share them. It
 * must not be changed in place meanwhile (replacing it by a rename is fine). Nothing in it runs.
 * `options` may be NULL: all defaults.
 * Errors: DS_FORMAT if it can't be read or is no model file, naming the place, or is not what was
 * written (its fingerprint is another; files of old writers have none); DS_ARGUMENT (NULL,
 * struct_size, unknown backend, too many threads); DS_MODE if this machine can't run the backend;
 * DS_LIMIT, DS_NO_MEMORY. Thread: any. */
DS_API ds_status ds_model_load(ds_model **model, const char *path, const ds_model_options *options);

/* Loads the model file that lies in the `n_bytes` at `bytes` (copied), and fills `*model` (returns owned).
 * Errors: those of ds_model_load. Thread: any. */
DS_API ds_status ds_model_load_memory(ds_model **model, const void *bytes, size_t n_bytes,
                                      const ds_model_options *options);

/* Takes `n_bytes` (may be 0) at `bytes`, borrowed, of a file that is being written; returns 0, or another
 * number to give up. */
typedef int (*ds_write_callback)(void *context, const void *bytes, size_t n_bytes);

/* Writes the model as a model file, piece by piece, to `write` with `context` (kept for the call). The
 * same model gives the same bytes, whatever machine and backend.
 * Errors: DS_ARGUMENT (NULL), DS_CLOSED, DS_LIMIT if `write` gave up, DS_NO_MEMORY. Thread: any. */
DS_API ds_status ds_model_save(ds_model *model, ds_write_callback write, void *context);

/* Closes the model, and all streams of it that are still open.
 * Errors: DS_ARGUMENT (NULL), DS_CLOSED, DS_BUSY if a call with it is under way in another thread.
 * Thread: any. */
DS_API ds_status ds_model_close(ds_model *model);

/* What holds for a model as a whole. Texts are views, valid until the model is closed. */
typedef struct ds_model_info {
    size_t struct_size;  /* set by the caller */
    const char *name;    /* UTF-8: the class of the model */
    const char *backend; /* the kernels that run it */
    int32_t bitwise;     /* 1 if answers don't depend on batch and chunks, to the bit */
    uint32_t threads;    /* of one step */
    size_t n_inputs;
    size_t n_outputs;
    /* Frames of input 0 by which the slowest output may be behind, and on which one output frame may
     * depend; -1: infinite, something waits for the end. */
    int64_t delay, receptive_field;
    size_t state_size;            /* bytes that one stream remembers: exact */
    double state_bytes_per_frame; /* by which that grows per frame of input 0; 0 for most models */
    size_t n_layers;              /* operators in the graph */
    size_t weights_size;          /* bytes of weights in the file */
    size_t prepared_size;         /* bytes of packed weights, which replace most of those */
    size_t max_streams;           /* 0: no limit */
    size_t n_streams;             /* open now */
    uint64_t fingerprint[2];      /* of graph and weights: snapshots go with it */
    size_t kept_bytes; /* what of state_size must be kept; the rest is room to keep it in place */
} ds_model_info;

/* Fills `*info`. Errors: DS_ARGUMENT (NULL, struct_size), DS_CLOSED. Thread: any. */
DS_API ds_status ds_model_query(ds_model *model, ds_model_info *info);

/* One input or output. Arrays at the border are [frames][frame...]: one frame after the other, each with
 * its axes in order, the last running fastest. Texts and shapes are views, valid until the model is
 * closed. */
typedef struct ds_port_info {
    size_t struct_size; /* set by the caller */
    const char *name;   /* UTF-8: forward's argument, or the place in what forward returns */
    ds_dtype dtype;
    uint32_t rank;        /* axes of one frame; 0: a frame is a number */
    const int64_t *shape; /* [rank]: the sizes of one frame's axes */
    size_t frame_bytes;   /* of one frame */
    /* Frames per unit of time, exactly. 0: of an output one frame, at the end; of an input one with the start of
     * a stream, which holds until its end, or, where rate_den is 0, too, any number of them. */
    int64_t rate_num, rate_den;
    int64_t delay; /* outputs: as in ds_model_info; inputs: 0 */
} ds_port_info;

/* Fills `*info` with input `index`. Errors: DS_ARGUMENT (also: no such index), DS_CLOSED. Thread: any. */
DS_API ds_status ds_model_input(ds_model *model, size_t index, ds_port_info *info);

/* Fills `*info` with output `index`. Errors: those of ds_model_input. Thread: any. */
DS_API ds_status ds_model_output(ds_model *model, size_t index, ds_port_info *info);

/* What a model has from its allocator: itself, its prepared weights, all of its streams and scratch. */
typedef struct ds_memory_info {
    size_t struct_size;     /* set by the caller */
    size_t bytes;           /* held now */
    size_t peak_bytes;      /* the most ever held */
    size_t blocks;          /* held now */
    uint64_t n_allocations; /* ever made; steps no larger than earlier ones add none */
    size_t mapped_bytes;    /* of the file, mapped besides: shared with other processes */
} ds_memory_info;

/* Fills `*info`. Errors: DS_ARGUMENT (NULL, struct_size), DS_CLOSED. Thread: any. */
DS_API ds_status ds_model_memory(ds_model *model, ds_memory_info *info);

/* ---- streams -------------------------------------------------------------------------------- */

/* One sequence on its way through a model. A stream is used by one thread at a time. */
typedef struct ds_stream ds_stream;

/* Opens a stream, at its beginning, and fills `*stream` (returns owned).
 * Errors: DS_ARGUMENT (NULL), DS_CLOSED, DS_LIMIT at max_streams, DS_NO_MEMORY. Thread: any. */
DS_API ds_status ds_stream_open(ds_stream **stream, ds_model *model);

/* Closes the stream: what it remembers is gone, and its outputs are.
 * Errors: DS_ARGUMENT (NULL), DS_CLOSED, DS_BUSY. Thread: one per stream. */
DS_API ds_status ds_stream_close(ds_stream *stream);

/* Puts the stream at its beginning. Its outputs stay until its next step.
 * Errors: DS_ARGUMENT (NULL), DS_CLOSED, DS_BUSY. Thread: one per stream. */
DS_API ds_status ds_stream_reset(ds_stream *stream);

/* Opens another stream of the same model that has seen what `stream` has, and fills `*fork` (returns
 * owned): from here on the two go their own ways.
 * Errors: those of ds_stream_open, DS_BUSY. Thread: one per stream. */
DS_API ds_status ds_stream_fork(ds_stream **fork, ds_stream *stream);

typedef struct ds_stream_info {
    size_t struct_size; /* set by the caller */
    ds_model *model;    /* view */
    /* 1 if it has been stepped since it was opened or reset; after ds_stream_restore: if it has taken
     * frames. */
    int32_t begun;
    int32_t ended;       /* 1 after a step with DS_END */
    int32_t refused;     /* 1 if the last step that it was in failed because of this stream */
    double idle_seconds; /* since its last step, or since it was opened */
} ds_stream_info;

/* Fills `*info`. Errors: DS_ARGUMENT (NULL, struct_size), DS_CLOSED, DS_BUSY. Thread: one per stream. */
DS_API ds_status ds_stream_query(ds_stream *stream, ds_stream_info *info);

/* Fills `*n_frames` with the frames of input `index` that the stream has taken since its beginning; 0 once
 * it has ended.
 * Errors: DS_ARGUMENT (also: no such index), DS_CLOSED, DS_BUSY. Thread: one per stream. */
DS_API ds_status ds_stream_frames(ds_stream *stream, size_t index, int64_t *n_frames);

/* Fills `streams` (views, at most `n_room`, the longest idle first) with the open streams that were not
 * stepped for `seconds`, and `*n` with how many there are in all; `streams` may be NULL if `n_room` is 0.
 * Streams that a call is using are left out.
 * Errors: DS_ARGUMENT (NULL, `seconds` negative), DS_CLOSED. Thread: any. */
DS_API ds_status ds_model_idle(ds_model *model, double seconds, ds_stream **streams, size_t n_room,
                               size_t *n);

/* ---- steps ---------------------------------------------------------------------------------- */

/* A chunk of one input of one stream. Frames lie one after the other (ds_port_info). No frames at all
 * (data may be NULL) is a chunk too. */
typedef struct ds_input {
    const void *data; /* borrowed */
    size_t n_frames;
    /* A ds_dtype of what `data` holds; 0: the input's own. An input of DS_F32 takes DS_F64, rounded, and,
     * where a frame is one number, DS_I16, divided by 32768. */
    int32_t dtype;
} ds_input;

/* The frames of one output of one stream that this step made final. View: valid until the stream's
 * next step, or until it is closed. */
typedef struct ds_output {
    const void *data; /* 64-byte aligned; not NULL, even if there are no frames */
    size_t n_frames;
    int64_t start; /* position of the first, counted from the beginning of the stream */
} ds_output;

/* What a step says of a stream, together. The numbers are pinned.
 * DS_START: begins anew, with its first chunk. A stream that is at its beginning begins without it too; one
 *   that is on its way must have ended, or been reset.
 * DS_END: ends: all that is left comes out. Until DS_START or ds_stream_reset it takes no more. */
#define DS_START 1u
#define DS_END 2u

/* Advances `n_streams` streams of one model, each once, by chunks of any lengths. What a stream gets does
 * not depend on which others are in the batch. `inputs[i * n_inputs + j]` is input j of stream i,
 * `outputs[i * n_outputs + k]` output k (fills), `flags[i]` what else is said of it (NULL: nothing of any).
 * The inputs of a stream advance together: their times may differ by less than one frame of the slowest
 * (more, if the model was compiled with a skew). An input of rate 0 is given once: one frame (1 or more,
 * where rate_den is 0) with the step that starts a stream, no frames in all others.
 * All or nothing: on failure no stream has advanced, and ds_stream_query tells those to blame.
 * Errors: DS_ARGUMENT (NULL, a stream given twice or of another model, unknown flags, a number of frames
 * that can't be), DS_CLOSED, DS_BUSY, DS_STREAM_ID (DS_START in mid-stream, a chunk after the end),
 * DS_DTYPE, DS_MISMATCH (inputs too far apart; one that is given once missing, or given again), DS_SHAPE (lengths
 * that the model can't take, known at the end), DS_INDEX (values that index a table), DS_LIMIT (a buffer's; more
 * memory than max_bytes), DS_NO_MEMORY. Thread: one per stream.
 */
DS_API ds_status ds_model_step(ds_model *model, ds_stream *const *streams, ds_output *outputs,
                               const ds_input *inputs, const uint32_t *flags, size_t n_streams);

/* Advances one stream as ds_model_step does; fills `outputs[k]` with output k.
 * Errors: those of ds_model_step. Thread: one per stream. */
DS_API ds_status ds_stream_step(ds_stream *stream, ds_output *outputs, const ds_input *inputs,
                                uint32_t flags);

/* Ends the stream without another chunk, as ds_stream_step with DS_END; fills `outputs[k]` with output k.
 * Errors: those of ds_model_step. Thread: one per stream. */
DS_API ds_status ds_stream_finish(ds_stream *stream, ds_output *outputs);

/* ---- snapshots ------------------------------------------------------------------------------ */

/* Fills `*n_bytes` with the size of the stream's snapshot, as it stands now.
 * Errors: DS_ARGUMENT (NULL), DS_CLOSED, DS_BUSY, DS_STREAM_ID for a stream that has ended,
 * DS_NO_MEMORY. Thread: one per stream. */
DS_API ds_status ds_stream_snapshot_size(ds_stream *stream, size_t *n_bytes);

/* Fills the `n_bytes` at `bytes`, exactly the snapshot's size, with all that the stream remembers. It can be
 * restored by any process, machine, instruction set and number of threads that has the same model.
 * Errors: those of ds_stream_snapshot_size; DS_ARGUMENT for another size. Thread: one per stream.
 */
DS_API ds_status ds_stream_snapshot(ds_stream *stream, void *bytes, size_t n_bytes);

/* Puts an open stream where the snapshot was taken; the next step goes on from there. What it remembered
 * before is gone. On failure it is as it was.
 * Errors: DS_ARGUMENT (NULL), DS_CLOSED, DS_BUSY, DS_FORMAT for a snapshot that is damaged or of another
 * model, DS_NO_MEMORY. Thread: one per stream. */
DS_API ds_status ds_stream_restore(ds_stream *stream, const void *bytes, size_t n_bytes);

/* ---- decoding ------------------------------------------------------------------------------- */

/* Turns scores of tokens, frame by frame, into words (connectionist temporal classification, which needs no model), or
 * frames of an encoder (a transducer, with models that score): the tokens, and where given the list of words, the
 * language model and the phrases, which all of its streams share. */
typedef struct ds_decoder ds_decoder;
/* One stream of scores. It is used by one thread at a time. */
typedef struct ds_decoding ds_decoding;

/* A text file: its path, or, where that is NULL, the bytes themselves (copied); neither: there is none. */
typedef struct ds_text {
    const char *path;
    const void *bytes;
    size_t n_bytes;
} ds_text;

/* The base-10 logarithm of the probability of the last of `n_words` words behind the others, which are at most as many
 * as the model looks back on; fewer where a sequence begins. A word is its number among those of `lm`; one
 * that isn't there is `<unk>`, or, where `lm` lacks that, the number behind the last. The same words have the same score
 * always; what isn't finite says that it failed, and the call with it (DS_ARGUMENT). */
typedef double (*ds_lm_score)(void *owner, const uint32_t *words, size_t n_words);

typedef struct ds_decoder_options {
    size_t struct_size; /* sizeof(ds_decoder_options) */
    /* Lines "token id" in any order, or a token per line: the columns of the scores. */
    ds_text tokens;
    /* Lines "word token token ...": nothing else is recognised. None: any sequence of tokens is. */
    ds_text lexicon;
    /* An n-gram model in ARPA format; with `lm_score` the words of a model, one a line. */
    ds_text lm;
    /* Phrases, one per line, each with a tab and its weight if it isn't `hotword_weight`: a phrase adds its weight to
     * the score wherever it stands in whole words. */
    ds_text hotwords;
    double hotword_weight; /* 0: 1 */
    const char *sil; /* the token between words; NULL: "|" or " ", if there is one; "": none */
    int32_t blank;   /* a column */
    int32_t greedy;  /* 1: the best token of every frame, no search */
    int32_t best_alignment; /* 1: a sequence counts by its best alignment, 0: by the sum of all */
    int32_t lm_tokens;      /* 1: the language model is one of tokens, 0: of words */
    int32_t
        unknown_words;  /* 1: words that the lexicon lacks may be spelled within it, as "<unk>" */
    uint32_t beam_size; /* sequences that are pursued; 0: 100 */
    uint32_t beam_size_token; /* best tokens of a frame that they go on with; 0: all */
    double beam_threshold;    /* those this far below the best are dropped; 0: 25 */
    double token_threshold;   /* tokens with lower scores are not tried; 0: all are */
    double blank_threshold; /* frames whose blank is more probable hold nothing else; 0: none do */
    double lm_weight;       /* of the base-10 logarithms of the language model */
    double word_score, unk_score, sil_score; /* added for each word, unknown word, `sil` */
    /* Tokens after which the oldest that is uncertain is decided; 0: 256. Final tokens that are kept; 0: 1024. */
    uint32_t max_pending, max_final;
    /* An utterance ends after so many frames: without a token; without one behind the first; in all. 0: no limit. */
    int64_t silence_frames, trailing_frames, utterance_frames;
    const ds_allocator
        *allocator; /* of all that belongs to it (copied); NULL: ds_set_allocator's */
    /* A transducer, where both are given (kept: they outlive the decoder): a model from a token (int64) to what is
     * predicted behind it, a frame per frame, that begins with the blank; and one without memory from a frame of the
     * encoder and what is predicted to scores of the tokens, normalized or not. Chunks are frames of the encoder. */
    ds_model *predictor, *joiner;
    uint32_t max_symbols; /* tokens in one frame of the encoder at most; 0: 1 */
    uint32_t lm_order;    /* of lm_score: words that it sees at most, 1 to 6 */
    ds_lm_score lm_score; /* scores words (called by threads that step, restore or read); NULL */
    void *lm_owner;       /* what `lm_score` is called with (kept) */
} ds_decoder_options;

/* clang-format off */
#define DS_DECODER_OPTIONS_INIT {sizeof(ds_decoder_options), \
    {NULL, NULL, 0}, {NULL, NULL, 0}, {NULL, NULL, 0}, {NULL, NULL, 0}, 0, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, \
    0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, 0, 0, NULL, NULL}
/* clang-format on */

/* Makes a decoder and fills `*decoder` (returns owned).
 * Errors: DS_FORMAT for a file that can't be read or is not what it should be, naming the line; DS_ARGUMENT (NULL,
 * struct_size, no tokens, a blank or sil that is no token, a number that can't be); DS_LIMIT, DS_NO_MEMORY.
 * Thread: any. */
DS_API ds_status ds_decoder_create(ds_decoder **decoder, const ds_decoder_options *options);

/* Closes a decoder and all of its streams.
 * Errors: DS_ARGUMENT (NULL), DS_CLOSED, DS_BUSY if a call with it is under way in another thread.
 * Thread: any. */
DS_API ds_status ds_decoder_close(ds_decoder *decoder);

/* Opens a stream, at its beginning, and fills `*stream` (returns owned).
 * Errors: DS_ARGUMENT (NULL), DS_CLOSED, DS_NO_MEMORY. Thread: any. */
DS_API ds_status ds_decoding_open(ds_decoding **stream, ds_decoder *decoder);

/* Closes a stream.
 * Errors: DS_ARGUMENT (NULL), DS_CLOSED, DS_BUSY. Thread: one per stream. */
DS_API ds_status ds_decoding_close(ds_decoding *stream);

/* Advances `n_streams` streams of one decoder, each once, by chunks of any lengths: `chunks[i]` are the scores of
 * stream i, log probabilities [frames][tokens] of DS_F32 (of a transducer: its encoder's frames), `flags[i]` what a
 * step of a model says (DS_START, DS_END; NULL: nothing of any). What a stream gets depends on its own frames alone, not
 * on chunks or on others.
 * All or nothing: on failure no stream has advanced.
 * Errors: DS_ARGUMENT (NULL, a stream given twice or of another decoder, unknown flags), DS_CLOSED, DS_BUSY,
 * DS_STREAM_ID (DS_START in mid-stream, a chunk after the end), DS_DTYPE, DS_INDEX (a score that is NaN or infinity,
 * a frame in which none is above minus infinity), DS_NO_MEMORY. Thread: one per stream. */
DS_API ds_status ds_decoder_step(ds_decoder *decoder, ds_decoding *const *streams,
                                 const ds_input *chunks, const uint32_t *flags, size_t n_streams);

/* A token of a hypothesis. */
typedef struct ds_decoded_token {
    int32_t token; /* a column; -1: an utterance ended here */
    int32_t
        word; /* that it completes: of the lexicon, its number of words for an unknown one; -1: none */
    /* Frames of the stream, from start up to end, in which the best alignment has it. Of a transducer with max_symbols
     * above 1 parts of a frame, so many to each: tokens that come with one frame follow each other. */
    int64_t start, end;
    float confidence; /* its mean probability in these */
    int32_t is_final; /* 1: no later frame changes anything of it */
} ds_decoded_token;

/* What a stream may have said. */
typedef struct ds_hypothesis {
    size_t struct_size;             /* set by the caller */
    const ds_decoded_token *tokens; /* view */
    size_t n_tokens, n_final; /* the final ones come first, and are the same in all hypotheses */
    int64_t n_left;           /* final tokens before these, which are kept no longer */
    double score;     /* logarithm; of a stream that has ended with the end of its last sentence */
    int64_t n_frames; /* of the stream so far */
    int64_t n_endpoints; /* utterances that have ended */
    size_t n_hypotheses; /* that there are */
} ds_hypothesis;

/* Fills `*hypothesis` with the stream's hypothesis `rank`, 0 the best. Views: valid until the stream's next call.
 * Errors: DS_ARGUMENT (also: no such rank), DS_CLOSED, DS_BUSY, DS_NO_MEMORY. Thread: one per stream. */
DS_API ds_status ds_decoding_read(ds_decoding *stream, ds_hypothesis *hypothesis, size_t rank);

/* Fills `*text` with the text of a token, or of a word of the lexicon, of `*n_bytes` bytes, not ended by a zero.
 * Returns view, valid until the decoder is closed.
 * Errors: DS_ARGUMENT (also: no such number), DS_CLOSED. Thread: any. */
DS_API ds_status ds_decoder_token(ds_decoder *decoder, int32_t token, const char **text,
                                  size_t *n_bytes);
/* Fills `*text`, of `*n_bytes` bytes, with a word of the lexicon: a view. Errors: as above. Thread: any. */
DS_API ds_status ds_decoder_word(ds_decoder *decoder, int32_t word, const char **text,
                                 size_t *n_bytes);

/* Fills `*n_bytes` with the size of the stream's snapshot, as it stands now.
 * Errors: DS_ARGUMENT (NULL), DS_CLOSED, DS_BUSY, DS_STREAM_ID for a stream that has ended. Thread: one per stream. */
DS_API ds_status ds_decoding_snapshot_size(ds_decoding *stream, size_t *n_bytes);

/* Fills the `n_bytes` at `bytes`, exactly the snapshot's size, with all that the stream remembers, for a decoder with the
 * same files and options.
 * Errors: those of ds_decoding_snapshot_size; DS_ARGUMENT for another size. Thread: one per stream. */
DS_API ds_status ds_decoding_snapshot(ds_decoding *stream, void *bytes, size_t n_bytes);

/* Puts an open stream where the snapshot was taken. On failure it is as it was.
 * Errors: DS_ARGUMENT (NULL), DS_CLOSED, DS_BUSY, DS_FORMAT for a snapshot that is damaged or of another decoder,
 * DS_NO_MEMORY. Thread: one per stream. */
DS_API ds_status ds_decoding_restore(ds_decoding *stream, const void *bytes, size_t n_bytes);

#ifdef __cplusplus
}
#endif

#endif /* DREAMSTREAM_H */
