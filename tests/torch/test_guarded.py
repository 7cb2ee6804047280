"""Ifs that some streams enter only: what is no pad or crop by nothing elsewhere is refused, with the line."""

import pytest
import torch
import torch.nn.functional as F

import dreamstream as ds


def scaled(x):
    if x.size(2) % 4:
        x = x * 2
    return x


def shifted_if_long(x):
    if x.size(2) > 10:
        x = x + 1
    return x


def shifted_if_short(x):
    return x if not x.size(2) <= 10 else x - 1


def with_else(x):
    if x.size(2) % 4:
        x = F.pad(x, (0, -x.size(2) % 4))
    else:
        x = x * 2
    return x


def in_front(x):
    if x.size(2) % 4:
        x = F.pad(x, (4 - x.size(2) % 4, 0))
    return x


def features_too(x):
    if x.size(2) % 4:
        x = F.pad(x, (0, 4 - x.size(2) % 4, 1, 0))
    return x


def asked_by_a_call(x):
    if max(x.size(2) % 4, 1) > 1:
        x = F.pad(x, (0, 4 - x.size(2) % 4))
    return x


def number_of_another(x):
    if x.size(2) > 16:
        x = x[..., :16]
    return x


def of_another(x):
    y = x * 2
    if x.size(2) % 4:
        x = F.pad(y, (0, 4 - x.size(2) % 4))
    return x


def frames_and_features(x):
    if x.size(2) % 2:
        x = x[:, 1:, :-1]
    return x


def own_pad(x):
    def pad(x, pads):
        return F.pad(x, pads) * 2

    if x.size(2) % 2:
        x = pad(x, (0, 1))
    return x


def several_ask(x):
    if x.size(2) % 4 and x.size(2) % 3:
        x = F.pad(x, (0, 4 - x.size(2) % 4))
    return x


def kept_from_time_to_time(x):
    more = 0
    for k in (4, 3):
        if x.size(2) % k:
            more = k - x.size(2) % k
            x = F.pad(x, (0, more))
        x = x[..., : x.size(2) - more]
    return x


def number_of_no_length(x):
    width = 2
    if x.size(2) % 4:
        width = width * 2
    return F.pad(x, (0, width))


def two_in_each_round(x):
    more = 0
    while (x.size(2) + more) % 8:
        more += 2
    return F.pad(x, (0, more))


def twice_in_each_round(x):
    more = 0
    while (x.size(2) + 2 * more) % 8:
        more += 1
    return F.pad(x, (0, more))


def returns_another(x):
    y, rest = x * 2, x.size(2) % 4
    if rest:
        return x[..., :-rest]
    return y


def number_in_two_ways(x):
    rest = x.size(2) % 4
    return F.pad(x, (0, (rest == 1) * 3 + (rest == 2) * 2))


@pytest.mark.parametrize(
    "forward",
    [
        two_in_each_round,
        twice_in_each_round,
        returns_another,
        number_in_two_ways,
        scaled,
        shifted_if_long,
        shifted_if_short,
        with_else,
        in_front,
        features_too,
        asked_by_a_call,
        number_of_another,
        of_another,
        frames_and_features,
        own_pad,
        several_ask,
        kept_from_time_to_time,
        number_of_no_length,
    ],
)
def test_what_else_an_if_does_is_refused(forward):
    model = type("Model", (torch.nn.Module,), {"forward": lambda self, x: forward(x)})()
    with pytest.raises(ds.NotStreamableError, match=rf"in {forward.__name__}: `"):
        ds.compile(model, ("B", 3, "L"))


def test_integers_compare_with_small_numbers_as_they_do():
    model = type("Model", (torch.nn.Module,), {"forward": lambda self, x: (x > (1 << 24) - 1, x == 0, x >= -3)})()
    x = torch.tensor([0, 1, -3, -4, 2**24 - 1, 2**24, 2**24 + 1, 2**62 + 1, -(2**62) - 1])
    engine = ds.compile(model, ("B", "L"), dtype="int64")
    got = engine.step({"a": x.numpy()}, sos=["a"], eos=["a"])["a"]
    assert [g.tolist() for g in got] == [y.tolist() for y in model(x)]


def test_integers_are_computed_with_to_the_last_bit():
    def forward(self, x):
        rest, part = x % 7, torch.div(-x, 3, rounding_mode="trunc")
        chosen = torch.where(x < rest, x - 2**62, x * 5)
        return x + x, x // -3, part, torch.fmod(x, -4), chosen, x == part, x.clamp(-(2**60), 2**60), x.abs()

    model = type("Model", (torch.nn.Module,), {"forward": forward})()
    x = torch.tensor([0, 1, -3, 6, -7, 2**53 + 1, -(2**53) - 3, 2**62 + 1, -(2**62) - 1, 2**63 - 1, -(2**63) + 1])
    engine = ds.compile(model, ("B", "L"), dtype="int64")
    online = ds.patch_module(type(model)()).online()
    given = ds.stream_tensor([x], names=("B", "L"), ids=["a"], sos=True, eos=True)
    for y, eager, wanted in zip(
        engine.step({"a": x.numpy()}, sos=["a"], eos=["a"])["a"], online(given), model(x[None]), strict=True
    ):
        assert y.tolist() == eager["a"].tolist() == wanted[0].tolist()
