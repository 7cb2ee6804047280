/* ops/shapes.c: reads the line of words, in two turns: the first finds what words that stand alone mean, in weights
 * before inputs, so that an input that doesn't fit is told what the weights ask for, and looks at types; the second
 * compares shapes. */
#include "ops/shapes.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum { WORDS = 16 };

typedef struct word {
    const char *at;
    size_t n; /* bytes; 0: none */
    int64_t size;
} word;

typedef struct entry {
    const char *name; /* of n_name bytes; none of an input */
    size_t n_name;
    const char *sizes; /* behind the bracket; NULL: any shape */
    const char *types; /* behind the colon; NULL: any type */
    bool optional, repeats;
} entry;

typedef struct shapes {
    const ds_op *op;
    word words[WORDS];
    int n_words;
    const ds_signature
        *pack; /* what `..` stands for: n_pack dimensions of it, from `pack_from` on */
    int pack_from, n_pack;
} shapes;

/* Reads one entry, and returns where the next one begins; NULL at the end of the line. */
static const char *read_entry(const char *at, entry *e)
{
    at += strspn(at, " ;");
    if (*at == 0)
        return NULL;
    *e = (entry){.name = at, .n_name = strcspn(at, "?* [:;")};
    at += e->n_name;
    const size_t end = strcspn(at, ";"), marks = strcspn(at, "[:;"), types = strcspn(at, ":;");
    e->optional = memchr(at, '?', marks) != NULL;
    e->repeats = memchr(at, '*', marks) != NULL;
    e->sizes = at[marks] == '[' ? at + marks + 1 : NULL;
    e->types = types < end ? at + types + 1 + strspn(at + types + 1, " ") : NULL;
    return at + end;
}

int ds_shapes_weights(const char *line)
{
    int n = 0;
    entry e;
    while (line != NULL && (line = read_entry(line, &e)) != NULL) {
        if (e.repeats)
            return -1;
        n += e.n_name > 0;
    }
    return n;
}

/* ---------------------------------------------------------------- sizes */

/* The next size behind this one; NULL behind the last. */
static const char *next_size(const char *size)
{
    size += strcspn(size, ",]");
    return *size == ',' ? size + 1 + strspn(size + 1, " ") : NULL;
}

static bool is_pack(const char *size)
{
    return strncmp(size, "..", 2) == 0;
}

/* What a word of n bytes means: an attribute's value, or what has been found; -1 where nothing has. */
static int64_t find_word(const shapes *s, const char *at, size_t n)
{
    const ds_attr_def *attrs = s->op->def->attrs;
    for (int i = 0; attrs != NULL && attrs[i].name != NULL; i++)
        if (attrs[i].kind == DS_ATTR_INT && strlen(attrs[i].name) == n &&
            memcmp(attrs[i].name, at, n) == 0)
            return s->op->attr[i].i;
    for (int i = 0; i < s->n_words; i++)
        if (s->words[i].n == n && memcmp(s->words[i].at, at, n) == 0)
            return s->words[i].size;
    return -1;
}

/* The number that a size stands for. Where one of its words has not been found, that is `unknown`, with what it is
 * multiplied by as its size. */
static int64_t evaluate(const shapes *s, const char *size, word *unknown)
{
    size_t sum = 0, product = 1;
    unknown->n = 0;
    for (;; size++) {
        const size_t n = strcspn(size, "*+|,]");
        const int64_t known =
            isdigit((unsigned char)*size) ? strtoll(size, NULL, 10) : find_word(s, size, n);
        if (known >= 0)
            product = ds_saturated_product(product, (size_t)known);
        else
            *unknown = (word){.at = size, .n = n};
        size += n;
        if (*size != '*') {
            sum = ds_saturated_sum(sum, product);
            product = 1;
        }
        if (*size != '*' && *size != '+')
            break;
    }
    return unknown->size = sum < INT64_MAX ? (int64_t)sum : INT64_MAX;
}

/* What stands behind the next `|` of a size or type; NULL where there is none. */
static const char *next_choice(const char *at)
{
    at += strcspn(at, "|,];");
    return *at == '|' ? at + 1 : NULL;
}

