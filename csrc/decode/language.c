#include "decode/language.h"

ds_sense ds_language_start(const ds_language *language)
{
    const ds_phrases *phrases = &language->phrases;
    return (ds_sense){.score = phrases->n ? phrases->ahead[phrases->start] : 0,
                      .hash = DS_HASH_EMPTY,
                      .model = ds_ngram_start(&language->model),
                      .phrase = phrases->start,
                      .word = DS_NO_WORD};
}

/* Adds what the language model says of a word. */
static void add_word(const ds_language *language, ds_sense *sense, uint32_t word)
{
    if (language->model.n)
        sense->score += language->lm_weight * ds_ngram_score(&language->model, &sense->model, word);
}

/* Adds a word that needn't be one of the language model. */
static void add_any_word(const ds_language *language, ds_sense *sense, uint32_t word)
{
    sense->score += language->word_score;
    add_word(language, sense, word);
    if (language->model.n && word == language->model.unknown)
        sense->score += language->unk_score;
}

/* Ends the word that is being spelled, if there is one. */
static void end_spelled(const ds_language *language, ds_sense *sense)
{
    if (sense->hash != DS_HASH_EMPTY && sense->hash != DS_HASH_UNKNOWN)
        add_any_word(language, sense, ds_ngram_word(&language->model, sense->hash));
    sense->hash = DS_HASH_EMPTY;
}

/* A word costs what an unknown one does as soon as no word begins like it: else beams would fill with what is spelled
 * on for ever, since what is never ended is never charged. */
static void spell(const ds_language *language, ds_sense *sense, int32_t token)
{
    ds_span text = language->tokens.texts[token];
    const unsigned char kind = language->kinds[token];
    if (kind == DS_TOKEN_WORD) {
        add_any_word(language, sense, language->model.n ? language->token_words[token] : 0);
        return;
    }
    if (kind != DS_TOKEN_PLAIN)
        end_spelled(language, sense);
    if (kind == DS_TOKEN_SEPARATOR)
        return;
    if (kind == DS_TOKEN_BEGINS)
        text = (ds_span){text.text + 3, text.n - 3};
    if (sense->hash == DS_HASH_UNKNOWN)
        return;
    sense->hash = ds_hash(sense->hash, text.text, text.n);
    if (language->model.n && sense->hash != DS_HASH_EMPTY &&
        ds_map_get(&language->model.beginnings, sense->hash) == DS_MAP_NONE) {
        add_any_word(language, sense, language->model.unknown);
        sense->hash = DS_HASH_UNKNOWN;
    }
}

/* The part of a language model's score that a node of the trie counts in advance. */
static double ahead(const ds_language *language, uint32_t node)
{
    const float *best = language->lexicon.best;
    return node && best ? language->lm_weight * (double)best[node] : 0;
}

static void walk(const ds_language *language, ds_sense *sense, uint32_t node, int32_t word)
{
    sense->score -= ahead(language, sense->trie);
    sense->trie = word == DS_NO_WORD ? node : 0;
    sense->score += ahead(language, sense->trie);
    if (word == DS_NO_WORD)
        return;
    const bool is_known = (size_t)word < language->lexicon.n_words;
    sense->score += is_known ? language->word_score : language->unk_score;
    if (language->model.n && !language->token_words)
        add_word(language, sense,
                 is_known ? language->lexicon_words[word] : language->model.unknown);
}

ds_sense ds_language_follow(const ds_language *language, const ds_sense *before, int32_t token,
                            uint32_t node, int32_t word)
{
    ds_sense sense = *before;
    sense.word = word;
    if (language->token_words && language->kinds[token] != DS_TOKEN_WORD)
        add_word(language, &sense, language->token_words[token]);
    if (token == language->separator)
        sense.score += language->sil_score;
    if (language->lexicon.n_words)
        walk(language, &sense, node, word);
    else
        spell(language, &sense, token);
    if (language->phrases.n)
        sense.score += ds_phrases_step(&language->phrases, &sense.phrase, token);
    return sense;
}

double ds_language_end(const ds_language *language, const ds_sense *sense)
{
    ds_sense end = *sense;
    if (!language->lexicon.n_words)
        end_spelled(language, &end);
    add_word(language, &end,
             language->model.end == DS_MAP_NONE ? language->model.unknown : language->model.end);
    if (language->phrases.n)
        end.score += ds_phrases_end(&language->phrases, end.phrase);
    return end.score - sense->score;
}
