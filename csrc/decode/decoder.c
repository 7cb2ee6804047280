/* Decoders from options and files, and steps of many streams. */
#include <math.h>
#include <string.h>

#include "base/utf8.h"
#include "cpu/float_env.h"
#include "decode/ctc.h"

/* ---------------------------------------------------------------- making */
static bool is_given(const ds_text *text)
{
    return text->path || text->bytes;
}

static void mix(uint64_t *hash, const void *bytes, size_t n_bytes)
{
    *hash = ds_hash(*hash, (const char *)&n_bytes, sizeof n_bytes);
    *hash = ds_hash(*hash, bytes, n_bytes);
}

/* Opens a file, whose bytes others may change meanwhile: it is read, not mapped. They belong to the fingerprint. */
static ds_status open_text(ds_ctc *ctc, ds_mapped **file, const ds_text *text)
{
    DS_TRY(text->path ? ds_mapped_read(file, &ctc->allocator, text->path)
                      : ds_mapped_copy(file, &ctc->allocator, text->bytes, text->n_bytes));
    mix(&ctc->fingerprint, ds_mapped_bytes(*file), ds_mapped_size(*file));
    return DS_OK;
}

static ds_status find_separator(ds_ctc *ctc, const char *sil)
{
    ds_language *l = &ctc->language;
    if (!sil) {
        l->separator = ds_tokens_find(&l->tokens, (ds_span){"|", 1});
        if (l->separator < 0)
            l->separator = ds_tokens_find(&l->tokens, (ds_span){" ", 1});
    } else {
        l->separator = *sil ? ds_tokens_find(&l->tokens, (ds_span){sil, strlen(sil)}) : -1;
        DS_CHECK(!*sil || l->separator >= 0, DS_ARGUMENT,
                 "decoder: expected sil to be a token, got %s", DS_SHOWN(sil));
    }
    DS_CHECK(l->separator != ctc->options.blank || l->separator < 0, DS_ARGUMENT,
             "decoder: expected sil and blank to be two tokens");
    return DS_OK;
}

/* Whether tokens begin words by the mark. */
static bool are_marked(const ds_tokens *tokens)
{
    bool any = false;
    for (int32_t i = 0; i < tokens->n; i++)
        any |= ds_is_marked(tokens->texts[i]);
    return any;
}

static ds_status classify(ds_ctc *ctc, bool lm_tokens)
{
    ds_language *l = &ctc->language;
    const bool marked = l->separator < 0 && are_marked(&l->tokens);
    const bool whole = !l->lexicon.n_words && (lm_tokens || (l->separator < 0 && !marked));
    DS_PUSH(&ctc->arena, l->kinds, (size_t)l->tokens.n);
    for (int32_t i = 0; i < l->tokens.n; i++)
        l->kinds[i] = whole                                        ? DS_TOKEN_WORD
                      : i == l->separator                          ? DS_TOKEN_SEPARATOR
                      : marked && ds_is_marked(l->tokens.texts[i]) ? DS_TOKEN_BEGINS
                                                                   : DS_TOKEN_PLAIN;
    if (!l->model.n || !(whole || lm_tokens))
        return DS_OK;
    DS_PUSH(&ctc->arena, l->token_words, (size_t)l->tokens.n);
    for (int32_t i = 0; i < l->tokens.n; i++)
        l->token_words[i] = ds_ngram_word(
            &l->model, ds_hash(DS_HASH_EMPTY, l->tokens.texts[i].text, l->tokens.texts[i].n));
    return DS_OK;
}

static ds_status read_lexicon(ds_ctc *ctc, const ds_text *text)
{
    ds_language *l = &ctc->language;
    DS_TRY(open_text(ctc, &ctc->files[1], text));
    return ds_lexicon_read(&l->lexicon, &ctc->arena, &l->tokens, ds_mapped_bytes(ctc->files[1]),
                           ds_mapped_size(ctc->files[1]));
}

/* Tells models of the same words apart: by what a function makes of the first of them. */
static ds_status mix_scores(ds_ctc *ctc)
{
    const ds_ngram *m = &ctc->language.model;
    ds_history state = ds_ngram_start(m);
    mix(&ctc->fingerprint, &m->order, sizeof m->order);
    for (uint32_t i = 0; i < m->n_words && i < 256; i++) {
        const double score = ds_ngram_score(m, &state, i);
        DS_TRY(ds_ngram_check(score));
        mix(&ctc->fingerprint, &score, sizeof score);
    }
    return DS_OK;
}

