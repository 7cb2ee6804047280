"""The tape of plain tensors: leaves, modes, hooks, writes in place, what is refused, and when it is freed."""

import copy
import gc
import pickle
import threading
import weakref

import numpy as np
import pytest

import dreamstream as ds
from dreamstream.errors import DTypeError, ModeError, ShapeError


def leaf(*values):
    return ds.tensor(list(values), dtype=ds.float64, requires_grad=True)


# ---------------------------------------------------------------------- leaves and what follows from them
def test_what_follows_from_a_leaf_knows_it():
    x = leaf(1, 2)
    y = x * 2
    assert x.is_leaf and x.requires_grad and x.grad_fn is None
    assert not y.is_leaf and y.requires_grad and "mul" in repr(y.grad_fn)
    assert y.detach().is_leaf and not y.detach().requires_grad
    assert not (x > 1).requires_grad and not x.argmax().requires_grad and not x.long().requires_grad
    assert "requires_grad=True" in repr(y)


def test_gradients_add_up_in_leaves_until_they_are_removed():
    x = leaf(1, 2)
    for n in (1, 2):
        (x * x).sum().backward()
        assert x.grad.tolist() == [2 * n, 4 * n]
    x.grad = None
    y = x * 3
    (y + y * x).sum().backward()  # a fork
    assert x.grad.tolist() == [3 + 6, 3 + 12]


def test_a_leaf_may_be_the_end_itself():
    x = leaf(4)
    x.backward()
    assert x.grad.tolist() == [1]


def test_gradients_share_no_memory():
    x, y = leaf(1, 2), leaf(3, 4)
    g = ds.tensor([1.0, 1.0], dtype=ds.float64)
    (x + y).backward(g)
    x.grad.numpy()[:] = 7
    assert y.grad.tolist() == [1, 1] and g.tolist() == [1, 1]


def test_integers_have_no_gradients():
    with pytest.raises(DTypeError, match="requires_grad"):
        ds.tensor(np.arange(3), requires_grad=True)
    y = leaf(1, 2) * 2
    with pytest.raises(ModeError, match="detach"):
        y.requires_grad = False


def test_copies_and_pickles_are_leaves():
    x = leaf(1, 2)
    (x * 2).sum().backward()
    y = x * 2
    for again in (copy.copy(y), copy.deepcopy(y), pickle.loads(pickle.dumps(y))):
        assert again.is_leaf and again.tolist() == [2, 4]
    other = copy.deepcopy(x)
    assert other.requires_grad and other.grad.tolist() == [2, 2] and other.grad is not x.grad


# ---------------------------------------------------------------------- modes
def test_modes_nest_and_decorate():
    x = leaf(1)

    @ds.no_grad()
    def quietly():
        return x * 2

    @ds.no_grad
    def bare():
        return x * 2

    assert not quietly().requires_grad and not bare().requires_grad and (x * 2).requires_grad
    with ds.no_grad():
        assert not ds.is_grad_enabled()
        with ds.enable_grad():
            assert (x * 2).requires_grad
        with ds.set_grad_enabled(True):
            assert (x * 2).requires_grad
        assert not (x * 2).requires_grad
    with ds.inference_mode():
        assert not (x * 2).requires_grad
    with ds.inference_mode(False):
        assert (x * 2).requires_grad
    ds.set_grad_enabled(False)
    assert not (x * 2).requires_grad
    ds.set_grad_enabled(True)
    assert (x * 2).requires_grad


def test_a_mode_ends_with_an_exception_and_is_of_its_thread():
    with pytest.raises(ValueError), ds.no_grad():
        raise ValueError
    assert ds.is_grad_enabled()
    seen = []
    with ds.no_grad():
        thread = threading.Thread(target=lambda: seen.append(ds.is_grad_enabled()))
        thread.start()
        thread.join()
    assert seen == [True]


# ---------------------------------------------------------------------- grad
def test_grad_leaves_leaves_alone():
    x, y = leaf(3), leaf(5)
    z = x * y
    gx, gz = ds.autograd.grad(z * z, [x, z])
    assert (gx.tolist(), gz.tolist(), x.grad, y.grad) == ([150], [30], None, None)
    none = leaf(0)  # whatever a leaf's values are
    assert ds.autograd.grad(none * y, [none])[0].tolist() == [5]


def test_grad_of_what_is_not_used():
    x, y = leaf(3), leaf(5)
    with pytest.raises(ModeError, match="allow_unused"):
        ds.autograd.grad(x * 2, [x, y])
    assert ds.autograd.grad(x * 2, [x, y], allow_unused=True)[1] is None
    assert ds.autograd.grad(x * 2, [x, y], materialize_grads=True)[1].tolist() == [0]
    with pytest.raises(ModeError, match="requires_grad"):
        ds.autograd.grad(x * 2, ds.ones(1))


def test_backward_into_some_inputs_only():
    x, y = leaf(3), leaf(5)
    (x * y).backward(inputs=[x])
    assert x.grad.tolist() == [5] and y.grad is None


# ---------------------------------------------------------------------- what is refused changes nothing
def test_what_can_not_be_gone_through():
    x, y = leaf(1, 2), leaf(3, 4)
    with pytest.raises(ShapeError, match="gradient"):
        (x * y).backward()
    with pytest.raises(ShapeError, match=r"\(3,\)"):
        (x * y).backward(ds.ones(3, dtype=ds.float64))
    with pytest.raises(DTypeError, match="float32"):
        (x * y).backward(ds.ones(2))
    with pytest.raises(ModeError, match="requires_grad"):
        ds.ones(1).backward()
    with pytest.raises(ModeError, match="create_graph"):
        (x * y).sum().backward(create_graph=True)
    used = x * y
    used.sum().backward()
    x.grad = y.grad = None
    with pytest.raises(ModeError, match="retain_graph"):
        (used.sum() + x.sum()).backward()
    assert x.grad is None and y.grad is None
    kept = (x * y).sum()
    kept.backward(retain_graph=True)
    kept.backward()
    assert x.grad.tolist() == [6, 8]


