/* base/log and base/cell: the callback, and settings that change while threads read them. */
#include <pthread.h>
#include <string.h>

#include "base/cell.h"
#include "base/log.h"
#include "main.h"

typedef struct seen {
    int n_messages;
    int level;
    char message[DS_MESSAGE_BYTES];
} seen;

static void remember(void *context, int level, const char *message)
{
    seen *to = context;
    to->n_messages++;
    to->level = level;
    snprintf(to->message, sizeof to->message, "%s", message);
}

TEST(log)
{
    seen first = {0, 0, ""}, second = {0, 0, ""};
    ds_log(DS_LOG_INFO, "nobody hears");
    CHECK(ds_set_log(remember, &first) == DS_OK);
    ds_log(DS_LOG_WARNING, "threads: %d", 3);
    CHECK(first.n_messages == 1 && first.level == DS_LOG_WARNING);
    CHECK(strcmp(first.message, "threads: 3") == 0);
    CHECK(ds_set_log(remember, &second) == DS_OK);
    char text[2 * DS_MESSAGE_BYTES];
    memset(text, 'a', sizeof text);
    text[sizeof text - 1] = '\0';
    ds_log(DS_LOG_DEBUG, "%s", text);
    CHECK(first.n_messages == 1 && second.n_messages == 1);
    CHECK(strlen(second.message) == DS_MESSAGE_BYTES - 1);
    CHECK(ds_set_log(NULL, NULL) == DS_OK);
    ds_log(DS_LOG_WARNING, "nobody hears");
    CHECK(second.n_messages == 1);
}

enum { N_WRITERS = 2, N_READERS = 2, N_READS = 100000 };

static ds_cell shared;
static atomic_int n_reading;

/* writes triples (v, 3v, 7v), which a reader must never see mixed, until all have read enough */
static void *write_cell(void *unused)
{
    (void)unused;
    for (uintptr_t v = 1; atomic_load(&n_reading) > 0; v++) {
        const uintptr_t words[DS_CELL_WORDS] = {v, 3 * v, 7 * v};
        ds_cell_write(&shared, words);
    }
    return NULL;
}

static void *read_cell(void *unused)
{
    (void)unused;
    for (int i = 0; i < N_READS; i++) {
        uintptr_t words[DS_CELL_WORDS];
        ds_cell_read(&shared, words);
        CHECK(words[1] == 3 * words[0] && words[2] == 7 * words[0]);
    }
    atomic_fetch_sub(&n_reading, 1);
    return NULL;
}

TEST(cell)
{
    pthread_t threads[N_WRITERS + N_READERS];
    atomic_store(&n_reading, N_READERS);
    for (int i = 0; i < N_WRITERS + N_READERS; i++)
        CHECK(pthread_create(&threads[i], NULL, i < N_WRITERS ? write_cell : read_cell, NULL) == 0);
    for (int i = 0; i < N_WRITERS + N_READERS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    const uintptr_t last[DS_CELL_WORDS] = {1, 2, 3};
    uintptr_t words[DS_CELL_WORDS];
    ds_cell_write(&shared, last);
    ds_cell_read(&shared, words);
    CHECK(memcmp(words, last, sizeof words) == 0);
}