static ds_status read_model(ds_ctc *ctc, const ds_decoder_options *o)
{
    ds_mapped *file;
    ds_ngram *m = &ctc->language.model;
    DS_CHECK(!o->lm_score || (o->lm_order > 0 && o->lm_order <= DS_MAX_SCORED_ORDER), DS_ARGUMENT,
             "decoder: expected an lm_order from 1 to %d, got %u", DS_MAX_SCORED_ORDER,
             o->lm_order);
    DS_TRY(open_text(ctc, &file, &o->lm));
    const void *bytes = ds_mapped_bytes(file);
    const size_t n_bytes = ds_mapped_size(file);
    m->spelled = !ctc->language.lexicon.n_words;
    const ds_status status =
        o->lm_score ? ds_ngram_read_words(m, bytes, n_bytes, o->lm_order, o->lm_score, o->lm_owner)
                    : ds_ngram_read(m, bytes, n_bytes);
    ds_mapped_release(file);
    DS_TRY(status);
    return o->lm_score ? mix_scores(ctc) : DS_OK;
}

/* What the language model calls the lexicon's words, and how probable each is by itself. */
static ds_status join_words(ds_ctc *ctc, bool lm_tokens)
{
    ds_language *l = &ctc->language;
    const size_t n = l->lexicon.n_words;
    if (!n || !l->model.n || lm_tokens)
        return DS_OK;
    float *scores;
    DS_PUSH(&ctc->arena, l->lexicon_words, n);
    DS_PUSH(&ctc->arena, scores, n);
    for (size_t i = 0; i < n; i++) {
        const ds_span word = l->lexicon.words[i];
        l->lexicon_words[i] = ds_ngram_word(&l->model, ds_hash(DS_HASH_EMPTY, word.text, word.n));
        const double score = ds_ngram_score(&l->model, &(ds_history){{0}}, l->lexicon_words[i]);
        DS_TRY(ds_ngram_check(score));
        scores[i] = (float)score;
    }
    return ds_lexicon_smear(&l->lexicon, &ctc->arena, scores);
}

static ds_status read_phrases(ds_ctc *ctc, const ds_text *text, double weight)
{
    ds_language *l = &ctc->language;
    ds_mapped *file;
    DS_TRY(open_text(ctc, &file, text));
    const ds_status status = ds_phrases_read(&l->phrases, &ctc->arena, &l->tokens, l->separator,
                                             l->separator < 0 && are_marked(&l->tokens), weight,
                                             ds_mapped_bytes(file), ds_mapped_size(file));
    ds_mapped_release(file);
    return status;
}

static ds_status check_options(const ds_decoder_options *o)
{
    DS_CHECK(o->beam_size <= 1 << 16 && o->beam_size_token <= DS_MAX_TOKENS &&
                 o->max_pending <= 1 << 20 && o->max_final <= 1 << 24,
             DS_ARGUMENT,
             "decoder: expected at most 65536 as beam_size, and less than millions elsewhere");
    DS_CHECK(o->max_symbols <= 1 << 10, DS_ARGUMENT,
             "decoder: expected max_symbols of at most 1024");
    DS_CHECK(
        o->beam_threshold >= 0 && o->token_threshold <= 0 && o->blank_threshold >= 0 &&
            o->blank_threshold <= 1,
        DS_ARGUMENT,
        "decoder: expected a beam_threshold of 0 or more, a token_threshold of 0 or less and a "
        "blank_threshold from 0 to 1");
    DS_CHECK(isfinite(o->lm_weight) && isfinite(o->word_score) && isfinite(o->sil_score) &&
                 isfinite(o->hotword_weight) && !isnan(o->unk_score) &&
                 o->unk_score < (double)INFINITY,
             DS_ARGUMENT, "decoder: expected finite weights and scores");
    DS_CHECK(o->silence_frames >= 0 && o->trailing_frames >= 0 && o->utterance_frames >= 0,
             DS_ARGUMENT, "decoder: expected frames of endpoints of 0 or more");
    return DS_OK;
}

