"""The earlier DreamStream's names: imports as its users write them, and what they get."""

import subprocess
import sys

import numpy as np
import pytest

import dreamstream as ds
import dreamstream.compat  # what brings the names back

torch = pytest.importorskip("torch")

from dreamstream.data.data_objects import OutputCollector
from dreamstream.nn.utils.pad_sequence import pad_chunks, pad_full_sequence, pad_stream_tensor
from dreamstream.overrides import join_dim_names
from dreamstream.tensor import (
    BATCH,
    LENGTH,
    StreamMetadata,
    StreamTensor,
    as_stream_tensor,
    stream_metadata,
    stream_tensor,
)
from dreamstream.utils import flags
from dreamstream.utils.flags import BATCH as FLAG


def test_the_names_are_the_packages_own():
    assert StreamTensor is ds.torch.StreamTensor and StreamMetadata is ds.StreamMetadata
    assert (BATCH, LENGTH, FLAG, flags.LENGTH) == ("B", "L", "B", "L")
    assert join_dim_names("F", "D") == "F_D"
    assert callable(ds.tensor) and ds.tensor([1.0, 2.0]).shape == (2,)
    with pytest.raises(ImportError):
        from dreamstream.tensor import nothing  # noqa: F401


def test_they_are_nowhere_before():
    """Importing the package, and its bridge, enters no module and no name of the earlier one."""
    code = f"""
import sys, torch, dreamstream, dreamstream.torch
names = {sorted(n for n in dreamstream.compat._MODULES if n != "nn.utils")}
assert not [n for n in sys.modules if n.removeprefix("dreamstream.") in names]
assert not [n for n in ("utils", "overrides", "patch", "add_streaming_modes", "compat") if hasattr(dreamstream, n)]
assert not hasattr(dreamstream.data, "data_objects")
conv = dreamstream.patch_module(torch.nn.Conv1d(2, 3, 5))
assert not hasattr(conv, "kernel_width") and not hasattr(conv, "stream_buffer")
import dreamstream.compat
assert conv.online().kernel_width == 5 and conv.stream_buffer == {{}}
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_all_are_in_one_place():
    names = {n: getattr(dreamstream.compat, n) for n in dreamstream.compat.__all__}
    assert names["StreamTensor"] is StreamTensor and names["pad_chunks"] is pad_chunks
    assert names["OutputCollector"] is OutputCollector and names["BATCH"] == "B"
    assert {n for m in dreamstream.compat._MODULES.values() for n in m} < set(names)
    with pytest.raises(AttributeError):
        _ = dreamstream.compat.nothing


def test_names_survive():
    """Where features are joined, and where an index has several dimensions."""
    meta = stream_metadata(["a", "b"], True, True, [5, 4])
    x = stream_tensor(torch.randn(2, 3, 4, 5), meta, tuple("BFDL"))
    assert x.flatten(1, 2).names == torch.flatten(x, -3, end_dim=2).names == (BATCH, "F_D", LENGTH)
    assert x[:, torch.tensor([[0, 1], [1, 1]])].names == (BATCH, None, "F", "D", LENGTH)
    with ds.on_fallback("ignore"):
        assert type(x.flatten(0, 1)) is torch.Tensor


def test_they_do_not_load_torch():
    code = """
import sys, dreamstream.compat
import dreamstream.utils.flags, dreamstream.nn.utils.pad_sequence, dreamstream.data.data_objects
from dreamstream import patch, patch_module, add_streaming_modes, StreamMetadata
from dreamstream.tensor import stream_metadata, BATCH
from dreamstream.overrides import join_dim_names
assert "torch" not in sys.modules and dreamstream.tensor([1.0]).shape == (1,)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_stream_tensors_are_made_as_before():
    meta = stream_metadata(
        ["a", "b"], torch.tensor([True, True]), torch.tensor([False, True]), torch.tensor([4, 2]), None
    )
    data = torch.randn(2, 3, 4)
    x = stream_tensor(data, meta, ("B", "F", "L"), dtype=torch.float64, device="cpu", requires_grad=True)
    assert x.meta == meta and x.requires_grad and x.dtype == torch.float64 and isinstance(x, torch.Tensor)
    y = as_stream_tensor(data, meta, ("B", "F", "L"))
    assert y.data_ptr() == data.data_ptr() and StreamTensor(data, meta).meta is meta
    assert as_stream_tensor(y).meta is meta and as_stream_tensor(y, dtype=torch.float64).dtype == torch.float64
    assert y.size("L") == 4 and y.align_to("L", "B", "F").names == ("L", "B", "F")
    assert y.named_tensor().shape == (2, 3, 4) and y.decouple()[2] == ("B", "F", "L")
    assert isinstance(y.ids, list) and isinstance(y.split(2, 2), list)


def test_padding_sequences():
    rows = [torch.randn(3, 5), torch.randn(3, 2)]
    x = pad_full_sequence(rows, ["F", "L"], ["a", "b"])
    assert x.names == ("L", "B", "F") and x.sos.all() and x.eos.all() and x.shape == (5, 2, 3)
    assert torch.equal(x["b"], rows[1].T)
    y = pad_chunks(rows, ("F", "L"), ["a", "b"], [True, False], False, batch_first=True)
    assert y.names == ("B", "L", "F") and y.lengths.tolist() == [5, 2] and y.sos.tolist() == [True, False]
    z = pad_stream_tensor([y[1], y[0]], batch_first=True)
    assert z.ids == ["b", "a"] and z.names == ("B", "L", "F") and torch.equal(z["a"], y["a"])
    for names in (("B", "L"), ("F", "T")):
        with pytest.raises(ValueError):
            pad_full_sequence(rows, names, ["a", "b"])


def test_a_collector_takes_several_outputs():
    x = ds.stream_tensor([torch.ones(2, 3)], ids=["a"], sos=True)
    y = ds.stream_tensor([torch.ones(2, 1)], ids=["a"], eos=True)
    collector = OutputCollector(x)
    collector.update(y)
    assert collector["a"].shape == (2, 4) and OutputCollector(x, y).finished == ["a"]


@pytest.mark.parametrize("how", [ds.patch, ds.patch_module, ds.add_streaming_modes])
def test_patched_convolutions(how):
    conv = torch.nn.Conv1d(2, 3, 3, stride=2, dilation=2, padding=1).eval()
    model = torch.nn.Sequential(conv)
    assert how(model) is model
    conv.online()
    assert conv.is_online and conv.kernel_width == 5 and conv.stream_buffer == {}
    x = torch.randn(2, 9)
    y = conv(ds.stream_tensor([x[:, :4], x[:, :6]], ids=["a", "b"], sos=True))
    first = {i: y.starts[r] + y.lengths[r] for r, i in enumerate(y.ids)}
    for i, n in (("a", 4), ("b", 6)):
        assert torch.equal(conv.stream_buffer[i], x[:, max(0, 2 * first[i] - 1) : n])
    conv(ds.stream_tensor([x[:, 4:]], ids=["a"], eos=True))
    assert list(conv.stream_buffer) == ["b"]
    assert np.isfinite(conv.stream_buffer["b"]).all()
    model.offline()
    torch.jit.script(model)
