"""Loops over frames as people write them: ``lib`` is torch or dreamstream, ``m`` holds layers.

Each takes ``x`` of (B, L, 5) and gives tensors with L, or without it what the loop carries at the end.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

D, H, N = 5, 6, 4

CASES: dict[str, Callable[..., Any]] = {}


def case(f: Callable[..., Any]) -> Callable[..., Any]:
    CASES[f.__name__] = f
    return f


def layers(nn: Any, parameter: Callable[..., Any]) -> Any:
    """Return the layers that the loops use; ``parameter`` makes one of a shape."""

    class Layers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gru, self.lstm, self.rnn = nn.GRUCell(D, H), nn.LSTMCell(D, H), nn.RNNCell(D, H)
            self.above = nn.GRUCell(H, H)
            self.a, self.b, self.c, self.d = (nn.Linear(D, H) for _ in range(4))
            self.n, self.o, self.dt, self.back = nn.Linear(D, N), nn.Linear(D, N), nn.Linear(D, D), nn.Linear(H, D)
            self.both, self.norm = nn.Linear(D + H, 4 * H), nn.LayerNorm(H)
            self.memory, self.from_h, self.from_m = nn.Linear(N, H), nn.Linear(H, 1), nn.Linear(N, 1)
            self.one, self.counted = nn.Linear(D, 1), nn.BatchNorm1d(D)  # in an array without dimensions
            self.u, self.log_a, self.first = parameter(H), parameter(D, N), parameter(1, H)
            self.table, self.matrix, self.vector = parameter(64, D), parameter(N, N), parameter(N)
            self.within = nn.GRU(1, H, batch_first=True)

    return Layers()


@case
def gated_cell(lib: Any, m: Any, x: Any) -> Any:
    h, ys = lib.zeros(x.size(0), H), []
    for t in range(x.size(1)):
        h = m.gru(x[:, t], h)
        ys.append(h)
    return lib.stack(ys, 1), h


@case
def lstm_cell_of_frames(lib: Any, m: Any, x: Any) -> Any:
    state, ys = None, []
    for frame in x.unbind(1):
        state = m.lstm(frame, state)
        ys.append(state[0])
    return lib.stack(ys, dim=1)


@case
def lstm_cell_writes(lib: Any, m: Any, x: Any) -> Any:
    rows, frames, _ = x.shape
    h, c = lib.zeros(rows, H), lib.zeros(rows, H)
    out = lib.zeros(rows, frames, H)
    for t in range(frames):
        h, c = m.lstm(x[:, t, :], (h, c))
        out[:, t, :] = h
    return out, c


@case
def layers_in_a_list(lib: Any, m: Any, x: Any) -> Any:
    hs, ys = [lib.zeros(x.size(0), H) for _ in range(2)], []
    for t in range(x.size(1)):
        y = x[:, t]
        for i, cell in enumerate((m.gru, m.above)):
            hs[i] = cell(y, hs[i])
            y = hs[i]
        ys.append(hs[-1])
    return lib.stack(ys, 1), hs[0]


@case
def frames_first(lib: Any, m: Any, x: Any) -> Any:
    h, ys = None, []
    for frame in x.transpose(0, 1):
        h = m.rnn(frame, h)
        ys.append(h)
    return lib.stack(ys).transpose(0, 1)


@case
def selective_scan(lib: Any, m: Any, x: Any) -> Any:
    """Mamba's."""
    rows, frames, _ = x.shape
    a, delta, b, c = -lib.exp(m.log_a), lib.log1p(lib.exp(m.dt(x))), m.n(x), m.o(x)
    decay = lib.exp(delta.unsqueeze(-1) * a)
    fed = (delta * x).unsqueeze(-1) * b.unsqueeze(2)
    s, ys = lib.zeros(rows, D, N), []
    for i in range(frames):
        s = decay[:, i] * s + fed[:, i]
        ys.append((s * c[:, i].unsqueeze(1)).sum(-1))
    return lib.stack(ys, 1) + x


