/* Nodes come in the order of the lines, so a node's number is above its parent's. */
#include "decode/lexicon.h"

#include <math.h>

#include "base/utf8.h"

/* An edge (owner: the node that it leaves), or a word (owner: the node in which it ends). */
typedef struct item {
    uint32_t owner, value;
    int32_t token;
} item;

typedef struct items {
    item *all;
    size_t n, room;
} items;

static ds_status add_item(ds_arena *arena, items *list, item one)
{
    DS_GROW(arena, list->all, list->n, list->room);
    list->all[list->n++] = one;
    return DS_OK;
}

/* Fills first[i] with how many items belong to nodes before i; items of one node follow in order. */
static ds_status count(ds_arena *arena, uint32_t **first, const items *list, size_t n_nodes)
{
    DS_TRY(ds_arena_push_zeroed(arena, (void **)first, n_nodes + 2, sizeof **first));
    for (size_t i = 0; i < list->n; i++)
        (*first)[list->all[i].owner + 2]++;
    for (size_t i = 2; i < n_nodes + 2; i++)
        (*first)[i] += (*first)[i - 1];
    return DS_OK;
}

/* Reads the spelling that is left of a line; fills `*node` with where it ends. */
static ds_status read_spelling(ds_span line, size_t number, const ds_tokens *tokens,
                               ds_lexicon *lexicon, ds_map *edges, items *branches, ds_arena *arena,
                               uint32_t *node)
{
    ds_span field;
    *node = 0;
    while (ds_lines_field(&line, &field)) {
        const int32_t token = ds_tokens_find(tokens, field);
        DS_CHECK(token >= 0, DS_FORMAT, "lexicon, line %zu: expected tokens, got %s", number,
                 DS_SHOWN_SPAN(field));
        uint32_t next = (uint32_t)lexicon->n_nodes;
        DS_TRY(ds_map_put(edges, ds_map_edge(*node, (uint32_t)token), &next));
        if (next == lexicon->n_nodes) {
            DS_TRY(add_item(arena, branches, (item){*node, next, token}));
            lexicon->n_nodes++;
        }
        *node = next;
    }
    DS_CHECK(*node > 0, DS_FORMAT, "lexicon, line %zu: expected a word and its tokens", number);
    return DS_OK;
}

/* maps: what there is by the word's text, (node, token) and (node, word). */
static ds_status read_lines(ds_lexicon *lexicon, ds_arena *arena, const ds_tokens *tokens,
                            ds_lines lines, ds_map maps[3], items *branches, items *labels)
{
    ds_span line, word;
    size_t room = 0;
    lexicon->n_nodes = 1;
    while (ds_lines_next(&lines, &line)) {
        if (!ds_lines_field(&line, &word))
            continue;
        for (size_t i = 0, n; i < word.n; i += n) {
            n = ds_utf8_length(word.text + i, word.n - i);
            DS_CHECK(n > 0, DS_FORMAT, "lexicon, line %zu: expected UTF-8", lines.number);
        }
        uint32_t node, id = (uint32_t)lexicon->n_words;
        DS_TRY(ds_map_put(&maps[0], ds_hash(DS_HASH_EMPTY, word.text, word.n), &id));
        if (id == lexicon->n_words) {
            DS_GROW(arena, lexicon->words, lexicon->n_words, room);
            lexicon->words[lexicon->n_words++] = word;
        }
        DS_TRY(
            read_spelling(line, lines.number, tokens, lexicon, &maps[1], branches, arena, &node));
        const size_t n_ends = maps[2].n;
        uint32_t one = 1;
        DS_TRY(ds_map_put(&maps[2], ds_map_edge(node, id), &one));
        if (maps[2].n > n_ends)
            DS_TRY(add_item(arena, labels, (item){node, id, 0}));
    }
    DS_CHECK(lexicon->n_words > 0, DS_FORMAT, "lexicon: expected words, got none");
    return DS_OK;
}

ds_status ds_lexicon_read(ds_lexicon *lexicon, ds_arena *arena, const ds_tokens *tokens,
                          const void *bytes, size_t n_bytes)
{
    items branches = {0}, labels = {0};
    ds_map maps[3];
    for (int i = 0; i < 3; i++)
        ds_map_init(&maps[i], &arena->allocator);
    const ds_status status =
        read_lines(lexicon, arena, tokens, ds_lines_of(bytes, n_bytes), maps, &branches, &labels);
    for (int i = 0; i < 3; i++)
        ds_map_free(&maps[i]);
    DS_TRY(status);
    DS_TRY(count(arena, &lexicon->first_branch, &branches, lexicon->n_nodes));
    DS_TRY(count(arena, &lexicon->first_label, &labels, lexicon->n_nodes));
    DS_PUSH(arena, lexicon->branches, branches.n);
    DS_PUSH(arena, lexicon->labels, labels.n);
    for (size_t i = 0; i < branches.n; i++)
        lexicon->branches[lexicon->first_branch[branches.all[i].owner + 1]++] =
            (ds_branch){branches.all[i].token, branches.all[i].value};
    for (size_t i = 0; i < labels.n; i++)
        lexicon->labels[lexicon->first_label[labels.all[i].owner + 1]++] = labels.all[i].value;
    return DS_OK;
}

ds_status ds_lexicon_smear(ds_lexicon *lexicon, ds_arena *arena, const float *words)
{
    DS_PUSH(arena, lexicon->best, lexicon->n_nodes);
    for (size_t i = lexicon->n_nodes; i-- > 0;) {
        float best = -INFINITY;
        for (uint32_t k = lexicon->first_label[i]; k < lexicon->first_label[i + 1]; k++)
            best = fmaxf(best, words[lexicon->labels[k]]);
        for (uint32_t k = lexicon->first_branch[i]; k < lexicon->first_branch[i + 1]; k++)
            best = fmaxf(best, lexicon->best[lexicon->branches[k].node]);
        lexicon->best[i] = best;
    }
    return DS_OK;
}
