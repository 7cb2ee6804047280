/*
 * Files and snapshots of decoders: what is read decodes alike in one chunk and in many; what is refused leaves the
 * stream that it was meant for alone.
 *
 * byte 0: of what the rest are the bytes: 0 tokens, 1 a lexicon, 2 a language model, 3 phrases, 4 a snapshot, 5 a
 * snapshot whose magic, version, fingerprint and checksum are put right.
 */
#include "decode/ctc.h"
#include "fuzz.h"

enum { N_FRAMES = 12, MOST_TOKENS = 64, N_HEAD = 20 };

static const char tokens[] = "- 0\n| 1\na 2\nb 3\n";
static const char lexicon[] = "ab a b |\nba b a |\naba a b a |\nb b |\n";
static const char model[] =
    "\\data\\\nngram 1=4\nngram 2=1\n\n\\1-grams:\n-9 <s> -0.5\n-1 </s>\n-1 ab -0.5\n"
    "-1.2 ba\n\n\\2-grams:\n-0.3 ab ba\n\n\\end\\\n";
static const char phrases[] = "ab ba\t2\nb\n";

static ds_text text_of(const void *bytes, size_t n_bytes)
{
    return (ds_text){NULL, bytes, n_bytes};
}

static void fill_scores(float *x, size_t n)
{
    uint32_t random = 3;
    for (size_t i = 0; i < n; i++) {
        random = random * 1664525u + 1013904223u;
        x[i] = -(float)(random >> 8) / (float)(1 << 22);
    }
}

static void advance(ds_ctc *ctc, ds_ctc_stream *s, const float *x, size_t from, size_t to)
{
    const ds_input chunk = {x + from * (size_t)ctc->language.tokens.n, to - from, DS_F32};
    FUZZ_CHECK(ds_ctc_step(ctc, &s, &chunk, NULL, 1, NULL) == DS_OK);
}

/* What a stream remembers, in memory of its own. */
static unsigned char *taken(const ds_ctc *ctc, const ds_ctc_stream *s, size_t *n)
{
    FUZZ_CHECK(ds_ctc_snapshot(ctc, s, NULL, n) == DS_OK);
    unsigned char *bytes = malloc(*n);
    FUZZ_CHECK(bytes && ds_ctc_snapshot(ctc, s, bytes, n) == DS_OK);
    return bytes;
}

static bool are_alike(const ds_ctc *ctc, const ds_ctc_stream *a, const ds_ctc_stream *b)
{
    size_t n_a, n_b;
    unsigned char *one = taken(ctc, a, &n_a), *other = taken(ctc, b, &n_b);
    const bool alike = n_a == n_b && memcmp(one, other, n_a) == 0;
    free(one);
    free(other);
    return alike;
}

/* Two streams that stand alike go on alike, the one in one chunk. */
static void go_on(ds_ctc *ctc, ds_ctc_stream *a, ds_ctc_stream *b)
{
    float x[N_FRAMES * MOST_TOKENS];
    ds_hypothesis h = {.struct_size = sizeof h};
    if (ctc->language.tokens.n > MOST_TOKENS)
        return;
    fill_scores(x, N_FRAMES * (size_t)ctc->language.tokens.n);
    advance(ctc, a, x, 0, N_FRAMES);
    for (size_t t = 0; t < N_FRAMES; t++)
        advance(ctc, b, x, t, t + 1);
    FUZZ_CHECK(are_alike(ctc, a, b));
    FUZZ_CHECK(ds_ctc_read(ctc, a, &h, 0) == DS_OK && h.n_final <= h.n_tokens);
}

static void read_snapshot(ds_ctc *ctc, const uint8_t *data, size_t n_bytes, bool repaired)
{
    ds_ctc_stream a, b;
    size_t n;
    FUZZ_CHECK(ds_ctc_open(&a, ctc, &ctc->allocator) == DS_OK);
    FUZZ_CHECK(ds_ctc_open(&b, ctc, &ctc->allocator) == DS_OK);
    unsigned char *bytes = malloc(n_bytes ? n_bytes : 1), *head = taken(ctc, &a, &n);
    FUZZ_CHECK(bytes != NULL);
    if (n_bytes)
        memcpy(bytes, data, n_bytes);
    if (repaired && n_bytes >= N_HEAD + 8) {
        memcpy(bytes, head, N_HEAD);
        const uint64_t sum = ds_hash(DS_HASH_EMPTY, (const char *)bytes, n_bytes - 8);
        memcpy(bytes + n_bytes - 8, &sum, 8);
    }
    const ds_status status = ds_ctc_restore(ctc, &a, bytes, n_bytes);
    if (status == DS_OK) {
        unsigned char *again = taken(ctc, &a, &n);
        FUZZ_CHECK(n == n_bytes && ds_ctc_restore(ctc, &b, again, n) == DS_OK);
        free(again);
    } else {
        fuzz_check_refusal(status);
    }
    FUZZ_CHECK(are_alike(ctc, &a, &b));
    go_on(ctc, &a, &b);
    free(bytes);
    free(head);
    ds_ctc_close(&a);
    ds_ctc_close(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    if (n_bytes == 0)
        return 0;
    ds_decoder_options o = DS_DECODER_OPTIONS_INIT;
    o.tokens = text_of(tokens, strlen(tokens));
    o.lexicon = text_of(lexicon, strlen(lexicon));
    o.lm = text_of(model, strlen(model));
    o.hotwords = text_of(phrases, strlen(phrases));
    o.beam_size = 4;
    o.lm_weight = o.word_score = 0.5;
    o.max_pending = 6;
    o.utterance_frames = 9;
    ds_text *const files[4] = {&o.tokens, &o.lexicon, &o.lm, &o.hotwords};
    const int kind = data[0] % 6;
    if (kind < 4)
        *files[kind] = text_of(data + 1, n_bytes - 1);
    if (kind == 0) {
        o.lexicon = o.hotwords = (ds_text){NULL, NULL, 0};
        o.sil = "";
    }
    ds_ctc *ctc;
    const ds_status status = ds_ctc_create(&ctc, &o, NULL);
    if (status != DS_OK) {
        fuzz_check_refusal(status);
        return 0;
    }
    if (kind < 4) {
        ds_ctc_stream a, b;
        FUZZ_CHECK(ds_ctc_open(&a, ctc, &ctc->allocator) == DS_OK);
        FUZZ_CHECK(ds_ctc_open(&b, ctc, &ctc->allocator) == DS_OK);
        go_on(ctc, &a, &b);
        ds_ctc_close(&a);
        ds_ctc_close(&b);
    } else {
        read_snapshot(ctc, data + 1, n_bytes - 1, kind == 5);
    }
    ds_ctc_destroy(ctc);
    return 0;
}
