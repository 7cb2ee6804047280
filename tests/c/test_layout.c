/* batch/layout: any strides, both ways, every element type; nothing else is touched. */
#include <math.h>
#include <string.h>

#include "batch/layout.h"
#include "check.h"

static uint64_t random_state = 1;

static size_t random_below(size_t n)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (size_t)(random_state >> 33) % n;
}

enum { ROOM = 1 << 21 };
static unsigned char caller[ROOM], before[ROOM];
static double whole[ROOM / 8]; /* [frames][features], of whatever type */

typedef struct layout {
    ds_signature signature;
    int64_t n;                          /* frames */
    ptrdiff_t strides[DS_MAX_RANK + 1]; /* in bytes */
    size_t start;                       /* of the first element in `caller` */
} layout;

/* Axes in a random order, each at least as far apart as what lies within; some reversed. */
static layout random_layout(ds_dtype dtype, int rank, size_t element_bytes, size_t most)
{
    layout x = {.signature = {.dtype = dtype, .rank = rank}};
    int order[DS_MAX_RANK + 1] = {0};
    size_t stride = element_bytes, lowest = random_below(8);
    x.n = (int64_t)random_below(most);
    for (int d = 0; d < rank; d++)
        x.signature.shape[d] = (int64_t)(random_below(6) ? random_below(most) : random_below(2));
    for (int d = 0; d <= rank; d++) {
        const int at = (int)random_below((size_t)d + 1);
        order[d] = order[at];
        order[at] = d;
    }
    for (int k = 0; k <= rank; k++) {
        const int d = order[k];
        const size_t size = (size_t)(d ? x.signature.shape[d - 1] : x.n);
        stride += random_below(4) ? 0 : random_below(3) * element_bytes;
        const bool reversed = random_below(4) == 0;
        x.strides[d] = reversed ? -(ptrdiff_t)stride : (ptrdiff_t)stride;
        lowest += reversed && size ? stride * (size - 1) : 0;
        stride *= size ? size : 1;
    }
    x.start = lowest;
    CHECK(stride + lowest < ROOM);
    return x;
}

/* The place in `caller` of element i of the frames. */
static unsigned char *place_of(const layout *x, size_t i)
{
    ptrdiff_t offset = (ptrdiff_t)x->start;
    for (int d = x->signature.rank; d > 0; d--) {
        const size_t size = (size_t)x->signature.shape[d - 1];
        offset += (ptrdiff_t)(i % size) * x->strides[d];
        i /= size;
    }
    return caller + offset + (ptrdiff_t)i * x->strides[0];
}

static size_t elements_of(const layout *x)
{
    return (size_t)x->n * (size_t)ds_signature_elements(&x->signature);
}

/* From somewhere within random bytes that are drawn once. */
static void fill_random(void)
{
    static unsigned char drawn[ROOM + 4096];
    for (size_t i = 0; i < sizeof drawn && drawn[sizeof drawn - 1] == 0; i++)
        drawn[i] = (unsigned char)(i + 1 < sizeof drawn ? random_below(256) : 1);
    memcpy(caller, drawn + random_below(4096), ROOM);
}

/* Whether element i was read as it is to be: the place holds `element`, `got` is of the signature's type. */
#define READ_AS(type, target, expression)                \
    do {                                                 \
        type x;                                          \
        memcpy(&x, place, sizeof x);                     \
        const target wanted = (target)(expression);      \
        return memcmp(got, &wanted, sizeof wanted) == 0; \
    } while (0)

static bool is_read(const void *got, const unsigned char *place, ds_element element, ds_dtype dtype)
{
    switch (element) {
    case DS_ELEMENT_F32:
        READ_AS(uint32_t, uint32_t, x);
    case DS_ELEMENT_F64:
        READ_AS(double, float, x);
    case DS_ELEMENT_BOOL:
        READ_AS(unsigned char, unsigned char, x != 0);
    case DS_ELEMENT_I16:
        if (dtype == DS_F32)
            READ_AS(int16_t, float, x / 32768.0);
        READ_AS(int16_t, int64_t, x);
    case DS_ELEMENT_I8:
        READ_AS(int8_t, int64_t, x);
    case DS_ELEMENT_I32:
        READ_AS(int32_t, int64_t, x);
    case DS_ELEMENT_I64:
        READ_AS(int64_t, int64_t, x);
    case DS_ELEMENT_U8:
        READ_AS(uint8_t, int64_t, x);
    case DS_ELEMENT_U16:
        READ_AS(uint16_t, int64_t, x);
    case DS_ELEMENT_U32:
        READ_AS(uint32_t, int64_t, x);
    case DS_ELEMENT_U64:
        READ_AS(uint64_t, int64_t, x);
    default:
        return false;
    }
}