/* The options with their defaults, and the numbers of them that streams depend on. */
static ds_status take_options(ds_ctc *ctc, const ds_decoder_options *o)
{
    DS_TRY(check_options(o));
    const ds_ctc_options taken = {
        .blank = o->blank,
        .beam = o->greedy      ? 0
                : o->beam_size ? (int32_t)o->beam_size
                               : 100,
        .beam_tokens = (int32_t)o->beam_size_token,
        .beam_threshold = o->beam_threshold > 0 ? o->beam_threshold : 25,
        .token_threshold = o->token_threshold < 0 ? o->token_threshold : -(double)INFINITY,
        .blank_threshold = o->blank_threshold > 0 ? log(o->blank_threshold) : (double)INFINITY,
        .best_alignment = o->best_alignment != 0,
        .max_pending = o->max_pending ? (int32_t)o->max_pending : 256,
        .max_past = o->max_final ? (int32_t)o->max_final : 1024,
        .max_symbols = ctc->scorer.owner && o->max_symbols ? (int32_t)o->max_symbols : 1,
        .endpoints = {o->silence_frames, o->trailing_frames, o->utterance_frames}};
    ctc->options = taken;
    ds_language *l = &ctc->language;
    l->lm_weight = o->lm_weight;
    l->word_score = o->word_score;
    l->unk_score = o->unk_score;
    l->sil_score = o->sil_score;
    l->unknown = o->unknown_words != 0;
    const double numbers[] = {o->lm_weight,
                              o->word_score,
                              o->unk_score,
                              o->sil_score,
                              o->hotword_weight,
                              taken.beam_threshold,
                              taken.token_threshold,
                              taken.blank_threshold,
                              taken.blank,
                              taken.beam,
                              taken.beam_tokens,
                              taken.best_alignment,
                              o->lm_tokens,
                              o->unknown_words,
                              taken.max_pending,
                              taken.max_past,
                              (double)o->silence_frames,
                              (double)o->trailing_frames,
                              (double)o->utterance_frames};
    mix(&ctc->fingerprint, numbers, sizeof numbers);
    return DS_OK;
}

/* Whether the networks of a transducer fit the tokens. */
static ds_status check_scorer(ds_ctc *ctc, const ds_decoder_options *o)
{
    const ds_scorer *scorer = &ctc->scorer;
    if (!scorer->owner)
        return DS_OK;
    DS_CHECK(scorer->n_scores == (size_t)ctc->language.tokens.n, DS_ARGUMENT,
             "decoder: expected a joiner that scores the %d tokens, got one with %zu scores",
             ctc->language.tokens.n, scorer->n_scores);
    DS_CHECK(!is_given(&o->lexicon), DS_ARGUMENT,
             "decoder: a transducer has no lexicon; a language model of words and hotwords it has");
    mix(&ctc->fingerprint, &scorer->fingerprint, sizeof scorer->fingerprint);
    mix(&ctc->fingerprint, &ctc->options.max_symbols, sizeof ctc->options.max_symbols);
    return DS_OK;
}

static ds_status fill(ds_ctc *ctc, const ds_decoder_options *o)
{
    ds_language *l = &ctc->language;
    DS_CHECK(is_given(&o->tokens), DS_ARGUMENT, "decoder: expected tokens, got none");
    DS_TRY(take_options(ctc, o));
    DS_TRY(open_text(ctc, &ctc->files[0], &o->tokens));
    DS_TRY(ds_tokens_read(&l->tokens, &ctc->arena, ds_mapped_bytes(ctc->files[0]),
                          ds_mapped_size(ctc->files[0])));
    DS_CHECK(o->blank >= 0 && o->blank < l->tokens.n, DS_ARGUMENT,
             "decoder: expected a blank from 0 to %d, got %d", l->tokens.n - 1, (int)o->blank);
    DS_TRY(check_scorer(ctc, o));
    DS_TRY(find_separator(ctc, o->sil));
    mix(&ctc->fingerprint, &l->separator, sizeof l->separator);
    if (is_given(&o->lexicon))
        DS_TRY(read_lexicon(ctc, &o->lexicon));
    DS_CHECK(!o->lm_score || is_given(&o->lm), DS_ARGUMENT,
             "decoder: expected the words that lm_score scores as lm, got none");
    if (is_given(&o->lm))
        DS_TRY(read_model(ctc, o));
    DS_TRY(classify(ctc, o->lm_tokens != 0));
    DS_TRY(join_words(ctc, o->lm_tokens != 0));
    if (is_given(&o->hotwords)) {
        const double weight =
            o->hotword_weight < 0 || o->hotword_weight > 0 ? o->hotword_weight : 1;
        DS_TRY(read_phrases(ctc, &o->hotwords, weight));
    }
    return DS_OK;
}

