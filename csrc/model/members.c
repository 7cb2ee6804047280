/* model/members.c: reads the members of JSON objects, and says what is wrong with them. */
#include "model/members.h"

#include <string.h>

#include "codec/utf8.h"

static const struct {
    ds_dtype dtype;
    ds_tensor_type type;
} types[] = {{DS_F32, DS_TENSOR_F32},
             {DS_F64, DS_TENSOR_F64},
             {DS_I64, DS_TENSOR_I64},
             {DS_BOOL, DS_TENSOR_BOOL},
             {DS_I16, DS_TENSOR_I16}};
enum { N_TYPES = sizeof types / sizeof types[0] };

bool ds_dtype_of_tensor(ds_dtype *dtype, ds_tensor_type type)
{
    for (int i = 0; i < N_TYPES; i++) {
        if (types[i].type == type) {
            *dtype = types[i].dtype;
            return true;
        }
    }
    return false;
}

bool ds_tensor_of_dtype(ds_tensor_type *type, ds_dtype dtype)
{
    for (int i = 0; i < N_TYPES; i++) {
        if (types[i].dtype == dtype) {
            *type = types[i].type;
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
    for (int i = 0; i < N_TYPES; i++) {
        if (strcmp(ds_dtype_name(types[i].dtype), name) == 0) {
            *dtype = types[i].dtype;
            return DS_OK;
        }
    }
    char shown[DS_UTF8_SHOWN_BYTES];
    return ds_json_refuse(value, "expected float32, float64, int64, bool or int16, got \"%s\"",
                          ds_utf8_show(shown, name, strlen(name)));
}

/* Fills numbers with an array of `least` to `most` integers from `low` on. */
static ds_status read_integers(int64_t *numbers, int *n, ds_json_value array, size_t least,
                               size_t most, int64_t low)
{
    ds_json_cursor at;
    ds_json_value value;
    DS_TRY(ds_json_enter_array(&at, array));
    const size_t count = ds_json_count(array);
    if (count < least || count > most)
        return ds_json_refuse(array, "expected %zu to %zu integers, got %zu", least, most, count);
    for (*n = 0; ds_json_next(&at, &value); ++*n)
        DS_TRY(ds_json_integer(&numbers[*n], value, low, INT64_MAX));
    return DS_OK;
}

ds_status ds_signature_read(ds_signature *signature, ds_json_value object)
{
    ds_json_value value;
    ds_signature s = {.rank = 0};
    int64_t rate[2] = {0};
    int n = 0;
    DS_TRY(read_dtype(&s.dtype, object));
    DS_TRY(ds_json_member(&value, object, "shape"));
    DS_TRY(read_integers(s.shape, &s.rank, value, 0, DS_MAX_RANK, 1));
    DS_TRY(ds_json_member(&value, object, "rate"));
    DS_TRY(read_integers(rate, &n, value, 2, 2, 0));
    s.rate = (ds_rate){rate[0], rate[1]};
    *signature = s;
    return DS_OK;
}

void ds_signature_put(ds_json_writer *writer, const ds_signature *signature)
{
    ds_json_put_key(writer, "dtype");
    ds_json_put_string(writer, ds_dtype_name(signature->dtype));
    ds_json_put_key(writer, "shape");
    ds_json_put_open_array(writer);
    for (int d = 0; d < signature->rank; d++)
        ds_json_put_integer(writer, signature->shape[d]);
    ds_json_put_close(writer);
    ds_json_put_key(writer, "rate");
    ds_json_put_open_array(writer);
    ds_json_put_integer(writer, signature->rate.num);
    ds_json_put_integer(writer, signature->rate.den);
    ds_json_put_close(writer);
}
