"""The example in docs/file_format.md is a model file, to the byte."""

import re
from pathlib import Path

import numpy as np
from dsm_files import container, fingerprint, model_of, node, output, text_of

from dreamstream import _core

ROOT = Path(__file__).resolve().parent.parent.parent
TOOL = ROOT / "tests" / "c" / "model_tool.c"


def file_on_page():
    page = (ROOT / "docs" / "file_format.md").read_text()
    length, data = (bytes.fromhex(text) for text in re.findall(r"```hex\n(.*?)```", page, re.S))
    (header,) = re.findall(r"```header\n(.*?)```", page, re.S)
    header = header.replace("\n", "").encode()
    n = int.from_bytes(length, "little")
    return length + header + b" " * (n - len(header)) + data


def test_example_is_what_it_says():
    nodes = [node("linear", [0], "mix", ["mix.weight", "mix.bias"]), node("clamp", [1], min="-inf", max=1.0)]
    model = model_of("Mix", 2, nodes, [2], [output("output", ["B", "L", 0], 1, [100, 1])])
    arrays = {"mix.weight": np.array([[0.5, -2]], "float32"), "mix.bias": np.array([0.25], "float32")}
    mark = fingerprint(model, arrays, _core.operators())
    assert file_on_page() == container(arrays, text_of(model, mark))
    assert len(file_on_page()) == 1028


def test_example_is_read_and_written_as_the_same_bytes(c_build, tmp_path):
    built = c_build.build("plain", [TOOL])
    assert not built.errors, built.errors
    given, made = tmp_path / "given.dsm", tmp_path / "made.dsm"
    given.write_bytes(file_on_page())
    done = c_build.run(built.programs[TOOL.stem], "copy", str(given), str(made))
    assert done.returncode == 0, done.stdout
    assert made.read_bytes() == file_on_page()
