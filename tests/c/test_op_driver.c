/* ops/op, ops/registry, batch/value: making operators, driving them, refusals. */
#include "graph_cases.h"
#include "main.h"

static const ds_signature frame4 = {.dtype = DS_F32, .rank = 1, .shape = {4}, .rate = {1, 1}};

static ds_status make(ds_op **op, const ds_op_def *def, const ds_attr *attrs, size_t n_attrs,
                      size_t n_inputs)
{
    ds_signature in[DS_MAX_INPUTS + 1];
    for (int i = 0; i <= DS_MAX_INPUTS; i++)
        in[i] = frame4;
    return ds_op_create(op, NULL, def, attrs, n_attrs, in, n_inputs, NULL, 0);
}

/* ---------------------------------------------------------------- an operator for tests */

enum { SIZE, SCALE, LIST, MODE, WHOLE };

static const ds_attr_def probe_attrs[] = {
    {"size", DS_ATTR_INT, .required = true},
    {"scale", DS_ATTR_REAL, .x = 0.5},
    {"list", DS_ATTR_INTS, .doc = ""},
    {"mode", DS_ATTR_CHOICE, .i = 1, .choices = "one|two|three"},
    {"whole", DS_ATTR_INT, .doc = ""},
    {0}};

static ds_status probe_infer(ds_op *op)
{
    op->whole = op->attr[WHOLE].i == 1;
    op->n_carried = 3;
    op->carried[0] = (ds_carried){"a", {.dtype = DS_BOOL, .rank = 1, .shape = {65}}, 0};
    op->carried[1] = (ds_carried){"b", {.dtype = DS_F64, .rank = 0}, 0};
    op->carried[2] = (ds_carried){"c", {.dtype = DS_I16, .rank = 2, .shape = {3, 5}}, 0};
    op->scratch.per_call = 10;
    op->scratch.per_row = 20;
    op->scratch.per_in = 3;
    op->scratch.per_out = 7;
    return DS_OK;
}

/* known and total: input 0's, less and more than is allowed. */
static void probe_counts(const ds_op *op, ds_program *p)
{
    const int64_t size = op->attr[SIZE].i;
    ds_root(p, ds_add_k(p, ds_known(p, 0), size));
    ds_root(p, ds_add_k(p, ds_total(p, 0), size < 0 ? size : -size));
    ds_root(p, ds_total(p, 1));
    ds_root(p, ds_known(p, 1));
}

static void probe_need(const ds_op *op, ds_program *p)
{
    ds_root(p, ds_add_k(p, ds_m(p), -op->attr[SIZE].i));
}

static void probe_check(const ds_op *op, ds_program *p)
{
    (void)op;
    ds_root(p, ds_const(p, 1));
    ds_root(p, ds_add_k(p, ds_total(p, 0), -10)); /* at the end at most 10 */
    ds_root(p, ds_const(p, 0));
    ds_root(p, ds_add_k(p, ds_total(p, 0), -20)); /* always at most 20 */
}

static ds_status probe_fail_check(const ds_op *op, const ds_pair *in)
{
    return ds_fail(DS_SHAPE, "%s: total %d is too much", op->def->name, (int)in[0].total);
}

static const ds_op_def probe = {.name = "probe",
                                .doc = "",
                                .n_inputs = 2,
                                .n_outputs = 2,
                                .n_values = 1,
                                .attrs = probe_attrs,
                                .shapes = "weight?; bias?",
                                .infer = probe_infer,
                                .counts = probe_counts,
                                .need = probe_need,
                                .check = probe_check,
                                .fail_check = probe_fail_check};

/* ---------------------------------------------------------------- attributes */

