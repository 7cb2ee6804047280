"""Names out of files and of callers never control the terminal that they are shown on."""

import copy
import io
import json
import os
import sys
import unicodedata
from contextlib import redirect_stderr, redirect_stdout

import numpy as np
import pytest

import dreamstream as ds
from dreamstream import _core, container, nn
from dreamstream.cli import main
from dreamstream.engine.load import bytes_of, load_changed
from dreamstream.engine.text import KEY, parts_of
from dreamstream.errors import FormatError

HOSTILE = "\x1b[2J\r\x9b1m\x7f\u202ex\u2066\u2028\nFAKE"
CONTROLS = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def check_shown(text):
    """No character of the text but line ends controls anything, and no line begins as the names would have it."""
    assert not [c for c in text if unicodedata.category(c) in CONTROLS and c != "\n"], ascii(text)
    assert not [line for line in text.split("\n") if line.startswith("FAKE")], ascii(text)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(1, 3, 3, padding=1)
        self.head = nn.Linear(3, 4)

    def forward(self, x):
        return {"a": self.head(self.conv(x).transpose(1, 2)), "b": x}


def hostile_model():
    """The description of a model, and its tensors: every name of both holds what a terminal obeys."""
    parts = parts_of(bytes_of(ds.compile(Tagger().eval(), ("B", 1, "L"), rate=100)))
    model = copy.deepcopy(parts.model)
    for node in model["graph"]["nodes"]:
        node["path"] += HOSTILE
        node["weights"] = [name + HOSTILE for name in node["weights"]]
    face = model["interface"]
    face["name"] += HOSTILE
    for port in face["inputs"] + face["outputs"]:
        port["name"] += HOSTILE
    face["structure"] = {"dict": {k + HOSTILE: v for k, v in face["structure"]["dict"].items()}}
    return model, [t._replace(name=t.name + HOSTILE) for t in parts.tensors]


def dsm_of(model, tensors):
    return container.write(tensors, {KEY: json.dumps(model)})


