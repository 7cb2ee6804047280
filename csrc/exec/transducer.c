#include "exec/transducer.h"

#include <string.h>

typedef struct networks {
    ds_allocator allocator;
    ds_engine *predictor, *joiner; /* copies: others' streams, and their end, are nothing to them */
    size_t n_predicted;
} networks;

/* ---------------------------------------------------------------- steps */
/* Steps new streams, whose slots are set, by the frames that are put, and takes what leaves: n frames of each. */
static ds_status run(ds_step *step, int64_t n)
{
    for (size_t i = 0; i < step->n_rows; i++) {
        int64_t start;
        DS_CHECK(
            ds_step_frames(step, 0, i, &start) == n, DS_ARGUMENT,
            "decoder: expected a frame of the predictor and the joiner for each that comes in");
    }
    DS_TRY(ds_step_check(step));
    ds_step_run(step);
    return DS_OK;
}

static void forget(void *owner, void *state)
{
    networks *w = owner;
    ds_slot_leave(state);
    ds_session_close(w->predictor->session, state);
}

static ds_status open_copies(networks *w, void **after, void *const *before, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        ds_slot *slot;
        DS_TRY(ds_session_open(w->predictor->session, &slot, true));
        (void)ds_slot_enter(slot);
        after[i] = slot;
        if (before[i])
            DS_TRY(ds_slot_copy(w->predictor->plan, slot, before[i]));
    }
    return DS_OK;
}

static ds_status step_predictor(ds_step *step, void *const *slots, float *const *predicted,
                                const int32_t *tokens)
{
    for (size_t i = 0; i < step->n_rows; i++) {
        step->slots[i] = slots[i];
        step->n_frames[i] = 1;
    }
    DS_TRY(ds_step_begin(step));
    for (size_t i = 0; i < step->n_rows; i++) {
        const int64_t token = tokens[i];
        ds_step_put(step, 0, i, &token, NULL, DS_ELEMENT_I64);
    }
    DS_TRY(run(step, 1));
    for (size_t i = 0; i < step->n_rows; i++)
        ds_step_get(step, 0, i, 1, predicted[i], NULL);
    return DS_OK;
}

static ds_status predict(void *owner, void **after, float *const *predicted, void *const *before,
                         const int32_t *tokens, size_t n)
{
    networks *w = owner;
    ds_step *step = NULL;
    memset(after, 0, n * sizeof *after);
    ds_status status = open_copies(w, after, before, n);
    if (status == DS_OK)
        status = ds_step_take(w->predictor, &step, n);
    if (status == DS_OK)
        status = step_predictor(step, after, predicted, tokens);
    ds_step_give(w->predictor, step);
    for (size_t i = 0; status != DS_OK && i < n; i++)
        if (after[i]) {
            forget(w, after[i]);
            after[i] = NULL;
        }
    return status;
}

/* All rows are frames of one stream, which is nothing but they. */
static ds_status step_joiner(ds_step *step, float *scores, const float *encoded,
                             const float *predicted, size_t n)
{
    step->n_frames[0] = step->n_frames[1] = (int64_t)n;
    step->ended[0] = true;
    DS_TRY(ds_step_begin(step));
    ds_step_put(step, 0, 0, encoded, NULL, DS_ELEMENT_F32);
    ds_step_put(step, 1, 0, predicted, NULL, DS_ELEMENT_F32);
    DS_TRY(run(step, (int64_t)n));
    ds_step_get(step, 0, 0, (int64_t)n, scores, NULL);
    return DS_OK;
}

static ds_status join(void *owner, float *scores, const float *encoded, const float *predicted,
                      size_t n)
{
    networks *w = owner;
    ds_slot *slot;
    ds_step *step = NULL;
    DS_TRY(ds_session_open(w->joiner->session, &slot, true));
    (void)ds_slot_enter(slot);
    ds_status status = ds_step_take(w->joiner, &step, 1);
    if (status == DS_OK) {
        step->slots[0] = slot;
        status = step_joiner(step, scores, encoded, predicted, n);
    }
    ds_step_give(w->joiner, step);
    ds_slot_leave(slot);
    ds_session_close(w->joiner->session, slot);
    return status;
}

/* ---------------------------------------------------------------- snapshots */
static ds_status save(void *owner, const void *state, void *bytes, size_t *n_bytes)
{
    const networks *w = owner;
    return ds_slot_snapshot(w->predictor->plan, state, NULL, bytes, n_bytes);
}

