/* What a sequence of tokens is worth, acoustics aside: words, language model, phrases.
 *
 * Words are those of a lexicon, spelled by a path through its trie, or, without one, what stands between separators
 * (`sil`), or begins with a token that has the mark of SentencePiece. Where tokens have neither, each is a word. */
#pragma once
#include "decode/lexicon.h"
#include "decode/ngram.h"
#include "decode/phrases.h"

typedef enum ds_token_kind {
    DS_TOKEN_PLAIN,     /* continues a word */
    DS_TOKEN_SEPARATOR, /* stands between words */
    DS_TOKEN_BEGINS,    /* begins a word: it has the mark */
    DS_TOKEN_WORD       /* is one */
} ds_token_kind;

typedef struct ds_language {
    ds_tokens tokens;
    ds_lexicon lexicon; /* n_words 0: there is none */
    ds_ngram model;     /* n 0: there is none */
    ds_phrases phrases;
    int32_t separator;       /* -1: there is none */
    unsigned char *kinds;    /* [tokens.n] of ds_token_kind */
    uint32_t *token_words;   /* [tokens.n] the model's word; NULL: it is a model of words */
    uint32_t *lexicon_words; /* [lexicon.n_words] likewise */
    double lm_weight, word_score, unk_score, sil_score;
    bool unknown; /* words that are not in the lexicon may be spelled */
} ds_language;

/* What is known of a sequence. */
typedef struct ds_sense {
    double score;
    uint64_t hash; /* of the word that is being spelled, without a lexicon, or DS_HASH_UNKNOWN */
    ds_history model;
    uint32_t trie, phrase;
    int32_t
        word; /* of the lexicon, which its last token ended; n_words: an unknown one; -1: none */
} ds_sense;

/* Instead of the hash of what no word of the language model begins with: it is counted as unknown already. */
#define DS_HASH_UNKNOWN UINT64_C(0)

/* The word that a token ends: none, or one of the lexicon. */
enum { DS_NO_WORD = -1 };

ds_sense ds_language_start(const ds_language *language);
/* The sequence with one more token. With a lexicon, `node` is where the token leads in its trie, and `word` what it
 * ends, or DS_NO_WORD. */
ds_sense ds_language_follow(const ds_language *language, const ds_sense *before, int32_t token,
                            uint32_t node, int32_t word);
/* Returns what the end of the sequence adds to its score. */
double ds_language_end(const ds_language *language, const ds_sense *sense);
/* Whether a lexicon's word is begun and not ended. */
static inline bool ds_language_is_within(const ds_sense *sense)
{
    return sense->trie != 0;
}

static inline bool ds_is_marked(ds_span text)
{
    return text.n >= 3 && text.text[0] == DS_MARK[0] && text.text[1] == DS_MARK[1] &&
           text.text[2] == DS_MARK[2];
}
