"""`dreamstream.h` says how much stack is enough: models of all sorts live on no more, on every backend."""

import re
from pathlib import Path

import pytest

import dreamstream as ds
from dreamstream import nn

HERE = Path(__file__).parent
HEADER = (HERE.parents[1] / "csrc" / "include" / "dreamstream.h").read_text()
FIGURES = re.search(r"Stack\. (\d+) KB.*?another\W+(\d+) KB", HEADER, re.DOTALL)
ENOUGH, OF_OPENBLAS = (int(n) << 10 for n in FIGURES.groups())


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(128, 1, batch_first=True)

    def forward(self, x):
        return self.attention(x, x, x, need_weights=False, is_causal=True)[0]


class Everything(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.lstm = nn.LayerNorm(128), nn.LSTM(128, 64, batch_first=True)
        self.conv, self.up = nn.Conv1d(64, 96, 5, padding=2), nn.ConvTranspose1d(96, 64, 4, stride=2)
        self.groups, self.pool = nn.BatchNorm1d(64), nn.MaxPool1d(2)

    def forward(self, x):
        x = self.lstm(self.norm(x))[0].transpose(1, 2)
        x = self.pool(self.groups(self.up(self.conv(x).relu())))
        return x.softmax(1), x.cumsum(2), x.mean(2)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    deep = nn.Sequential(nn.Linear(128, 2000), nn.Linear(2000, 64)).eval()
    models = {
        "attention": (Attention().eval(), {}),
        "everything": (Everything().eval(), {}),
        "wide": (deep, {}),
        **{f"weights_{w}": (deep, {"weights": w}) for w in ("int8", "bf16", "fp16")},
        **{f"products_{p}": (deep, {"products": p}) for p in ("int8", "bf16")},
    }
    for name, (model, how) in models.items():
        with ds.compile(model, ("B", "L", 128), verify=False, **how) as engine:
            engine.save(folder / f"{name}.dsm")
    return sorted(map(str, folder.glob("*.dsm")))


def test_models_live_on_a_small_stack(c_build, files):
    made = c_build.engine("plain")
    n_bytes = ENOUGH + (OF_OPENBLAS if "-DDS_HAVE_OPENBLAS=1" in made.cflags else 0)
    done = c_build.run(c_build.program(made, HERE / "dsm_stack.c"), str(n_bytes), *files)
    assert done.returncode == 0, f"{n_bytes} bytes of stack: exit status {done.returncode} {done.stdout}"