TEST(attributes)
{
    ds_op *op = NULL;
    ds_attr list = {.name = "list", .kind = DS_ATTR_INTS, .value = {.ints = {7, -8}, .n_ints = 2}};
    const ds_attr good[] = {text_attr("mode", "three"), int_attr("size", 5), int_attr("scale", 3),
                            list};
    CHECK(make(&op, &probe, good, 4, 2) == DS_OK);
    CHECK(op->attr[SIZE].i == 5 && op->attr[MODE].i == 2 && !(op->attr[SCALE].x != 3.0));
    CHECK(op->attr[LIST].n_ints == 2 && op->attr[LIST].ints[0] == 7 &&
          op->attr[LIST].ints[1] == -8);
    ds_op_destroy(op);
    CHECK(make(&op, &probe, good + 1, 1, 2) == DS_OK);
    CHECK(op->attr[MODE].i == 1 && !(op->attr[SCALE].x != 0.5) && op->attr[LIST].n_ints == 0);
    ds_op_destroy(op);

    op = NULL;
    CHECK(
        failed(make(&op, &probe, NULL, 0, 2), DS_ARGUMENT, "probe: attribute 'size' is required"));
    const ds_attr unknown[] = {int_attr("size", 1), int_attr("sise", 1)};
    CHECK(failed(make(&op, &probe, unknown, 2, 2), DS_ARGUMENT,
                 "unknown attribute 'sise'; known "
                 "are: size, scale, list, mode, whole"));
    const ds_attr twice[] = {int_attr("size", 1), int_attr("size", 2)};
    CHECK(failed(make(&op, &probe, twice, 2, 2), DS_ARGUMENT, "'size' is given twice"));
    const ds_attr kind[] = {{.name = "size", .kind = DS_ATTR_REAL, .value.x = 1.0}};
    CHECK(failed(make(&op, &probe, kind, 1, 2), DS_ARGUMENT, "'size' must be an integer"));
    const ds_attr choice[] = {int_attr("size", 1), text_attr("mode", "tw")};
    CHECK(failed(make(&op, &probe, choice, 2, 2), DS_ARGUMENT, "one of one|two|three, got 'tw'"));
    const ds_attr longer[] = {int_attr("size", 1), text_attr("mode", "three|")};
    CHECK(failed(make(&op, &probe, longer, 2, 2), DS_ARGUMENT, "got 'three|'"));
    const ds_attr null_text[] = {int_attr("size", 1), text_attr("mode", NULL)};
    CHECK(failed(make(&op, &probe, null_text, 2, 2), DS_ARGUMENT, "as text"));
    for (int sign = -1; sign <= 1; sign += 2) {
        const ds_attr far = int_attr("size", sign * ((int64_t)1 << 40));
        CHECK(failed(make(&op, &probe, &far, 1, 2), DS_ARGUMENT, "below 2^40"));
        const ds_attr near = int_attr("size", sign * (((int64_t)1 << 40) - 1));
        CHECK(make(&op, &probe, &near, 1, 2) == DS_OK);
        ds_op_destroy(op);
        op = NULL;
    }
    list.value.n_ints = DS_MAX_INTS + 1;
    const ds_attr many[] = {int_attr("size", 1), list};
    CHECK(failed(make(&op, &probe, many, 2, 2), DS_ARGUMENT, "at most 16"));
    CHECK(op == NULL);
}

/* ---------------------------------------------------------------- shapes by a line of words */

