/* Checksums at the speed of memory: words go by turns to chains, which don't wait for each other. */
#include "base/checksum.h"

#include <string.h>

enum { WORD = sizeof(uint64_t), CHAINS = 8 };

/* Can be undone for each word, so that a change of one word is always seen. */
static uint64_t mixed(uint64_t sum, const unsigned char *data, size_t n_bytes)
{
    uint64_t word = 0;
    memcpy(&word, data, n_bytes);
    sum = (sum ^ word) * 0x9E3779B97F4A7C15u;
    return sum ^ sum >> 32;
}

uint64_t ds_checksum(const void *bytes, size_t n_bytes)
{
    const unsigned char *data = bytes;
    uint64_t chains[CHAINS], sum = n_bytes;
    for (int k = 0; k < CHAINS; k++)
        chains[k] = (uint64_t)k;
    size_t i = 0;
    for (; n_bytes - i >= CHAINS * WORD; i += CHAINS * WORD)
        for (int k = 0; k < CHAINS; k++)
            chains[k] = mixed(chains[k], data + i + k * WORD, WORD);
    for (int k = 0; k < CHAINS; k++)
        sum = mixed(sum, (const unsigned char *)&chains[k], WORD);
    for (; i < n_bytes; i += WORD)
        sum = mixed(sum, data + i, n_bytes - i < WORD ? n_bytes - i : WORD);
    return sum;
}
