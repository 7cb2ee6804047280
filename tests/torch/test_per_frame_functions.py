"""Functions of torch that see single elements, or a frame's matrices, run in a call; a capture refuses them."""

import pytest

torch = pytest.importorskip("torch")

from wrappers import Scaled

import dreamstream as ds
from dreamstream.errors import NotStreamableError

C = torch.tensor([[1.0, 2.0], [0.5, -1.0], [3.0, 0.0]])
CASES = {
    "lgamma": torch.lgamma,
    "a method": lambda x: x.digamma(),
    "in place": lambda x: (x * 1).lgamma_(),
    "erfinv": lambda x: torch.erfinv(x * 0.2),
    "polygamma": lambda x: torch.polygamma(1, x),
    "a constant": lambda x: torch.special.xlog1py(C[:, :1], x),
    "of torch.special": lambda x: torch.special.ndtri(x * 0.2) + torch.special.i1e(x),
    "several": lambda x: torch.frexp(x)[0],
    "softmax": lambda x: torch.special.softmax(x, -1),
    "inv": torch.linalg.inv,
    "inverse": lambda x: x.inverse() @ x + torch.inverse(x),
    "solve": lambda x: torch.linalg.solve(x, x * 2 + 1),
    "solve for a constant": lambda x: torch.linalg.solve(x, C),
    "solve by a constant": lambda x: torch.linalg.solve(torch.eye(3) + 1, x),
    "det": lambda x: torch.linalg.det(x) + torch.det(x),
    "slogdet": lambda x: torch.linalg.slogdet(x).logabsdet + torch.slogdet(x)[0],
    "cholesky": lambda x: torch.linalg.cholesky(x @ x.mT),
    "eigenvalues": lambda x: torch.linalg.eigvalsh(x + x.mT),
    "with options": lambda x: torch.linalg.solve_triangular(x, x + 1, upper=True),
    "matrix_exp": torch.matrix_exp,
}  # fmt: skip
REFUSED = {
    "of all frames": lambda x: torch.renorm(x, 2, 0, 5.0),
    "frames for rows": lambda x: torch.linalg.matrix_norm(x, "nuc", (0, 1)),
    "no batch": lambda x: torch.linalg.tensorinv(x.unsqueeze(-1)),
    "matrices of frames": lambda x: torch.linalg.svdvals(x.permute(0, 2, 3, 1)),
    "a stream for a size": torch.zeros,
}


def frames():
    drawn = torch.Generator().manual_seed(0)
    return torch.rand(1, 9, 3, 3, generator=drawn) + 2 * torch.eye(3)


def chunks(x, *ends):
    for begin, end in zip((0, *ends), ends):
        names, last = ("B", "L", None, None), end == x.shape[1]
        yield ds.stream_tensor(x[:, begin:end], names=names, ids=["a"], sos=begin == 0, eos=last)


@pytest.mark.parametrize("name", CASES)
def test_as_torch(name):
    x, plain, model = frames(), Scaled(CASES[name]), ds.patch_module(Scaled(CASES[name])).online()
    wanted = plain(x)
    with torch.no_grad():
        got = torch.cat([model.eval()(c).tensor() for c in chunks(x, 2, 3, 9)], 1)
    torch.testing.assert_close(got, wanted.detach(), rtol=1e-5, atol=1e-5)
    (whole,) = chunks(x, 9)
    model.train()(whole).tensor().square().sum().backward()
    wanted.square().sum().backward()
    torch.testing.assert_close(model.scale.grad, plain.scale.grad, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    (whole,) = chunks(frames(), 9)
    with pytest.raises(NotStreamableError, match=r"torch.* on a stream inside a forward") as caught:
        ds.patch_module(Scaled(REFUSED[name])).eval().online()(whole)
    assert "has no attribute" not in str(caught.value)  # an error of dreamstream's own inside


@pytest.mark.parametrize("name", ["lgamma", "inv"])
def test_an_engine_has_no_operator_for_them(name):
    with pytest.raises(NotStreamableError, match=f"{name} on a stream inside a forward"):
        ds.compile(Scaled(CASES[name]).eval(), ("B", "L", 3, 3))