TEST(shapes)
{
    static const struct {
        const char *line;
        int64_t shapes[4][5]; /* of two inputs and two weights; -1: absent, rank before sizes */
        const char *words;    /* NULL: it fits */
    } cases[] = {
        {"[..]; [..]", {{2, 3, 4}, {2, 3, 4}, {-1}, {-1}}, NULL},
        {"[..]; [..]",
         {{2, 3, 4}, {2, 3, 5}, {-1}, {-1}},
         "input 1 to have shape (...), got (3, 5)"},
        {"[..]; [..]", {{0}, {1, 1}, {-1}, {-1}}, "input 1 to have shape (...), got (1,)"},
        {"[...]; [...]", {{0}, {1, 1}, {-1}, {-1}}, NULL},
        {"[..]; [n, ..]", {{1, 4}, {2, 9, 4}, {-1}, {-1}}, NULL},
        {"[..]; [.., n]", {{1, 4}, {0}, {-1}, {-1}}, "input 1 to have shape (..., n), got ()"},
        {"[]; [n]", {{0}, {1, 4}, {-1}, {-1}}, NULL},
        {"[]", {{1, 4}, {0}, {-1}, {-1}}, "input 0 to have shape (), got (4,)"},
        {"[.., n]; [n]", {{2, 7, 4}, {1, 4}, {-1}, {-1}}, NULL},
        {"[.., n]; [n]", {{2, 7, 4}, {1, 5}, {-1}, {-1}}, "input 1 to have shape (4,), got (5,)"},
        {"[k*n]; [k]", {{1, 6}, {1, 3}, {-1}, {-1}}, NULL},
        {"[k*n]; [k]", {{1, 6}, {1, 4}, {-1}, {-1}}, "input 0 to have shape (4*n,), got (6,)"},
        {"[2*size+n]; [n]", {{1, 10}, {1, 4}, {-1}, {-1}}, NULL},
        {"[2*size+n]; [n]", {{1, 9}, {1, 4}, {-1}, {-1}}, "input 0 to have shape (10,), got (9,)"},
        {"[2]; [size]", {{1, 2}, {1, 3}, {-1}, {-1}}, NULL},
        {"[2]; [size]", {{1, 2}, {1, 2}, {-1}, {-1}}, "input 1 to have shape (3,), got (2,)"},
        {"[n]; [n|1, m]", {{1, 2}, {2, 1, 5}, {-1}, {-1}}, NULL},
        {"[n]; [n|1, m]", {{1, 2}, {2, 2, 5}, {-1}, {-1}}, NULL},
        {"[n]; [n|1, m]", {{1, 2}, {2, 3, 5}, {-1}, {-1}}, "shape (2 or 1, 5), got (3, 5)"},
        {"[n]; ; weight [n]", {{1, 2}, {1, 3}, {1, 2}, {-1}}, NULL},
        {"[n]; weight [n]", {{1, 2}, {1, 3}, {-1}, {-1}}, "its weight 'weight' is missing"},
        {"[n]; weight? [n]", {{1, 2}, {1, 3}, {-1}, {-1}}, NULL},
        {"[n]; weight [n]; bias? [n]",
         {{1, 2}, {0}, {1, 3}, {1, 3}},
         "input 0 to have shape (3,), got (2,)"},
        {"[n]; weight [n]; bias? [n]",
         {{1, 3}, {0}, {1, 3}, {1, 4}},
         "'bias' must have shape (3,), got (4,)"},
        {"weight [n, m]; bias? [n]",
         {{0}, {0}, {1, 3}, {-1}},
         "'weight' must have shape (n, m), got (3,)"},
        {"weight? [n]; bias [m]", {{0}, {0}, {-1}, {1, 3}}, NULL},
        {"first*; weight [9]", {{0}, {0}, {1, 3}, {1, 3}}, NULL},
    };
    const ds_attr size = int_attr("size", 3);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ds_signature given[4] = {{0}};
        for (size_t j = 0; j < 4; j++) {
            const int64_t *shape = cases[i].shapes[j];
            if (shape[0] >= 0)
                given[j] = (ds_signature){.dtype = DS_F32, .rank = (int)shape[0], .rate = {1, 1}};
            for (int d = 0; d < given[j].rank; d++)
                given[j].shape[d] = shape[d + 1];
        }
        ds_op_def own = probe;
        ds_op *op = NULL;
        own.shapes = cases[i].line;
        const size_t n_weights = given[3].dtype ? 2 : given[2].dtype ? 1 : 0;
        const ds_status status =
            ds_op_create(&op, NULL, &own, &size, 1, given, 2, given + 2, n_weights);
        const bool good =
            cases[i].words == NULL ? status == DS_OK : failed(status, DS_SHAPE, cases[i].words);
        if (!good)
            fprintf(stderr, "%s, case %zu: %s\n", cases[i].line, i, ds_last_error());
        CHECK(good);
        ds_op_destroy(op);
    }
}

/* ---------------------------------------------------------------- signatures */

