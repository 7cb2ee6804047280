/* The public API: decoders. Steps, hypotheses, snapshots, wrong use, the n-th allocation of every call. */
#include "check.h"
#include "dreamstream.h"
#include "main.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N_TOKENS = 5, N_FRAMES = 40 };

static const char tokens[] = "- 0\n| 1\na 2\nb 3\nc 4\n";
static const char lexicon[] = "ab a b |\nba b a |\nab a b b |\nc c |\n";
static const char model[] =
    "\\data\\\nngram 1=6\nngram 2=2\n\n\\1-grams:\n-9 <s> -0.5\n-1 </s>\n-2 <unk>\n-1 ab -0.5\n"
    "-1.2 ba -0.1\n-1.1 c\n\n\\2-grams:\n-0.3 ab ba\n-0.4 <s> c\n\n\\end\\\n";
static const char phrases[] = "ab ba\t2\nc\n";

static ds_text text_of(const char *bytes)
{
    return (ds_text){NULL, bytes, strlen(bytes)};
}

static ds_decoder_options all_options(void)
{
    ds_decoder_options o = DS_DECODER_OPTIONS_INIT;
    o.tokens = text_of(tokens);
    o.lexicon = text_of(lexicon);
    o.lm = text_of(model);
    o.hotwords = text_of(phrases);
    o.beam_size = 8;
    o.lm_weight = 0.5;
    o.utterance_frames = 25;
    return o;
}

/* Scores in which every frame prefers another token. */
static void fill_scores(float *x)
{
    uint32_t random = 1;
    for (size_t i = 0; i < N_FRAMES * N_TOKENS; i++) {
        random = random * 1664525u + 1013904223u;
        x[i] = -(float)(random >> 8) / (float)(1 << 22);
    }
}

static ds_status step(ds_decoder *d, ds_decoding *s, const float *x, size_t from, size_t to,
                      uint32_t flags)
{
    const ds_input chunk = {x + from * N_TOKENS, to - from, DS_F32};
    return ds_decoder_step(d, &s, &chunk, &flags, 1);
}

static bool same_hypotheses(ds_decoding *a, ds_decoding *b)
{
    ds_hypothesis one = {.struct_size = sizeof one}, other = one;
    for (size_t rank = 0; rank == 0 || rank < one.n_hypotheses; rank++) {
        CHECK(ds_decoding_read(a, &one, rank) == DS_OK &&
              ds_decoding_read(b, &other, rank) == DS_OK);
        if (one.n_tokens != other.n_tokens || one.n_final != other.n_final ||
            memcmp(&one.score, &other.score, sizeof one.score) != 0 ||
            (one.n_tokens && memcmp(one.tokens, other.tokens, one.n_tokens * sizeof *one.tokens)))
            return false;
    }
    return true;
}

TEST(chunks_and_snapshots_change_no_bit)
{
    float x[N_FRAMES * N_TOKENS];
    ds_decoder_options o = all_options();
    ds_decoder *d = NULL;
    ds_decoding *whole = NULL, *parts = NULL, *other = NULL;
    fill_scores(x);
    CHECK(succeeded(ds_decoder_create(&d, &o)));
    CHECK(ds_decoding_open(&whole, d) == DS_OK && ds_decoding_open(&parts, d) == DS_OK);
    CHECK(ds_decoding_open(&other, d) == DS_OK);
    CHECK(step(d, whole, x, 0, N_FRAMES, DS_START | DS_END) == DS_OK);
    for (size_t t = 0; t < N_FRAMES; t++) {
        size_t n = 0;
        CHECK(step(d, parts, x, t, t + 1, 0) == DS_OK);
        CHECK(ds_decoding_snapshot_size(parts, &n) == DS_OK);
        unsigned char *bytes = malloc(n);
        CHECK(bytes && ds_decoding_snapshot(parts, bytes, n) == DS_OK);
        for (size_t k = 0; k < n;
             k += 1 + n / 64) { /* of its own size, so that a sanitizer sees a step beside it */
            unsigned char *cut = malloc(k ? k : 1);
            CHECK(cut != NULL);
            memcpy(cut, bytes, k);
            CHECK(ds_decoding_restore(other, cut, k) == DS_FORMAT);
            free(cut);
        }
        CHECK(ds_decoding_restore(other, bytes, n) == DS_OK && same_hypotheses(other, parts));
        ds_decoding *swap = parts;
        parts = other;
        other = swap;
        free(bytes);
    }
    CHECK(step(d, parts, x, 0, 0, DS_END) == DS_OK);
    CHECK(same_hypotheses(whole, parts));
    CHECK(ds_decoding_close(other) == DS_OK && ds_decoder_close(d) == DS_OK);
    CHECK(ds_decoding_close(whole) == DS_CLOSED);
}