/* Whether a dimension fits; finds the word that was unknown in the first of several sizes, if none of them fits. */
static bool size_fits(shapes *s, const char *size, int64_t given)
{
    word unknown;
    for (const char *at = size; at != NULL; at = next_choice(at))
        if (evaluate(s, at, &unknown) == given && unknown.n == 0)
            return true;
    const int64_t value = evaluate(s, size, &unknown);
    if (unknown.n == 0 || value < 1 || given % value != 0 || s->n_words == WORDS)
        return false;
    unknown.size = given / value;
    s->words[s->n_words++] = unknown;
    return true;
}

static bool pack_fits(shapes *s, const ds_signature *array, int from, int n)
{
    if (s->pack == NULL) {
        s->pack = array;
        s->pack_from = from;
        s->n_pack = n;
    }
    bool fits = s->n_pack == n;
    for (int i = 0; fits && i < n; i++)
        fits = s->pack->shape[s->pack_from + i] == array->shape[from + i];
    return fits;
}

/* How many dimensions an array has for `..`; below 0 where it has too few, or too many and there is no `..`. */
static int count_pack(const char *sizes, const ds_signature *array)
{
    bool pack = false;
    int n = array->rank;
    for (const char *at = sizes; at != NULL && *at != ']'; at = next_size(at)) {
        pack = pack || is_pack(at);
        n -= is_pack(at) ? 0 : 1;
    }
    return pack || n == 0 ? n : -1;
}

/* Compares all of an array, or, `alone`, looks only at words that stand alone, and finds what they mean. */
static bool array_fits(shapes *s, const char *sizes, const ds_signature *array, bool alone)
{
    const int n_pack = count_pack(sizes, array);
    bool fits = n_pack >= 0;
    int d = 0;
    for (const char *at = sizes; fits && at != NULL && *at != ']'; at = next_size(at)) {
        if (is_pack(at)) {
            fits = alone || at[2] == '.' || pack_fits(s, array, d, n_pack);
            d += n_pack;
            continue;
        }
        const int64_t given = array->shape[d++];
        if (!alone || strchr(",]", at[strcspn(at, "*+|,]")]) != NULL)
            fits = size_fits(s, at, given) || alone;
    }
    return fits;
}

/* ---------------------------------------------------------------- messages */

/* Adds to a text, as far as it goes. */
static void add_text(char *text, size_t n_bytes, const char *format, ...) DS_PRINTF(3, 4);
static void add_text(char *text, size_t n_bytes, const char *format, ...)
{
    const size_t used = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text + used, n_bytes - used, format, arguments);
    va_end(arguments);
}

/* Writes the sizes that are expected of a dimension: as numbers where they are known, each once, else in words. */
static void write_size(const shapes *s, const char *size, char *text, size_t n_bytes)
{
    int64_t last = -1;
    for (const char *one = size; one != NULL; one = next_choice(one)) {
        word unknown;
        const int64_t value = evaluate(s, one, &unknown);
        if (unknown.n == 0 && value == last)
            continue;
        add_text(text, n_bytes, one == size ? "" : " or ");
        if (unknown.n == 0 || value != 1)
            add_text(text, n_bytes, "%lld%s", (long long)value, unknown.n > 0 ? "*" : "");
        add_text(text, n_bytes, "%.*s", (int)unknown.n, unknown.n > 0 ? unknown.at : "");
        last = unknown.n == 0 ? value : last;
    }
}

static void write_expected(const shapes *s, const char *sizes, char *text, size_t n_bytes)
{
    int n = 0;
    for (const char *at = sizes; at != NULL && *at != ']'; at = next_size(at), n++) {
        add_text(text, n_bytes, n == 0 ? "(" : ", ");
        if (is_pack(at))
            add_text(text, n_bytes, "...");
        else
            write_size(s, at, text, n_bytes);
    }
    add_text(text, n_bytes, n == 0 ? "()" : n == 1 && !is_pack(sizes) ? ",)" : ")");
}