TEST(signatures)
{
    ds_op *op = NULL;
    const ds_attr size = int_attr("size", 1);
    CHECK(failed(make(&op, &probe, &size, 1, 1), DS_ARGUMENT, "expected 2 inputs, got 1"));
    CHECK(failed(make(&op, &probe, &size, 1, 3), DS_ARGUMENT, "expected 2 inputs, got 3"));
    CHECK(failed(make(&op, &ds_op_sync, NULL, 0, 1), DS_ARGUMENT, "at least 2 inputs"));
    CHECK(failed(make(&op, &ds_op_sync, NULL, 0, 17), DS_ARGUMENT, "at most 16 inputs"));
    CHECK(make(&op, &ds_op_sync, NULL, 0, 16) == DS_OK);
    ds_op_destroy(op);

    const ds_signature three[3] = {frame4, frame4, frame4};
    CHECK(failed(ds_op_create(&op, NULL, &probe, &size, 1, three, 2, three, 3), DS_ARGUMENT,
                 "at most 2 weights"));
    ds_signature in[2] = {frame4, frame4};
    in[1].dtype = (ds_dtype)0;
    CHECK(failed(ds_op_create(&op, NULL, &probe, &size, 1, in, 2, NULL, 0), DS_DTYPE, "input 1"));
    in[1] = frame4;
    in[1].rank = DS_MAX_RANK + 1;
    CHECK(failed(ds_op_create(&op, NULL, &probe, &size, 1, in, 2, NULL, 0), DS_SHAPE, "7 feature"));
    in[1] = frame4;
    in[1].shape[0] = 0;
    CHECK(failed(ds_op_create(&op, NULL, &probe, &size, 1, in, 2, NULL, 0), DS_SHAPE, "size 0"));
    in[1] = (ds_signature){.dtype = DS_F32, .rank = 3, .rate = {1, 1}};
    in[1].shape[0] = in[1].shape[1] = in[1].shape[2] = (int64_t)1 << 38;
    CHECK(failed(ds_op_create(&op, NULL, &probe, &size, 1, in, 2, NULL, 0), DS_SHAPE, "2^40"));
    static const ds_rate bad[] = {{2, 4}, {-1, 1}, {1, 0}, {0, 2}, {1, -1}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        in[1] = frame4;
        in[1].rate = bad[i];
        CHECK(failed(ds_op_create(&op, NULL, &probe, &size, 1, in, 2, NULL, 0), DS_ARGUMENT,
                     "lowest terms"));
    }

    /* Rates of streams that are combined are equal; a counted input's need not be. */
    in[1] = frame4;
    in[1].rate = (ds_rate){1, 2};
    CHECK(failed(ds_op_create(&op, NULL, &ds_op_add, NULL, 0, in, 2, NULL, 0), DS_MISMATCH,
                 "add: input 0 has rate 1/1 but input 1 has rate 1/2"));
    CHECK(failed(ds_op_create(&op, NULL, &ds_op_sync, NULL, 0, in, 2, NULL, 0), DS_MISMATCH,
                 "input 0 has rate 1/1 but input 1 has rate 1/2"));
    CHECK(ds_op_create(&op, NULL, &probe, &size, 1, in, 2, NULL, 0) == DS_OK);
    ds_op_destroy(op);

    /* Helpers of infer. */
    ds_signature weight[2] = {{.dtype = DS_F32, .rank = 2, .shape = {3, 4}}, {0}};
    CHECK(ds_op_create(&op, NULL, &probe, &size, 1, in, 2, weight, 2) == DS_OK);
    CHECK(ds_op_has_weight(op, 0) && !ds_op_has_weight(op, 1) && !ds_op_has_weight(op, 2));
    CHECK(ds_op_require_weight(op, 0, "weight", 2, (const int64_t[]){3, 4}) == DS_OK);
    CHECK(failed(ds_op_require_weight(op, 0, "weight", 2, (const int64_t[]){4, 3}), DS_SHAPE,
                 "probe: its weight 'weight' must have shape (4, 3), got (3, 4)"));
    CHECK(failed(ds_op_require_weight(op, 1, "bias", 1, (const int64_t[]){4}), DS_SHAPE,
                 "its weight 'bias' is missing"));
    CHECK(ds_op_require_real(op) == DS_OK && ds_op_real(op) == DS_F32);
    op->weight[0].dtype = DS_F64;
    CHECK(failed(ds_op_require_real(op), DS_DTYPE, "input 0 is float32 but weight 0 is float64"));
    op->in[0].dtype = DS_I64;
    CHECK(failed(ds_op_require_real(op), DS_DTYPE, "must be float32 or float64, got int64"));
    CHECK(ds_op_element(op) == 8 && ds_op_real(op) == DS_F64);

    /* Block of carried arrays, scratch. */
    CHECK(op->carried[0].offset == 0 && op->carried[1].offset == 128);
    CHECK(op->carried[2].offset == 192 && op->carried_bytes == 256);
    CHECK(ds_op_scratch_bytes(op, 2, 5, 11) == 10 + 40 + 15 + 77);
    CHECK(ds_op_scratch_bytes(op, SIZE_MAX / 2, 5, 11) == SIZE_MAX);
    ds_op_destroy(op);
    ds_op_destroy(NULL);
}

