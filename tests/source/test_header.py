"""The public header: every compiler takes it, C++ programs too, and it says what callers need to know."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import header
import pytest

STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Wundef", "-Werror"]
STANDARDS = ["c99", "c11", "c17", "c++11", "c++17"]
COMPILERS = {"gcc": ("gcc", "g++"), "clang": ("clang", "clang++")}
TEXT = header.HEADER.read_text()

USES_ALL = """
#include <dreamstream.h>
#include <dreamstream.h>

ds_status run(const char *path);
ds_status run(const char *path)
{
    ds_model_options options = DS_MODEL_OPTIONS_INIT;
    ds_model *model = NULL;
    ds_stream *stream = NULL;
    ds_output out;
    ds_input in = {NULL, 0, 0};
    options.threads = 2;
    DS_TRY(ds_model_load(&model, path, &options));
    DS_TRY(ds_stream_open(&stream, model));
    DS_TRY(ds_stream_step(stream, &out, &in, DS_START | DS_END));
    DS_TRY(ds_stream_close(stream));
    return ds_model_close(model);
}
"""

PROGRAM = """
#include <dreamstream.h>
#include <cstdio>
#include <cstring>
#include <vector>

static_assert(DS_OK == 0 && DS_INDEX == 15, "pinned");

struct Model {
    ds_model *handle = nullptr;
    ~Model() { if (handle) ds_model_close(handle); }
};

static int take(void *context, const void *bytes, size_t n)
{
    auto *all = static_cast<std::vector<char> *>(context);
    const char *p = static_cast<const char *>(bytes);
    all->insert(all->end(), p, p + n);
    return 0;
}

int main(int argc, char **argv)
{
    Model model;
    if (ds_abi_version() != DS_ABI_VERSION || std::strcmp(ds_version(), DS_VERSION_STRING) != 0) return 2;
    if (argc < 2) {
        if (ds_model_load(&model.handle, "/no/such.dsm", nullptr) != DS_FORMAT) return 3;
        std::puts(ds_last_error());
        return 0;
    }
    ds_model_options options = DS_MODEL_OPTIONS_INIT;
    options.backend = "ref";
    if (ds_model_load(&model.handle, argv[1], &options) != DS_OK) { std::puts(ds_last_error()); return 4; }
    ds_stream *stream = nullptr;
    if (ds_stream_open(&stream, model.handle) != DS_OK) return 5;
    std::vector<ds_output> out(8);
    if (ds_stream_finish(stream, out.data()) != DS_OK) return 6;
    std::vector<char> bytes;
    if (ds_model_save(model.handle, take, &bytes) != DS_OK) return 7;
    std::printf("%zu bytes\\n", bytes.size());
    return 0;
}
"""


def compiler(family: str, standard: str) -> str:
    name = COMPILERS[family][standard.startswith("c++")]
    if shutil.which(name) is None:
        pytest.skip(f"no {name}")
    return name


@pytest.mark.parametrize("standard", STANDARDS)
@pytest.mark.parametrize("family", COMPILERS)
def test_compiles_without_a_warning(family, standard, tmp_path):
    source = tmp_path / ("a.cpp" if "++" in standard else "a.c")
    source.write_text(USES_ALL)
    command = [compiler(family, standard), f"-std={standard}", *STRICT, f"-I{header.HEADER.parent}", "-c"]
    if "++" not in standard:
        command.append("-Wstrict-prototypes")
    done = subprocess.run([*command, str(source), "-o", str(tmp_path / "a.o")], text=True, capture_output=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def package(c_build) -> Path:
    """The built package, which holds the header and the shared library."""
    core = c_build.extension()
    if core is None:
        pytest.skip("dreamstream is not built")
    dynamic = subprocess.run(["nm", "-D", str(core)], text=True, capture_output=True, check=True).stdout
    if "__asan_" in dynamic or "__tsan_" in dynamic:
        pytest.skip("dreamstream is built with sanitizers")
    return core.parent


def test_cpp_program_runs(package, tmp_path):
    source, program = tmp_path / "a.cpp", tmp_path / "a"
    source.write_text(PROGRAM)
    library = package / "lib"
    command = [compiler("gcc", "c++11"), "-std=c++11", *STRICT, f"-I{package / 'include'}", str(source)]
    command += [f"-L{library}", "-ldreamstream", f"-Wl,-rpath,{library}", "-o", str(program)]
    subprocess.run(command, check=True)
    done = subprocess.run([str(program)], text=True, capture_output=True)
    assert done.returncode == 0
    assert "/no/such.dsm" in done.stdout
    for model in sorted((header.ROOT / "tests" / "golden").glob("*.dsm")):
        environment = {**os.environ, "DREAMSTREAM_THREADS": "1"}
        done = subprocess.run([str(program), str(model)], text=True, capture_output=True, env=environment)
        n_bytes = model.stat().st_size + 64  # the fingerprint, which files did not always have
        assert (done.returncode, done.stdout) == (0, f"{n_bytes} bytes\n")


def test_library_exports_the_header_and_nothing_else(package):
    library = package / "lib" / "libdreamstream.so"
    command = ["nm", "-D", "--defined-only", "--format=posix", str(library)]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    assert all(line.startswith("DREAMSTREAM_1 ") or "@@DREAMSTREAM_1 " in line for line in lines)
    names = {line.split()[0].split("@")[0] for line in lines if "@" in line}
    assert names == {function.name for function in header.functions(TEXT)}


def test_installed_header_is_the_header(package):
    assert (package / "include" / "dreamstream.h").read_text() == TEXT


# ---------------------------------------------------------------- what the comments say


def test_every_function_is_found():
    found = [function.name for function in header.functions(TEXT)]
    declared = re.findall(r"\b(ds_\w+)\(", TEXT.split("#define DREAMSTREAM_H")[1])
    assert len(found) == TEXT.count("\nDS_API ") == len(set(found))
    assert set(found) <= set(declared)


def test_functions_say_what_callers_need():
    missing = [line for function in header.functions(TEXT) for line in header.unsaid(function)]
    assert not missing, "\n".join(missing)


def test_planted_silence_is_found():
    sound = """/* Opens a stream and fills `*stream` (returns owned). Errors: DS_CLOSED. Thread: any. */
DS_API ds_status ds_stream_open(ds_stream **stream, ds_model *model);
"""
    assert [header.unsaid(f) for f in header.functions(sound)] == [[]]
    for word in ["Thread: any.", "Errors: DS_CLOSED.", "(returns owned)"]:
        (function,) = header.functions(sound.replace(word, ""))
        assert len(header.unsaid(function)) == 1
    (function,) = header.functions("/* A name. Cannot fail. Thread: any. */\nDS_API const char *ds_name(int i);")
    assert len(header.unsaid(function)) == 1
    (function,) = header.functions("DS_API ds_status ds_count(size_t *n);")
    assert function.comment == "" and len(header.unsaid(function)) == 4


@pytest.mark.parametrize("name", ["ds_status", "ds_dtype", "ds_log_level"])
def test_numbers_of_enums_are_written_out(name):
    """So that a line between two others can't renumber what follows."""
    body = re.search(rf"typedef enum {name} \{{(.*?)\}} {name};", TEXT, re.DOTALL)[1]
    entries = [line.strip() for line in re.sub(r"/\*.*?\*/", "", body, flags=re.DOTALL).split(",")]
    assert all(re.fullmatch(r"DS_\w+ = \d+", entry) for entry in entries if entry), entries
