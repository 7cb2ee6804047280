// pipe.cpp - from C++: float32 frames from standard input to standard output.
//
//     c++ -std=c++17 pipe.cpp -o pipe $(python -m dreamstream.config --cflags --libs)
//     ./pipe MODEL.dsm < frames_in > frames_out
//
// The model has one input and one output. Objects close themselves, failures are exceptions.
#include <dreamstream.h>

#include <cstdio>
#include <memory>
#include <stdexcept>
#include <vector>

// Throws where a call failed.
static void check(ds_status status)
{
    if (status != DS_OK) {
        throw std::runtime_error(ds_last_error());
    }
}

struct closer {
    void operator()(ds_model *model) const { ds_model_close(model); }
    void operator()(ds_stream *stream) const { ds_stream_close(stream); }
};
using model_ptr = std::unique_ptr<ds_model, closer>;
using stream_ptr = std::unique_ptr<ds_stream, closer>; // declared after its model: closed before it

static model_ptr load(const char *path)
{
    ds_model *model = nullptr;
    check(ds_model_load(&model, path, nullptr));
    return model_ptr(model);
}

static stream_ptr open(const model_ptr &model)
{
    ds_stream *stream = nullptr;
    check(ds_stream_open(&stream, model.get()));
    return stream_ptr(stream);
}

static void run(const char *path)
{
    const model_ptr model = load(path);
    ds_model_info info{};
    ds_port_info in{}, out{};
    info.struct_size = sizeof info;
    in.struct_size = out.struct_size = sizeof in;
    check(ds_model_query(model.get(), &info));
    check(ds_model_input(model.get(), 0, &in));
    check(ds_model_output(model.get(), 0, &out));
    if (info.n_inputs != 1 || info.n_outputs != 1) {
        throw std::runtime_error("expected a model with one input and one output");
    }

    const stream_ptr stream = open(model);
    std::vector<char> chunk(100 * in.frame_bytes);
    for (bool last = false; !last;) {
        const std::size_t n = std::fread(chunk.data(), in.frame_bytes, 100, stdin);
        last = n < 100;
        if (std::ferror(stdin)) {
            throw std::runtime_error("standard input can't be read");
        }
        const ds_input given{chunk.data(), n, 0};
        ds_output got;
        check(ds_stream_step(stream.get(), &got, &given, last ? DS_END : 0));
        if (std::fwrite(got.data, out.frame_bytes, got.n_frames, stdout) != got.n_frames) {
            throw std::runtime_error("standard output takes no more");
        }
    }
}

int main(int argc, char **argv)
{
    try {
        if (argc != 2) {
            throw std::runtime_error("usage: pipe MODEL.dsm < frames_in > frames_out");
        }
        run(argv[1]);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "pipe: %s\n", error.what());
        return 1;
    }
    return std::fflush(stdout) == 0 ? 0 : 1;
}