/* ---------------------------------------------------------------- programs that don't fit */

static ds_status plain_infer(ds_op *op)
{
    (void)op;
    return DS_OK;
}

static void counts_full(const ds_op *op, ds_program *p)
{
    (void)op;
    for (int i = 0; i <= DS_PROGRAM_NODES; i++)
        ds_const(p, i);
    ds_root(p, ds_known(p, 0));
    ds_root(p, ds_total(p, 0));
}

static void counts_short(const ds_op *op, ds_program *p)
{
    (void)op;
    ds_root(p, ds_known(p, 0));
}

TEST(programs)
{
    ds_op *op = NULL;
    ds_op_def def = {.name = "bad",
                     .n_inputs = 1,
                     .n_outputs = 1,
                     .n_values = 1,
                     .infer = plain_infer,
                     .counts = counts_full};
    CHECK(failed(make(&op, &def, NULL, 0, 1), DS_INTERNAL, "bad: its program for counts"));
    def.counts = counts_short;
    CHECK(failed(make(&op, &def, NULL, 0, 1), DS_INTERNAL, "1 roots, expected 2"));
    def.counts = NULL;
    def.need = counts_full;
    CHECK(failed(make(&op, &def, NULL, 0, 1), DS_INTERNAL, "program for need"));
    def.need = NULL;
    def.check = counts_short;
    CHECK(failed(make(&op, &def, NULL, 0, 1), DS_INTERNAL, "program for check"));
    def.check = NULL;
    CHECK(make(&op, &def, NULL, 0, 1) == DS_OK && op->same_counts);
    ds_op_destroy(op);
}

/* ---------------------------------------------------------------- the driver */