@case
def minimal_gru(lib: Any, m: Any, x: Any) -> Any:
    z, new, h, ys = lib.sigmoid(m.a(x)), m.b(x), None, []
    for t in range(x.shape[1]):
        h = (1 - z[:, t]) * (h if h is not None else 0) + z[:, t] * new[:, t]
        ys.append(h)
    return lib.stack(ys, 1)


@case
def minimal_lstm(lib: Any, m: Any, x: Any) -> Any:
    h, ys = lib.zeros(x.size(0), H), []
    for frame in x.split(1, dim=1):
        frame = frame.squeeze(1)
        f, i = lib.sigmoid(m.a(frame)), lib.sigmoid(m.b(frame))
        h = (f * h + i * m.c(frame)) / (f + i)
        ys.append(h)
    return lib.stack(ys, 1)


@case
def running_maximum(lib: Any, m: Any, x: Any) -> Any:
    """RWKV's sum, whose weights would overflow without it."""
    k, v, r, w = m.a(x), m.b(x), lib.sigmoid(m.c(x)), -lib.exp(m.u)
    top = bottom = lib.zeros(x.size(0), H)
    largest = lib.zeros(x.size(0), H) - 1e30
    out = lib.zeros_like(k)
    for t in range(x.size(1)):
        here = m.u + k[:, t]
        p = lib.maximum(largest, here)
        old, new = lib.exp(largest - p), lib.exp(here - p)
        out[:, t] = (old * top + new * v[:, t]) / (old * bottom + new)
        p = lib.maximum(largest + w, k[:, t])
        old, new = lib.exp(largest + w - p), lib.exp(k[:, t] - p)
        top, bottom, largest = old * top + new * v[:, t], old * bottom + new, p
    return r * out


@case
def simple_recurrent_unit(lib: Any, m: Any, x: Any) -> Any:
    f, r, new = lib.sigmoid(m.a(x)), lib.sigmoid(m.b(x)), m.c(x)
    c, ys = lib.zeros(x.size(0), H), []
    for t in range(x.size(1)):
        c = f[:, t] * c + (1 - f[:, t]) * new[:, t]
        ys.append(r[:, t] * lib.tanh(c) + (1 - r[:, t]) * new[:, t])
    return lib.stack(ys, 1), c


@case
def independent_units(lib: Any, m: Any, x: Any) -> Any:
    h, ys = lib.zeros(x.size(0), H), []
    for frame in x.unbind(1):
        h = lib.relu(m.a(frame) + m.u * h)
        ys.append(m.norm(h))
    return lib.stack(ys, 1)


@case
def legendre_memory(lib: Any, m: Any, x: Any) -> Any:
    h, memory, ys = lib.zeros(x.size(0), H), lib.zeros(x.size(0), N), []
    for t in range(x.size(1)):
        u = m.one(x[:, t]) + m.from_h(h) + m.from_m(memory)
        memory = memory @ (m.matrix * 0.2) + u * m.vector
        h = lib.tanh(m.a(x[:, t]) + m.memory(memory))
        ys.append(h)
    return lib.stack(ys, 1), h


@case
def exponential_gates(lib: Any, m: Any, x: Any) -> Any:
    """sLSTM's."""
    s = {name: lib.zeros(x.size(0), H) for name in "hcm"}
    s["n"] = lib.zeros(x.size(0), H) + 1
    ys = []
    for t in range(x.size(1)):
        i, f, z, o = m.both(lib.cat([x[:, t], s["h"]], -1)).chunk(4, -1)
        top = lib.maximum(f + s["m"], i)
        new, old = lib.exp(i - top), lib.exp(f + s["m"] - top)
        c, n = old * s["c"] + new * lib.tanh(z), old * s["n"] + new
        s = {"h": lib.sigmoid(o) * c / n, "c": c, "n": n, "m": top}
        ys.append(s["h"])
    return lib.stack(ys, 1)


