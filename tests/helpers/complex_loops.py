"""State spaces with complex numbers, as loops over frames."""

import torch
from loop_models import D


class Diagonal(torch.nn.Module):
    """A diagonal state space with complex numbers: what it carries, and perhaps gathers, is complex."""

    def __init__(self, gathers):
        super().__init__()
        torch.manual_seed(1)
        self.gathers, complex_ = gathers, torch.complex64 if torch.get_default_dtype() == torch.float32 else None
        made = [torch.randn(n, dtype=complex_ or torch.complex128) * 0.4 for n in ((D, 3), (D, 3), (D, 3))]
        self.decay, self.into, self.out = map(torch.nn.Parameter, made)

    def forward(self, x):
        z, ys = self.into * x.unsqueeze(-1), []
        h = torch.zeros_like(z[:, 0]) if self.gathers else torch.zeros(x.size(0), D, 3, dtype=z.dtype)
        for t in range(x.size(1)):
            h = self.decay * h + z[:, t]
            ys.append(h if self.gathers else 2 * (self.out * h).sum(-1).real)
        y = torch.stack(ys, 1)
        return (y * self.out).sum(-1).real if self.gathers else y, torch.view_as_real(h)


class DiagonalByFrames(Diagonal):
    """The same frame by frame, from a learned state on, and a loop over what that gathers."""

    def forward(self, x):
        z, ys, gs = self.into * x.unsqueeze(-1), [], []
        h, made = self.out.expand(x.size(0), D, 3), torch.zeros(*x.shape[:2], D, 3, dtype=z.dtype)
        for frame in z.unbind(1):
            h = self.decay * h + frame
            ys.append(h)
        g = torch.full((x.size(0), D, 3), 1j, dtype=z.dtype)
        for h in ys:
            g = self.decay * g + h
            gs.append(g)
        made[:, 2:] = torch.stack(gs[2:], 1)
        return torch.view_as_real(made), torch.view_as_real(g)


def diagonal(gathers):
    return DiagonalByFrames(True) if gathers == "by frames" else Diagonal(gathers)
