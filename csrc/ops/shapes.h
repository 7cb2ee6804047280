/* ops/shapes.h: the shapes and types of inputs and weights by a line of words in the definition.
 *
 *     "[.., groups*C]; weight [groups*N, C, kernel]; bias? [groups*N]"
 *     "[..]: int64; weight [rows, columns]: float"
 *
 * An entry for each input, without a name, then one for each weight, with its name: `?` behind it where the weight may
 * be absent, `*` where any number of weights follow, which the operator checks itself. In brackets stand the sizes of
 * an array's dimensions; an entry without brackets may have any shape. A size is a sum of products of integers, of
 * integer attributes, which go by their names, and of other words, which are the same number wherever they stand on
 * the line; `|` stands between sizes of which one must fit. `..` stands for any number of dimensions, the same ones in
 * all brackets, and `...` for any.
 *
 * A colon is followed by the types that an array may have, with `|` between them: `float` is float32 or float64, and
 * all that are so are of one type; `same` is input 0's. Without a colon any type fits. */
#pragma once
#include "ops/op.h"

/* How many weights the line has; -1 where they repeat. */
int ds_shapes_weights(const char *line);
/* DS_SHAPE where an input or a weight does not fit def->shapes, with the shape that the others ask for, or is missing;
 * DS_DTYPE where it is of another type. Inputs beyond those given are passed over. */
ds_status ds_shapes_check(const ds_op *op);
