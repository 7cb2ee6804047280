/* java/jni.c: the native methods of the Java class dreamstream.Native, over dreamstream.h.
 *
 * This file only translates. Whether an object is open, whether another thread uses it and whether a
 * buffer is large enough is decided in Java, before a method is called: pointers and addresses that
 * arrive here are right, and their objects stay alive until the method returns. A call that the engine refuses
 * throws dreamstream.DreamStreamException with the engine's message, as bytes in UTF-8.
 *
 * It is compiled by `python -m dreamstream.config --jar`, and belongs to no other library. */
#include <dreamstream.h>
#include <jni.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* What a method is handed whether it has a use for it or not. */
#define UNUSED __attribute__((unused))
#define SELF jclass self UNUSED

/* What JNI_OnLoad looks up. */
static jclass exception_class;
static jmethodID exception_init; /* (int status, byte[] message) */

/* What dreamstream.Native compares with its own number: it changes with the methods below. */
enum { METHODS_VERSION = 2 };

JNIEXPORT jint JNI_OnLoad(JavaVM *vm, void *reserved UNUSED)
{
    JNIEnv *env = NULL;
    if ((*vm)->GetEnv(vm, (void **)&env, JNI_VERSION_1_8) != JNI_OK)
        return JNI_ERR;
    const jclass found = (*env)->FindClass(env, "dreamstream/DreamStreamException");
    if (found == NULL)
        return JNI_ERR;
    exception_class = (*env)->NewGlobalRef(env, found);
    if (exception_class == NULL)
        return JNI_ERR;
    exception_init = (*env)->GetMethodID(env, exception_class, "<init>", "(I[B)V");
    return exception_init != NULL ? JNI_VERSION_1_8 : JNI_ERR;
}

/* ---- values --------------------------------------------------------------------------------- */

static void *pointer(jlong value)
{
    return (void *)(uintptr_t)value;
}

static jlong number(const void *p)
{
    return (jlong)(uintptr_t)p;
}

/* A byte[] of `n` bytes; NULL with an exception pending if there is no memory. */
static jbyteArray new_bytes(JNIEnv *env, const void *bytes, size_t n)
{
    n = n > INT32_MAX ? INT32_MAX : n;
    const jbyteArray array = (*env)->NewByteArray(env, (jsize)n);
    if (array != NULL)
        (*env)->SetByteArrayRegion(env, array, 0, (jsize)n, bytes);
    return array;
}

static jbyteArray new_text(JNIEnv *env, const char *text)
{
    return new_bytes(env, text, strlen(text));
}

static jlongArray new_longs(JNIEnv *env, const jlong *values, size_t n)
{
    const jlongArray array = (*env)->NewLongArray(env, (jsize)n);
    if (array != NULL)
        (*env)->SetLongArrayRegion(env, array, 0, (jsize)n, values);
    return array;
}

/* The text of a byte[], ended by a zero; the caller frees it. NULL for a null array, or without memory. */
static char *copy_text(JNIEnv *env, jbyteArray array)
{
    if (array == NULL)
        return NULL;
    const jsize n = (*env)->GetArrayLength(env, array);
    char *text = malloc((size_t)n + 1);
    if (text != NULL) {
        (*env)->GetByteArrayRegion(env, array, 0, n, (jbyte *)text);
        text[n] = 0;
    }
    return text;
}

/* ---- failures ------------------------------------------------------------------------------- */

static void throw_status(JNIEnv *env, ds_status status, const char *why)
{
    const jbyteArray message = new_text(env, why);
    if (message == NULL)
        return; /* OutOfMemoryError is pending */
    const jobject made =
        (*env)->NewObject(env, exception_class, exception_init, (jint)status, message);
    if (made != NULL)
        (void)(*env)->Throw(env, made);
}

/* Whether `status` is DS_OK; otherwise the exception is thrown when the method returns. */
static int good(JNIEnv *env, ds_status status)
{
    if (status != DS_OK)
        throw_status(env, status, ds_last_error());
    return status == DS_OK;
}

static int allocated(JNIEnv *env, const void *p)
{
    if (p == NULL)
        throw_status(env, DS_NO_MEMORY, "there is no memory for the arguments of a call");
    return p != NULL;
}

/* ---- the library ---------------------------------------------------------------------------- */

