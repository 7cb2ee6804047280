/* The floating-point environment: what a host sets for its thread changes no bit of what models say, with any
 * number of threads, and is there afterwards as it was. */
#include "api_driver.h"
#include "cpu/float_env.h"
#include "main.h"

#if defined(__x86_64__)
#include <xmmintrin.h>

typedef unsigned host;
enum { N_HOSTS = 8 };

/* As it is; flush-to-zero, denormals as zero, both; up, down, towards zero; traps for all but what is inexact. */
static const host hosts[N_HOSTS] = {0x1F80, 0x9F80, 0x1FC0, 0x9FC0, 0x5F80, 0x3F80, 0x7F80, 0x1000};

static void set_host(host h)
{
    _mm_setcsr(h);
}

static host get_host(void)
{
    return _mm_getcsr() & ~0x3Fu; /* without the flags: of what is inexact a clock raises one */
}
#else
#include <fenv.h>

typedef int host;
enum { N_HOSTS = 4 };
static const host hosts[N_HOSTS] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};

static void set_host(host h)
{
    CHECK(fesetround(h) == 0);
}

static host get_host(void)
{
    return fegetround();
}
#endif

enum { N = 12, FRAMES = 300, WIDTH = 16 };

static float frames[N][FRAMES * WIDTH];

/* Squares that are denormal, a sum of three of them by weights, and what an LSTM makes of larger ones. */
static ds_buffer make_file(void)
{
    random_state = 31;
    graph_case c = new_case();
    const int x = add_input(&c, WIDTH, 1, 1);
    const int square = add_combined(&c, "mul", x, x);
    add_output(&c, square);
    add_output(&c, add_combined(&c, "add", square, x));
    add_output(&c, add_lstm(&c, add_conv(&c, x, WIDTH, 3, 2), WIDTH, false));
    return take_graph(&c, 0);
}

/* What all streams give, in chunks of 99 frames, of a model that is loaded and used under the host. */
static void run(const ds_buffer *file, const char *backend, uint32_t n_threads, host h,
                ds_buffer *all)
{
    ds_stream *streams[N];
    ds_input in[N];
    ds_output out[3 * N];
    ds_buffer_init(all, NULL);
    set_host(h);
    ds_model *model = load_with(file, backend, n_threads);
    CHECK(get_host() == h);
    for (size_t i = 0; i < N; i++)
        streams[i] = open_stream(model);
    for (size_t at = 0; at < FRAMES; at += 99) {
        const size_t left = FRAMES - at, n = left < 99 ? left : 99;
        for (size_t i = 0; i < N; i++)
            in[i] = (ds_input){&frames[i][at * WIDTH], n, 0};
        CHECK(ds_model_step(model, streams, out, in, NULL, N) == DS_OK);
        CHECK(get_host() == h);
        for (size_t i = 0; i < 3 * N; i++)
            if (out[i].n_frames > 0)
                CHECK(ds_buffer_append(all, out[i].data, out[i].n_frames * WIDTH * sizeof(float)) ==
                      DS_OK);
    }
    CHECK(ds_model_close(model) == DS_OK);
    CHECK(get_host() == h);
    set_host(hosts[0]);
}

static size_t count_denormal(const ds_buffer *values)
{
    size_t n = 0;
    for (size_t i = 0; i + sizeof(uint32_t) <= values->n_bytes; i += sizeof(uint32_t)) {
        uint32_t bits;
        memcpy(&bits, (const char *)values->bytes + i, sizeof bits);
        n += (bits & 0x7F800000u) == 0 && (bits & 0x7FFFFFu) != 0;
    }
    return n;
}

TEST(models)
{
    for (size_t i = 0; i < N; i++) {
        fill_random(frames[i], FRAMES * WIDTH);
        for (size_t k = 0; k < FRAMES * WIDTH; k++)
            frames[i][k] *= k % 2 == 0 ? 1e-20f : 1.0f;
    }
    ds_buffer file = make_file();
    const char *const backends[] = {"ref", NULL};
    for (size_t b = 0; b < 2; b++) {
        ds_buffer want, got;
        run(&file, backends[b], 1, hosts[0], &want);
        CHECK(count_denormal(&want) > 100);
        for (uint32_t n_threads = 1; n_threads <= 3; n_threads++)
            for (size_t h = 0; h < N_HOSTS; h++) {
                run(&file, backends[b], n_threads, hosts[h], &got);
                CHECK(same_bytes(&want, &got));
                ds_buffer_free(&got);
            }
        ds_buffer_free(&want);
    }
    ds_buffer_free(&file);
}

TEST(pairs)
{
    for (size_t h = 0; h < N_HOSTS; h++) {
        ds_float_env outer, inner;
        volatile float large = 1.0f, small = 0x1p-30f, least = 0x1p-126f;
        set_host(hosts[h]);
        ds_float_env_enter(&outer);
        CHECK(large + small == 1.0f &&
              least / 2 > 0); /* inexact: flags go up, none of the host's */
        ds_float_env_enter(&inner);
        CHECK(large - small == 1.0f);
        ds_float_env_leave(&inner);
        CHECK(-large - small == -1.0f);
        ds_float_env_leave(&outer);
        CHECK(get_host() == hosts[h]);
        set_host(hosts[0]);
    }
}
