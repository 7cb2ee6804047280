"""More loops over frames, and sums over pairs of frames without softmax, which become loops.

What the functions get says `loop_models.py`.
"""

from typing import Any

from loop_models import CASES, D, H, N, case

__all__ = ["CASES"]


@case
def states_with_what_they_began_as(lib: Any, m: Any, x: Any) -> Any:
    later, rows, frames = x[:, 1:], x.size(0), x.size(1)
    states, means, sums = lib.zeros(rows, frames + 1, H), lib.zeros(rows, frames, D), x * 0.5
    states[:, 0] = 0.5
    for t in range(frames):
        states[:, t + 1] = m.gru(x[:, t], states[:, t].clone())
        means[:, t] += x[:, max(t - 2, 0) : t + 1].mean(1)
    for t in range(1, later.size(1) - 1):
        sums[:, t] = later[:, t] + sums[:, t - 1]
    return states[:, 1:], states[:, -1], means, sums


@case
def a_layer_within_frames_goes_on(lib: Any, m: Any, x: Any) -> Any:
    """Its state is the frame before's, or, as in SkiM, another layer's of the same frame."""
    rows, frames, _ = x.shape
    h, ys = lib.zeros(1, rows, H), []
    for t in range(frames):
        y, h = m.within(x[:, t].unsqueeze(-1), h)
        ys.append(y.mean(1))
    segments = x.reshape(rows * frames, D, 1)
    y, _ = m.within(segments * 2, m.within(segments)[1])
    return lib.stack(ys, 1), y.sum(1).reshape(rows, frames, H)


@case
def the_frame_before_is_written(lib: Any, m: Any, x: Any) -> Any:
    y, h = x * 0.5, lib.zeros(x.size(0), D)
    for t in range(x.size(1)):
        h = h * 0.9 + x[:, t]
        if t >= 1:
            y[:, t - 1] = h
    return y, h


@case
def positions_as_numbers(lib: Any, m: Any, x: Any) -> Any:
    at, total, ys = lib.arange(x.size(1)), lib.zeros(x.size(0), D), []
    rows = m.table[at % 4]
    for t in range(x.size(1)):
        total = total + x[:, t]
        ys.append(lib.where(at[t] % 2 == 0, total / (at[t] + 1), x[:, t] * rows[t]))
    return lib.stack(ys, 1)


