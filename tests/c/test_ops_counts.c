/* ops: counts, need and checks of operators that arrange frames, against all futures. */
#include "op_cases.h"

enum { HORIZON = 10 };

/* Whether output m exists in all futures and comes from the same, known frame in all of them. */
static bool settled(const op_case *c, const ds_pair *in, int64_t m)
{
    const int64_t n_elements = ds_signature_elements(&c->op->out[0]);
    const bool two = c->n_inputs == 2 && c->def != &ds_op_cat;
    for (int64_t a = 0; a <= HORIZON; a++) {
        for (int64_t b = 0; b <= (two ? HORIZON : 0); b++) {
            const int64_t n_in[2] = {in[0].total + a, two ? in[1].total + b : 0};
            if (m >= c->length(c, n_in)) {
                return false;
            }
            for (int64_t e = 0; e < n_elements; e++) {
                const source now = c->from(c, m, e, n_in);
                const int64_t first_n[2] = {in[0].total, two ? in[1].total : 0};
                const source first = c->from(c, m, e, first_n);
                if (now.frame != first.frame || now.input != first.input ||
                    (now.input >= 0 && now.frame >= in[0].known)) {
                    return false;
                }
            }
        }
    }
    return true;
}

static void check_counts(const op_case *c, const ds_pair *in)
{
    int64_t n_in[2] = {in[0].total, in[1].total}, known = 0;
    const int64_t total = c->length(c, n_in);
    while (known < total && settled(c, in, known)) {
        known++;
    }
    ds_pair pairs[STREAM_INPUTS], out;
    for (size_t i = 0; i < STREAM_INPUTS; i++) {
        pairs[i] = c->def == &ds_op_cat ? in[0] : in[i < 2 ? i : 0];
    }
    ds_op_counts(c->op, pairs, false, &out);
    if (out.known != known || out.total != total) {
        fprintf(stderr, "%s: known %d, total %d of inputs (%d, %d), (%d, %d); expected %d, %d\n",
                c->def->name, (int)out.known, (int)out.total, (int)in[0].known, (int)in[0].total,
                (int)in[1].known, (int)in[1].total, (int)known, (int)total);
    }
    CHECK(out.known == known && out.total == total);
    ds_op_counts(c->op, pairs, true, &out);
    CHECK(out.known == total && out.total == total);
    if (c->op->same_counts) {
        CHECK(known == in[0].known && total == in[0].total);
    }
}

/* need(m) is the least frame that any output from m on reads, for any length. */
static void check_need(const op_case *c)
{
    const int64_t n_elements = ds_signature_elements(&c->op->out[0]);
    for (int64_t m = 0; m < 12; m++) {
        int64_t least = DS_NEVER, first[DS_MAX_INPUTS];
        for (int64_t n = 0; n < 80; n++) {
            const int64_t n_in[2] = {n, 400};
            for (int64_t j = m; j < c->length(c, n_in); j++) {
                for (int64_t e = 0; e < n_elements; e++) {
                    const source from = c->from(c, j, e, n_in);
                    least = from.input >= 0 && from.frame < least ? from.frame : least;
                }
            }
        }
        ds_op_need(c->op, m, first);
        CHECK(first[0] <= least);
        /* Near the start, the shortest streams are too short to be reflected. */
        if (!(c->def == &ds_op_pad && c->p[2] == 2)) {
            CHECK(first[0] == least);
        }
        for (size_t i = 1; i < c->n_inputs; i++) {
            CHECK(first[i] == (c->def == &ds_op_cat ? m : DS_NEVER));
        }
    }
}

static void test_brute_force(void)
{
    for (int which = 0; which < N_CASE_MAKERS; which++) {
        for (int round = 0; round < 25; round++) {
            op_case c;
            make_case(&c, which, DS_F32);
            for (int64_t total = 0; total < 14; total++) {
                for (int64_t known = 0; known <= total; known++) {
                    const ds_pair in[2] = {{known, total}, {random_in(0, 2), random_in(2, 14)}};
                    check_counts(&c, in);
                    const ds_pair empty[2] = {{known, total}, {0, 0}};
                    if (c.n_inputs == 2 && c.def != &ds_op_cat) {
                        check_counts(&c, empty);
                    }
                }
            }
            check_need(&c);
            ds_op_destroy(c.op);
        }
    }
}

/* ---------------------------------------------------------------- what is left */

static const ds_signature frame = {.dtype = DS_F32, .rank = 1, .shape = {3}, .rate = {1, 1}};

