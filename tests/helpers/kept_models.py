"""Networks in the layers of either library whose backwards keep different things: inputs are (B, L, 8)."""

import dreamstream as ds


def _attended(m, x):
    q, k, v = (t.unflatten(-1, (2, 4)).transpose(1, 2) for t in m.first(x).chunk(3, -1))
    y = m.functions.scaled_dot_product_attention(q, k, v, is_causal=True)
    return y.transpose(1, 2).flatten(2)


def _looped(m, x):
    h, gathered = m.zeros(8), []
    for t in range(x.shape[1]):
        h = (m.first(x[:, t]) + h).tanh()
        gathered.append(h)
    return m.stack(gathered, 1)


def _experts(lib):
    from dreamstream.torch import nn as bridge

    return (ds.nn if lib is ds else bridge).FMoETransformerMLP(4, 8, 16, top_k=2)


#: By name: what makes the first layers of a library, and the forward of these; how many features that gives; and
#: the bytes of a stream's state, in pieces of 64, that are read backwards; None where these grow.
KINDS = {
    "convolution": (
        lambda lib: lib.nn.Conv1d(8, 6, 5, stride=2, padding=2),
        lambda m, x: m.first(x.mT).mT,
        6,
        128,
    ),
    "pooling": (lambda lib: lib.nn.MaxPool1d(2), lambda m, x: m.first(x.mT.tanh()).mT, 8, 0),
    "RNN": (lambda lib: lib.nn.RNN(8, 6, batch_first=True), lambda m, x: m.first(x)[0], 6, 64),
    "GRU": (lambda lib: lib.nn.GRU(8, 6, 2, batch_first=True), lambda m, x: m.first(x)[0], 6, 64),
    "LSTM": (lambda lib: lib.nn.LSTM(8, 6, batch_first=True), lambda m, x: m.first(x)[0], 6, 128),
    "dropping LSTM": (
        lambda lib: lib.nn.LSTM(8, 6, 2, batch_first=True, dropout=0.5),
        lambda m, x: m.first(x)[0],
        6,
        128,
    ),
    "attention": (lambda lib: lib.nn.Linear(8, 24), _attended, 8, None),
    "encoder": (
        lambda lib: lib.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.25, batch_first=True),
        lambda m, x: m.first(x),
        8,
        512,
    ),
    "experts": (_experts, lambda m, x: m.first(x.tanh()).tanh(), 8, 0),
    "dropout": (lambda lib: lib.nn.Dropout(0.5), lambda m, x: m.first(x).tanh(), 8, 0),
    "batch norm": (lambda lib: lib.nn.BatchNorm1d(8), lambda m, x: m.first(x.mT).mT, 8, 0),
    "loop": (lambda lib: lib.nn.Linear(8, 8), _looped, 8, 64),
    "cumulative": (lambda lib: lib.nn.Linear(8, 8), lambda m, x: m.first(x).cumsum(1).tanh(), 8, 0),
}


def network(lib, kind):
    """Return a network, in training but for what needs whole files for it, and what its attention sees."""
    make, forward, features, _ = KINDS[kind]

    class Network(lib.nn.Module):
        functions, zeros, stack = lib.nn.functional, staticmethod(lib.zeros), staticmethod(lib.stack)

        def __init__(self):
            super().__init__()
            self.first, self.head = make(lib), lib.nn.Linear(features, 2)

        def forward(self, x):
            return self.head(forward(self, x))

    model = Network().train()
    if kind == "batch norm":
        model.first.eval()
    return model, ds.Context(4, 8) if kind == "encoder" else None
