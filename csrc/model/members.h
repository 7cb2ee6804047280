/* model/members.h: how the text of a model file spells what several of its members have. */
#ifndef DS_MODEL_MEMBERS_H
#define DS_MODEL_MEMBERS_H
#include "codec/safetensors.h"
#include "model/model.h"

/* The dimensions that are no axis of a frame. */
typedef struct ds_dim_name {
    const char *name;
    int dim;
} ds_dim_name;
static const ds_dim_name ds_dim_names[] = {{"B", DS_DIM_B}, {"L", DS_DIM_L}, {"B_L", DS_DIM_B_L}};

/* Fills the signature from the members "dtype", "shape" and "rate" of `object`, whose other members are
 * the caller's. The rate is what was written, in lowest terms or not. Errors: DS_FORMAT. */
ds_status ds_signature_read(ds_signature *signature, ds_json_value object);
/* Writes these members into the object that is open. */
void ds_signature_put(ds_json_writer *writer, const ds_signature *signature);

/* The element types of the engine and of the container; false where there is no such pair. */
bool ds_dtype_of_tensor(ds_dtype *dtype, ds_tensor_type type);
bool ds_tensor_of_dtype(ds_tensor_type *type, ds_dtype dtype);

/* The fingerprint of a model as files spell it: 32 hexadecimal digits. */
typedef struct ds_model_mark {
    char text[33];
} ds_model_mark;
/* Fills the mark of a graph and its interface. Errors: DS_NO_MEMORY. */
ds_status ds_model_fingerprint(ds_model_mark *mark, const ds_graph *graph,
                               const ds_interface *interface);

#endif