@case
def matrix_memory(lib: Any, m: Any, x: Any) -> Any:
    """mLSTM's, and linear attention's."""
    q, k, v, f = m.a(x), m.b(x), m.c(x), lib.sigmoid(m.one(x))
    memory, ys = lib.zeros(x.size(0), H, H), []
    for t in range(x.size(1)):
        memory = f[:, t].unsqueeze(2) * memory + v[:, t].unsqueeze(2) * k[:, t].unsqueeze(1)
        ys.append((memory * q[:, t].unsqueeze(1)).sum(-1))
    return lib.stack(ys, 1)


@case
def retention(lib: Any, m: Any, x: Any) -> Any:
    q, k, v = m.a(x), m.b(x), m.c(x)
    s, ys = 0, []
    for i in range(x.shape[1]):
        s = 0.9 * s + k[:, i].unsqueeze(2) * v[:, i].unsqueeze(1)
        ys.append((q[:, i].unsqueeze(2) * s).sum(1))
    return lib.stack(ys, dim=1)


@case
def quasi_recurrent(lib: Any, m: Any, x: Any) -> Any:
    z, f, o = lib.tanh(m.a(x)), lib.sigmoid(m.b(x)), lib.sigmoid(m.c(x))
    c, ys = None, []
    for zt, ft, ot in zip(z.unbind(1), f.unbind(1), o.unbind(1)):
        c = (1 - ft) * zt if c is None else ft * c + (1 - ft) * zt
        ys.append(ot * c)
    return lib.stack(ys, 1)


@case
def streams_of_other_lengths(lib: Any, m: Any, x: Any) -> Any:
    z, f, o = lib.tanh(m.a(x)), lib.sigmoid(m.b(x)), lib.sigmoid(m.c(x))
    c, ys = None, []
    for zt, ft, ot in zip(z.unbind(1), f.unbind(1), o[:, 1:].unbind(1)):
        c = (1 - ft) * zt if c is None else ft * c + (1 - ft) * zt
        ys.append(ot * c)
    return lib.stack(ys, 1)


@case
def complex_units_in_pairs(lib: Any, m: Any, x: Any) -> Any:
    """LRU's, and S4D's, with real and imaginary parts."""
    radius, angle = lib.sigmoid(m.u), m.first[0]
    re, im = radius * lib.cos(angle), radius * lib.sin(angle)
    fed_re, fed_im = m.a(x), m.b(x)
    s_re, s_im, ys = lib.zeros(x.size(0), H), lib.zeros(x.size(0), H), []
    for t in range(x.size(1)):
        s_re, s_im = re * s_re - im * s_im + fed_re[:, t], re * s_im + im * s_re + fed_im[:, t]
        ys.append(m.back(s_re))
    return lib.stack(ys, 1)


@case
def second_order_filter(lib: Any, m: Any, x: Any) -> Any:
    x1 = x2 = y1 = y2 = lib.zeros(x.size(0), D)
    ys = []
    for n in range(x.size(1)):
        y = 0.2 * x[:, n] + 0.3 * x1 + 0.1 * x2 + 0.5 * y1 - 0.3 * y2
        x2, x1, y2, y1 = x1, x[:, n], y1, y
        ys.append(y)
    return lib.stack(ys, 1)


@case
def a_filter_by_a_queue(lib: Any, m: Any, x: Any) -> Any:
    y1 = y2 = zero = lib.zeros(x.size(0), D)
    ys, xs = [], deque([zero, zero], maxlen=2)
    for n in range(x.size(1)):
        y = 0.2 * x[:, n] + 0.3 * xs[1] + 0.1 * xs[0] + 0.5 * y1 - 0.3 * y2
        xs.append(x[:, n])
        y2, y1 = y1, y
        ys.append(y)
    return lib.stack(ys, 1)


@case
def earlier_frames(lib: Any, m: Any, x: Any) -> Any:
    ys = []
    for t in range(x.size(1)):
        y = x[:, t]
        if t > 0:
            y = y - 0.97 * x[:, t - 1]
        if t >= 3:
            y = y + x[:, t - 3]
        ys.append(y)
    return lib.stack(ys, 1)


