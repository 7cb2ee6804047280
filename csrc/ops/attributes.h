/* ops/attributes.h: attributes of operators as JSON has them, in model files and in bodies of loops. */
#pragma once
#include "codec/json.h"
#include "ops/op.h"

/* Reads the value of an attribute whose kind is set; text is a view of the tree. Numbers that JSON has no word for are
 * "inf", "-inf" and "nan". Errors: DS_FORMAT. */
ds_status ds_attr_read(ds_attr *attr, ds_json_value value);
