"""Ifs and loops over lengths: what a forward's private copy makes of them, held against the forward as it is."""

import numpy as np
import pytest
from random_graphs.idioms import net

import dreamstream as ds
import dreamstream.nn.functional as F
from dreamstream.engine.capture import captured
from dreamstream.errors import NotStreamableError


def streamed(forward, lengths, seed=0):
    """Compare what streams in random pieces give with the forward on whole ones."""
    rng = np.random.default_rng(seed)
    model = net(forward)
    engine = ds.compile(model, ("B", 2, "L"))
    online = ds.patch_module(net(forward)).online()
    for n in lengths:
        x = rng.standard_normal((2, n)).astype(np.float32)
        cuts = [0, *sorted(rng.integers(0, n + 1, 3)), n]
        pieces = [x[:, a:b] for a, b in zip(cuts, cuts[1:])]
        wanted = model(ds.tensor(x[None])).numpy()[0]
        outputs, steps = [], []
        for i, piece in enumerate(pieces):
            sos, eos = i == 0, i == len(pieces) - 1
            y = online(ds.stream_tensor([piece], ids=["a"], sos=sos, eos=eos))
            outputs.append(y.numpy()[0][..., : int(y.lengths[0])])
            steps.append(engine.step({"a": piece}, ["a"] if sos else [], ["a"] if eos else [])["a"])
        for found in (outputs, steps):
            np.testing.assert_allclose(np.concatenate(found, -1), wanted, rtol=1e-6, atol=1e-6, err_msg=str(n))


def pads_of_two_streams(self, x):
    y = x * 2
    if x.size(2) % 4:
        rest = 4 - x.size(2) % 4
        x = F.pad(x, (0, rest))
        y = F.pad(y, (0, rest))
    return x + y