@case
def the_first_frame_and_earlier_ones(lib: Any, m: Any, x: Any) -> Any:
    ys = []
    for t in range(x.size(1)):
        y = x[:, t]
        if t > 0:
            y = y - 0.97 * x[:, t - 1]
        if t >= 3:
            y = y + x[:, t - 3] * x[:, 0]
        ys.append(y - x[:, max(t - 2, 0)])
    return lib.stack(ys, 1)


@case
def later_frames(lib: Any, m: Any, x: Any) -> Any:
    h, ys = lib.zeros(x.size(0), D), []
    for t in range(1, x.size(1) - 2):
        h = 0.5 * h + x[:, t + 2] - x[:, t - 1]
        ys.append(h)
    return lib.stack(ys, 1)


@case
def what_was_written(lib: Any, m: Any, x: Any) -> Any:
    fast, slow = lib.zeros_like(x), lib.zeros_like(x)
    for t in range(x.size(1)):
        if t > 0:
            fast[:, t] = 0.3 * x[:, t] + 0.7 * fast[:, t - 1]
            slow[:, t] = lib.tanh(fast[:, t - 1]) + 0.5 * slow[:, t - 1]
        else:
            fast[:, t] = x[:, t]
    return fast - slow


@case
def sums_in_place(lib: Any, m: Any, x: Any) -> Any:
    fast, slow = lib.zeros_like(x), lib.zeros_like(x)
    for t in range(x.size(1)):
        if t > 0:
            fast[:, t] += 0.3 * x[:, t]
            fast[:, t].add_(0.7 * fast[:, t - 1])
            slow[:, t] = lib.tanh(fast[:, t - 1]) + 0.5 * slow[:, t - 1]
        else:
            fast[:, t] = x[:, t]
    return fast - slow


@case
def what_was_written_into_a_copy(lib: Any, m: Any, x: Any) -> Any:
    y = x.clone()
    for t in range(2, x.size(1)):
        y[:, t] = 0.5 * y[:, t - 1] - 0.2 * y[:, t - 2] + x[:, t]
    return y * 2


@case
def rows_of_a_table(lib: Any, m: Any, x: Any) -> Any:
    h, ys = lib.zeros(x.size(0), H), []
    for t, frame in enumerate(x.unbind(1)):
        h = m.gru(frame + m.table[t], h)
        ys.append(h.unsqueeze(1))
    return lib.cat(ys, 1)


@case
def a_counter(lib: Any, m: Any, x: Any) -> Any:
    h, i, ys = lib.zeros(x.size(0), D), 0, []
    for frame in x.unbind(1):
        h = 0.5 * h + frame * m.table[i]
        i += 1  # noqa: SIM113
        ys += [h]
    return lib.stack(ys, 1)


@case
def a_counter_that_says_where(lib: Any, m: Any, x: Any) -> Any:
    h, i, y, early = lib.zeros(x.size(0), D), 0, lib.zeros_like(x), None
    unused = h
    for frame in x.unbind(1):
        h = 0.5 * h + frame * m.table[i]
        unused = lib.tanh(unused)
        if i < 2:
            early = h
        y[:, i] = h
        i += 1  # noqa: SIM113
    return y, early


@case
def a_comprehension(lib: Any, m: Any, x: Any) -> Any:
    return lib.stack([lib.tanh(m.a(frame)) for frame in x.unbind(1)], 1)


@case
def whole_streams_in_the_body(lib: Any, m: Any, x: Any) -> Any:
    h, ys = lib.zeros(x.size(0), H), [lib.relu(m.c(x))[:, t] * m.d(x[:, t]) for t in range(x.size(1))]
    for t in range(x.size(1)):
        h = 0.5 * h + lib.tanh(m.a(x))[:, t] if t > 0 else m.b(x).exp()[:, t]
    return lib.stack(ys, 1), h


@case
def two_loops(lib: Any, m: Any, x: Any) -> Any:
    h, ys = lib.zeros(x.size(0), H), []
    for t in range(x.size(1)):
        h = m.gru(x[:, t], h)
        ys.append(h)
    g, zs = lib.zeros(x.size(0), H), []
    for y in ys:
        g = m.above(y, g)
        zs.append(g)
    return lib.stack(zs, 1) + lib.stack(ys, 1)


