/* model/members.c: members that reader and writer share. */
#include "model/members.h"

#include <stdio.h>
#include <string.h>

static const ds_tensor_type types[] = {[DS_F32] = DS_TENSOR_F32,
                                       [DS_F64] = DS_TENSOR_F64,
                                       [DS_I64] = DS_TENSOR_I64,
                                       [DS_BOOL] = DS_TENSOR_BOOL,
                                       [DS_I16] = DS_TENSOR_I16};
enum { N_TYPES = sizeof types / sizeof types[0] };

bool ds_dtype_of_tensor(ds_dtype *dtype, ds_tensor_type type)
{
    for (int i = DS_F32; i < N_TYPES; i++) {
        if (types[i] == type) {
            *dtype = (ds_dtype)i;
            return true;
        }
    }
    return false;
}

static const ds_tensor_type narrow[] = {[DS_STORED_FP16] = DS_TENSOR_F16,
                                        [DS_STORED_BF16] = DS_TENSOR_BF16,
                                        [DS_STORED_INT8] = DS_TENSOR_I8};

ds_tensor_type ds_tensor_of_stored(ds_dtype dtype, ds_stored stored)
{
    return stored == DS_STORED_WIDE ? types[dtype] : narrow[stored];
}

bool ds_stored_of_tensor(ds_stored *stored, ds_tensor_type type)
{
    for (int i = DS_STORED_FP16; i <= DS_STORED_INT8; i++) {
        if (narrow[i] == type) {
            *stored = (ds_stored)i;
            return true;
        }
    }
    return false;
}

static ds_status read_dtype(ds_dtype *dtype, ds_json_value object)
{
    ds_json_value value;
    const char *name = NULL;
    DS_TRY(ds_json_member(&value, object, "dtype"));
    DS_TRY(ds_json_string(&name, NULL, value));
    *dtype = ds_dtype_find(name);
    return *dtype ? DS_OK : ds_json_refuse_text(value, "float32, float64, int64, bool or int16");
}

ds_status ds_signature_read(ds_signature *signature, ds_json_value object)
{
    ds_signature s = {.rank = 0};
    int64_t rate[2];
    int n;
    DS_TRY(read_dtype(&s.dtype, object));
    DS_TRY(ds_json_get_integers(s.shape, &s.rank, object, "shape", 0, DS_MAX_RANK, 1));
    DS_TRY(ds_json_get_integers(rate, &n, object, "rate", 2, 2, 0));
    s.rate = (ds_rate){rate[0], rate[1]};
    *signature = s;
    return DS_OK;
}

void ds_signature_put(ds_json_writer *writer, const ds_signature *signature)
{
    const int64_t rate[] = {signature->rate.num, signature->rate.den};
    ds_json_put_string(writer, "dtype", ds_dtype_name(signature->dtype));
    ds_json_put_integers(writer, "shape", signature->shape, (size_t)signature->rank);
    ds_json_put_integers(writer, "rate", rate, 2);
}

/* Of a path the module's only: behind " at " a `require` says its place in the source, which moves. */
static size_t path_bytes(const ds_node *node)
{
    const char *place =
        strcmp(node->op->def->name, "require") == 0 ? strstr(node->path, " at ") : NULL;
    return place != NULL ? (size_t)(place - node->path) : strlen(node->path);
}

ds_model_mark ds_model_fingerprint(const ds_graph *graph, const ds_buffer *interface)
{
    uint64_t h[2];
    ds_model_mark mark;
    ds_graph_fingerprint(graph, h);
    for (size_t j = 0; j < graph->n_nodes; j++)
        ds_fingerprint_bytes(h, graph->nodes[j].path, path_bytes(&graph->nodes[j]));
    ds_fingerprint_bytes(h, interface->bytes, interface->n_bytes);
    (void)snprintf(mark.text, sizeof mark.text, "%016llx%016llx", (unsigned long long)h[0],
                   (unsigned long long)h[1]);
    return mark;
}