def written_into_zeros(self, x):
    rest = x.size(2) % 4
    if rest:
        y = ds.zeros(x.size(0), 2, x.size(2) + 4 - rest)
        y[..., : x.size(2)] = x
        x = y
    y = ds.ones([*x.shape[:-1], (x.size(2) + 5) // 3 * 3])
    y[:, :, : x.size(2)] = x * 2
    return y


def checked_within(self, x):
    if x.size(2) % 4:
        x = F.pad(x, (0, 4 - x.size(2) % 4))
        assert x.size(2) % 4 == 0
    return x


def stored(self, x):
    odd = x.size(2) % 2 == 1 and self.training is False
    return F.pad(x, (0, 1)) if odd else x


def caught(self, x):
    try:
        if x.size(2) % 4:
            x = F.pad(x, (0, 4 - x.size(2) % 4))
            x = x.no_such_method()
    except AttributeError:
        pass
    return F.pad(x, (0, 3))


def fallen_back(self, x):
    try:
        y = x.no_such_method() if x.size(2) % 3 else x
    except AttributeError:
        y = x * 2
    return F.pad(y, (0, 2))


def fallen_back_at_the_end(self, x):
    try:
        if x.size(2) % 3:
            y = x.no_such_method()
        return x
    except AttributeError:
        y = x * 2
    return y


def counted_up(self, x):
    n = 0
    if x.size(2) % 2:
        n += 1
        k = 2
        k += n
    return F.pad(x, (0, n))


def counted_in_a_loop(self, x):
    k = 0
    for _ in range(2):
        if x.size(2) % 3:
            k = 3 - x.size(2) % 3
            x = F.pad(x, (0, k))
    return x


@pytest.mark.parametrize(
    "forward", [pads_of_two_streams, written_into_zeros, checked_within, stored, counted_up, counted_in_a_loop]
)
def test_branches_that_some_streams_enter(forward):
    streamed(forward, [*range(1, 14), 29])


def behind_three(x):
    return x[:, :, 3:]


#: Forwards in which `y` has no frames of the shortest streams, and how many frames of `x` each needs.
OF_EMPTY = {
    "else": (4, lambda x, y: y * 2 if y.size(2) > 0 else x),
    "number": (4, lambda x, y: x * (2 if y.shape[2] else 3)),
    "neither has frames": (1, lambda x, y: y * 2 if y.size(2) > 0 else y + 1),
    "all its frames": (1, lambda x, y: y if y.numel() == 0 else y * 2),
    "back to its length": (1, lambda x, y: F.pad(y, (0, x.size(2) - y.size(2)))),
    "in front": (3, lambda x, y: F.pad(y, (x.size(2) - y.size(2), 0))),
    "both sides": (3, lambda x, y: F.pad(y, ((x.size(2) - y.size(2)) // 2, 1))),
    "as a number": (3, lambda x, y: x * (x.size(2) - y.size(2))),
    "limited": (3, lambda x, y: x * max(y.size(2) - x.size(2), -2)),
    "absolute": (3, lambda x, y: x * abs(y.size(2) - x.size(2))),
    "rounds": (3, lambda x, y: sum((x * i for i in range(x.size(2) - y.size(2))), x)),
    "cropped": (1, lambda x, y: x[:, :, x.size(2) - y.size(2) :] + y),
    "cropped on both sides": (4, lambda x, y: x[:, :, (n := (x.size(2) - y[:, :, 1:].size(2)) // 2) : -n]),
    "falls and rises": (5, lambda x, y: x * 3 if x[:, :, : x.size(2) - 4].size(2) else x),
}


@pytest.mark.parametrize("case", OF_EMPTY)
def test_streams_in_which_a_length_is_0_are_refused_where_they_answer_otherwise(case):
    least, made = OF_EMPTY[case]

    def forward(self, x):
        return made(x, behind_three(x))

    streamed(forward, [*range(least, 9), 30])
    model = net(forward)
    engine, online = ds.compile(model, ("B", 2, "L")), ds.patch_module(net(forward)).online()
    for n in range(1, least):
        x = np.ones((2, n), np.float32)
        with pytest.raises(ds.ShapeError, match=f"a length of {n} must be at least {least} at the end"):
            online(ds.stream_tensor([x], ids=["a"], sos=True, eos=True))
        with pytest.raises(ds.ShapeError, match=f"a length of {n} must be at least {least} at the end"):
            engine.step({"a": x}, ["a"], ["a"])


def test_a_slice_behind_the_end_of_all_streams_is_refused():
    for forward in (lambda self, x: x[:, :, x.size(2) :], lambda self, x: x[:, :, 1:][:, :, x.size(2) :]):
        with pytest.raises(NotStreamableError, match="begins where each stream ends"):
            ds.compile(net(forward), ("B", 2, "L"))


@pytest.mark.parametrize("forward", [caught, fallen_back, fallen_back_at_the_end])
def test_an_exception_that_only_some_streams_have_is_refused(forward):
    with pytest.raises(
        NotStreamableError, match=r"an exception was caught that leaves the `(if|conditional) x.size"
    ):
        ds.compile(net(forward), ("B", 2, "L"), verify=False)
    online = ds.patch_module(net(forward)).online()
    with pytest.raises(
        NotStreamableError, match=r"an exception was caught that leaves the `(if|conditional) x.size"
    ):
        online(ds.stream_tensor([np.ones((2, 5), np.float32)], ids=["a"], sos=True))
    assert online.live_ids == []


def kept_in_an_attribute(self, x):
    if x.size(2) % 2:
        self.odd = True
    return x


def kept_in_a_list(self, x):
    found = []
    if x.size(2) % 2:
        found.append(1)
    return x * len(found)


def written_in_place(self, x):
    y = x + 1
    if x.size(2) % 2:
        y.add_(1)
    return y


def added_in_place(self, x):
    y = x * 1
    if x.size(2) % 2:
        y += 1
    return y


def added_by_another_name(self, x):
    y = x * 1
    if x.size(2) % 2:
        z = y
        z += 1
    return y


def added_by_a_function(self, x):
    def more(y):
        y += 1
        return y

    y = x * 1
    if x.size(2) % 2:
        z = more(y)  # noqa: F841
    return y


def added_in_a_loop(self, x):
    y, n = x * 1, x.size(2)
    while n % 4:
        n += 1
        y += 1
    return y


def added_in_a_condition(self, x):
    y = x * 1
    odd = x.size(2) % 2 == 1 and y.add_(1) is not None
    return F.pad(y, (0, 1)) if odd else y


def joined_to_a_list(self, x):
    found = [x]
    if x.size(2) % 2:
        also = found
        also += [x]
    return x * len(found)


def left_early(self, x):
    for _ in range(2):
        if x.size(2) % 2:
            break
        x = x + 1
    return x


def other_values(self, x):
    if x.size(2) % 2:
        x = x * 2
    return x


def other_kinds(self, x):
    pad = None
    if x.size(2) % 2:
        pad = 1
    return x if pad is None else F.pad(x, (0, pad))


def in_a_comprehension(self, x):
    return x * len([k for k in (2, 3) if x.size(2) % k])


@pytest.mark.parametrize(
    "forward, what",
    [
        (kept_in_an_attribute, r"`self.odd` in line \d+ would be done for all"),
        (kept_in_a_list, r"`found.append\(1\)` in line \d+ would be done for all"),
        (written_in_place, r"`y.add_\(1\)` in line \d+ would be done for all"),
        (added_in_place, r"`y` in line \d+ would be done for all"),
        (added_by_another_name, "writes into a stream in the `if x.size"),
        (added_by_a_function, "writes into a stream in the `if x.size"),
        (added_in_a_loop, "compared where streams answer differently"),
        (added_in_a_condition, r"`y.add_\(1\)` in line \d+ would be done for all"),
        (joined_to_a_list, r"`also` in line \d+ would be done for all"),
        (left_early, r"`break` in line \d+ would be done for all"),
        (other_values, "`x` after the if at .* is, where it holds, not what it is elsewhere"),
        (other_kinds, "`pad` after the if at .* is, where it holds, not what it is elsewhere"),
        (in_a_comprehension, "compared where streams answer differently"),
    ],
)
def test_branches_that_are_refused(forward, what):
    with pytest.raises(NotStreamableError, match=what):
        ds.compile(net(forward), ("B", 2, "L"))
    with pytest.raises(NotStreamableError, match=what):
        ds.patch_module(net(forward)).online()(
            ds.stream_tensor([np.ones((2, 5), np.float32)], ids=["a"], sos=True)
        )


@pytest.mark.parametrize("forward", [added_in_place, added_by_another_name, added_by_a_function, added_in_a_loop])
def test_streams_of_torch_are_not_written_into_in_branches(forward):
    torch = pytest.importorskip("torch")
    make = type("Net", (torch.nn.Module,), {"forward": forward})
    with pytest.raises(NotStreamableError):
        ds.compile(make(), ("B", 2, "L"), verify=False)
    online = ds.patch_module(make()).online()
    with pytest.raises(NotStreamableError):
        online(ds.stream_tensor([torch.ones(2, 5)], ids=["a"], sos=True))


@pytest.mark.parametrize("line", ["if x.size(2) % 2", "for t in range(x.size(2))"])
def test_a_forward_without_source_says_so(line):
    names = {"F": F}
    exec(f"def forward(self, x):\n    {line}:\n        x = F.pad(x, (0, 1))\n    return x\n", names)
    with pytest.raises(
        NotStreamableError, match=r"No private copy of it could be made: .*there is no source of it"
    ):
        ds.compile(net(names["forward"]), ("B", 2, "L"))
    exec("def plain(self, x):\n    return F.pad(x * 2, (0, 1))\n", names)
    streamed(names["plain"], [1, 5])


def test_a_forward_runs_once(capsys):
    def forward(self, x):
        print("runs")
        if x.size(2) % 2:
            x = F.pad(x, (0, 1))
        while x.size(2) % 4:
            x = F.pad(x, (0, 1))
        return x

    model = ds.patch_module(net(forward)).online()
    model(ds.stream_tensor([np.ones((2, 5), np.float32)], ids=["a"], sos=True))
    assert capsys.readouterr().out == "runs\n"
    ds.compile(net(forward), ("B", 2, "L"), verify=False)
    assert capsys.readouterr().out == "runs\n"


def test_what_is_found_of_lengths_is_bounded():
    """A forward may compare lengths with ever other numbers."""

    def many(self, x):
        n = x.size(2)
        for least in range(1, 700):
            n = max(x.size(2), least)
        return F.pad(x, (0, n - x.size(2)))

    capture, _ = captured(net(many), ("B", 2, "L"), 1, "float32", False)
    facts = capture.inputs[0].edge.line.facts
    assert 0 < sum(len(known) for known in facts.values() if isinstance(known, dict)) < 300