@case
def a_learnt_beginning(lib: Any, m: Any, x: Any) -> Any:
    h, ys = m.first.expand(x.size(0), -1), []
    for t in range(x.size(1)):
        h = lib.tanh(m.a(x[:, t]) + m.u * h)
        ys.append(h)
    return lib.stack(ys, 1), h


@case
def a_beginning_by_a_cell(lib: Any, m: Any, x: Any) -> Any:
    h, ys = None, []
    for t in range(x.size(1)):
        h = m.gru(x[:, t], m.first.expand(x.size(0), -1)) if t == 0 else lib.tanh(m.a(x[:, t]) + m.u * h)
        ys.append(h)
    return lib.stack(ys, 1), h


@case
def a_dictionary(lib: Any, m: Any, x: Any) -> Any:
    kept: dict[str, Any] = {}
    ys = []
    for t in range(x.size(1)):
        before = kept.get("h")
        kept["h"] = m.gru(x[:, t]) if before is None else m.gru(x[:, t], before)
        ys.append(kept["h"])
    return lib.stack(ys, 1)


@case
def names_that_change_places(lib: Any, m: Any, x: Any) -> Any:
    a = b = lib.zeros(x.size(0), D)
    ys = []
    for frame in x.unbind(1):
        a, b = b, a + frame
        ys.append(a * 2)
    return lib.stack(ys, 1), a, b


def _left_out(lib: Any, m: Any, x: Any, by_number: bool) -> Any:
    h, ys = lib.zeros(x.size(0), H), []
    for t in range(x.size(1)):
        if t < 2 if by_number else len(ys) < 2:
            ys.append(h)
            continue
        h = m.gru(x[:, t], h)
        ys.append(h)
    return lib.stack(ys, 1)


@case
def first_frames_left_out(lib: Any, m: Any, x: Any) -> Any:
    return _left_out(lib, m, x, True)


@case
def as_many_as_were_gathered(lib: Any, m: Any, x: Any) -> Any:
    return _left_out(lib, m, x, False)


@case
def slices_of_one_frame(lib: Any, m: Any, x: Any) -> Any:
    h, ys = lib.zeros(x.size(0), 1, H), []
    for t in range(x.size(1)):
        h = lib.tanh(m.a(x[:, t : t + 1]) + m.u * h)
        ys.append(h)
    return lib.cat(ys, 1)


def _extremes(lib: Any, x: Any, less: float) -> Any:
    total, best, ys = 0.0, None, []
    for frame in x.unbind(1):
        total = total + frame
        best = frame if best is None else lib.maximum(best, frame)
        ys.append(best + total - (less * ys[-1] if less and ys else 0))
    return lib.stack(ys, 1)


@case
def extremes_so_far(lib: Any, m: Any, x: Any) -> Any:
    return _extremes(lib, x, 0)


@case
def less_what_was_gathered_last(lib: Any, m: Any, x: Any) -> Any:
    return _extremes(lib, x, 0.5)


@case
def a_beginning_with_the_first_frame(lib: Any, m: Any, x: Any) -> Any:
    h = x[:, 0]
    for t in range(1, x.size(1)):
        h = 0.9 * h + 0.1 * x[:, t]
    return h


@case
def a_first_frame_that_is_gathered(lib: Any, m: Any, x: Any) -> Any:
    h, ys = x[:, :1], [x[:, :1]]
    for t in range(1, x.size(1)):
        h = 0.5 * h + x[:, t : t + 1]
        ys.append(h)
    return lib.cat(ys, 1), h


@case
def sums_of_what_was_gathered(lib: Any, m: Any, x: Any) -> Any:
    ys = [x[:, :1]]
    for t in range(1, x.size(1)):
        ys.append(0.5 * ys[-1] + x[:, t : t + 1] - sum(0.1 * y for y in ys[-2:]))
    return lib.cat(ys, 1)


@case
def a_first_frame_that_is_written(lib: Any, m: Any, x: Any) -> Any:
    y = lib.zeros_like(x)
    y[:, 0] = x[:, 0]
    for t in range(1, x.size(1)):
        y[:, t] = 0.3 * x[:, t] + 0.7 * y[:, t - 1]
    return y