def json_of(model, tensors):
    dsm, out = dsm_of(model, tensors), io.BytesIO()
    load_changed(dsm).save(out, format="json")
    return out.getvalue()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the hostile model in every form, under a name that is no better."""
    path = tmp_path_factory.mktemp("hostile")
    engine = load_changed(dsm_of(*hostile_model()))
    for form in ("dsm", "json", "xml"):
        engine.save(path / f"m{HOSTILE.replace('/', '')}.{form}")
    return path


def test_what_is_shown_is_one_definition():
    """C's table is Unicode's: what controls and formats, and nothing else, becomes an escape."""
    for code in range(sys.maxunicode + 1):
        c = chr(code)
        kind, shown = unicodedata.category(c), _core.shown(c)
        if kind in CONTROLS:
            assert shown.isascii() and shown.startswith("\\"), hex(code)
            assert kind == "Cs" or shown.encode().decode("unicode_escape") == c
        else:
            assert shown == c or kind == "Cn", hex(code)  # a newer Unicode may have given it a meaning
    assert _core.shown("a" * 300) == "a" * 237 + "..."
    assert _core.shown("\x1b" * 300) == "\\x1b" * 59 + "..." and _core.shown("a" * 300, True) == "a" * 300


def outputs_of(*argv):
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            status = main(list(argv))
        except SystemExit as done:
            status = done.code
    return status, out.getvalue() + err.getvalue()


@pytest.mark.parametrize("form", ["dsm", "json", "xml"])
def test_what_is_said_of_a_model(folder, form):
    (path,) = folder.glob(f"*.{form}")
    engine = ds.load(path)
    for text in (repr(engine), engine.summary(), str(engine), repr(engine.inputs), repr(engine.outputs)):
        check_shown(text)
    narrow = ds.load(path, weights="int8")
    check_shown(str(ds.compare(engine, narrow, np.zeros((1, 50), np.float32))))
    for wrong in ({"a\x1b": np.zeros((3, 3, 3))}, {"a": "x"}):
        with pytest.raises((ds.DreamStreamError, TypeError)) as error:
            engine.step(wrong, sos=list(wrong))
        check_shown(str(error.value))
    for argv in (
        ("info", str(path)),
        ("info", "--json", str(path)),
        ("info", str(path) + "nowhere"),
        ("run", str(path), str(path)),
        ("run", str(path), str(path) + "nowhere.wav"),
        ("run", str(path), str(path), "-o", str(path) + "/nowhere.wav"),
        ("convert", str(path), str(folder / "out.dsm"), "--weights", "int8", "--report"),
        ("convert", str(path), str(path) + "/nowhere.dsm"),
        ("convert", f"{path}.py:model", str(folder / "out.dsm")),
        ("convert", str(path), str(folder / "out.dsm"), "--weights", HOSTILE),
        ("info", HOSTILE, HOSTILE),
        ("run", "SileroVAD" + HOSTILE, str(path)),
    ):
        _, text = outputs_of(*argv)
        check_shown(text)


def places(value, at=()):
    """The place of every value in a tree of JSON."""
    yield at
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in items:
        yield from places(part, (*at, key))


def replaced(tree, at, value):
    if not at:
        return value
    out = copy.copy(tree)
    out[at[0]] = replaced(tree[at[0]], at[1:], value)
    return out


def renamed(tree, at):
    """The same with a key that nobody knows in the object at a place."""
    return replaced(tree, at, {**get(tree, at), "new" + HOSTILE: 1})


def get(tree, at):
    for key in at:
        tree = tree[key]
    return tree


def broken(tree):
    for at in places(tree):
        for value in (HOSTILE, None, [HOSTILE], {HOSTILE: HOSTILE}, -7):
            yield replaced(tree, at, value)
        if isinstance(get(tree, at), dict):
            yield renamed(tree, at)


def refused(load, *args):
    """The message with which something is refused; some changes are none."""
    try:
        load(*args).close()
    except FormatError as error:
        check_shown(str(error))
        assert len(str(error)) < 1200
        return 1
    return 0


def test_errors_of_binary_files(tmp_path):
    """Whatever is broken in a file whose names are hostile, the error shows them."""
    model, tensors = hostile_model()
    n = sum(refused(ds.load, dsm_of(tree, tensors)) for tree in broken(model))
    assert n > 300
    for i, t in enumerate(tensors):
        for other in (t._replace(dtype="I64" if t.dtype != "I64" else "F32"), t._replace(name="x" + HOSTILE)):
            if len(other.data) == len(t.data) and other.dtype == "I64":
                other = other._replace(data=bytes(2 * len(t.data)))
            assert refused(ds.load, dsm_of(model, [*tensors[:i], other, *tensors[i + 1 :]]))
    assert refused(ds.load, container.write(tensors, {KEY: json.dumps(model), f"{KEY}.fingerprint": HOSTILE}))
    assert refused(ds.load, container.write(tensors, {KEY: HOSTILE}))
    assert refused(ds.load, container.write(tensors, {HOSTILE: HOSTILE}))
    header = json.dumps({"a" + HOSTILE: {"dtype": HOSTILE, "shape": [], "data_offsets": [0, 0]}}).encode()
    assert refused(ds.load, len(header).to_bytes(8, "little") + header)
    path = tmp_path / f"a{HOSTILE}.dsm"
    path.write_bytes(b"nothing" * 20)
    assert refused(ds.load, path)


def test_errors_of_text_forms():
    tree = json.loads(json_of(*hostile_model()))
    n = sum(refused(ds.load, json.dumps(t).encode()) for t in broken(tree))
    assert n > 300
    twice = json.dumps(tree).replace('"tensors"', f'{json.dumps(HOSTILE)}:1,{json.dumps(HOSTILE)}:2,"tensors"')
    assert refused(ds.load, twice.encode())


def test_errors_of_xml():
    engine, out = load_changed(dsm_of(*hostile_model())), io.BytesIO()
    engine.save(out, format="xml")
    text = out.getvalue().decode()
    n = 0
    for old, new in (
        ("F32", json.dumps(HOSTILE)[1:-1]),
        ("<string", "<strong"),
        ('dtype="F32"', f'kind="{HOSTILE[-4:]}&#9;&#x202e;"'),
        ("name=", "names="),
        ("</tensor>", "*&#x202e;</tensor>"),
        ('shape="', 'shape="&#x202e;&#10;FAKE'),
        ("<integer>", "<integer>&#x202e;"),
        ("key=", "keys="),
    ):
        for at in range(text.count(old)):
            pieces = text.split(old)
            changed = old.join(pieces[: at + 1]) + new + old.join(pieces[at + 1 :])
            n += refused(ds.load, changed.encode())
    assert n > 30


def test_long_names_are_cut():
    model, tensors = hostile_model()
    long = "n" * 100_000
    for node in model["graph"]["nodes"]:
        node["path"] = long
    model["interface"]["name"] = long
    for port in model["interface"]["inputs"] + model["interface"]["outputs"]:
        port["name"] = long + str(id(port))
    engine = load_changed(dsm_of(model, tensors))
    assert len(repr(engine)) < 1000 and len(engine.summary()) < 10_000
    narrow = ds.load(bytes_of(engine), weights="int8")
    assert len(str(ds.compare(engine, narrow, np.zeros((1, 50), np.float32)))) < 10_000


def test_names_of_classes_and_modules():
    """A class of the caller's may be called anything, and so may its modules."""
    kind = type("Net" + HOSTILE, (nn.Module,), {"forward": lambda self, x: self.a(x)})
    net = kind()
    net.a = nn.Conv1d(2, 2, 3)
    engine = ds.compile(net.eval(), ("B", 2, "L"))
    check_shown(repr(engine))
    check_shown(engine.summary())
    with pytest.raises(ds.DreamStreamError) as error:
        ds.audit(net, ("B", 3, "L"))
    check_shown(str(error.value))


@pytest.mark.skipif(os.name != "posix", reason="of POSIX: file names of any bytes")
def test_file_names(tmp_path):
    for name in (HOSTILE.encode(), b"a\xff\x1b.dsm", ("x" * 120 + "\u202e").encode()):
        path = os.fsencode(tmp_path) + b"/" + name
        for command in ("info", "run", "convert"):
            more = [] if command == "info" else [os.fsdecode(path)]
            _, text = outputs_of(command, os.fsdecode(path), *more)
            check_shown(text)
        with open(path, "wb") as file:
            file.write(b"no model")
        with pytest.raises(ds.DreamStreamError) as error:
            ds.load(path)
        check_shown(str(error.value))
        _, text = outputs_of("info", os.fsdecode(path))
        check_shown(text)