static ds_status load(void *owner, void **state, const void *bytes, size_t n_bytes)
{
    networks *w = owner;
    ds_slot *slot;
    DS_TRY(ds_session_open(w->predictor->session, &slot, true));
    (void)ds_slot_enter(slot);
    DS_TRY_ELSE(ds_slot_restore(w->predictor->plan, slot, bytes, n_bytes), forget(w, slot));
    *state = slot;
    return DS_OK;
}

/* ---------------------------------------------------------------- making */
static void destroy(void *owner)
{
    networks *w = owner;
    const ds_allocator allocator = w->allocator;
    ds_engine_destroy(w->predictor);
    ds_engine_destroy(w->joiner);
    ds_release(&allocator, w, sizeof *w);
}

static const ds_signature *input_of(const ds_engine *e, size_t i)
{
    const ds_graph *g = e->plan->graph;
    return &g->edges[g->inputs[i]].signature;
}

static const ds_signature *output_of(const ds_engine *e)
{
    const ds_graph *g = e->plan->graph;
    return &g->edges[g->outputs[0]].signature;
}

/* Whether a frame leaves for each that comes, at once. */
static bool is_immediate(const ds_engine *e)
{
    const ds_rate in = input_of(e, 0)->rate, out = output_of(e)->rate;
    return out.num > 0 && in.num * out.den == out.num * in.den && e->plan->analysis.delay[0] == 0;
}

static ds_status check(const ds_engine *predictor, const ds_engine *joiner)
{
    const ds_graph *p = predictor->plan->graph, *j = joiner->plan->graph;
    DS_CHECK(
        p->n_inputs == 1 && p->n_outputs == 1 && input_of(predictor, 0)->dtype == DS_I64 &&
            input_of(predictor, 0)->rank == 0 && output_of(predictor)->dtype == DS_F32 &&
            is_immediate(predictor),
        DS_ARGUMENT,
        "decoder: expected a predictor from tokens (B, L) of int64 to floats (B, L, features), "
        "without delay");
    DS_CHECK(j->n_inputs == 2 && j->n_outputs == 1 && input_of(joiner, 0)->dtype == DS_F32 &&
                 input_of(joiner, 1)->dtype == DS_F32 && output_of(joiner)->dtype == DS_F32 &&
                 input_of(joiner, 1)->rate.num > 0 && is_immediate(joiner),
             DS_ARGUMENT,
             "decoder: expected a joiner from a frame of the encoder and one of the predictor to "
             "scores, without delay");
    for (size_t out = 0; out < 1; out++)
        DS_CHECK(joiner->plan->analysis.field[out] == 1, DS_ARGUMENT,
                 "decoder: expected a joiner that remembers nothing");
    const int64_t said = ds_signature_elements(output_of(predictor)),
                  taken = ds_signature_elements(input_of(joiner, 1));
    DS_CHECK(said == taken, DS_ARGUMENT,
             "decoder: the predictor gives %lld numbers, the joiner takes %lld", (long long)said,
             (long long)taken);
    return DS_OK;
}

ds_status ds_transducer_scorer(ds_scorer *scorer, const ds_engine *predictor,
                               const ds_engine *joiner)
{
    DS_TRY(check(predictor, joiner));
    const ds_allocator *allocator = &predictor->plan->allocator;
    const ds_engine_options options = {.n_threads = 1};
    networks *w;
    DS_TRY(ds_allocate_zeroed(allocator, (void **)&w, sizeof(networks)));
    w->allocator = *allocator;
    DS_TRY_ELSE(ds_engine_copy(&w->predictor, predictor, &options), destroy(w));
    DS_TRY_ELSE(ds_engine_copy(&w->joiner, joiner, &options), destroy(w));
    const uint64_t *p = predictor->plan->origin, *j = joiner->plan->origin;
    *scorer = (ds_scorer){w,
                          (size_t)ds_signature_elements(input_of(joiner, 0)),
                          (size_t)ds_signature_elements(output_of(predictor)),
                          (size_t)ds_signature_elements(output_of(joiner)),
                          p[0] ^ (j[0] * UINT64_C(0x9E3779B97F4A7C15)) ^ (p[1] + 3 * j[1]),
                          predict,
                          forget,
                          join,
                          save,
                          load,
                          destroy};
    return DS_OK;
}