TEST(texts_of_tokens_and_words)
{
    ds_decoder_options o = all_options();
    ds_decoder *d = NULL;
    const char *text = NULL;
    size_t n = 0;
    CHECK(succeeded(ds_decoder_create(&d, &o)));
    CHECK(ds_decoder_token(d, 2, &text, &n) == DS_OK && n == 1 && text[0] == 'a');
    CHECK(ds_decoder_word(d, 0, &text, &n) == DS_OK && n == 2 && memcmp(text, "ab", 2) == 0);
    CHECK(ds_decoder_word(d, 2, &text, &n) == DS_OK && n == 1 && text[0] == 'c');
    CHECK(ds_decoder_word(d, 3, &text, &n) == DS_ARGUMENT &&
          ds_decoder_token(d, -1, &text, &n) == DS_ARGUMENT);
    CHECK(ds_decoder_close(d) == DS_OK && ds_decoder_close(d) == DS_CLOSED);
}

TEST(wrong_use_changes_nothing)
{
    float x[N_FRAMES * N_TOKENS];
    ds_decoder_options o = all_options();
    ds_decoder *d = NULL, *d2 = NULL;
    ds_decoding *s = NULL, *s2 = NULL;
    ds_hypothesis h = {.struct_size = sizeof h};
    fill_scores(x);
    CHECK(ds_decoder_create(NULL, &o) == DS_ARGUMENT && ds_decoder_create(&d, NULL) == DS_ARGUMENT);
    o.struct_size = 8;
    CHECK(ds_decoder_create(&d, &o) == DS_ARGUMENT);
    o = all_options();
    o.blank = N_TOKENS;
    CHECK(ds_decoder_create(&d, &o) == DS_ARGUMENT);
    o = all_options();
    o.lexicon = text_of("ab a x\n");
    CHECK(ds_decoder_create(&d, &o) == DS_FORMAT);
    o = all_options();
    CHECK(ds_decoder_create(&d, &o) == DS_OK && ds_decoder_create(&d2, &o) == DS_OK);
    CHECK(ds_decoding_open(&s, d) == DS_OK && ds_decoding_open(&s2, d2) == DS_OK);
    CHECK(step(d, s, x, 0, 3, 0) == DS_OK);
    CHECK(step(d, s, x, 0, 3, DS_START) == DS_STREAM_ID && step(d, s, x, 0, 3, 4) == DS_ARGUMENT);
    CHECK(step(d, s2, x, 0, 3, 0) == DS_ARGUMENT);
    ds_decoding *twice[2] = {s, s};
    const ds_input chunks[2] = {{x, 1, 0}, {x, 1, 0}}, wrong = {x, 1, DS_F64};
    CHECK(ds_decoder_step(d, twice, chunks, NULL, 2) == DS_ARGUMENT);
    CHECK(ds_decoder_step(d, &s, &wrong, NULL, 1) == DS_DTYPE);
    x[2] = NAN;
    CHECK(step(d, s, x, 0, 1, 0) == DS_INDEX);
    CHECK(ds_decoding_read(s, &h, 0) == DS_OK && h.n_frames == 3);
    CHECK(ds_decoding_read(s, &h, h.n_hypotheses) == DS_ARGUMENT);
    CHECK(step(d, s, x, 1, 2, DS_END) == DS_OK && step(d, s, x, 1, 2, 0) == DS_STREAM_ID);
    CHECK(step(d, s, x, 1, 2, DS_START) == DS_OK);
    CHECK(ds_decoding_read(s, &h, 0) == DS_OK && h.n_frames == 1);
    CHECK(ds_decoder_close(d) == DS_OK && ds_decoder_close(d2) == DS_OK);
}

/* What the ARPA file says, by number: ab 0, ba 1, c 2, <s> 3, </s> 4, behind them the unknown. `owner`: calls until one
 * fails, or NULL. */
static double bigram(void *owner, const uint32_t *words, size_t n)
{
    static const float alone[] = {-1.0f, -1.2f, -1.1f, -9.0f, -1.0f, -2.0f};
    static const float back[] = {-0.5f, -0.1f, 0, -0.5f, 0, 0};
    int *left = owner;
    CHECK(n == 1 || n == 2);
    if (left && (*left)-- == 0)
        return INFINITY;
    const uint32_t last = words[n - 1];
    if (n == 2 && words[0] == 0 && last == 1)
        return (double)-0.3f;
    if (n == 2 && words[0] == 3 && last == 2)
        return (double)-0.4f;
    return (n == 2 ? (double)back[words[0]] : 0) + (double)alone[last];
}