static const size_t element_bytes[] = {
    [DS_ELEMENT_F32] = 4, [DS_ELEMENT_F64] = 8, [DS_ELEMENT_BOOL] = 1, [DS_ELEMENT_I8] = 1,
    [DS_ELEMENT_I16] = 2, [DS_ELEMENT_I32] = 4, [DS_ELEMENT_I64] = 8,  [DS_ELEMENT_U8] = 1,
    [DS_ELEMENT_U16] = 2, [DS_ELEMENT_U32] = 4, [DS_ELEMENT_U64] = 8};
static const ds_dtype dtypes[] = {DS_F32, DS_I64, DS_BOOL};

/* Numbers that a float can hold, so that none is a NaN whose bits a conversion may change. */
static void fill_doubles(const layout *x)
{
    for (size_t i = 0; i < elements_of(x); i++) {
        const double value = ((double)random_below(2000001) - 1e6) / 7;
        memcpy(place_of(x, i), &value, sizeof value);
    }
}

static void test_read(ds_dtype dtype, ds_element element, int rank, size_t most)
{
    const layout x = random_layout(dtype, rank, element_bytes[element], most);
    if (!ds_layout_fits(&x.signature, element))
        return;
    const size_t n_bytes = ds_dtype_bytes(dtype);
    fill_random();
    if (element == DS_ELEMENT_F64)
        fill_doubles(&x);
    memset(whole, 0xa5, sizeof whole);
    ds_layout_read(whole, caller + x.start, x.strides, element, &x.signature, x.n);
    const unsigned char *got = (const unsigned char *)whole;
    bool right = true;
    for (size_t i = 0; i < elements_of(&x); i++)
        right &= is_read(got + i * n_bytes, place_of(&x, i), element, dtype);
    CHECK(right);
    CHECK(got[elements_of(&x) * n_bytes] == 0xa5);
    layout close = x; /* the same frames, contiguous */
    close.start = 3;
    memset(whole, 0xa5, sizeof whole);
    if (element == DS_ELEMENT_F64)
        return;
    ds_layout_read(whole, caller + close.start, NULL, element, &x.signature, x.n);
    for (size_t i = 0; i < elements_of(&x); i++)
        right &= is_read(got + i * n_bytes, caller + close.start + i * element_bytes[element],
                         element, dtype);
    CHECK(right);
}

static void test_write(ds_dtype dtype, int rank, size_t most)
{
    const size_t n_bytes = ds_dtype_bytes(dtype);
    const layout x = random_layout(dtype, rank, n_bytes, most);
    unsigned char *from = (unsigned char *)whole;
    for (size_t i = 0; i < elements_of(&x) * n_bytes; i++)
        from[i] = (unsigned char)random_below(256);
    fill_random();
    memcpy(before, caller, ROOM);
    ds_layout_write(caller + x.start, x.strides, from, &x.signature, x.n);
    bool right = true;
    for (size_t i = 0; i < elements_of(&x); i++) {
        unsigned char *place = place_of(&x, i);
        right &= memcmp(place, from + i * n_bytes, n_bytes) == 0;
        memcpy(place, before + (place - caller), n_bytes);
    }
    CHECK(right);
    CHECK(memcmp(before, caller, ROOM) == 0); /* nothing else was written */
    ds_layout_write(caller + 5, NULL, from, &x.signature, x.n);
    CHECK(memcmp(caller + 5, from, elements_of(&x) * n_bytes) == 0);
}

int main(void)
{
    static const size_t most[] = {90, 90, 40, 12, 7, 5, 4};
    for (int round = 0; round < 40; round++)
        for (int rank = 0; rank <= DS_MAX_RANK; rank++)
            for (size_t k = 0; k < sizeof dtypes / sizeof *dtypes; k++) {
                test_write(dtypes[k], rank, most[rank]);
                if (round % 4 == 0 || k == 0)
                    for (int element = DS_ELEMENT_F32; element <= DS_ELEMENT_U64; element++)
                        test_read(dtypes[k], (ds_element)element, rank, most[rank]);
            }
    const ds_signature real = {.dtype = DS_F32}, row = {.dtype = DS_F32, .rank = 1, .shape = {3}};
    CHECK(ds_layout_fits(&real, DS_ELEMENT_I16) && !ds_layout_fits(&row, DS_ELEMENT_I16));
    CHECK(!ds_layout_fits(&real, DS_ELEMENT_I32) && !ds_layout_fits(&real, DS_ELEMENT_BOOL));
    return check_report();
}
