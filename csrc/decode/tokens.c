#include "decode/tokens.h"

#include <string.h>

#include "base/utf8.h"

/* Whether every line ends in a number. */
static bool are_numbered(ds_lines lines)
{
    ds_span line, last;
    uint32_t id;
    bool any = false;
    while (ds_lines_next(&lines, &line)) {
        if (line.n == 0)
            continue;
        any = true;
        if (!ds_lines_last_field(&line, &last) || line.n == 0 ||
            !ds_span_integer(last, DS_MAX_TOKENS - 1, &id))
            return false;
    }
    return any;
}

static ds_status add(ds_tokens *tokens, ds_span text, uint32_t id, size_t number)
{
    for (size_t i = 0, n; i < text.n; i += n) {
        n = ds_utf8_length(text.text + i, text.n - i);
        DS_CHECK(n > 0, DS_FORMAT, "tokens, line %zu: expected UTF-8", number);
    }
    DS_CHECK(id < (uint32_t)tokens->n, DS_FORMAT,
             "tokens, line %zu: expected an id below %d, the number of lines, got %u", number,
             tokens->n, id);
    DS_CHECK(!tokens->texts[id].text, DS_FORMAT,
             "tokens, line %zu: expected each id once, got %u again", number, id);
    tokens->texts[id] = text;
    uint32_t found = id;
    DS_TRY(ds_map_put(&tokens->ids, ds_hash(DS_HASH_EMPTY, text.text, text.n), &found));
    DS_CHECK(found == id, DS_FORMAT, "tokens, line %zu: expected each token once, got %s again",
             number, DS_SHOWN_SPAN(text));
    return DS_OK;
}

ds_status ds_tokens_read(ds_tokens *tokens, ds_arena *arena, const void *bytes, size_t n_bytes)
{
    ds_lines lines = ds_lines_of(bytes, n_bytes);
    ds_span line, last;
    size_t n = 0;
    for (ds_lines count = lines; ds_lines_next(&count, &line);)
        n += line.n > 0;
    DS_CHECK(n > 0 && n <= DS_MAX_TOKENS, DS_FORMAT, "tokens: expected 1 to %d of them, got %zu",
             DS_MAX_TOKENS, n);
    tokens->n = (int32_t)n;
    DS_PUSH_ZEROED(arena, tokens->texts, n);
    const bool numbered = are_numbered(lines);
    for (uint32_t i = 0; ds_lines_next(&lines, &line); i++) {
        if (line.n == 0) {
            i--;
            continue;
        }
        uint32_t id = i;
        if (numbered) {
            (void)(ds_lines_last_field(&line, &last) &&
                   ds_span_integer(last, DS_MAX_TOKENS - 1, &id));
            line.n--; /* the separator */
            while (line.n > 1 && (line.text[line.n - 1] == ' ' || line.text[line.n - 1] == '\t'))
                line.n--;
            if (line.n == 0)
                line = (ds_span){" ", 1};
        }
        DS_TRY(add(tokens, line, id, lines.number));
    }
    return DS_OK;
}

void ds_tokens_free(ds_tokens *tokens)
{
    ds_map_free(&tokens->ids);
}

int32_t ds_tokens_find(const ds_tokens *tokens, ds_span text)
{
    const uint32_t id = ds_map_get(&tokens->ids, ds_hash(DS_HASH_EMPTY, text.text, text.n));
    return id != DS_MAP_NONE && tokens->texts[id].n == text.n &&
                   memcmp(tokens->texts[id].text, text.text, text.n) == 0
               ? (int32_t)id
               : -1;
}
