/* model/members.h: how the text of a model file spells what several of its members have. */
#pragma once
#include "codec/safetensors.h"
#include "model/model.h"

/* Fills the signature from the members "dtype", "shape" and "rate" of `object`, whose other members
 * are the caller's. The rate is what was written, in lowest terms or not. Errors: DS_FORMAT. */
ds_status ds_signature_read(ds_signature *signature, ds_json_value object);
/* Writes these members into the object that is open. */
void ds_signature_put(ds_json_writer *writer, const ds_signature *signature);

/* The engine's element type of the container's; false where it has none. */
bool ds_dtype_of_tensor(ds_dtype *dtype, ds_tensor_type type);
/* Of a weight that is stored so; in int8 beside "<name>" + DS_MODEL_SCALES, a float for each output channel. */
ds_tensor_type ds_tensor_of_stored(ds_dtype dtype, ds_stored stored);
bool ds_stored_of_tensor(ds_stored *stored, ds_tensor_type type);
#define DS_MODEL_SCALES ".scales"

/* The fingerprint of a model as files spell it: 32 hexadecimal digits. */
typedef struct ds_model_mark {
    char text[33];
} ds_model_mark;
/* The mark of a graph and its interface's text: the graph's fingerprint (ir/fingerprint.c), into
 * which the paths of the nodes and the text are mixed. That is all that a file holds but the names
 * of its weights, which it holds twice. */
ds_model_mark ds_model_fingerprint(const ds_graph *graph, const ds_buffer *interface);