TEST(a_function_scores_words)
{
    float x[N_FRAMES * N_TOKENS];
    ds_decoder_options o = all_options();
    ds_decoder *arpa = NULL, *scored = NULL;
    ds_decoding *a = NULL, *b = NULL, *c = NULL;
    unsigned char bytes[1 << 14];
    size_t n = 0;
    fill_scores(x);
    CHECK(succeeded(ds_decoder_create(&arpa, &o)) && ds_decoding_open(&a, arpa) == DS_OK);
    o.lm_score = bigram;
    o.lm = (ds_text){NULL, NULL, 0};
    CHECK(ds_decoder_create(&scored, &o) == DS_ARGUMENT); /* of no words */
    o.lm = text_of("ab\nba\nc\n<s>\n</s>\n");
    CHECK(ds_decoder_create(&scored, &o) == DS_ARGUMENT); /* of order 0 */
    o.lm_order = 2;
    int left = 1 << 20;
    o.lm_owner = &left;
    CHECK(succeeded(ds_decoder_create(&scored, &o)));
    CHECK(ds_decoding_open(&b, scored) == DS_OK && ds_decoding_open(&c, scored) == DS_OK);
    CHECK(step(arpa, a, x, 0, 20, 0) == DS_OK && step(scored, b, x, 0, 20, 0) == DS_OK);
    CHECK(same_hypotheses(a, b) && ds_decoding_snapshot_size(b, &n) == DS_OK && n <= sizeof bytes);
    CHECK(ds_decoding_snapshot(b, bytes, n) == DS_OK && ds_decoding_restore(c, bytes, n) == DS_OK);
    left = 0;
    CHECK(step(scored, b, x, 20, N_FRAMES, DS_END) == DS_ARGUMENT);
    CHECK(same_hypotheses(a, b)); /* nothing has happened */
    left = 1 << 20;
    CHECK(ds_decoding_restore(a, bytes, n) == DS_FORMAT); /* of another model */
    CHECK(step(arpa, a, x, 20, N_FRAMES, DS_END) == DS_OK);
    CHECK(step(scored, b, x, 20, N_FRAMES, DS_END) == DS_OK && same_hypotheses(a, b));
    CHECK(step(scored, c, x, 20, N_FRAMES, DS_END) == DS_OK && same_hypotheses(a, c));
    CHECK(ds_decoder_close(arpa) == DS_OK && ds_decoder_close(scored) == DS_OK);
}

/* A life of a decoder; the status of what failed first. */
static ds_status live(const ds_decoder_options *o, const float *x)
{
    ds_decoder *d = NULL;
    ds_decoding *s = NULL, *more = NULL;
    ds_hypothesis h = {.struct_size = sizeof h};
    unsigned char bytes[1 << 14];
    size_t n = 0;
    ds_status status = ds_decoder_create(&d, o);
    if (status == DS_OK)
        status = ds_decoding_open(&s, d);
    for (size_t t = 0; status == DS_OK && t + 10 <= N_FRAMES; t += 10) {
        status = step(d, s, x, t, t + 10, 0);
        if (status != DS_OK) { /* nothing has happened: it can be done again */
            CHECK(ds_decoding_snapshot_size(s, &n) == DS_OK);
            CHECK(step(d, s, x, t, t + 10, 0) == DS_OK);
        }
    }
    if (status == DS_OK)
        status = ds_decoding_read(s, &h, 0);
    if (status == DS_OK)
        status = ds_decoding_snapshot_size(s, &n);
    CHECK(n <= sizeof bytes);
    if (status == DS_OK)
        status = ds_decoding_snapshot(s, bytes, n);
    if (status == DS_OK)
        status = ds_decoding_open(&more, d);
    if (status == DS_OK)
        status = ds_decoding_restore(more, bytes, n);
    if (d)
        CHECK(ds_decoder_close(d) == DS_OK);
    return status;
}

TEST(the_nth_allocation_fails)
{
    float x[N_FRAMES * N_TOKENS];
    ds_decoder_options o = all_options();
    o.allocator = &hooks;
    fill_scores(x);
    size_t nth = 1;
    for (;; nth++) {
        ds_fault_arm(&fault, nth, false);
        const ds_status status = live(&o, x);
        CHECK(status == DS_OK || status == DS_NO_MEMORY);
        CHECK(ds_fault_live_blocks(&fault) == 0 && ds_fault_bad_releases(&fault) == 0);
        if (status == DS_OK)
            break;
    }
    CHECK(nth > 40);
    ds_fault_disarm(&fault);
}
