/*
 * Writing a container again, without its fillers: for round trips. Include it in one file per program.
 */
#pragma once

#include <stdlib.h>

#include "codec/safetensors.h"

/* Writes what `file` holds to `sink`; what the writer returns. */
static ds_status copy_container(const ds_sink *sink, const ds_safetensors *file)
{
    const size_t n = ds_safetensors_count(file);
    ds_json_value metadata = {0}, key = {0}, value = {0};
    const size_t n_texts = ds_safetensors_metadata(&metadata, file) ? ds_json_count(metadata) : 0;
    ds_tensor_source *sources = calloc(n + 1, sizeof *sources);
    ds_metadata_source *texts = calloc(n_texts + 1, sizeof *texts);
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        const ds_tensor_view *view = ds_safetensors_at(file, i);
        if (!ds_tensor_is_filler(view)) {
            sources[used++] = (ds_tensor_source){.name = view->name,
                                                 .type = view->type,
                                                 .rank = view->rank,
                                                 .shape = view->shape,
                                                 .data = view->data};
        }
    }
    ds_status status = DS_OK;
    if (n_texts > 0) {
        ds_json_cursor at = {0};
        status = ds_json_enter(&at, metadata, DS_JSON_OBJECT);
        for (size_t i = 0; i < n_texts && status == DS_OK && ds_json_next_member(&at, &key, &value);
             i++) {
            status = ds_json_string(&texts[i].key, NULL, key);
            if (status == DS_OK)
                status = ds_json_string(&texts[i].text, &texts[i].n_bytes, value);
        }
    }
    if (status == DS_OK)
        status = ds_safetensors_write(sink, NULL, sources, used, texts, n_texts);
    free(sources);
    free(texts);
    return status;
}