static void test_sync(void)
{
    const ds_signature in[3] = {frame, frame, frame};
    ds_op *op = NULL;
    CHECK(ds_op_create(&op, NULL, &ds_op_sync, NULL, 0, in, 3, NULL, 0) == DS_OK);
    CHECK(!op->same_counts && ds_op_n_values(op) == 1);
    int64_t first[3];
    ds_op_need(op, 7, first);
    CHECK(first[0] == 7 && first[1] == DS_NEVER && first[2] == DS_NEVER);
    for (int round = 0; round < 500; round++) {
        ds_pair pairs[3], out;
        int64_t known = DS_NEVER, total = DS_NEVER, most = 0;
        for (int i = 0; i < 3; i++) {
            const int64_t n = random_in(0, 6);
            pairs[i] = (ds_pair){random_in(0, n), n};
            known = pairs[i].known < known ? pairs[i].known : known;
            total = n < total ? n : total;
            most = n > most ? n : most;
        }
        ds_op_counts(op, pairs, false, &out);
        CHECK(out.known == known && out.total == total);
        CHECK(ds_op_check(op, pairs, false) == DS_OK);
        CHECK(ds_op_check(op, pairs, true) == (total == most || total == 0 ? DS_OK : DS_SHAPE));
    }
    const ds_pair unequal[3] = {{12, 12}, {12, 12}, {11, 11}};
    CHECK(ds_op_check(op, unequal, true) == DS_SHAPE);
    CHECK(strcmp(ds_last_error(), "sync: lengths 12 and 11 differ at the end of the stream") == 0);
    ds_op_destroy(op);
}

static void test_checks(void)
{
    ds_op *op = NULL;
    ds_attr attrs[] = {{.name = "size", .kind = DS_ATTR_INT, .value.i = 4},
                       {.name = "step", .kind = DS_ATTR_INT, .value.i = 4},
                       {.name = "exact", .kind = DS_ATTR_INT, .value.i = 1}};
    CHECK(ds_op_create(&op, NULL, &ds_op_frame, attrs, 3, &frame, 1, NULL, 0) == DS_OK);
    for (int64_t n = 0; n < 20; n++) {
        const ds_pair pair = {n, n};
        CHECK(ds_op_check(op, &pair, false) == DS_OK);
        CHECK(ds_op_check(op, &pair, true) == (n % 4 == 0 ? DS_OK : DS_SHAPE));
    }
    CHECK(strcmp(ds_last_error(), "frame: length 19 is not a multiple of 4") == 0);
    ds_op_destroy(op);

    const int64_t codes[] = {1, 10, 0, 1};
    ds_attr length = {.name = "length", .kind = DS_ATTR_INTS, .value.n_ints = 4};
    memcpy(length.value.ints, codes, sizeof codes);
    const ds_signature table = {.dtype = DS_I64, .rank = 2, .shape = {5000, 2}};
    CHECK(ds_op_create(&op, NULL, &ds_op_table, &length, 1, &frame, 1, &table, 1) == DS_OK);
    CHECK(op->out[0].dtype == DS_I64 && op->out[0].rank == 1 && op->out[0].shape[0] == 2);
    CHECK(ds_rate_equal(op->out[0].rate, (ds_rate){10, 1}));
    CHECK(ds_op_check(op, &(ds_pair){499, 499}, false) == DS_OK);
    CHECK(ds_op_check(op, &(ds_pair){1, 500}, false) == DS_SHAPE);
    CHECK(strcmp(ds_last_error(), "table: position 5001 is beyond the table's 5000 rows") == 0);
    ds_op_destroy(op);
}

/* One creation that must fail. */
static void refuse(ds_status want, const ds_op_def *def, const char *name, const char *spec,
                   const ds_signature *in, size_t n_in)
{
    ds_op *op = NULL;
    ds_attr attrs[5];
    size_t n = 0;
    /* spec: "name=integer" words; a list follows as name=i,j,k with a trailing comma for one. */
    char text[200];
    snprintf(text, sizeof text, "%s", spec);
    for (char *word = strtok(text, " "); word != NULL; word = strtok(NULL, " "), n++) {
        char *value = strchr(word, '=');
        *value++ = 0;
        attrs[n] = (ds_attr){.name = word, .kind = strchr(value, ',') ? DS_ATTR_INTS : DS_ATTR_INT};
        attrs[n].value.i = strtoll(value, NULL, 10);
        while (attrs[n].kind == DS_ATTR_INTS && *value != 0) {
            attrs[n].value.ints[attrs[n].value.n_ints++] = strtoll(value, &value, 10);
            value += *value == ',' ? 1 : 0;
        }
    }
    const ds_status got = ds_op_create(&op, NULL, def, attrs, n, in, n_in, NULL, 0);
    if (got != want || strncmp(ds_last_error(), name, strlen(name)) != 0) {
        fprintf(stderr, "%s %s: %s, %s\n", name, spec, ds_status_name(got), ds_last_error());
    }
    CHECK(got == want && strncmp(ds_last_error(), name, strlen(name)) == 0);
}

