"""States of patched torch modules as bytes: moved in mid-training and to fresh processes, refused if wrong."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from torch_training import MODELS, VARIANTS, assert_close, calls, gathered, offline, online, sequences, streams
from turns import by_turns

from dreamstream.errors import FormatError, ModeError, StreamIdError


@pytest.mark.parametrize("train", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize(("name", "variant"), by_turns(MODELS, VARIANTS[:2]))
def test_states_go_on_in_another_module(name, variant, train):
    plain, model = online(name, variant, train=train)
    xs = sequences(np.random.default_rng(1), {"a": 24, "b": 20})
    ys = []
    for x in calls(xs, {"a": [5, 0, 9, 10], "b": [6, 7, 7, 0]}):
        ys.append(model(x))
        saved = model.get_state()
        assert set(saved) == set(model.live_ids) and all(isinstance(s, bytes) for s in saved.values())
        _, model = online(name, variant, train=not train)  # a fresh one, in the other mode
        train = not train
        model.set_state(saved)
        assert model.get_state() == saved
    for i, y in gathered(ys).items():
        assert_close(y, offline(plain, xs[i]), i)


def test_states_go_on_in_a_fresh_process(tmp_path):
    plain, model = online("lstm", train=False)
    x = sequences(np.random.default_rng(2), {"a": 12})["a"]
    first = model(streams({"a": x[:, :7]}, ["a"]))
    (tmp_path / "state").write_bytes(model.get_state("a")["a"])
    torch.save(x[:, 7:], tmp_path / "rest")
    script = (
        "import sys, torch\nfrom pathlib import Path\nimport dreamstream as ds\n"
        "from torch_training import made, streams\nfolder = Path(sys.argv[1])\n"
        "model = ds.patch_module(made('lstm')).online().eval()\n"
        "model.set_state({'a': (folder / 'state').read_bytes()})\n"
        "y = model(streams({'a': torch.load(folder / 'rest')}, (), ['a']))\n"
        "torch.save(y['a'].detach().clone(), folder / 'out')\n"
    )
    import torch_training

    helpers = torch_training.__file__.rpartition("/")[0]
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {helpers!r})\n{script}", str(tmp_path)]
    subprocess.run(command, check=True, timeout=120)
    second = torch.load(tmp_path / "out")
    assert_close(torch.cat([first["a"], second], 1), offline(plain, x))


def test_a_state_taken_in_training_is_cut_off_from_its_group():
    _, model = online("gru", VARIANTS[1], train=True)
    x = torch.randn(3, 8, dtype=torch.float64)
    y = model(streams({"a": x}, ["a"]))
    saved = model.get_state()
    model.reset()
    model.set_state(saved)
    y.tensor().sum().backward()  # what goes on is another graph
    z = model(streams({"a": x}))
    with pytest.raises(ModeError, match="mid-file"):
        z.tensor().sum().backward()
    z = (z, model(streams({"a": x}, (), ["a"])))
    sum(t.tensor().sum() for t in z).backward()


def test_what_does_not_fit_is_refused_and_changes_nothing():
    _, model = online("gru", train=False)
    x = torch.randn(3, 8, dtype=torch.float64)
    model(streams({"a": x, "b": x}, "ab"))
    saved = model.get_state()
    with pytest.raises(StreamIdError):
        model.get_state(["a", "nobody"])
    with pytest.raises(StreamIdError):
        model.set_state({"a": saved["a"]})
    _, other = online("lstm", train=False)
    other(streams({"z": x}, ["z"]))
    with pytest.raises(ModeError) as caught:
        other.set_state(saved)
    assert caught.value.ids and other.live_ids == ["z"]
    _, fresh = online("gru", train=False)
    for at in range(0, len(saved["a"]), 7):
        damaged = bytearray(saved["a"])
        damaged[at] ^= 0x55
        with pytest.raises(FormatError):
            fresh.set_state({"b": saved["b"], "a": bytes(damaged)})
        with pytest.raises(FormatError):
            fresh.set_state({"a": saved["a"][:at]})
    assert fresh.live_ids == []
    fresh.set_state(saved)
    assert fresh.get_state() == saved


def test_a_fresh_module_refuses_another_models_state_in_its_first_call():
    _, model = online("gru", train=False)
    x = torch.randn(3, 8, dtype=torch.float64)
    model(streams({"a": x}, ["a"]))
    _, other = online("lstm", train=False)
    other.set_state(model.get_state())
    with pytest.raises(ModeError):
        other(streams({"a": x}))
    other.reset()
    other(streams({"a": x}, ["a"]))
