/* exec/run, exec/rows: kept frames stay in their rooms, whatever calls bring; how many are copied; and
 * exec/positions: integers that are looked up equal those that are evaluated. */
#include "exec/rows.h"
#include "exec_driver.h"
#include "main.h"

/* ---------------------------------------------------------------- rooms */

/* Long looks back, short ones, and both of one edge. */
static graph_case long_memories(void)
{
    graph_case c = new_case();
    const int x = add_input(&c, 3, 1, 1);
    const int y = add_conv(&c, x, 4, 31, 1);
    const int z = add_padded_conv(&c, add_unary(&c, "tanh", y), 4, 9, 1, 5, 40, 0, "zeros");
    add_output(&c, add_combined(&c, "add", y, z)); /* y is held back for nobody, and read twice */
    add_output(&c, add_conv(&c, add_conv(&c, x, 2, 3, 2), 5, 17, 3));
    add_output(&c, x);
    return c;
}

/* Calls of one frame, of some, and of more than any room holds, of streams that stand anywhere. */
TEST(mixed_calls)
{
    const int64_t sizes[] = {0, 1, 1, 1, 2, 5, 11, 60, 150};
    graph_case c = long_memories();
    runner r = make_runner(&c, best_kernels(), 0, 2, 0);
    size_t n_marked = 0;
    for (size_t e = 0; e < r.plan->graph->n_edges; e++) {
        const ds_edge_plan *edge = &r.plan->edges[e];
        CHECK(edge->capacity <= edge->room &&
              (edge->mark >= 0) == (edge->room > edge->capacity && edge->capacity > 0));
        n_marked += edge->mark >= 0;
    }
    CHECK(n_marked >= 2 && n_marked == r.plan->n_marked);
    CHECK(r.plan->block_bytes * 10 <= r.plan->kept_bytes * 13);
    fed streams[MAX_FED], *rows[MAX_FED];
    for (size_t k = 0; k < MAX_FED; k++)
        streams[k] = open_fed(&r, 400 + random_below(200));
    for (int step = 0; step < 120; step++) {
        int64_t n_frames[MAX_FED];
        bool ended[MAX_FED] = {false}, bad[MAX_FED];
        size_t n_rows = 0;
        const int64_t common = sizes[random_below(9)];
        for (size_t k = 0; k < MAX_FED; k++) {
            const int64_t left = streams[k].length - streams[k].at[0];
            int64_t n = random_below(2) == 0 ? common : sizes[random_below(9)];
            n = n < left ? n : left;
            if (streams[k].ended || random_below(5) == 0)
                continue;
            ended[n_rows] = n == left;
            n_frames[n_rows] = n;
            rows[n_rows++] = &streams[k];
        }
        if (step % 7 == 3 && n_rows > 0) { /* given up when the inputs stand there already */
            ds_slot *slots[MAX_FED];
            char *state;
            const size_t n_state = copy_state(&r, rows[0]->slot, &state);
            for (size_t k = 0; k < n_rows; k++)
                slots[k] = rows[k]->slot;
            CHECK(begin_rows(r.batch, slots, n_frames, ended, bad, n_rows) == DS_OK);
            for (size_t k = 0; k < n_rows; k++)
                memset(ds_step_room(r.batch, 0, k), 0xFF, (size_t)n_frames[k] * 12);
            check_state(&r, rows[0]->slot, state, n_state);
            free(state);
        }
        CHECK(call(&r, rows, n_frames, ended, bad, n_rows) == DS_OK);
        if (step % 10 == 9) { /* moved to another slot */
            fed *s = rows[0];
            ds_slot *other;
            CHECK(ds_session_open(r.session, &other, 0) == DS_OK);
            if (step % 20 == 9) {
                CHECK(ds_slot_copy(r.plan, other, s->slot) == DS_OK);
            } else {
                char *state;
                const size_t n_state = copy_state(&r, s->slot, &state);
                CHECK(ds_slot_restore(r.plan, other, state, n_state) == DS_OK);
                free(state);
            }
            ds_session_close(r.session, s->slot);
            s->slot = other;
        }
    }
    for (size_t k = 0; k < MAX_FED; k++) {
        fed *row = &streams[k];
        const int64_t left = row->length - row->at[0];
        const bool ended = true;
        bool bad;
        if (!row->ended)
            CHECK(call(&r, &row, &left, &ended, &bad, 1) == DS_OK);
        compare_fed(&r, row);
        free_fed(&r, row);
    }
    close_runner(&r);
}

