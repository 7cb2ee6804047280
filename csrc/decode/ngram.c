#include "decode/ngram.h"

#include <math.h>
#include <string.h>

void ds_ngram_init(ds_ngram *model, const ds_allocator *allocator)
{
    *model = (ds_ngram){.allocator = *allocator};
    ds_map_init(&model->words, allocator);
    ds_map_init(&model->edges, allocator);
    ds_map_init(&model->beginnings, allocator);
    model->unknown = model->begin = model->end = DS_MAP_NONE;
}

void ds_ngram_free(ds_ngram *model)
{
    ds_release(&model->allocator, model->grams, model->room_grams * sizeof *model->grams);
    ds_map_free(&model->words);
    ds_map_free(&model->edges);
    ds_map_free(&model->beginnings);
}

ds_history ds_ngram_start(const ds_ngram *model)
{
    const bool is_none = model->begin == DS_MAP_NONE || model->order < 2;
    return (ds_history){{is_none ? 0 : model->begin + 1}};
}

bool ds_ngram_has(const ds_ngram *model, const ds_history *state)
{
    const size_t most = model->score ? model->n_words + 1 : model->n ? model->full : 1;
    const size_t n = model->score ? model->order - 1 : 1;
    for (size_t i = 0; i < DS_MAX_SCORED_ORDER - 1; i++)
        if (state->at[i] >= (i < n ? most : 1))
            return false;
    return true;
}

uint32_t ds_ngram_word(const ds_ngram *model, uint64_t hash)
{
    const uint32_t word = ds_map_get(&model->words, hash);
    return word == DS_MAP_NONE ? model->unknown : word;
}

/* The same by the function, which gets the words in the order in which they were said. */
static double score_by_function(const ds_ngram *model, ds_history *state, uint32_t word)
{
    uint32_t words[DS_MAX_SCORED_ORDER];
    size_t n = 0;
    for (size_t i = model->order - 1; i-- > 0;)
        if (state->at[i])
            words[n++] = state->at[i] - 1;
    words[n] = word;
    if (model->order > 1) {
        memmove(state->at + 1, state->at, (model->order - 2) * sizeof *state->at);
        state->at[0] = word + 1;
    }
    const double score = model->score(model->owner, words, n + 1);
    return isfinite(score) ? score : (double)NAN;
}

ds_status ds_ngram_check(double score)
{
    DS_CHECK(!isnan(score), DS_ARGUMENT,
             "language model: expected its function to give a finite score");
    return DS_OK;
}

double ds_ngram_score(const ds_ngram *model, ds_history *before, uint32_t word)
{
    if (model->score)
        return score_by_function(model, before, word);
    double score = 0;
    for (uint32_t state = before->at[0];; state = model->grams[state].suffix) {
        const uint32_t node =
            state ? ds_map_get(&model->edges, ds_map_edge(state, word)) : word + 1;
        if (node != DS_MAP_NONE) {
            before->at[0] = node >= model->full ? model->grams[node].suffix : node;
            return score + (double)model->grams[node].probability;
        }
        score += (double)model->grams[state].backoff;
    }
}
