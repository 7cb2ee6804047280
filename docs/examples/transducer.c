/* What a transducer hears: PREDICTOR.dsm JOINER.dsm TOKENS.txt, frames of its encoder (float32) on standard input.
 *
 *     cc -std=c11 transducer.c $(python -m dreamstream.config --cflags --libs) -o transducer
 */
#include <dreamstream.h>
#include <stdio.h>
#include <stdlib.h>

#define TRY(call)                                                       \
    do {                                                                \
        if ((call) != DS_OK) {                                          \
            (void)fprintf(stderr, "transducer: %s\n", ds_last_error()); \
            return 1;                                                   \
        }                                                               \
    } while (0)

enum { CHUNK = 10 }; /* frames */

int main(int argc, char **argv)
{
    if (argc != 4) {
        (void)fprintf(stderr, "usage: transducer PREDICTOR.dsm JOINER.dsm TOKENS.txt < FRAMES\n");
        return 2;
    }
    ds_decoder_options options = DS_DECODER_OPTIONS_INIT;
    options.tokens.path = argv[3];
    options.beam_size = 4;
    options.max_symbols = 3;
    TRY(ds_model_load(&options.predictor, argv[1], NULL));
    TRY(ds_model_load(&options.joiner, argv[2], NULL));
    ds_port_info encoded = {.struct_size = sizeof encoded};
    TRY(ds_model_input(options.joiner, 0, &encoded));

    ds_decoder *decoder = NULL;
    ds_decoding *stream = NULL;
    TRY(ds_decoder_create(&decoder, &options));
    TRY(ds_decoding_open(&stream, decoder));
    float *frames = malloc(CHUNK * encoded.frame_bytes);
    for (size_t n = CHUNK; frames && n == CHUNK;) {
        n = fread(frames, encoded.frame_bytes, CHUNK, stdin);
        const ds_input chunk = {frames, n, DS_F32};
        const uint32_t flags = n < CHUNK ? DS_END : 0;
        TRY(ds_decoder_step(decoder, &stream, &chunk, &flags, 1));
    }
    free(frames);

    ds_hypothesis best = {.struct_size = sizeof best};
    TRY(ds_decoding_read(stream, &best, 0));
    for (size_t i = 0; i < best.n_tokens; i++) {
        const char *text = NULL;
        size_t n_bytes = 0;
        TRY(ds_decoder_token(decoder, best.tokens[i].token, &text, &n_bytes));
        (void)printf("%.*s ", (int)n_bytes, text);
    }
    (void)printf("%.6f\n", best.score);
    TRY(ds_decoder_close(decoder)); /* and its streams; then what it kept */
    TRY(ds_model_close(options.predictor));
    TRY(ds_model_close(options.joiner));
    return 0;
}