TEST(driver)
{
    ds_op *op = NULL;
    ds_pair out[2];
    int64_t first[2];
    const ds_attr more = int_attr("size", 3), less = int_attr("size", -3);
    CHECK(make(&op, &probe, &more, 1, 2) == DS_OK && !op->same_counts);
    ds_op_counts(op, (const ds_pair[]){{4, 8}, {2, 6}}, false, out);
    CHECK(out[0].known == 5 && out[0].total == 5); /* 7 of 5: held at the total */
    CHECK(out[1].known == 2 && out[1].total == 2); /* 6 of 2 */
    ds_op_counts(op, (const ds_pair[]){{1, 2}, {2, 6}}, false, out);
    CHECK(out[0].known == 0 && out[0].total == 0); /* a total of -1 */
    for (int ended = 0; ended <= 1; ended++) {     /* no frames, and no edge */
        ds_op_counts(op, (const ds_pair[]){{0, 0}, {2, 6}}, ended == 1, out);
        CHECK(out[0].known == 0 && out[0].total == 0 && out[1].known == 2 && out[1].total == 2);
        ds_op_counts(op, (const ds_pair[]){{0, -1}, {2, 6}}, ended == 1, out);
        CHECK(out[0].known == 0 && out[0].total == -1 && out[1].known == 0 && out[1].total == -1);
        ds_op_counts(op, (const ds_pair[]){{4, 8}, {0, -1}}, ended == 1, out);
        CHECK(out[0].known == 0 && out[0].total == -1 && out[1].known == 0 && out[1].total == -1);
    }
    op->needs_frames = true;
    for (int64_t n = 0; n <= 6; n++) { /* 3 of them are lost */
        ds_op_counts(op, (const ds_pair[]){{n, n}, {0, 0}}, true, out);
        CHECK(out[0].total == (n > 3 ? n - 3 : -1) && out[0].known == (n > 3 ? n - 3 : 0));
    }
    ds_op_need(op, 10, first);
    CHECK(first[0] == 7 && first[1] == DS_NEVER);
    ds_op_need(op, 2, first);
    CHECK(first[0] == 0);
    ds_op_destroy(op);

    CHECK(make(&op, &probe, &less, 1, 2) == DS_OK);
    ds_op_counts(op, (const ds_pair[]){{2, 9}, {2, 6}}, false, out);
    CHECK(out[0].known == 0 && out[0].total == 6); /* a known of -1 */
    ds_op_counts(op, (const ds_pair[]){{9, 9}, {2, 6}}, true, out);
    CHECK(out[0].known == 6 && out[0].total == 6 && out[1].known == 2);
    ds_op_counts(op, (const ds_pair[]){{5, 9}, {6, 6}}, true, out);
    CHECK(out[0].known == 6); /* ended: all that there is */

    /* Checks: one at the end, one always, none where an input is missing. */
    CHECK(ds_op_check(op, (const ds_pair[]){{10, 10}, {1, 1}}, true) == DS_OK);
    CHECK(ds_op_check(op, (const ds_pair[]){{11, 11}, {1, 1}}, false) == DS_OK);
    CHECK(failed(ds_op_check(op, (const ds_pair[]){{11, 11}, {1, 1}}, true), DS_SHAPE,
                 "probe: total 11 is too much"));
    CHECK(failed(ds_op_check(op, (const ds_pair[]){{2, 21}, {1, 1}}, false), DS_SHAPE, "total 21"));
    CHECK(ds_op_check(op, (const ds_pair[]){{11, 11}, {0, -1}}, true) == DS_OK);
    ds_op_destroy(op);

    /* The whole stream: nothing before the end, everything kept. */
    const ds_attr whole[] = {int_attr("size", -3), int_attr("whole", 1)};
    CHECK(make(&op, &probe, whole, 2, 2) == DS_OK && !op->same_counts);
    for (int64_t n = 0; n < 20; n++) {
        const ds_pair in[2] = {{n, n + 2}, {n, n}};
        ds_op_counts(op, in, false, out);
        CHECK(out[0].known == 0 && out[1].known == 0);
        CHECK(out[0].total == (n + 2 < 3 ? 0 : n - 1) && out[1].total == n);
        ds_op_counts(op, in, true, out);
        CHECK(out[0].known == out[0].total && out[1].known == n);
        ds_op_need(op, n, first);
        CHECK(first[0] == 0 && first[1] == DS_NEVER);
    }
    ds_op_destroy(op);
}

/* ---------------------------------------------------------------- registry, memory, values */

TEST(registry)
{
    size_t n;
    const ds_op_def *const *defs = ds_op_defs(&n);
    CHECK(n > 60);
    for (size_t i = 0; i < n; i++) {
        const ds_op_def *def = defs[i];
        CHECK(ds_op_find(def->name) == def); /* also: no name twice */
        CHECK(def->doc != NULL && def->forward != NULL);
        CHECK(def->n_inputs >= 1 && def->n_outputs >= 1 && def->n_outputs <= DS_MAX_OUTPUTS);
        CHECK(def->n_values <= def->n_inputs);
        CHECK((def->check == NULL) == (def->fail_check == NULL));
        int n_attrs = 0;
        for (const ds_attr_def *a = def->attrs; a != NULL && a->name != NULL; a++, n_attrs++)
            CHECK(a->doc != NULL && (a->kind == DS_ATTR_CHOICE) == (a->choices != NULL));
        CHECK(n_attrs <= DS_MAX_ATTRS);
    }
    CHECK(ds_op_find("nothing") == NULL && ds_op_find("") == NULL);
    CHECK(strcmp(ds_op_find("where")->name, "where") == 0);
}

