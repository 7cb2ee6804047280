"""A stream from Python's ctypes, without dreamstream's own package: what any foreign-function interface does.

    python from_ctypes.py LIBDREAMSTREAM.so MODEL.dsm < frames_in > frames_out

For models with one input and one output.
"""

import ctypes as c
import sys


class Input(c.Structure):
    _fields_ = [("data", c.c_char_p), ("n_frames", c.c_size_t), ("dtype", c.c_int32)]


class Output(c.Structure):
    _fields_ = [("data", c.c_void_p), ("n_frames", c.c_size_t), ("start", c.c_int64)]


class Port(c.Structure):
    _fields_ = [
        ("struct_size", c.c_size_t), ("name", c.c_char_p), ("dtype", c.c_int), ("rank", c.c_uint32),
        ("shape", c.POINTER(c.c_int64)), ("frame_bytes", c.c_size_t),
        ("rate_num", c.c_int64), ("rate_den", c.c_int64), ("delay", c.c_int64),
    ]  # fmt: skip


def main(library: str, path: str) -> None:
    ds = c.CDLL(library)
    ds.ds_last_error.restype = c.c_char_p

    def call(name: str, *arguments: object) -> None:
        if getattr(ds, name)(*arguments) != 0:
            raise RuntimeError(ds.ds_last_error().decode())

    model, stream = c.c_void_p(), c.c_void_p()
    call("ds_model_load", c.byref(model), path.encode(), None)
    call("ds_stream_open", c.byref(stream), model)
    taken, given = Port(struct_size=c.sizeof(Port)), Port(struct_size=c.sizeof(Port))
    call("ds_model_input", model, c.c_size_t(0), c.byref(taken))
    call("ds_model_output", model, c.c_size_t(0), c.byref(given))

    out, end = Output(), False
    while not end:
        chunk = sys.stdin.buffer.read(100 * taken.frame_bytes)
        n_frames = len(chunk) // taken.frame_bytes
        end = n_frames < 100
        call("ds_stream_step", stream, c.byref(out), c.byref(Input(chunk, n_frames, 0)), c.c_uint32(2 * end))
        sys.stdout.buffer.write(c.string_at(out.data, out.n_frames * given.frame_bytes))
    call("ds_stream_close", stream)
    call("ds_model_close", model)


if __name__ == "__main__":
    main(*sys.argv[1:])
