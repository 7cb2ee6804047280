package dreamstream;

/**
 * What holds for a model as a whole: {@code ds_model_info} of the C API, where each number is explained.
 *
 * @param bitwise whether answers depend on neither batch nor chunks, to the bit
 * @param delay frames of the first input by which the slowest output may be behind; -1: something waits for the end
 * @param receptiveField frames on which one output frame may depend; -1: infinite
 * @param stateSize bytes that one stream remembers
 * @param openStreams streams that are open now
 */
public record ModelInfo(
        String name,
        String backend,
        boolean bitwise,
        int threads,
        long delay,
        long receptiveField,
        long stateSize,
        double stateBytesPerFrame,
        long layers,
        long weightsSize,
        long preparedSize,
        long maxStreams,
        long openStreams,
        long keptBytes) {}
