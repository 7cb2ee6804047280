/* The tokens that scores are about: their texts, and which of them mark words. */
#pragma once
#include "base/arena.h"
#include "decode/lines.h"
#include "decode/map.h"

enum { DS_MAX_TOKENS = 1 << 20 };
#define DS_MARK "\xE2\x96\x81" /* U+2581, with which SentencePiece begins words */

typedef struct ds_tokens {
    ds_span *texts; /* [n], views of the file's bytes */
    int32_t n;
    ds_map ids; /* by the hash of their text */
} ds_tokens;

/* Reads a list of tokens: lines "token id" in any order, whose ids are 0 to n - 1, or a token per line, whose id is
 * the line's number. The space itself may be a token ("  3"). `bytes` are kept, the rest is pushed.
 * Errors: DS_FORMAT, DS_NO_MEMORY. */
ds_status ds_tokens_read(ds_tokens *tokens, ds_arena *arena, const void *bytes, size_t n_bytes);
void ds_tokens_free(ds_tokens *tokens);
/* The token of that text; -1: there is none. */
int32_t ds_tokens_find(const ds_tokens *tokens, ds_span text);