/* Fails for input or weight i; the message ends with the shapes of the others, and the line. */
static ds_status fail_shape(const shapes *s, const entry *e, int i)
{
    const ds_op *op = s->op;
    const bool weight = e->n_name > 0;
    const ds_signature *const all = weight ? op->in : op->weight;
    char expected[128] = "", others[128] = "", what[80];
    write_expected(s, e->sizes, expected, sizeof expected);
    for (int j = 0; j < (weight ? op->n_inputs : op->n_weights); j++)
        if (all[j].rank > 0)
            add_text(others, sizeof others, "%s %s",
                     others[0] ? ""
                     : weight  ? ", with the input"
                               : ", with weights",
                     DS_SHAPE_TEXT(&all[j]));
    if (weight)
        (void)snprintf(what, sizeof what, "its weight '%.*s' must have", (int)e->n_name, e->name);
    else if (op->n_inputs == 1)
        (void)snprintf(what, sizeof what, "expected an input of");
    else
        (void)snprintf(what, sizeof what, "expected input %d to have", i);
    return ds_fail(DS_SHAPE, "%s: %s shape %s, got %s%s, by '%s'", op->def->name, what, expected,
                   DS_SHAPE_TEXT(weight ? &op->weight[i] : &op->in[i]), others, op->def->shapes);
}

/* ---------------------------------------------------------------- types */

/* What a word behind a colon means; floats are all of the type that the first one is of. */
static ds_dtype type_of(const ds_op *op, const char *type)
{
    return *type == 'f'   ? ds_op_real(op)
           : *type == 's' ? op->in[0].dtype
           : *type == 'i' ? DS_I64
                          : DS_BOOL;
}

static bool type_fits(const ds_op *op, const char *types, ds_dtype given)
{
    while (types != NULL && type_of(op, types) != given)
        types = next_choice(types);
    return types != NULL;
}

/* Fails for input or weight i. */
static ds_status fail_type(const ds_op *op, const entry *e, int i, ds_dtype given)
{
    char expected[64] = "", what[80] = "input";
    for (const char *type = e->types; type != NULL; type = next_choice(type))
        add_text(expected, sizeof expected, "%s%s", type == e->types ? "" : " or ",
                 *type == 'f' && !ds_is_real(given) ? "float32 or float64"
                                                    : ds_dtype_name(type_of(op, type)));
    if (e->n_name > 0)
        (void)snprintf(what, sizeof what, "weight '%.*s'", (int)e->n_name, e->name);
    else if (op->n_inputs > 1)
        (void)snprintf(what, sizeof what, "input %d", i);
    return ds_fail(DS_DTYPE, "%s: its %s must be %s, got %s", op->def->name, what, expected,
                   ds_dtype_name(given));
}

/* ---------------------------------------------------------------- the check */

/* One turn over the inputs, or over the weights. */
static ds_status check_turn(shapes *s, bool weights, bool alone)
{
    const ds_op *op = s->op;
    int at[2] = {0, 0}; /* input, weight */
    entry e;
    for (const char *line = op->def->shapes; (line = read_entry(line, &e)) != NULL && !e.repeats;) {
        const bool weight = e.n_name > 0;
        const int i = at[weight]++;
        if (weight != weights || (!weight && i >= op->n_inputs))
            continue;
        const bool given = !weight || ds_op_has_weight(op, i);
        DS_CHECK(given || e.optional, DS_SHAPE, "%s: its weight '%.*s' is missing", op->def->name,
                 (int)e.n_name, e.name);
        const ds_signature *array = weight ? &op->weight[i] : &op->in[i];
        if (given && e.sizes != NULL && !array_fits(s, e.sizes, array, alone))
            return fail_shape(s, &e, i);
        if (given && alone && e.types != NULL && !type_fits(op, e.types, array->dtype))
            return fail_type(op, &e, i, array->dtype);
    }
    return DS_OK;
}

ds_status ds_shapes_check(const ds_op *op)
{
    shapes s = {.op = op};
    if (op->def->shapes == NULL)
        return DS_OK;
    DS_TRY(check_turn(&s, true, true));
    DS_TRY(check_turn(&s, false, true));
    DS_TRY(check_turn(&s, true, false));
    return check_turn(&s, false, false);
}
