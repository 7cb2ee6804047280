"""Checks on the built extension: what it exports, imports and keeps in writable memory."""

import re
import subprocess
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

ALLOWED = Path(__file__).parent / "writable_globals.txt"
LINKERS = {"_init", "_fini", "_edata", "_end", "__bss_start"}
STARTUP = {"completed", "__dso_handle", "__TMC_END__", "__data_start", "data_start", *LINKERS}
ENDS_OR_PRINTS = {
    "abort", "exit", "_exit", "quick_exit", "__assert_fail", "printf", "puts", "putchar", "perror", "stdout",
    "stderr", "fprintf", "vfprintf", "vprintf", "fputs", "fputc", "__printf_chk", "__fprintf_chk",
    "__vfprintf_chk", "Py_FatalError", "_Py_FatalErrorFunc", "Py_Exit",
}  # fmt: skip


def tool(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def foreign_exports(library: Path) -> list[str]:
    lines = tool("nm", "-D", "--defined-only", "--format=posix", str(library)).splitlines()
    names = {line.split()[0].split("@")[0] for line in lines if line.split()[1] != "A"}  # of a version
    return sorted(n for n in names - LINKERS if n != "PyInit__core" and not n.startswith("ds_"))


def forbidden_imports(library: Path) -> list[str]:
    lines = tool("nm", "-D", "--undefined-only", "--format=posix", str(library)).splitlines()
    return sorted({line.split()[0].split("@")[0] for line in lines} & ENDS_OR_PRINTS)


def allowed_globals(text: str, library: str) -> list[str]:
    """The patterns of the allow-list; libdreamstream has no room python."""
    lines = [line.split(maxsplit=2) for line in text.splitlines() if line and not line.startswith("#")]
    for line in lines:
        assert len(line) == 3, f"{line[0]} has no reason"
    return [line[0] for line in lines if line[1] != "python" or library.startswith("_core")]


def writable_globals(library: Path) -> list[str]:
    """Objects in .data, .bss and their thread-local kin; .data.rel.ro is read-only once loaded."""
    found = set()
    for line in tool("objdump", "--syms", str(library)).splitlines():
        match = re.match(r"[0-9a-f]+ (.{7}) (\.t?(?:data|bss)(?:\.(?!rel\.ro)\S*)?)\t[0-9a-f]+ +(.*)", line)
        if match and "d" not in match[1]:
            name = match[3].removeprefix(".hidden ")
            found.add(re.sub(r"\.\d+$", "", name))
    return sorted(found - STARTUP)


@pytest.fixture(scope="module")
def core(c_build):
    library = c_build.extension()
    if library is None:
        pytest.skip("dreamstream._core is not built")
    if "__asan_" in (symbols := tool("nm", "-D", str(library))) or "__tsan_" in symbols:
        pytest.skip("dreamstream._core is built with sanitizers")
    return library


@pytest.fixture(scope="module", params=["_core", "libdreamstream"])
def library(request, core):
    return core if request.param == "_core" else core.parent / "lib" / "libdreamstream.so"


def test_exports(library):
    assert not foreign_exports(library)


def test_no_debug_information_but_the_names_of_functions(library):
    """A profile of an installed package can be read."""
    assert not re.findall(r"\.debug\w+", tool("objdump", "--section-headers", str(library)))
    names = {line.split()[-1] for line in tool("nm", "--format=bsd", str(library)).splitlines() if " t " in line}
    assert "dsk_f32_lstm_cell__ref" in names and len(names) > 400


def test_imports_nothing_that_ends_the_process_or_prints(library):
    assert not forbidden_imports(library)


def test_writable_globals(library):
    allowed = allowed_globals(ALLOWED.read_text(), library.name)
    extra = [name for name in writable_globals(library) if not any(fnmatchcase(name, p) for p in allowed)]
    assert not extra, f"make them const, or give the reason in {ALLOWED.name}"


def test_openblas_travels_with_the_package(core):
    needed = tool("readelf", "-d", str(core))
    if "openblas" not in needed:
        pytest.skip("built without OpenBLAS")
    assert "$ORIGIN/_openblas" in needed
    carried = core.parent / "_openblas" / "libscipy_openblas.so"
    system = r"\[(libm|libpthread|libc|ld-linux[-\w]*)\.so\.\d+\]"
    alone = [line for line in tool("readelf", "-d", str(carried)).splitlines() if "(NEEDED)" in line]
    assert all(re.search(system, line) for line in alone), alone


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """A library with one fault of each kind, and sound code beside it."""
    folder = tmp_path_factory.mktemp("planted")
    (folder / "a.c").write_text("""
        #include <stdio.h>
        #include <stdlib.h>
        #define EXPORT __attribute__((visibility("default")))
        int counter, initialised = 3;
        static int hidden_counter;
        static _Thread_local int per_thread;
        static const char *words[] = {"a", "b"};
        static const char *const names[] = {"a", "b"};
        const int table[3] = {1, 2, 3};
        EXPORT int ds_good(int i);
        EXPORT int stray(int i);
        EXPORT void *PyInit__core(void);
        int ds_good(int i) {
            static int calls;
            words[i] = names[i];
            return names[i][0] + table[i] + counter++ + initialised++ + hidden_counter++ + per_thread++ + calls++;
        }
        int stray(int i) { if (i) abort(); fprintf(stderr, "%s", words[i]); return i; }
        void *PyInit__core(void) { return NULL; }
        """)
    library = folder / "planted.so"
    flags = ["-shared", "-fPIC", "-fvisibility=hidden", "-O2"]
    subprocess.run(["cc", *flags, str(folder / "a.c"), "-o", str(library)], check=True)
    return library


def test_planted_export(planted):
    assert foreign_exports(planted) == ["stray"]


def test_planted_import(planted):
    assert {"abort", "stderr"} < set(forbidden_imports(planted))


def test_planted_globals(planted):
    expected = ["calls", "counter", "hidden_counter", "initialised", "per_thread", "words"]
    assert writable_globals(planted) == expected


def test_allow_list_wants_reasons():
    text = "# note\n\nds_log*  base  set once\nmethods python  CPython's\n"
    assert allowed_globals(text, "_core.so") == ["ds_log*", "methods"]
    assert allowed_globals(text, "libdreamstream.so") == ["ds_log*"]
    with pytest.raises(AssertionError):
        allowed_globals("ds_log  base\n", "_core.so")