@case
def a_scan_by_function(lib: Any, m: Any, x: Any) -> Any:
    def step(carry: Any, frame: Any) -> Any:
        h, n = carry
        h = m.gru(frame, h)
        return (h, n + h), m.norm(n)

    (h, _), ys = functional(lib).scan(step, (lib.zeros(x.size(0), H), lib.zeros(x.size(0), H)), x)
    return ys, h


@case
def a_linear_recurrence(lib: Any, m: Any, x: Any) -> Any:
    a, b = lib.sigmoid(m.a(x)), m.b(x)
    h = functional(lib).linear_recurrence(a, b, lib.zeros(x.size(0), H) + 1)
    return h + functional(lib).linear_recurrence(a, b)


@case
def a_wide_state_space(lib: Any, m: Any, x: Any) -> Any:
    h, ys = lib.zeros(x.size(0), 64, D), []
    for t in range(x.size(1)):
        decay = lib.exp(-lib.sigmoid(x[:, t].unsqueeze(1) * m.table))
        h = decay * h + x[:, t].unsqueeze(1) * m.one(x[:, t]).unsqueeze(2)
        ys.append((h * m.c(x[:, t])[:, None, :D]).sum(-1))
    return lib.stack(ys, 1), h


@case
def a_wide_state_space_from_outside(lib: Any, m: Any, x: Any) -> Any:
    decays = lib.exp(-lib.sigmoid(x.unsqueeze(2) * m.table))
    inputs = x.unsqueeze(2) * m.one(x).unsqueeze(3) * m.table
    h, ys = lib.zeros(x.size(0), 64, D), []
    for t in range(x.size(1)):
        h = decays[:, t] * h + inputs[:, t]
        ys.append((h * x[:, t].unsqueeze(1)).sum(-1) + inputs[:, t].sum(-1))
    return lib.stack(ys, 1), h


@case
def gates_by_elements(lib: Any, m: Any, x: Any) -> Any:
    frames, c, ys = lib.unbind(x, 1), lib.zeros(x.size(0), H), []
    values, f, r = m.a(x).unbind(1), m.b(x), m.c(x).split(1, 1)
    for t in range(len(frames)):
        forget = lib.sigmoid(f[:, t] + m.u * c)
        c = values[t] + (c - values[t]) * forget
        ys.append(lib.tanh(c) * lib.sigmoid(r[t].squeeze(1) + c) + m.d(frames[t]))
    return lib.stack(ys, 1), c


@case
def a_complex_state_in_two_parts(lib: Any, m: Any, x: Any) -> Any:
    real = imag = lib.zeros(x.size(0), H)
    ys = []
    for t in range(x.size(1)):
        turned = m.u * imag + m.b(x[:, t])
        real, imag = lib.cos(m.u) * real - m.u * imag + m.a(x[:, t]), lib.cos(m.u) * turned + 0.5 * real
        ys.append(real - imag)
    return lib.stack(ys, 1)


@case
def a_gate_and_a_normaliser(lib: Any, m: Any, x: Any) -> Any:
    h = c = n = lib.zeros(x.size(0), H)
    most, ys = lib.zeros(x.size(0), H), []
    for t in range(x.size(1)):
        z, i, f, o = m.both(lib.cat([x[:, t], h], 1)).chunk(4, -1)
        f = lib.log(lib.sigmoid(f))
        now = lib.maximum(f + most, i)
        kept, new = lib.exp(f + most - now), lib.exp(i - now)
        c, n, most = kept * c + new * lib.tanh(z), kept * n + new, now
        h = lib.sigmoid(o) * c / n
        ys.append(h)
    return lib.stack(ys, 1)


def functional(lib: Any) -> Any:
    """Return where `scan` is."""
    import dreamstream.nn.functional

    if lib.__name__ == "dreamstream":
        return dreamstream.nn.functional
    import dreamstream.torch.functional

    return dreamstream.torch.functional