TEST(no_memory)
{
    ds_op *op = NULL;
    ds_fault_arm(&fault, 1, false);
    CHECK(ds_op_create(&op, &hooks, &ds_op_relu, NULL, 0, &frame4, 1, NULL, 0) == DS_NO_MEMORY);
    CHECK(op == NULL);
    ds_fault_disarm(&fault);
    const ds_signature scalar = {.dtype = DS_F32, .rate = {1, 1}};
    CHECK(ds_op_create(&op, &hooks, &ds_op_softmax, NULL, 0, &scalar, 1, NULL, 0) == DS_SHAPE);
    CHECK(op == NULL && ds_fault_live_blocks(&fault) == 0);
    CHECK(ds_op_create(&op, &hooks, &ds_op_relu, NULL, 0, &frame4, 1, NULL, 0) == DS_OK);
    CHECK(ds_fault_live_blocks(&fault) == 1);
    ds_op_destroy(op);
}

TEST(values)
{
    char text[64], small[5];
    const ds_signature matrix = {.dtype = DS_I64, .rank = 2, .shape = {3, 4}, .rate = {1, 1}};
    const ds_signature scalar = {.dtype = DS_BOOL, .rank = 0, .rate = {1, 1}};
    CHECK(ds_signature_elements(&matrix) == 12 && ds_signature_bytes(&matrix) == 96);
    CHECK(ds_signature_elements(&scalar) == 1 && ds_signature_bytes(&scalar) == 1);
    CHECK(strcmp(ds_signature_text(&matrix, text, sizeof text), "(3, 4)") == 0);
    CHECK(strcmp(ds_signature_text(&frame4, text, sizeof text), "(4,)") == 0);
    CHECK(strcmp(ds_signature_text(&scalar, text, sizeof text), "()") == 0);
    CHECK(strcmp(ds_signature_text(&matrix, small, sizeof small), "(3, ") == 0);
    CHECK(ds_signature_same_shape(&matrix, &matrix) && !ds_signature_same_shape(&matrix, &frame4));
    const ds_signature huge = {.dtype = DS_F64, .rank = 2, .shape = {INT64_MAX, INT64_MAX}};
    CHECK(ds_signature_elements(&huge) == INT64_MAX && ds_signature_bytes(&huge) == SIZE_MAX);
    CHECK(ds_dtype_bytes(DS_F32) == 4 && ds_dtype_bytes(DS_F64) == 8 &&
          ds_dtype_bytes(DS_I64) == 8);
    CHECK(ds_dtype_bytes(DS_BOOL) == 1 && ds_dtype_bytes(DS_I16) == 2 && ds_dtype_bytes(0) == 0);
    CHECK(strcmp(ds_dtype_name(DS_F64), "float64") == 0 && strcmp(ds_dtype_name(9), "none") == 0);

    ds_rate rate = {100, 1};
    CHECK(ds_rate_scale(&rate, 1, 160) && ds_rate_equal(rate, (ds_rate){5, 8}));
    CHECK(ds_rate_scale(&rate, 16, 10) && ds_rate_equal(rate, (ds_rate){1, 1}));
    CHECK(!ds_rate_scale(&rate, 1, 0) && !ds_rate_scale(&rate, -1, 1));
    rate = (ds_rate){INT64_MAX, 2};
    CHECK(!ds_rate_scale(&rate, 3, 1) && ds_rate_equal(rate, (ds_rate){INT64_MAX, 2}));
    CHECK(ds_rate_scale(&rate, 2, INT64_MAX) && ds_rate_equal(rate, (ds_rate){1, 1}));
    CHECK(ds_rate_scale(&rate, 0, 7) && ds_rate_equal(rate, (ds_rate){0, 1}));
    CHECK(ds_rate_scale(&rate, 3, 7) && ds_rate_equal(rate, (ds_rate){0, 1}));
}
