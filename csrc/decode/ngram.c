#include "decode/ngram.h"

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
    ds_release(&model->allocator, model->grams, model->room * sizeof *model->grams);
    ds_map_free(&model->words);
    ds_map_free(&model->edges);
    ds_map_free(&model->beginnings);
}

uint32_t ds_ngram_start(const ds_ngram *model)
{
    return model->begin == DS_MAP_NONE || model->order < 2 ? 0 : model->begin + 1;
}

uint32_t ds_ngram_word(const ds_ngram *model, uint64_t hash)
{
    const uint32_t word = ds_map_get(&model->words, hash);
    return word == DS_MAP_NONE ? model->unknown : word;
}

double ds_ngram_score(const ds_ngram *model, uint32_t state, uint32_t word, uint32_t *next)
{
    double score = 0;
    for (;; state = model->grams[state].suffix) {
        const uint32_t node =
            state ? ds_map_get(&model->edges, ds_map_edge(state, word)) : word + 1;
        if (node != DS_MAP_NONE) {
            *next = node >= model->full ? model->grams[node].suffix : node;
            return score + (double)model->grams[node].probability;
        }
        score += (double)model->grams[state].backoff;
    }
}