ds_status ds_ctc_create(ds_ctc **ctc, const ds_decoder_options *options, const ds_scorer *scorer)
{
    const ds_allocator allocator =
        options->allocator ? *options->allocator : ds_allocator_current();
    ds_ctc *made;
    DS_TRY_ELSE(ds_allocate_zeroed(&allocator, (void **)&made, sizeof *made),
                scorer ? scorer->destroy(scorer->owner) : (void)0);
    made->allocator = allocator;
    if (scorer)
        made->scorer = *scorer;
    made->fingerprint = DS_HASH_EMPTY;
    ds_arena_init(&made->arena, &allocator);
    ds_map_init(&made->language.tokens.ids, &allocator);
    ds_ngram_init(&made->language.model, &allocator);
    ds_map_init(&made->language.phrases.edges, &allocator);
    atomic_init(&made->idle, NULL);
    DS_TRY_ELSE(fill(made, options), ds_ctc_destroy(made));
    *ctc = made;
    return DS_OK;
}

void ds_ctc_destroy(ds_ctc *ctc)
{
    if (!ctc)
        return;
    const ds_allocator allocator = ctc->allocator;
    ds_ctc_work_destroy(atomic_load(&ctc->idle));
    if (ctc->scorer.owner)
        ctc->scorer.destroy(ctc->scorer.owner);
    ds_tokens_free(&ctc->language.tokens);
    ds_ngram_free(&ctc->language.model);
    ds_phrases_free(&ctc->language.phrases);
    ds_mapped_release(ctc->files[0]);
    ds_mapped_release(ctc->files[1]);
    ds_arena_free(&ctc->arena);
    ds_release(&allocator, ctc, sizeof *ctc);
}

/* ---------------------------------------------------------------- steps */
static ds_status check_row(const ds_ctc *ctc, const ds_ctc_stream *stream, const ds_input *chunk,
                           uint32_t flags)
{
    DS_CHECK((flags & ~(DS_START | DS_END)) == 0, DS_ARGUMENT,
             "decoder: flags are %u, expected DS_START and DS_END only", flags);
    DS_CHECK(!(flags & DS_START) || !stream->begun || stream->ended, DS_STREAM_ID,
             "decoder: DS_START, but the stream is on its way");
    DS_CHECK((flags & DS_START) || !stream->ended, DS_STREAM_ID, "decoder: the stream has ended");
    DS_CHECK(chunk->data || chunk->n_frames == 0, DS_ARGUMENT,
             "decoder: %zu frames, but data is NULL", chunk->n_frames);
    DS_CHECK(chunk->dtype == 0 || chunk->dtype == DS_F32, DS_DTYPE,
             "decoder: expected float32 scores, got the element type %d", (int)chunk->dtype);
    return ds_ctc_check(ctc, chunk->data, chunk->n_frames);
}

ds_status ds_ctc_step(ds_ctc *ctc, ds_ctc_stream *const *streams, const ds_input *chunks,
                      const uint32_t *flags, size_t n, bool *bad)
{
    ds_first_fault first = {DS_OK, ""};
    for (size_t i = 0; i < n; i++)
        ds_first_fault_note(&first, check_row(ctc, streams[i], &chunks[i], flags ? flags[i] : 0),
                            bad ? &bad[i] : NULL);
    DS_TRY(ds_first_fault_end(&first));
    ds_ctc_work *work = atomic_exchange(&ctc->idle, NULL);
    if (!work)
        DS_TRY(ds_ctc_work_create(&work, ctc, &ctc->allocator));
    ds_float_env env;
    ds_float_env_enter(&env);
    ds_status status = DS_OK;
    if (ctc->scorer.owner)
        status = ds_transducer_advance(work, ctc, streams, chunks, flags, n);
    for (size_t i = 0; !ctc->scorer.owner && status == DS_OK && i < n; i++)
        status = ds_ctc_advance(work, ctc, streams[i], flags && (flags[i] & DS_START),
                                chunks[i].data, chunks[i].n_frames);
    for (size_t i = 0; status == DS_OK && i < n; i++)
        status = ds_ctc_make_readable(streams[i], &streams[i]->next);
    for (size_t i = 0; status == DS_OK && i < n; i++)
        ds_ctc_commit(streams[i], flags && (flags[i] & DS_END));
    ds_float_env_leave(&env);
    ds_ctc_work_destroy(atomic_exchange(&ctc->idle, work));
    return status;
}
