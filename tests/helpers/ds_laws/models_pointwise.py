"""Models of rectifiers and other pointwise functions."""

from typing import Any

from nets import net

from .models import BCL, BLC, _layer as layer, _stack as stack

__all__: list[str] = []

layer("prelu-layer", lambda nn, F: nn.PReLU(3), BCL, 3)
layer("prelu-of-one", lambda nn, F: nn.PReLU(), BLC, 3)
layer("rectifiers", lambda nn, F: nn.Sequential(*_layers(nn)), BCL, 3)


def _layers(nn: Any) -> list[Any]:
    return [
        nn.ELU(0.7),
        nn.LeakyReLU(0.2),
        nn.CELU(0.5),
        nn.SELU(),
        nn.Hardswish(),
        nn.Dropout1d(),
        nn.Hardtanh(-2.0, 3.0),
        nn.Mish(),
        nn.Softsign(),
        nn.Tanhshrink(),
        nn.AlphaDropout(),
        nn.Softshrink(0.01),
        nn.Hardshrink(0.02),
        nn.RReLU(),
        nn.Threshold(-0.5, 0.1),
        nn.Hardsigmoid(),
        nn.ReLU6(),
        nn.Softmin(1),
    ]


@stack(BCL, 2, reach=8)
def _phases(nn: Any, F: Any) -> Any:
    """Angles and sizes of two branches with different delays, joined."""

    def forward(self: Any, x: Any) -> Any:
        a, b = self.real(x), self.imaginary(x)
        size = a.hypot(b)
        angle = b.atan2(a.abs() + 0.1)
        wrapped = (angle * 3).remainder(2) - (size * 2).fmod(1.5)
        return wrapped.lerp(size.asinh(), 0.3), a.logaddexp(b), (size + 1).acosh().xlogy(size)

    return net(nn, forward, real=nn.Conv1d(2, 3, 5, padding=2), imaginary=nn.Conv1d(2, 3, 3, padding=1))
