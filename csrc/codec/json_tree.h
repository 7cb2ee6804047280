/* How a tree of JSON lies in memory: what its parser (json_parse.c) and its readers (json.c) share.
 *
 * Nodes stand in the order of the text, so a value's parts follow it directly. The members of an
 * object are a node for the key, a string, and the value's nodes. Characters of all strings stand
 * in one pool, each string with a zero behind it. Numbers of 32 bits suffice for DS_JSON_MAX_BYTES. */
#pragma once
#include "codec/buffer.h"
#include "codec/json.h"

typedef struct ds_json_node {
    union {
        bool boolean;
        int64_t integer;
        double number;
        struct {
            uint32_t text, n_bytes; /* in the pool */
        } string;
        struct {
            uint32_t count; /* elements, or members */
            uint32_t end;   /* the node behind the last of the parts */
        } parts;
    } as;
    uint32_t at; /* where in the text it begins */
    ds_json_kind kind;
} ds_json_node;

struct ds_json {
    ds_buffer nodes, pool;
    size_t first_byte; /* of the text in its file */
};

static inline ds_json_node *ds_json_nodes(const ds_json *json)
{
    return (ds_json_node *)(void *)json->nodes.bytes;
}

static inline const char *ds_json_text(const ds_json *json, const ds_json_node *string)
{
    return (const char *)json->pool.bytes + string->as.string.text;
}

/* The node behind value `index` and all its parts. */
static inline uint32_t ds_json_end(const ds_json_node *nodes, uint32_t index)
{
    const ds_json_kind kind = nodes[index].kind;
    return kind == DS_JSON_ARRAY || kind == DS_JSON_OBJECT ? nodes[index].as.parts.end : index + 1;
}