@case
def numbers_of_frames_in_operators(lib: Any, m: Any, x: Any) -> Any:
    mean, ys = lib.zeros(x.size(0), D), []
    for t, frame in enumerate(x.unbind(1)):
        mean = mean + (frame - mean) / (t + 1)
        ys.append(mean * t + 0.9**t - (t - 1) / 2 + m.table[t % 4] / max(t, 1) + t // 3 - frame * (1.5 - t))
    h, late = lib.zeros(x.size(0), D), lib.zeros_like(x)
    for t in range(2, x.size(1)):
        h = h * (0.5 / (t * t)) + x[:, t] * -t
        late[:, t] = h / t**-0.5
    return lib.stack(ys, 1), mean, h, late


@case
def later_frames_and_their_numbers(lib: Any, m: Any, x: Any) -> Any:
    h, ys = lib.zeros(x.size(0), D), []
    for t, frame in enumerate(x.unbind(1)[1:]):
        h = 0.5 * h + frame * t
        ys.append(h)
    return lib.stack(ys, 1), h


@case
def slices_of_frames(lib: Any, m: Any, x: Any) -> Any:
    frames, states = x.unbind(1), [m.first.expand(x.size(0), -1)]
    y, ys = frames[0], [frames[0]]
    for frame in frames[1:]:
        y = 0.5 * y + frame
        ys.append(y)
    for before, frame in zip(frames, frames[1:]):
        states.append(m.gru(frame - before, states[-1]))
    return lib.stack(ys, 1), lib.stack(states[1:], 1), lib.stack(states[2:], 1), states[-1]


@case
def a_target_that_is_assigned(lib: Any, m: Any, x: Any) -> Any:
    h, ys = lib.zeros(x.size(0), D), []
    for frame in x.unbind(1):
        h, frame = frame + 0.5 * h, h
        ys.append(h - frame)
    return lib.stack(ys, 1) if ys else x, frame


def _split(m: Any, x: Any) -> Any:
    """Queries, keys and values (B, 2, L, 2 or 3)."""
    return (y.unflatten(-1, (2, -1)).transpose(1, 2) for y in (m.n(x), m.o(x), m.a(x)))


def _joined(y: Any) -> Any:
    return y.transpose(1, 2).flatten(2)


def _apart(lib: Any, x: Any) -> Any:
    places = lib.arange(x.size(-2))
    return places[:, None] - places


@case
def retention_in_parallel(lib: Any, m: Any, x: Any) -> Any:
    q, k, v = _split(m, x)
    apart = _apart(lib, q)
    gamma = lib.tensor([0.75, 1 - 2**-9], dtype=lib.float64).to(m.table.dtype)[:, None, None]
    decay = (gamma**apart) * (apart >= 0)
    return _joined(((q @ k.mT) * N**-0.5 * decay) @ v)


@case
def retention_of_learned_rates(lib: Any, m: Any, x: Any) -> Any:
    q, k, v = _split(m, x)
    rate = m.vector[:2].exp()[:, None, None]
    decay = (-rate * _apart(lib, q)).tril().exp().tril()
    return _joined((decay * (q @ k.mT)) @ v)


@case
def retention_over_roots_of_sums(lib: Any, m: Any, x: Any) -> Any:
    q, k, v = _split(m, x)
    decay = ((-0.3) * _apart(lib, q)).exp().tril()
    decay = decay / decay.sum(-1, keepdim=True).sqrt()
    return _joined(((q @ k.mT) * decay) @ v)


@case
def linear_attention(lib: Any, m: Any, x: Any) -> Any:
    q, k, v = _split(m, x)
    n = x.size(1)
    return _joined(((q @ k.transpose(-1, -2)) * lib.tril(lib.ones(n, n))) @ v)


@case
def linear_attention_to_earlier_frames(lib: Any, m: Any, x: Any) -> Any:
    q, k, v = m.n(x), m.o(x), m.a(x)
    hidden = _apart(lib, x) < 2
    return (q @ k.mT).masked_fill(hidden, 0.0) @ v


@case
def linear_attention_to_later_frames(lib: Any, m: Any, x: Any) -> Any:
    q, k, v = m.n(x), m.o(x), m.a(x)
    return lib.where(_apart(lib, x) >= -2, q @ k.mT, 0.0) @ v


@case
def linear_attention_by_einsum(lib: Any, m: Any, x: Any) -> Any:
    q, k, v = (y.unflatten(-1, (2, -1)) for y in (m.n(x), m.o(x), m.a(x)))
    scores = lib.einsum("bihd,bjhd->bhij", q, k) * (_apart(lib, x) >= 0)
    return lib.einsum("bhij,bjhe->bihe", scores, v).flatten(2)


@case
def linear_attention_over_its_sums(lib: Any, m: Any, x: Any) -> Any:
    q, k, v = _split(m, x)
    scores = (q.exp() @ k.exp().mT).tril()
    return _joined((scores / scores.sum(-1, keepdim=True)) @ v)


@case
def gated_linear_attention(lib: Any, m: Any, x: Any) -> Any:
    q, k, v = _split(m, x)
    gates = lib.log(lib.sigmoid(m.dt(x)[..., :2])).cumsum(1).transpose(1, 2)
    apart = gates[..., :, None] - gates[..., None, :]
    return _joined(((q @ k.mT) * apart.exp().tril()) @ v)


@case
def gated_linear_attention_of_the_past(lib: Any, m: Any, x: Any) -> Any:
    q, k, v = _split(m, x)
    gates = lib.log(lib.sigmoid(m.dt(x)[..., :2])).cumsum(1).transpose(1, 2)
    apart = gates[..., :, None] - gates[..., None, :]
    return _joined(((q @ k.mT) * apart.tril().exp().tril()) @ v)


@case
def gated_linear_attention_under_a_mask(lib: Any, m: Any, x: Any) -> Any:
    q, k, v = m.n(x), m.o(x), m.a(x)
    gates = lib.log(lib.sigmoid(m.one(x))).cumsum(1)
    decay = (gates - gates.mT).masked_fill(_apart(lib, x) < 1, -float("inf")).exp()
    return (decay * (q @ k.mT)) @ v


@case
def gates_that_stand_beside_scores(lib: Any, m: Any, x: Any) -> Any:
    q, k, v = _split(m, x)
    rows, columns = m.one(x).sigmoid().unsqueeze(1), m.dt(x)[..., :2].transpose(1, 2).unsqueeze(2)
    return _joined(((q @ k.mT) * rows * columns).tril() @ v)


@case
def gates_over_their_greatest(lib: Any, m: Any, x: Any) -> Any:
    q, k, v = m.n(x), m.o(x), m.a(x)
    forget, enter = lib.log(lib.sigmoid(m.one(x))).cumsum(1), 3 * m.dt(x)[..., :1]
    terms = forget - forget.mT + enter.mT
    terms = terms.masked_fill(_apart(lib, x) < 0, -float("inf"))
    most = terms.amax(-1, keepdim=True)
    scores = (q @ k.mT) * (terms - most).exp()
    over = lib.maximum(scores.sum(-1, keepdim=True).abs(), (-most).exp())
    return (scores / (over + 1e-6)) @ v


@case
def means_of_all_frames_so_far(lib: Any, m: Any, x: Any) -> Any:
    n = x.size(1)
    weights = lib.tril(lib.ones(n, n))
    return (weights / weights.sum(1, keepdim=True)) @ m.a(x)


@case
def moving_averages_as_products(lib: Any, m: Any, x: Any) -> Any:
    rates = lib.tensor([0.5, 0.75], dtype=lib.float64).to(m.table.dtype)[:, None, None]
    weights = (rates ** _apart(lib, x)).tril()
    return lib.einsum("htu,buhc->bthc", weights, m.a(x).unflatten(-1, (2, -1)))


@case
def gates_summed_between_frames(lib: Any, m: Any, x: Any) -> Any:
    q, k, v = _split(m, x)
    n, apart = x.size(1), _apart(lib, x)
    gates = lib.log(lib.sigmoid(m.dt(x)[..., :2])).transpose(1, 2)
    between = gates.unsqueeze(-1).repeat(1, 1, 1, n).masked_fill(apart <= 0, 0.0).cumsum(-2)
    return _joined(((q @ k.mT) * between.masked_fill(apart < 0, -float("inf")).exp()) @ v)


@case
def gates_apart_in_a_table(lib: Any, m: Any, x: Any) -> Any:
    q, k, v = m.n(x), m.o(x), m.a(x)
    rows = lib.cat([lib.zeros(x.size(0), 1, 1), lib.log(lib.sigmoid(m.one(x))).cumsum(1)], 1)
    rows = rows.expand(-1, -1, rows.size(1))
    apart = (rows - rows.transpose(1, 2))[:, 1:, 1:] + m.dt(x)[..., :1].mT
    apart = lib.where(_apart(lib, x) >= 0, apart, -float("inf"))
    most = apart.max(-1, keepdim=True)[0]
    return ((q @ k.mT) * (apart - most).exp()) @ v


@case
def matrices_under_gates(lib: Any, m: Any, x: Any) -> Any:
    gates = lib.log(lib.sigmoid(m.dt(x)[..., :2])).cumsum(1).transpose(1, 2)
    decay = (gates[..., None] - gates[..., None, :]).exp().tril()
    values = m.a(x).unflatten(-1, (2, 1, 3)) * m.n(x).unflatten(-1, (2, 2, 1))
    return lib.einsum("bhij,bjhef->bihef", decay, values).flatten(2)


@case
def running_mean_by_number(lib: Any, m: Any, x: Any) -> Any:
    mean, ys = lib.zeros(x.size(0), D), []
    for t in range(x.size(1)):
        mean = (mean * t + x.select(1, t)) / (t + 1)
        ys.append(mean - m.table[t // 2 % 3] * 0.1)
    return lib.stack(ys, 1)


@case
def rows_up_to_a_limit(lib: Any, m: Any, x: Any) -> Any:
    return lib.stack([frame for frame in (x * 1).unbind(1)], 1) + _limited(lib, m, x)


def _limited(lib: Any, m: Any, x: Any) -> Any:
    ys, few = [], m.table[:4]
    for t in range(x.size(1)):
        ys.append(x[:, t] * few[min(t, 3)])
    return lib.stack(ys, 1)


@case
def places_filled_in_turn(lib: Any, m: Any, x: Any) -> Any:
    ys, zs, h = [None] * x.size(1), x.size(1) * [None], lib.zeros(x.size(0), D)
    for t, frame in enumerate(x.unbind(1)):
        h = 0.5 * h + frame
        ys[t] = h
        zs[t] = h * 2 if t == 0 else h + zs[t - 1] * 0.5
        ys[t] = ys[t] + 1
    return lib.stack(ys, 1) - lib.stack(zs, dim=1)


@case
def names_that_are_assigned_again(lib: Any, m: Any, x: Any) -> Any:
    h, ys = lib.zeros(x.size(0), D), []
    for frame in x.unbind(1):
        h = 0.9 * h + frame
        ys.append(h)
    x, zs, g = lib.stack(ys, 1), [], lib.zeros(x.size(0), D)
    for frame in x.unbind(1):
        h = frame + g
        g = h.tanh()
        zs.append(h)
    x = lib.stack(zs, 1)
    if x.size(0) > 0:
        h = x * 2
    else:
        h = x
    return h


# ---------------------------------------------------------------------- ifs that frames answer differently
@case
def every_other_frame(lib: Any, m: Any, x: Any) -> Any:
    fast, slow, ys = lib.zeros(x.size(0), H), lib.zeros(x.size(0), H), []
    for t in range(x.size(1)):
        fast = lib.tanh(m.a(x[:, t]) + fast)
        if not t % 4:
            slow = m.above(fast, slow)
        elif t % 4 == 1 or (t > 2 and t // 3 % 2):
            slow = slow - 0.5 * fast
        ys.append(fast + slow * (t % 2 == 0))
    return lib.stack(ys, 1), slow


@case
def variables_of_branches(lib: Any, m: Any, x: Any) -> Any:
    h, u, v, ys = lib.zeros(x.size(0), D), lib.zeros(x.size(0), D), x.tanh(), []
    for t in range(x.size(1)):
        if t % 2 == 0:
            u = x[:, t] * 2
            h = h + u
        if t % 3 == 0:
            v = lib.cat([x[:, t], h], 1)
            h = h - 0.5 * v[:, 1 : D + 1]
        else:
            v = m.table[t % 4]
            h = 0.9 * h + v
        ys.append(h)
    return lib.stack(ys, 1), h


@case
def frames_in_pairs(lib: Any, m: Any, x: Any) -> Any:
    pairs, before, kept = lib.zeros_like(x), None, lib.zeros(x.size(0), D)
    for t, frame in enumerate(x.unbind(1)):
        if t % 2 == 0:
            first = frame
            y = first * 2
        else:
            y = first - x[:, t - 1] * 0.5 + frame
        if t % 3 in (0, 2):
            before = y if before is None else 0.5 * before + y
        pairs[:, t] = before + (x[:, t - 2] if 2 <= t % 5 < 4 else kept)
        kept = frame if t * t > 2 * t + 4 else kept
    return pairs, kept


@case
def far_from_the_first_frame(lib: Any, m: Any, x: Any) -> Any:
    mean, h, ys = 0, lib.zeros(x.size(0), D), []
    for t in range(x.size(1)):
        gain = (t - 1) / (t + 1) if t < 12 else 0.9
        mean = gain * mean + (1 - gain) * x[:, t]
        if t > 300:
            h = h / (t - 10)
        elif 3 < t < 14:
            h = h + max(1 / (t + 1), 0.1, 0.01) * mean
        h = 0.9 * h + x[:, t] * min(t, 9.5)
        ys.append(mean * max(t, 11) + h)
    return lib.stack(ys, 1), h


@case
def numbers_by_frames(lib: Any, m: Any, x: Any) -> Any:
    state, ys = (lib.zeros(x.size(0), D), {"n": lib.zeros(x.size(0), D)}), []
    for t in range(1, x.size(1)):
        gain, even = 0.1 if t % 2 else 0.7, t % 2 == 0
        h, c = state[0], state[1]["n"]
        if even:
            row, steps = m.table[0], t
            state = (gain * h + x[:, t], {"n": c + row / steps})
        else:
            row, steps = m.table[1], 2
            state = (h * row, {"n": c - x[:, t] / steps})
        ys.append(state[0] + state[1]["n"] * (1 - gain))
    return lib.stack(ys, 1), state[0]


@case
def numbers_that_some_frames_have(lib: Any, m: Any, x: Any) -> Any:
    h, ys = lib.zeros(x.size(0), H), []
    for t in range(x.size(1)):
        h = lib.tanh(m.a(x[:, t]) + h)
        if t % 2 == 1:
            h = h / t
            if t % 3:
                h = h - 0.5 / (t % 3)
        elif t % 4 == 2:
            h = h * (t % 4 - 1) ** 0.5
        ys.append(h)
    return lib.stack(ys, 1), h


@case
def forgetting_factor(lib: Any, m: Any, x: Any) -> Any:
    """As FullSubNet's norm has it: the smaller of two numbers, one of which is the frame's."""
    mean, out = x.new_zeros(x.size(0), D), []
    for t in range(x.size(1)):
        keep = lib.min(lib.tensor([(t - 1) / (t + 1), 0.9]))
        mean = keep * mean + (1 - keep) * x[:, t]
        out.append(mean)
    return x - lib.stack(out, 1)
