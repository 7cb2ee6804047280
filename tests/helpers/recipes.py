"""Three recipes of training, in the layers of either library: networks and losses."""


def tagger(lib):
    """A convolution that looks ahead, recurrent layers and a layer per frame."""

    class Tagger(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = lib.nn.Conv1d(12, 24, 5, stride=2, padding=2)
            self.rnn, self.head = lib.nn.GRU(24, 24, num_layers=2, batch_first=True), lib.nn.Linear(24, 6)

        def forward(self, x):
            return self.head(self.rnn(self.conv(x).relu().transpose(1, 2))[0])

    return Tagger()


def conformer(lib, causal=True):
    """Blocks of half feed-forward layers, attention over all frames so far, and a gated convolution.

    Without `causal` what attention sees has to be declared.
    """
    f = lib.nn.functional

    class Block(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.norms = lib.nn.ModuleList(lib.nn.LayerNorm(24) for _ in range(5))
            self.first, self.last = (
                lib.nn.Sequential(lib.nn.Linear(24, 48), lib.nn.SiLU(), lib.nn.Linear(48, 24)) for _ in range(2)
            )
            self.q, self.k, self.v, self.out = (lib.nn.Linear(24, 24) for _ in range(4))
            self.wide, self.depth = lib.nn.Conv1d(24, 48, 1), lib.nn.Conv1d(24, 24, 5, padding=2, groups=24)
            self.narrow = lib.nn.Conv1d(24, 24, 1)

        def forward(self, x):
            x = x + self.first(self.norms[0](x)) * 0.5
            y = self.norms[1](x)
            q, k, v = (layer(y).unflatten(-1, (3, 8)).transpose(1, 2) for layer in (self.q, self.k, self.v))
            y = f.scaled_dot_product_attention(q, k, v, is_causal=causal)
            x = x + self.out(y.transpose(1, 2).flatten(2))
            y = f.glu(self.wide(self.norms[2](x).transpose(1, 2)), 1)
            x = x + self.narrow(f.silu(self.depth(y))).transpose(1, 2)
            return self.norms[4](x + self.last(self.norms[3](x)) * 0.5)

    class Conformer(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.front = lib.nn.Conv1d(12, 24, 3, stride=2, padding=1)
            self.blocks, self.head = lib.nn.Sequential(Block(), Block()), lib.nn.Linear(24, 6)

        def forward(self, x):
            return self.head(self.blocks(self.front(x).transpose(1, 2)))

    return Conformer()


def cross_entropy(lib):
    return lambda y, target: lib.nn.functional.cross_entropy(y.transpose(1, 2), target)


def ctc(lib):
    f = lib.nn.functional

    def loss(y, target):
        parts = []
        for i, labels in zip(y.ids, target):
            scores = f.log_softmax(y[i], -1)
            parts.append(f.ctc_loss(scores, lib.tensor(labels), lib.tensor(len(scores)), lib.tensor(len(labels))))
        return sum(parts) / len(parts)

    return loss
