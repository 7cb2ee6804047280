/* ir/fingerprint.c: 128 bits that tell models apart.
 *
 * Numbers are mixed one by one. Large blocks go through four lanes side by side, lane l taking words
 * l, l + 4, ... (64 bits each, low byte first), so that weights are hashed as fast as memory is read;
 * every step of a lane is a bijection of what it held, so no single change is lost. It tells models
 * apart that differ by accident; it is no defence against one who looks for a collision. */
#include <math.h>
#include <string.h>

#include "ir/graph.h"

enum { LANES = 4, BLOCK = LANES * 8 };

static void mix(uint64_t h[2], uint64_t word)
{
    h[0] = (h[0] ^ word) * 0x9E3779B97F4A7C15u;
    h[0] ^= h[0] >> 29;
    h[1] = (h[1] + word) * 0xC2B2AE3D27D4EB4Fu;
    h[1] ^= (h[1] >> 31) ^ h[0];
}

/* Up to 8 bytes as a number, low byte first; a single load where the machine has them so. */
static uint64_t word_at(const unsigned char *p, size_t n_bytes)
{
    uint64_t word = 0;
    for (size_t i = 0; i < n_bytes; i++)
        word |= (uint64_t)p[i] << (8 * i);
    return word;
}

uint64_t ds_hash_bytes(const void *data, size_t n_bytes)
{
    const unsigned char *p = data;
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < n_bytes; i++)
        h = (h ^ p[i]) * 0x100000001B3u;
    return h ^ h >> 32;
}

void ds_fingerprint_bytes(uint64_t h[2], const void *data, size_t n_bytes)
{
    const unsigned char *p = data;
    uint64_t lane[LANES] = {1, 2, 3, 4};
    mix(h, n_bytes);
    for (; n_bytes >= BLOCK; n_bytes -= BLOCK, p += BLOCK)
        for (int l = 0; l < LANES; l++) {
            lane[l] = (lane[l] ^ word_at(p + 8 * l, 8)) * 0x9FB21C651E98DF25u;
            lane[l] ^= lane[l] >> 31;
        }
    for (int l = 0; l < LANES; l++)
        mix(h, lane[l]);
    for (; n_bytes >= 8; n_bytes -= 8, p += 8)
        mix(h, word_at(p, 8));
    if (n_bytes)
        mix(h, word_at(p, n_bytes));
}

static void mix_real(uint64_t h[2], double x)
{
    uint64_t bits = 1; /* any NaN: files hold only that it is one */
    if (!isnan(x))
        memcpy(&bits, &x, sizeof bits);
    mix(h, bits);
}

/* Without the rate: weights have none. */
static void mix_array(uint64_t h[2], const ds_signature *s)
{
    mix(h, (uint64_t)s->dtype);
    mix(h, (uint64_t)s->rank);
    for (int i = 0; i < s->rank; i++)
        mix(h, (uint64_t)s->shape[i]);
}

static void mix_input(uint64_t h[2], const ds_edge *edge)
{
    const ds_signature *s = &edge->signature;
    mix_array(h, s);
    if (edge->given && s->rate.num > 0)
        mix(h, 1); /* a memory */
    mix(h, (uint64_t)s->rate.num);
    mix(h, (uint64_t)s->rate.den);
}

/* made: room for the largest weight that is unmade. */
static ds_status mix_node(uint64_t h[2], const ds_node *node, const ds_allocator *allocator,
                          void *made)
{
    const ds_op *op = node->op;
    ds_fingerprint_bytes(h, op->def->name, strlen(op->def->name));
    for (int i = 0; op->def->attrs && op->def->attrs[i].name; i++) {
        const ds_attr_value *v = &op->attr[i];
        mix(h, (uint64_t)v->i);
        mix_real(h, v->x);
        mix(h, (uint64_t)v->n_ints);
        for (int k = 0; k < v->n_ints; k++)
            mix(h, (uint64_t)v->ints[k]);
        if (v->text)
            ds_fingerprint_bytes(h, v->text, strlen(v->text));
    }
    if (op->products && !ds_op_splits(op)) /* that is no file's */
        mix(h, (uint64_t)op->stored);
    for (int i = 0; i < op->n_inputs; i++)
        mix(h, (uint64_t)node->inputs[i]);
    for (int i = 0; i < op->n_weights; i++) {
        const ds_weight *const weight = &node->weights[i];
        mix_array(h, &op->weight[i]);
        if (weight->unmade)
            DS_TRY(ds_weight_make(allocator, weight, op, i, made));
        ds_fingerprint_bytes(h, weight->unmade ? made : weight->data, weight->n_bytes);
    }
    return DS_OK;
}

static ds_status mix_graph(uint64_t fingerprint[2], const ds_graph *graph, void *made)
{
    fingerprint[0] = 0x6473666770u;
    fingerprint[1] = 1;
    for (size_t i = 0; i < graph->n_inputs; i++)
        mix_input(fingerprint, &graph->edges[graph->inputs[i]]);
    for (size_t j = 0; j < graph->n_nodes; j++)
        DS_TRY(mix_node(fingerprint, &graph->nodes[j], &graph->allocator, made));
    for (size_t i = 0; i < graph->n_outputs; i++)
        mix(fingerprint, (uint64_t)graph->outputs[i]);
    return DS_OK;
}

void ds_graph_fingerprint(const ds_graph *graph, uint64_t fingerprint[2])
{
    if (graph->has_fingerprint)
        memcpy(fingerprint, graph->fingerprint, sizeof graph->fingerprint);
    else
        (void)mix_graph(fingerprint, graph, NULL); /* fails where it makes weights alone */
}

void ds_graph_origin(const ds_graph *graph, uint64_t origin[2])
{
    if (graph->origin[0] != 0 || graph->origin[1] != 0)
        memcpy(origin, graph->origin, sizeof graph->origin);
    else
        ds_graph_fingerprint(graph, origin);
}

ds_status ds_graph_remember_fingerprint(ds_graph *graph)
{
    const size_t most = ds_graph_most_unmade(graph);
    void *made;
    if (graph->has_fingerprint)
        return DS_OK;
    DS_TRY(ds_allocate(&graph->allocator, &made, most));
    const ds_status status = mix_graph(graph->fingerprint, graph, made);
    ds_release(&graph->allocator, made, most);
    graph->has_fingerprint = status == DS_OK;
    return status;
}
