/*
 * Reads a file and writes what it holds again, for comparison with other readers and writers:
 *
 *     container_tool json|safetensors IN OUT
 *
 * Ends with 1 and the message on standard output if the file is refused.
 */
#include <stdio.h>
#include <string.h>

#include "buffer_sink.h"
#include "codec/mapped.h"
#include "container_copy.h"
#include "json_copy.h"

static ds_status convert_json(ds_buffer *out, const ds_mapped *in)
{
    ds_json *json = NULL;
    DS_TRY(ds_json_parse(&json, NULL, ds_mapped_bytes(in), ds_mapped_size(in), 0));
    const ds_status status = json_to_text(out, json);
    ds_json_free(json);
    return status;
}

static ds_status convert_safetensors(ds_buffer *out, const ds_mapped *in)
{
    ds_safetensors *file = NULL;
    DS_TRY(ds_safetensors_open(&file, NULL, ds_mapped_bytes(in), ds_mapped_size(in)));
    const ds_sink sink = buffer_sink(out);
    const ds_status status = copy_container(&sink, file);
    ds_safetensors_close(file);
    return status;
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    ds_mapped *in = NULL;
    ds_buffer out;
    ds_buffer_init(&out, NULL);
    ds_status status = ds_mapped_open(&in, NULL, argv[2]);
    if (status == DS_OK) {
        const bool json = strcmp(argv[1], "json") == 0;
        status = json ? convert_json(&out, in) : convert_safetensors(&out, in);
    }
    if (status != DS_OK) {
        printf("%s", ds_last_error());
    } else {
        FILE *file = fopen(argv[3], "wb");
        if (file == NULL || fwrite(out.bytes, 1, out.n_bytes, file) != out.n_bytes ||
            fclose(file) != 0) {
            return 2;
        }
    }
    ds_mapped_release(in);
    ds_buffer_free(&out);
    return status == DS_OK ? 0 : 1;
}