/* Native's number of this file; the interface that it was compiled for and the one that is running. */
JNIEXPORT jlongArray JNICALL Java_dreamstream_Native_versions(JNIEnv *env, SELF)
{
    const jlong values[] = {METHODS_VERSION, DS_ABI_VERSION, (jlong)ds_abi_version()};
    return new_longs(env, values, 3);
}

JNIEXPORT jbyteArray JNICALL Java_dreamstream_Native_version(JNIEnv *env, SELF)
{
    return new_text(env, ds_version());
}

/* The name of backend `index`, if this machine can run it, else null. */
JNIEXPORT jbyteArray JNICALL Java_dreamstream_Native_backend(JNIEnv *env, SELF, jlong index)
{
    ds_backend_info info = {.struct_size = sizeof info};
    if (!good(env, ds_backend_at(&info, (size_t)index)) || !info.usable)
        return NULL;
    return new_text(env, info.name);
}

JNIEXPORT jlong JNICALL Java_dreamstream_Native_backends(JNIEnv *env UNUSED, SELF)
{
    return (jlong)ds_backend_count();
}

/* Where a direct buffer's first byte lies. */
JNIEXPORT jlong JNICALL Java_dreamstream_Native_address(JNIEnv *env, SELF, jobject buffer)
{
    return number((*env)->GetDirectBufferAddress(env, buffer));
}

/* Copies `n` bytes. */
JNIEXPORT void JNICALL Java_dreamstream_Native_copy(JNIEnv *env UNUSED, SELF, jlong to, jlong from,
                                                    jlong n)
{
    if (n > 0)
        memcpy(pointer(to), pointer(from), (size_t)n);
}

/* ---- models --------------------------------------------------------------------------------- */

/* Loads the file `path`, or, where that is null, the `n_bytes` at `bytes`. `numbers` are threads, max_streams,
 * copy and max_bytes. */
JNIEXPORT jlong JNICALL Java_dreamstream_Native_load(JNIEnv *env, SELF, jbyteArray path,
                                                     jlong bytes, jlong n_bytes, jlongArray numbers,
                                                     jbyteArray backend)
{
    jlong values[4];
    ds_model *model = NULL;
    ds_model_options options = DS_MODEL_OPTIONS_INIT;
    (*env)->GetLongArrayRegion(env, numbers, 0, 4, values);
    options.threads = (uint32_t)values[0];
    options.max_streams = (uint32_t)values[1];
    options.copy = (int32_t)values[2];
    options.max_bytes = (uint64_t)values[3];
    char *name = copy_text(env, backend), *file = copy_text(env, path);
    options.backend = name;
    if ((backend == NULL || allocated(env, name)) && (path == NULL || allocated(env, file))) {
        (void)good(env, path != NULL ? ds_model_load(&model, file, &options)
                                     : ds_model_load_memory(&model, pointer(bytes), (size_t)n_bytes,
                                                            &options));
    }
    free(name);
    free(file);
    return number(model);
}

/* Closes a model, with its streams, or a stream. */
JNIEXPORT void JNICALL Java_dreamstream_Native_close(JNIEnv *env UNUSED, SELF, jlong object,
                                                     jboolean model)
{
    (void)(model ? ds_model_close(pointer(object)) : ds_stream_close(pointer(object)));
}

/* Field by field what ModelInfo has; numbers of floating point as their bits. */
JNIEXPORT jlongArray JNICALL Java_dreamstream_Native_modelInfo(JNIEnv *env, SELF, jlong model)
{
    ds_model_info info = {.struct_size = sizeof info};
    if (!good(env, ds_model_query(pointer(model), &info)))
        return NULL;
    jlong growth = 0;
    memcpy(&growth, &info.state_bytes_per_frame, sizeof growth);
    const jlong values[] = {info.bitwise,
                            info.threads,
                            (jlong)info.n_inputs,
                            (jlong)info.n_outputs,
                            info.delay,
                            info.receptive_field,
                            (jlong)info.state_size,
                            growth,
                            (jlong)info.n_layers,
                            (jlong)info.weights_size,
                            (jlong)info.prepared_size,
                            (jlong)info.max_streams,
                            (jlong)info.n_streams,
                            (jlong)info.kept_bytes};
    return new_longs(env, values, sizeof values / sizeof *values);
}

