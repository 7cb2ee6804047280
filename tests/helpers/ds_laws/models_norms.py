"""Norms and what reduces or mixes features, as layers and small stacks; see `models`."""

from typing import Any

from nets import net

from .models import BCL, BLC, _layer, _stack

_layer("rms-norm", lambda nn, F: nn.RMSNorm(7), BLC, 7)
_layer("batch-norm", lambda nn, F: nn.BatchNorm1d(5), BCL, 5)
_layer("group-norm", lambda nn, F: nn.GroupNorm(2, 6), BCL, 6, whole=True)
_layer("instance-norm", lambda nn, F: nn.InstanceNorm1d(3, affine=True), BCL, 3, whole=True)
_layer("instance-norm-tracked", lambda nn, F: nn.InstanceNorm1d(3, track_running_stats=True), BCL, 3)


@_stack(BCL, 4, reach=8)
def _convolutions_with_norms(nn: Any, F: Any) -> Any:
    """Batch norm between convolutions, a residual with a norm of its own."""

    def forward(self: Any, x: Any) -> Any:
        x = self.second(F.relu(self.bn(self.first(x)))).transpose(1, 2)
        return x + self.rms(x)

    return net(
        nn,
        forward,
        first=nn.Conv1d(4, 6, 3, padding=1, bias=False),
        bn=nn.BatchNorm1d(6),
        second=nn.Conv1d(6, 6, 3, stride=2, padding=1),
        rms=nn.RMSNorm(6),
    )


@_stack(BCL, 6, reach=3)
def _norms_of_frames(nn: Any, F: Any) -> Any:
    """A network on every frame by itself: images of features, normalised over their inner axes."""

    def forward(self: Any, x: Any) -> Any:
        n, length = x.size(0), x.size(2)
        frames = x.permute(0, 2, 1).reshape(n * length, 2, 3)
        frames = self.instance(frames * 2 + self.group(frames)) + self.group(frames)
        frames = self.layer(frames.transpose(1, 2))
        return frames.reshape(n, length, 6)

    return net(
        nn, forward, group=nn.GroupNorm(1, 2), instance=nn.InstanceNorm1d(2, affine=True), layer=nn.LayerNorm(2)
    )


@_stack(BCL, 6, reach=3)
def _reductions(nn: Any, F: Any) -> Any:
    """Statistics of features, used by their frames."""

    def forward(self: Any, x: Any) -> Any:
        grid = x.reshape(x.size(0), 2, 3, x.size(2))
        y = (x - x.mean(1, keepdim=True)) / (x.std(1, keepdim=True) + 0.1)
        y = y + x.logsumexp(1, keepdim=True) - F.normalize(x, dim=1)
        y = y * grid.norm(dim=(1, 2)).unsqueeze(1) + grid.sum(2).amax(1, keepdim=True)
        return y + grid.var((1, 2), correction=0).unsqueeze(1) * x.max(1, keepdim=True)[0]

    return net(nn, forward)


@_stack(BCL, 6, reach=3)
def _matrices(nn: Any, F: Any) -> Any:
    """Products with constants from both sides, with one matrix and with one per head."""

    def forward(self: Any, x: Any) -> Any:
        y = self.left.weight @ x  # (B, 4, L)
        z = x.transpose(1, 2)
        heads = z.reshape(z.size(0), z.size(1), 2, 1, 3) @ self.heads.weight  # (B, L, 2, 1, 5)
        more = heads.flatten(2) @ self.pair.weight.reshape(-1)[:10]
        return y * more.unsqueeze(1) + self.pair(y.transpose(1, 2), z).mean(-1).unsqueeze(1)

    return net(nn, forward, left=nn.Linear(6, 4), heads=nn.Bilinear(3, 5, 2), pair=nn.Bilinear(4, 6, 3))
