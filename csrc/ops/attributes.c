#include "ops/attributes.h"

#include <math.h>
#include <string.h>

static ds_status read_real(double *x, ds_json_value value)
{
    const char *text = NULL;
    if (ds_json_kind_of(value) != DS_JSON_STRING)
        return ds_json_double(x, value);
    DS_TRY(ds_json_string(&text, NULL, value));
    if (strcmp(text, "inf") == 0)
        *x = INFINITY;
    else if (strcmp(text, "-inf") == 0)
        *x = -INFINITY;
    else if (strcmp(text, "nan") == 0)
        *x = NAN;
    else
        return ds_json_refuse(value, "expected a number, \"inf\", \"-inf\" or \"nan\"");
    return DS_OK;
}

ds_status ds_attr_read(ds_attr *attr, ds_json_value value)
{
    ds_attr_value *v = &attr->value;
    switch (attr->kind) {
    case DS_ATTR_INT:
        return ds_json_integer(&v->i, value, INT64_MIN, INT64_MAX);
    case DS_ATTR_REAL:
        return read_real(&v->x, value);
    case DS_ATTR_INTS:
        return ds_json_integers(v->ints, &v->n_ints, value, 0, DS_MAX_INTS, INT64_MIN);
    case DS_ATTR_CHOICE:
    case DS_ATTR_TEXT:
        break;
    }
    return ds_json_string(&attr->text, NULL, value);
}
