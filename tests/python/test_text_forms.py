"""Models as JSON and XML: the whole model, the same bits, and what is refused of what strangers wrote."""

import base64
import contextlib
import json
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from same_bits import answers, content

import dreamstream as ds
from dreamstream import nn
from dreamstream.engine import text
from dreamstream.errors import FormatError


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        ds.manual_seed(5)
        self.conv = nn.Conv1d(3, 4, 5, stride=2)
        self.table = nn.Embedding(7, 4)

    def forward(self, x, i):
        y = self.conv(x).clamp(min=-1.5)  # an infinite bound, too
        return {"sum <&>\"'": y.transpose(1, 2) + 0.1, "e": [self.table(i)]}


@pytest.fixture(scope="module")
def engine():
    spec = {"x": ("B", 3, "L"), "i": ("B", "L")}
    return ds.compile(Model().eval(), spec, rate=100, dtype={"i": "int64"})


@pytest.fixture(scope="module")
def as_json(engine):
    return content(engine, "json")


@pytest.fixture(scope="module")
def as_xml(engine):
    return content(engine, "xml")


def test_json_holds_the_model(engine, as_json):
    given = json.loads(as_json)
    assert list(given) == ["dreamstream", "fingerprint", "tensors"] and given["dreamstream"]["version"] == 1
    assert given["fingerprint"] == text.parts_of(content(engine)).marks["fingerprint"]
    weight = given["tensors"]["conv.weight"]
    assert (weight["dtype"], weight["shape"]) == ("F32", [4, 3, 5])
    values = np.frombuffer(base64.b64decode(weight["data"]), "<f4").reshape(4, 3, 5)
    assert np.array_equal(values, Model().conv.weight.numpy())
    (clamp,) = [n for n in given["dreamstream"]["graph"]["nodes"] if n["op"] == "clamp"]
    assert clamp["attributes"] == {"min": -1.5, "max": "inf"}


def test_xml_holds_the_model(as_xml):
    root = ElementTree.fromstring(as_xml)
    assert root.tag == "dreamstream" and [child.tag for child in root] == ["model", "fingerprint", "tensors"]
    assert root.find("./model/object/integer[@key='version']").text == "1"
    (weight,) = [t for t in root.find("tensors") if t.get("name") == "conv.weight"]
    values = np.frombuffer(base64.b64decode(weight.text), "<f4")
    assert np.array_equal(values, Model().conv.weight.numpy().ravel())


def test_there_and_back(engine, as_json, as_xml):
    whole = content(engine)
    for form in as_json, as_xml:
        assert text.is_text(form[:10])
        assert content(ds.load(form)) == whole and answers(ds.load(form)) == answers(engine)


def test_other_spellings(engine, as_json, as_xml):
    """Spaces, order and a byte order mark mean nothing."""
    given = json.loads(as_json)
    turned = json.dumps(dict(reversed(given.items())), indent=4)
    given.pop("fingerprint")
    bare = json.dumps(given)
    plain = as_xml.replace(b"\n", b"\r\n\t").replace(b"'", b"&#39;")
    marked = b"\xef\xbb\xbf \n" + as_json, b"\xef\xbb\xbf" + as_xml
    for form in turned.encode(), b" " + turned.encode(), bare.encode(), plain, *marked:
        assert content(ds.load(form)) == content(engine)


def refused(form, says=None):
    with pytest.raises(FormatError, match=says) as error:
        ds.load(form)
    assert "\n" not in str(error.value) and len(str(error.value)) < 600


def test_truncated_text(as_json, as_xml):
    rng = np.random.default_rng(0)
    for form in as_json.rstrip(), as_xml.rstrip():
        for n in [*range(1, 80), *rng.integers(80, len(form), 100), len(form) - 1]:
            refused(form[: int(n)])


def test_damaged_text(as_json, as_xml):
    """Never anything but a model or an error of ours."""
    rng = np.random.default_rng(1)
    for form in as_json, as_xml:
        for _ in range(200):
            damaged = bytearray(form)
            damaged[int(rng.integers(len(form)))] = int(rng.integers(256))
            with contextlib.suppress(ds.DreamStreamError):
                ds.load(damaged).close()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda g: g.pop("tensors"), "expected an object of dreamstream, tensors"),
        (lambda g: g.update(more=1), "expected an object of dreamstream, tensors"),
        (lambda g: g.update(tensors=[]), "tensors: expected an object"),
        (lambda g: g.update(fingerprint=None), "fingerprint: expected a string"),
        (lambda g: g.update(fingerprint=["0" * 32]), "fingerprint: expected a string"),
        (lambda g: g.update(fingerprint="0" * 32), "damaged or was changed"),
        (lambda g: g["dreamstream"].update(version=2), "version"),
        (lambda g: g["dreamstream"]["graph"]["nodes"][0].update(op="system"), "system"),
        (lambda g: g["dreamstream"]["graph"].update(more=[]), "more"),
        (lambda g: g["tensors"].pop("conv.weight"), "conv.weight"),
        (lambda g: g["tensors"].update(hidden=g["tensors"]["conv.bias"]), "hidden"),
        (lambda g: g["tensors"]["conv.bias"].update(dtype="F31"), "no element type F31"),
        (lambda g: g["tensors"]["conv.bias"].update(dtype=32), "dtype: expected a string"),
        (lambda g: g["tensors"]["conv.bias"].update(shape=[5]), "16 bytes are no F32"),
        (lambda g: g["tensors"]["conv.bias"].update(shape=[2, 2]), "must have shape"),
        (lambda g: g["tensors"]["conv.bias"].update(shape=[True, 4]), "array of integers"),
        (lambda g: g["tensors"]["conv.bias"].update(shape=[2**70, 0]), "conv.bias"),
        (lambda g: g["tensors"]["conv.bias"].update(shape=[1] * 60 + [4]), "conv.bias"),
        (lambda g: g["tensors"]["conv.bias"].update(shape=[-1, -4]), "conv.bias"),
        (lambda g: g["tensors"]["conv.bias"].update(data="AAA"), "conv.bias: no base64"),
        (lambda g: g["tensors"]["conv.bias"].update(data="é"), "conv.bias: no base64"),
        (lambda g: g["tensors"]["conv.bias"].update(data=None), "expected base64"),
        (lambda g: g["tensors"].update({"a\0b": g["tensors"].pop("conv.bias")}), "null character"),
        (lambda g: g["tensors"].update({"\ud800": g["tensors"].pop("conv.bias")}), "surrogates"),
        (lambda g: g["tensors"].update({"__metadata__": g["tensors"].pop("conv.bias")}), "__metadata__"),
    ],
)
def test_json_of_strangers(as_json, change, says):
    given = json.loads(as_json)
    change(given)
    refused(json.dumps(given).encode(), says)