def test_what_was_written_into_since_is_refused():
    x = leaf(1, 2)
    y = x.exp()
    z = y * 2
    y += 1  # exp reads what it gave
    with pytest.raises(ModeError, match=r"exp .*written"):
        z.sum().backward()
    assert x.grad is None
    y = x + 1
    z = y.sum()
    y *= 2  # nobody reads it
    z.backward()
    assert x.grad.tolist() == [1, 1]
    w = leaf(1, 2)
    loss = (w * w).sum()
    with ds.no_grad():
        w.sub_(1)
    assert w._version == 1
    with pytest.raises(ModeError, match=r"mul .*written"):
        loss.backward()


# ---------------------------------------------------------------------- writes in place
def test_a_leaf_is_not_written_into():
    x = leaf(1, 2)
    for write in (lambda: x.add_(1), lambda: x[:1].mul_(2), lambda: x.__setitem__(0, 1), lambda: x.zero_()):
        with pytest.raises(ModeError, match="no_grad"):
            write()
    with ds.no_grad():
        x.add_(1)
    assert x.tolist() == [2, 3] and x.is_leaf


def test_what_is_written_is_followed():
    x = leaf(1, 2, 3)
    y = x * 1
    y[0] = x[2] * 5
    y.mul_(2)
    y[1:] += x[:2]
    y.sum().backward()
    assert x.grad.tolist() == [1, 3, 12]
    buffer = ds.zeros(3, dtype=ds.float64)
    x.grad = None
    buffer[1] = x.sum()
    buffer.fill_(x[0])
    buffer.sum().backward()
    assert x.grad.tolist() == [3, 0, 0]


def test_views_follow_from_what_is_written_into_their_base():
    x = leaf(1, 2, 3, 4)
    y = x * 1
    square = y.reshape(2, 2)
    row, column = square[0], square[:, 0]
    row.mul_(x[3])  # into y, and into column
    assert (column.tolist(), y.tolist()) == ([4, 3], [4, 8, 3, 4])
    (column * column).sum().backward(retain_graph=True)
    assert x.grad.tolist() == [32, 0, 6, 8]
    x.grad = None
    y.sum().backward()
    assert x.grad.tolist() == [4, 4, 1, 1 + 1 + 2]
    buffer, z = ds.zeros(2, 2, dtype=ds.float64), leaf(5, 6)
    buffer.T[0].copy_(z)
    assert buffer.requires_grad
    (buffer * ds.tensor([[1.0, 2], [3, 4]], dtype=ds.float64)).sum().backward()
    assert z.grad.tolist() == [1, 3]


# ---------------------------------------------------------------------- hooks
def test_hooks_see_and_replace_gradients():
    x, seen = leaf(1, 2), []
    y = x * 3
    first = y.register_hook(lambda g: seen.append(g.tolist()))
    y.register_hook(lambda g: g * 10)
    with x.register_hook(lambda g: g + 1):
        y.retain_grad()
        (y * 2).sum().backward(retain_graph=True)
    assert (seen, y.grad.tolist(), x.grad.tolist(), y.retains_grad) == ([[2, 2]], [20, 20], [61, 61], True)
    first.remove()
    x.grad = None
    (y * 2).sum().backward()
    assert seen == [[2, 2]] and x.grad.tolist() == [60, 60]
    with pytest.raises(ModeError, match="register_hook"):
        ds.ones(1).register_hook(print)
    with pytest.raises(ShapeError, match="hook"):
        z = leaf(1, 2)
        z.register_hook(lambda g: g[:1])
        z.sum().backward()


def test_a_hook_that_raises_leaves_no_gradient():
    x, y = leaf(1), leaf(2)
    z = x * y

    def fail(g):
        raise KeyError

    z.register_hook(fail)
    with pytest.raises(KeyError):
        (z + y).backward()
    assert x.grad is None and y.grad is None


# ---------------------------------------------------------------------- memory
@pytest.fixture
def uncollected():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("uncollected")
def test_a_tape_is_freed_by_counting_references():
    x = leaf(*range(1000))
    dead = []
    for done in (True, False):
        y = x.exp()
        y.register_hook(lambda g: None)
        y.retain_grad()
        z = (y * x)[2:].reshape(2, -1)
        z[0] = 1
        loss = (z.cumsum(1) + z).sum()
        dead += [weakref.ref(t._array) for t in (y, z)] + [weakref.ref(y)]
        if done:
            loss.backward()
        del y, z, loss
    assert not any(r() is not None for r in dead)


@pytest.mark.usefixtures("uncollected")
def test_what_backward_needs_no_more_is_freed_with_it():
    x = leaf(1, 2)
    y = x.exp()
    loss = (y * y).sum()
    kept = weakref.ref(y._array.base)
    del y
    assert kept() is not None
    loss.backward()
    assert kept() is None and loss.item() > 0


def test_long_chains_are_no_recursion():
    x = leaf(1)
    y = x
    for _ in range(4_000):
        y = y + 1
    y.backward()
    assert x.grad.tolist() == [1]
    y = x
    for _ in range(4_000):
        y = y + 1
    del y
