/* The public API: whose memory it takes, how much, and when it gives it back. */
#include "api_driver.h"

static ds_buffer file; /* of the tagger */

static int drop_bytes(void *context, const void *bytes, size_t n_bytes)
{
    (void)context;
    (void)bytes;
    (void)n_bytes;
    return 0;
}

/* All of it is the allocator's; statistics say what the allocator says; streams give theirs back. */
TEST(memory)
{
    ds_fault_init(&fault);
    ds_model *model = load_counted(&file);
    const ds_memory_info fresh = memory_of(model);
    CHECK(fresh.bytes == ds_fault_live_bytes(&fault) &&
          fresh.blocks == ds_fault_live_blocks(&fault));
    CHECK(fresh.n_allocations == ds_fault_calls(&fault) &&
          fresh.peak_bytes == ds_fault_peak_bytes(&fault));
    float x[30 * 3];
    fill_random(x, 90);
    ds_memory_info warm = fresh;
    for (int round = 0; round < 4; round++) {
        ds_stream *s = open_stream(model);
        ds_output outputs[3];
        for (size_t at = 0; at < 30; at += 10)
            CHECK(step_floats(s, outputs, x, 3, at, 10, at == 20 ? DS_END : 0) == DS_OK);
        ds_memory_info before = memory_of(model);
        for (int again = 0; again < 4; again++) { /* no larger than before */
            CHECK(step_floats(s, outputs, x, 3, 0, 10, DS_START) == DS_OK);
            CHECK(step_floats(s, outputs, x, 3, 0, 10, 0) == DS_OK);
            CHECK(step_floats(s, outputs, x, 3, 0, 10, DS_END) == DS_OK);
            if (again == 0) /* what the last step grew by is one block only now */
                before = memory_of(model);
        }
        CHECK(memory_of(model).n_allocations == before.n_allocations);
        CHECK(ds_stream_close(s) == DS_OK);
        CHECK(round == 0 ||
              (memory_of(model).bytes == warm.bytes && memory_of(model).blocks == warm.blocks));
        warm = memory_of(model);
        CHECK(warm.bytes == ds_fault_live_bytes(&fault) &&
              warm.peak_bytes == ds_fault_peak_bytes(&fault));
    }
    CHECK(ds_model_close(model) == DS_OK);
    CHECK(ds_fault_live_blocks(&fault) == 0 && ds_fault_live_bytes(&fault) == 0);
}

/* Nothing of a model with an allocator of its own comes from elsewhere. */
TEST(own_allocator)
{
    static ds_fault_allocator elsewhere;
    ds_fault_init(&elsewhere);
    const ds_allocator through = ds_fault_hooks(&elsewhere);
    CHECK(ds_set_allocator(&through) == DS_OK);
    ds_model_options options = DS_MODEL_OPTIONS_INIT;
    options.allocator = &hooks;
    options.threads = 2;
    ds_model *model = load(&file, &options);
    ds_stream *both[] = {open_stream(model), NULL};
    CHECK(ds_stream_fork(&both[1], both[0]) == DS_OK);
    float x[30];
    fill_random(x, 30);
    const ds_input in[] = {{x, 10, 0}, {x, 7, 0}};
    ds_output out[6];
    CHECK(ds_model_step(model, both, out, in, NULL, 2) == DS_OK);
    size_t n = 0;
    char *state = snapshot_of(both[0], &n);
    CHECK(ds_stream_restore(both[1], state, n) == DS_OK);
    free(state);
    CHECK(ds_model_save(model, drop_bytes, NULL) == DS_OK && ds_model_close(model) == DS_OK);
    CHECK(ds_fault_calls(&elsewhere) == 0 && ds_fault_live_blocks(&fault) == 0);
    CHECK(ds_set_allocator(NULL) == DS_OK);
}

/* Each object remembers the allocator that it was made with, and outlives none. */
TEST(set_allocator)
{
    ds_fault_allocator *first = fresh_memory(sizeof *first);
    ds_fault_init(first);
    const ds_allocator through = ds_fault_hooks(first);
    CHECK(ds_set_allocator(&through) == DS_OK);
    ds_model *one = load(&file, NULL);
    CHECK(ds_set_allocator(NULL) == DS_OK);
    ds_model *two = load(&file, NULL);
    const size_t n_calls = ds_fault_calls(first);
    ds_stream *of_two = open_stream(two);
    CHECK(n_calls > 0 && ds_fault_calls(first) == n_calls);
    ds_stream *of_one = open_stream(one);
    CHECK(ds_fault_calls(first) > n_calls && ds_stream_close(of_one) == DS_OK);
    CHECK(ds_model_close(one) == DS_OK);
    CHECK(ds_fault_live_blocks(first) == 0 && ds_fault_bad_releases(first) == 0);
    memset(first, 0xff, sizeof *first);
    free(first); /* nothing that it gave lives any more */
    for (int i = 0; i < 200; i++)
        (void)open_stream(two);
    CHECK(ds_stream_close(of_two) == DS_OK && ds_model_close(two) == DS_OK);
}

int main(void)
{
    count_memory();
    file = tagger_file();
    run_tests();
    ds_buffer_free(&file);
    return report_memory();
}
