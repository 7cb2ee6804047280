package dreamstream;

import java.util.List;

/**
 * An input or output of a model.
 *
 * @param name the argument of forward, or the place in what it returns
 * @param dtype of its elements
 * @param shape sizes of the axes of one frame; empty where a frame is a number
 * @param rateNum frames per unit of time, {@code rateNum / rateDen}. 0: one frame, at the end for an output, with the
 *     start of a stream for an input (any number of frames where {@code rateDen} is 0, too)
 * @param rateDen see {@code rateNum}
 * @param delay frames of the first input by which it may be behind; -1: it waits for the end
 */
public record Port(String name, DType dtype, List<Long> shape, long rateNum, long rateDen, long delay) {
    /** Returns a tensor of this port's frames, with room for {@code frames} of them. */
    public Tensor tensor(int frames) {
        return Tensor.allocate(dtype, frames, shape.stream().mapToLong(Long::longValue).toArray());
    }
}