/* The model's name, or its backend's. */
JNIEXPORT jbyteArray JNICALL Java_dreamstream_Native_modelText(JNIEnv *env, SELF, jlong model,
                                                               jboolean backend)
{
    ds_model_info info = {.struct_size = sizeof info};
    if (!good(env, ds_model_query(pointer(model), &info)))
        return NULL;
    return new_text(env, backend ? info.backend : info.name);
}

static ds_status port_of(jlong model, jboolean output, jlong index, ds_port_info *info)
{
    *info = (ds_port_info){.struct_size = sizeof *info};
    return output ? ds_model_output(pointer(model), (size_t)index, info)
                  : ds_model_input(pointer(model), (size_t)index, info);
}

/* dtype, rate_num, rate_den, delay, and the sizes of a frame's axes. */
JNIEXPORT jlongArray JNICALL Java_dreamstream_Native_portInfo(JNIEnv *env, SELF, jlong model,
                                                              jboolean output, jlong index)
{
    ds_port_info info;
    if (!good(env, port_of(model, output, index, &info)))
        return NULL;
    const jlong values[] = {(jlong)info.dtype, info.rate_num, info.rate_den, info.delay};
    const jlongArray array = (*env)->NewLongArray(env, (jsize)(4 + info.rank));
    if (array == NULL)
        return NULL;
    (*env)->SetLongArrayRegion(env, array, 0, 4, values);
    (*env)->SetLongArrayRegion(env, array, 4, (jsize)info.rank, (const jlong *)info.shape);
    return array;
}

JNIEXPORT jbyteArray JNICALL Java_dreamstream_Native_portName(JNIEnv *env, SELF, jlong model,
                                                              jboolean output, jlong index)
{
    ds_port_info info;
    return good(env, port_of(model, output, index, &info)) ? new_text(env, info.name) : NULL;
}

/* ---- streams -------------------------------------------------------------------------------- */

JNIEXPORT jlong JNICALL Java_dreamstream_Native_open(JNIEnv *env, SELF, jlong model)
{
    ds_stream *stream = NULL;
    (void)good(env, ds_stream_open(&stream, pointer(model)));
    return number(stream);
}

JNIEXPORT void JNICALL Java_dreamstream_Native_reset(JNIEnv *env, SELF, jlong stream)
{
    (void)good(env, ds_stream_reset(pointer(stream)));
}

JNIEXPORT jlong JNICALL Java_dreamstream_Native_fork(JNIEnv *env, SELF, jlong stream)
{
    ds_stream *fork = NULL;
    (void)good(env, ds_stream_fork(&fork, pointer(stream)));
    return number(fork);
}

/* begun, ended, refused, and the idle seconds' bits. */
JNIEXPORT jlongArray JNICALL Java_dreamstream_Native_streamInfo(JNIEnv *env, SELF, jlong stream)
{
    ds_stream_info info = {.struct_size = sizeof info};
    if (!good(env, ds_stream_query(pointer(stream), &info)))
        return NULL;
    jlong idle = 0;
    memcpy(&idle, &info.idle_seconds, sizeof idle);
    const jlong values[] = {info.begun, info.ended, info.refused, idle};
    return new_longs(env, values, 4);
}

JNIEXPORT jlong JNICALL Java_dreamstream_Native_frames(JNIEnv *env, SELF, jlong stream, jlong index)
{
    int64_t n = 0;
    (void)good(env, ds_stream_frames(pointer(stream), (size_t)index, &n));
    return (jlong)n;
}

JNIEXPORT jbyteArray JNICALL Java_dreamstream_Native_snapshot(JNIEnv *env, SELF, jlong stream)
{
    size_t n = 0;
    if (!good(env, ds_stream_snapshot_size(pointer(stream), &n)))
        return NULL;
    if (n > INT32_MAX) {
        throw_status(env, DS_LIMIT, "the snapshot is larger than a byte[] can be");
        return NULL;
    }
    void *bytes = malloc(n ? n : 1);
    jbyteArray array = NULL;
    if (allocated(env, bytes) && good(env, ds_stream_snapshot(pointer(stream), bytes, n)))
        array = new_bytes(env, bytes, n);
    free(bytes);
    return array;
}