def test_numbers_and_keys(as_json):
    refused(as_json.replace(b"-1.5", b"-1e999"))
    refused(as_json.replace(b"-1.5", b"NaN"), "finite number")
    refused(as_json.replace(b"-1.5", b"9" * 5000))
    refused(as_json.replace(b'"version": 1', b'"version": 1, "version": 1'), "keys that differ")
    refused(b'{"dreamstream": ' + b"[" * 100_000, "deep")
    refused(b'{"dreamstream": ' + b'{"a":' * 100 + b"1" + b"}" * 100 + b', "tensors": {}}')
    refused(as_json + b"{}")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (b"<dreamstream>", b'<!DOCTYPE d SYSTEM "file:///etc/passwd"><dreamstream>', "DOCTYPE"),
        (b"<dreamstream>", b'<!DOCTYPE d [<!ENTITY a "b">]><dreamstream>', "DOCTYPE"),
        (b"<dreamstream>", b'<!DOCTYPE d [<!ENTITY a SYSTEM "file:///etc/passwd">]><dreamstream>', "DOCTYPE"),
        (b">clamp<", b">&a;<", "undefined entity"),
        (b">clamp<", b">\\x<", "escapes of JSON"),
        (b">clamp<", b'>a", "b<', "escapes of JSON"),
        (b'<string key="op">clamp</string>', b'<string key="op"><a/></string>', "expected text"),
        (b'<string key="op">clamp</string>', b"<string>clamp</string>", "attributes"),
        (b'<string key="op">clamp</string>', b'<string key="op" more="">clamp</string>', "attributes"),
        (b'<string key="op">clamp</string>', b'<string key="op">clamp</string>' * 2, "keys that differ"),
        (b'<string key="op">clamp</string>', b'<text key="op">clamp</text>', "expected object or"),
        (b"<tensors>", b"<tensors>x", "expected elements"),
        (b"<tensors>", b"<tensors/><tensors>", "then <tensors>"),
        (b"<tensors>", b"<fingerprint>0</fingerprint><tensors>", "then <tensors>"),
        (b"<tensors>", b"<fingerprint/><tensors>", "then <tensors>"),
        (b"<fingerprint>", b"<fingerprint><a/>", "expected text"),
        (b"<fingerprint>", b"<fingerprint>0", "damaged or was changed"),
        (b"<model>", b"<model><true/>", "one value"),
        (b">-1.5<", b">1_5<", "expected a number"),
        (b">-1.5<", b">1e999<", None),
        (b">-1.5<", b">nan<", "expected a number"),
        (b'<integer key="version">1<', b'<integer key="version">99999999999999999999<', "expected a number"),
        (b'<integer key="version">1</integer>', b'<true key="version">x</true>', "no text"),
        (b'dtype="F32"', b'dtype="F31"', "F31"),
        (b'shape="4"', b'shape="-4"', "expected a number"),
        (b'shape="4"', b'shape="5"', "conv.bias"),
        (b"</dreamstream>", b"</dreamstream><dreamstream/>", "junk"),
    ],
)
def test_xml_of_strangers(as_xml, old, new, says):
    assert old in as_xml
    refused(as_xml.replace(old, new, 1), says)


def test_deep_xml(as_xml):
    refused(as_xml.replace(b"<model>", b"<model>" + b"<array>" * 100_000), "deep")


def test_a_container_that_begins_like_text():
    """The length of a header may happen to be a brace, or a space."""
    for n in 0x20, 0x7B, 0x3C:
        data = n.to_bytes(8, "little") + b"{" + b" " * (n - 1)
        refused(data, "JSON, byte")


def test_any_other_safetensors_file():
    save = pytest.importorskip("safetensors.numpy").save
    refused(save({"a": np.zeros(3, np.float32)}), "dreamstream")
    refused(save({"a": np.zeros(3, np.float32)}, {"dreamstream": "x"}))