static void test_refusals(void)
{
    ds_signature two[2] = {frame, frame};
    two[1].rate = (ds_rate){1, 2};
    refuse(DS_ARGUMENT, &ds_op_pad, "pad: ", "left=-1", &frame, 1);
    refuse(DS_ARGUMENT, &ds_op_slice, "slice: ", "step=0", &frame, 1);
    refuse(DS_ARGUMENT, &ds_op_slice, "slice: ", "crop=-2", &frame, 1);
    refuse(DS_ARGUMENT, &ds_op_delay, "delay: ", "frames=-1", &frame, 1);
    refuse(DS_ARGUMENT, &ds_op_frame, "frame: ", "size=0 step=1", &frame, 1);
    refuse(DS_ARGUMENT, &ds_op_frame, "frame: ", "size=4 step=2 exact=1", &frame, 1);
    refuse(DS_ARGUMENT, &ds_op_frame, "frame: ", "size=4 step=4 exact=2", &frame, 1);
    refuse(DS_ARGUMENT, &ds_op_frame, "frame: ", "size=1099511627775 step=4 dilation=3", &frame, 1);
    refuse(DS_MISMATCH, &ds_op_cut, "cut: ", "", two, 2);
    refuse(DS_MISMATCH, &ds_op_cut, "cut: ", "length=1,3,", two, 2);
    refuse(DS_ARGUMENT, &ds_op_cut, "cut: ", "length=1,0,", two, 2);
    refuse(DS_ARGUMENT, &ds_op_cut, "cut: ", "length=3,1,", two, 2);
    refuse(DS_ARGUMENT, &ds_op_cut, "cut: ", "length=1,", two, 2);
    refuse(DS_SHAPE, &ds_op_table, "table: ", "", &frame, 1);
    refuse(DS_SHAPE, &ds_op_permute, "permute: ", "order=0,1", &frame, 1);
    refuse(DS_SHAPE, &ds_op_permute, "permute: ", "order=1,", &frame, 1);
    refuse(DS_SHAPE, &ds_op_reshape, "reshape: ", "shape=2,2", &frame, 1);
    refuse(DS_SHAPE, &ds_op_reshape, "reshape: ", "shape=-3,-1", &frame, 1);
    refuse(DS_SHAPE, &ds_op_expand, "expand: ", "shape=2,4", &frame, 1);
    refuse(DS_SHAPE, &ds_op_narrow, "narrow: ", "axis=1 length=1", &frame, 1);
    refuse(DS_SHAPE, &ds_op_narrow, "narrow: ", "axis=0 start=2 length=2", &frame, 1);
    refuse(DS_SHAPE, &ds_op_glu, "glu: ", "", &frame, 1);
    two[1] = frame;
    refuse(DS_SHAPE, &ds_op_cat, "cat: ", "axis=1", two, 2);
    refuse(DS_SHAPE, &ds_op_cat, "cat: ", "axis=-1", two, 2);
    two[1].shape[0] = 2;
    refuse(DS_SHAPE, &ds_op_add, "add: features of shapes (3,) and (2,)", "", two, 2);
    two[1].dtype = DS_F64;
    refuse(DS_DTYPE, &ds_op_cat, "cat: ", "axis=0", two, 2);
    two[1].shape[0] = 3;
    refuse(DS_DTYPE, &ds_op_add, "add: ", "", two, 2);
    refuse(DS_ARGUMENT, &ds_op_add, "add: ", "order=0,1", two, 2);
    refuse(DS_ARGUMENT, &ds_op_add, "add: ", "order=0,2", two, 2);
    refuse(DS_ARGUMENT, &ds_op_add, "add: ", "order=0,", &frame, 1);
    refuse(DS_ARGUMENT, &ds_op_add, "add: ", "", &frame, 1);
    refuse(DS_DTYPE, &ds_op_logical_and, "logical_and: ", "", two, 2);
    refuse(DS_DTYPE, &ds_op_logical_not, "logical_not: ", "", two, 1);
    two[0].dtype = DS_I64;
    refuse(DS_DTYPE, &ds_op_relu, "relu: ", "", two, 1);
    two[0].rank = 0;
    refuse(DS_SHAPE, &ds_op_unstack, "unstack: ", "", two, 1);
    two[0].rank = 6;
    refuse(DS_SHAPE, &ds_op_frame, "frame: ", "size=2 step=1",
           &(ds_signature){.dtype = DS_F32, .rank = 6, .shape = {1, 1, 1, 1, 1, 1}, .rate = {1, 1}},
           1);
}

int main(void)
{
    test_brute_force();
    test_sync();
    test_checks();
    test_refusals();
    return check_report();
}
