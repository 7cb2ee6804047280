"""Programs that were compiled against version 1 of the C API run with this library, and will with later ones."""

import hashlib
import re
import subprocess
from pathlib import Path

import numpy as np
from c_library import LIBRARY, needs_library

HERE = Path(__file__).resolve().parent
CSRC = HERE.parent.parent / "csrc"
KEPT, TODAYS = HERE / "dreamstream_1.h", CSRC / "include" / "dreamstream.h"
PROGRAM = HERE / "program_1.c"
DIGESTS = {
    "dreamstream_1.h": "0a51a4442f433d33eda9b0ddbd8373f622aab6cd64658b2329fe9f2a313f081e",
    "program_1.c": "63753865b139aa63d96c6089cb8c4e35e18b16ff9b79be0dc1b5a0e97346c946",
    "program_1.txt": "806c1588739713506e2a18bbde214551a17088253108fc97e55137206d06eb5d",
}
STRUCT = re.compile(r"typedef struct (\w+) \{\n(.*?)\n\} \1;", re.S)
FIELD = re.compile(r"(\w+)(?:\[\d+\])?\s*(?=[,;])|\(\*(\w+)\)\(")


def test_nothing_kept_changed():
    for name, digest in DIGESTS.items():
        assert hashlib.sha256((HERE / name).read_bytes()).hexdigest() == digest


# ---------------------------------------------------------------------- structs
def structs(header):
    """Names of the public structs, with the names of their fields."""
    plain = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.S)
    out = {}
    for name, body in STRUCT.findall(plain):
        lines = [line for line in body.split(";") if line.strip()]
        fields = [m[1] or m[2] for line in lines for m in FIELD.finditer(re.sub(r"\)\(.*", ")(", line) + ";")]
        out[name] = fields
    return out


def layout(c_build, header, wanted, folder):
    """{struct: {"": its size, field: (offset, size)}} as the compiler has it."""
    folder.mkdir()
    (folder / "dreamstream.h").write_text(header.read_text())
    lines = []
    for name, fields in wanted.items():
        lines.append(f'printf("{name} - %zu 0\\n", sizeof({name}));')
        for f in fields:
            sizes = f"offsetof({name}, {f}), sizeof((({name} *)0)->{f})"
            lines.append(f'printf("{name} {f} %zu %zu\\n", {sizes});')
    source, program = folder / "layout.c", folder / "layout"
    source.write_text(
        '#include <stdio.h>\n#include "dreamstream.h"\nint main(void)\n{\n' + "\n".join(lines) + "\n}\n"
    )
    subprocess.run([*c_build.cc(), f"-I{folder}", str(source), "-o", str(program)], check=True)
    said = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout
    out = {}
    for line in said.splitlines():
        name, f, offset, size = line.split()
        out.setdefault(name, {})[f] = (int(offset), int(size))
    return out


def test_structs_only_grow_at_their_ends(c_build, tmp_path):
    kept, todays = structs(KEPT), structs(TODAYS)
    assert kept["ds_port_info"][-3:] == ["rate_num", "rate_den", "delay"] and len(kept) >= 9
    assert kept["ds_allocator"] == ["context", "allocate", "release"]
    old, new = layout(c_build, KEPT, kept, tmp_path / "kept"), layout(c_build, TODAYS, todays, tmp_path / "new")
    for name, fields in old.items():
        size = fields.pop("-")[0]
        for f, place in fields.items():
            assert new[name][f] == place, f"{name}.{f} has moved: programs must be compiled anew"
        if "struct_size" not in fields:
            assert new[name]["-"][0] == size, f"{name} has no struct_size, so it can't grow"
        for f in set(todays[name]) - set(fields):
            assert new[name][f][0] >= size, f"{name}.{f} lies in what was padding, where old callers have anything"


def test_sizes_of_version_1_are_what_the_library_takes(c_build, tmp_path):
    kept = structs(KEPT)
    sizes = {name: fields["-"][0] for name, fields in layout(c_build, KEPT, kept, tmp_path / "kept").items()}
    frozen = dict(re.findall(r"\bDS_(\w+)_1 = (\d+)", (CSRC / "api" / "object.h").read_text()))
    growing = [name for name, fields in kept.items() if "struct_size" in fields]
    found = {f"ds_{name.lower()}": int(n) for name, n in frozen.items()}
    assert {n: found[n] for n in growing} == {n: sizes[n] for n in growing}


# ---------------------------------------------------------------------- programs
def grown(header):
    """The text of a header whose structs that may grow have grown."""
    text, n = re.subn(
        r"(typedef struct (\w+) \{\n\s*size_t struct_size;.*?)\n\} \2;",
        r"\1\n    int64_t later[3];\n} \2;",
        header.read_text(),
        flags=re.S,
    )
    assert n >= 6
    return text


def run(program, tmp_path, status=0):
    """What the program says; what it writes is what it always wrote."""
    known = np.load(HERE / "version_1.npz")
    frames, out = tmp_path / "frames", tmp_path / "out"
    frames.write_bytes(known["x"].tobytes())
    command = [str(program), str(HERE / "version_1.dsm"), str(frames), str(out)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == status, done.stdout + done.stderr
    if status == 0:
        assert done.stdout == (HERE / "program_1.txt").read_text()
        assert out.read_bytes() == known["tags"].tobytes() + known["mean"].tobytes()
    return done.stdout


def build_shared(c_build, source, program, *flags):
    """Against the package's library, as it is installed."""
    link = [f"-L{LIBRARY.parent}", "-ldreamstream", f"-Wl,-rpath,{LIBRARY.parent}"]
    strict = ["-std=c11", "-O1", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    command = [*c_build.cc(), *strict, *flags, str(source), "-o", str(program), *link]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@needs_library
def test_an_old_program(c_build, tmp_path):
    build_shared(c_build, PROGRAM, tmp_path / "program")
    run(tmp_path / "program", tmp_path)


@needs_library
def test_a_newer_program(c_build, tmp_path):
    """Its structs are larger than this library's: taken where what it has beyond is zero, else refused."""
    (tmp_path / "dreamstream_1.h").write_text(grown(KEPT))
    source, program = tmp_path / "program_1.c", tmp_path / "program"
    source.write_text(PROGRAM.read_text())
    for padding, status in (0, 0), (1, 1):
        build_shared(c_build, source, program, f"-DPADDING={padding}", "-Wno-missing-field-initializers")
        said = run(program, tmp_path, status)
        assert status == 0 or "DS_ARGUMENT: ds_model_options: byte 48 is set" in said


def test_a_later_library(c_build, tmp_path):
    """Today's with larger structs, under the sanitizers: options of version 1 end where their memory ends."""
    (tmp_path / "dreamstream.h").write_text(grown(TODAYS))
    built = c_build.build("asan", [PROGRAM])
    assert not built.errors, built.errors
    run(built.programs["program_1"], tmp_path)
    cbuild, folder = c_build.cbuild, c_build.BUILD / "later"
    flags = cbuild.flags(openblas=False, sanitize="address,undefined", werror=False)  # fields without initializers
    api = cbuild.compile_all(c_build.cc(), sorted((CSRC / "api").glob("*.c")), folder, [f"-I{tmp_path}", *flags])
    (main,) = cbuild.compile_all(c_build.cc(), [PROGRAM], folder, flags)
    archive = c_build.engine("asan").archive
    program = tmp_path / "program"
    after = ["-lm", "-pthread", *cbuild.sanitizer_flags("address,undefined")]
    subprocess.run([*c_build.cc(), "-o", program, main, *api, archive, *after], check=True)
    run(program, tmp_path)