/* Frames that are copied per new frame of an edge that keeps `kept`, calls bringing n frames each. */
static double copied_frames(int64_t kernel, int64_t n)
{
    graph_case c = new_case();
    const int x = add_input(&c, 8, 1, 1);
    add_output(&c, add_conv(&c, x, 1, kernel, 1));
    runner r = make_runner(&c, best_kernels(), 0, 1, 0);
    fed s = open_fed(&r, 1200 * n), *row = &s;
    const bool ended = false;
    bool bad;
    size_t moved = 0;
    for (int step = 0; step < 1000; step++) {
        CHECK(call(&r, &row, &n, &ended, &bad, 1) == DS_OK);
        moved += r.batch->groups[0].n_moved;
    }
    free_fed(&r, &s);
    close_runner(&r);
    return (double)moved / (8 * sizeof(float)) / (1000.0 * (double)n);
}

TEST(copies)
{
    CHECK(copied_frames(1, 1) == 0);
    CHECK(copied_frames(31, 1) <= 4);
    CHECK(copied_frames(201, 1) <= 4);
    CHECK(copied_frames(201, 10) <= 4);
    CHECK(copied_frames(31, 100) <=
          0.6); /* more than the room holds: in and out, as little as that is */
}

/* ---------------------------------------------------------------- positions */

static void check_position(const runner *r, ds_positions *table, const int64_t *frames, bool ended)
{
    const ds_graph *g = r->plan->graph;
    ds_pair *pairs = fresh_memory(g->n_edges * sizeof *pairs);
    int64_t *first = fresh_memory(g->n_edges * sizeof *first);
    memset(pairs, 0, g->n_edges * sizeof *pairs);
    for (size_t i = 0; i < g->n_inputs; i++)
        pairs[g->inputs[i]] = (ds_pair){frames[i], frames[i]};
    ds_graph_counts(g, ended, pairs);
    ds_graph_needs(g, pairs, first);
    ds_place at;
    CHECK(ds_positions_find(table, frames, ended, &at) == DS_OK);
    for (size_t e = 0; e < g->n_edges; e++) {
        const int64_t from = ended || first[e] > pairs[e].known ? pairs[e].known : first[e];
        CHECK(ds_known_at(r->plan, &at, e) == pairs[e].known);
        CHECK(ds_pair_at(r->plan, &at, e).total == pairs[e].total);
        CHECK(ds_kept_from(r->plan, &at, e) == from);
    }
    free(pairs);
    free(first);
}

TEST(positions)
{
    for (int trial = 0; trial < SOME_OF(300); trial++) {
        graph_case c = random_case(9, trial % 3 == 0);
        const int64_t skew = c.graph->n_inputs > 1 ? random_below(3) : 0;
        runner r = make_runner(&c, best_kernels(), skew, 1, 0);
        ds_positions table;
        ds_positions_init(&table, r.plan);
        for (int round = 0; round < 8; round++) {
            CHECK(ds_positions_begin(&table, 16) == DS_OK);
            const int64_t base =
                round < 3 ? random_below(60) : random_below((int64_t)1 << (8 + 6 * round));
            for (int k = 0; k < 32; k++) {
                int64_t frames[MAX_GRAPH_INPUTS];
                for (size_t i = 0; i < c.graph->n_inputs; i++) {
                    const int64_t all = base + random_below(30);
                    const int64_t *tick = r.plan->clock.tick;
                    frames[i] = i == 0 ? all : frames[0] * tick[0] / tick[i] + random_below(2);
                }
                if (ds_clock_together(&r.plan->clock, frames))
                    check_position(&r, &table, frames, random_below(4) == 0);
            }
        }
        ds_positions_free(&table);
        close_runner(&r);
        CHECK(ds_fault_live_blocks(&fault) == 0);
    }
}

/* A full table is emptied to its last slot. */
TEST(full_table)
{
    graph_case c = long_memories();
    runner r = make_runner(&c, best_kernels(), 0, 1, 0);
    ds_positions table;
    ds_positions_init(&table, r.plan);
    CHECK(ds_positions_begin(&table, 1) == DS_OK);
    memset(table.slots, 1, table.n_slots * sizeof *table.slots);
    table.n = table.room;
    CHECK(ds_positions_begin(&table, 1) == DS_OK && table.n == 0);
    for (size_t i = 0; i < table.n_slots; i++)
        CHECK(table.slots[i] == 0);
    ds_positions_free(&table);
    close_runner(&r);
}