JNIEXPORT void JNICALL Java_dreamstream_Native_restore(JNIEnv *env, SELF, jlong stream,
                                                       jbyteArray snapshot)
{
    char *bytes = copy_text(env, snapshot);
    if (allocated(env, bytes))
        (void)good(env, ds_stream_restore(pointer(stream), bytes,
                                          (size_t)(*env)->GetArrayLength(env, snapshot)));
    free(bytes);
}

/* ---- steps ---------------------------------------------------------------------------------- */

/* The numbers of a call: n_outputs bytes of a frame; then, per stream,
 *     stream, flags, n_inputs of [address, frames, dtype], n_outputs of [room, bytes of room, frames, start].
 * The last two are filled, and the room gives way to the address of the engine's own frames. */
enum { INPUT_NUMBERS = 3, OUTPUT_NUMBERS = 4, BYTES_ON_STACK = 8192 };

typedef struct call {
    size_t n_streams, n_inputs, n_outputs;
    jlong *numbers;
    ds_stream **streams;
    uint32_t *flags;
    ds_input *inputs;
    ds_output *outputs;
} call;

static void read_call(const call *c)
{
    const jlong *at = c->numbers + c->n_outputs;
    ds_input *input = c->inputs;
    for (size_t i = 0; i < c->n_streams; i++) {
        c->streams[i] = pointer(*at++);
        c->flags[i] = (uint32_t)*at++;
        for (size_t j = 0; j < c->n_inputs; j++, at += INPUT_NUMBERS)
            *input++ = (ds_input){pointer(at[0]), (size_t)at[1], (int32_t)at[2]};
        at += OUTPUT_NUMBERS * c->n_outputs;
    }
}

static void write_call(const call *c)
{
    jlong *at = c->numbers + c->n_outputs;
    const ds_output *output = c->outputs;
    for (size_t i = 0; i < c->n_streams; i++) {
        at += 2 + INPUT_NUMBERS * c->n_inputs;
        for (size_t k = 0; k < c->n_outputs; k++, at += OUTPUT_NUMBERS, output++) {
            const jlong n_bytes = (jlong)output->n_frames * c->numbers[k];
            if (n_bytes > 0 && n_bytes <= at[1])
                memcpy(pointer(at[0]), output->data, (size_t)n_bytes);
            at[0] = number(output->data);
            at[2] = (jlong)output->n_frames;
            at[3] = output->start;
        }
    }
}

/* Advances the streams of a call; frames go to the rooms that hold all of an output. */
JNIEXPORT void JNICALL Java_dreamstream_Native_step(JNIEnv *env, SELF, jlong model,
                                                    jlongArray array, jint n_streams, jint n_inputs,
                                                    jint n_outputs)
{
    _Alignas(ds_output) char room[BYTES_ON_STACK];
    call c = {(size_t)n_streams, (size_t)n_inputs, (size_t)n_outputs, NULL, NULL, NULL, NULL, NULL};
    const size_t n_in = c.n_streams * c.n_inputs, n_out = c.n_streams * c.n_outputs;
    const size_t n = c.n_outputs + 2 * c.n_streams + INPUT_NUMBERS * n_in + OUTPUT_NUMBERS * n_out;
    const size_t n_bytes = n * sizeof *c.numbers + n_out * sizeof *c.outputs +
                           n_in * sizeof *c.inputs +
                           c.n_streams * (sizeof *c.streams + sizeof *c.flags);
    char *memory = n_bytes <= sizeof room ? room : malloc(n_bytes);
    if (!allocated(env, memory))
        return;
    c.numbers = (void *)memory; /* the widest first: all of them stay aligned */
    c.outputs = (void *)(c.numbers + n);
    c.inputs = (void *)(c.outputs + n_out);
    c.streams = (void *)(c.inputs + n_in);
    c.flags = (void *)(c.streams + c.n_streams);
    (*env)->GetLongArrayRegion(env, array, 0, (jsize)n, c.numbers);
    read_call(&c);
    if (good(env,
             ds_model_step(pointer(model), c.streams, c.outputs, c.inputs, c.flags, c.n_streams))) {
        write_call(&c);
        (*env)->SetLongArrayRegion(env, array, 0, (jsize)n, c.numbers);
    }
    if (memory != room)
        free(memory);
}
