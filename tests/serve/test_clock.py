"""Sockets that are looked at once a tick."""

from __future__ import annotations

import selectors
import socket

import pytest

from dreamstream.serve import clock


@pytest.fixture
def looked(monkeypatch):
    """A clock with its loop's own socket and another, the ends that write to them, and what it has waited for."""
    now, waits = [100.0], []

    def wait(own, _write, _other, seconds):
        waits.append(round(seconds, 6))
        ready = select(own, (), (), 0)
        now[0] += 0 if ready[0] else seconds
        return ready

    select = clock.select.select
    monkeypatch.setattr(clock.select, "select", wait)
    monkeypatch.setattr(clock.time, "monotonic", lambda: now[0])
    (own, wake), (other, peer) = socket.socketpair(), socket.socketpair()
    made = clock.Clock(0.5)
    made.register(own, selectors.EVENT_READ)
    made.register(other, selectors.EVENT_READ)
    yield made, own, wake, other, peer, waits, now
    made.close()
    for each in (own, wake, other, peer):
        each.close()


def ready(found):
    return [key.fileobj for key, _ in found]


def test_looks_are_a_tick_apart(looked):
    made, _, _, other, peer, waits, now = looked
    peer.send(b"x")
    assert ready(made.select(None)) == [other] and waits == []  # after a pause at once
    assert ready(made.select(None)) == [other] and waits == [0.5]
    now[0] += 0.2
    assert ready(made.select(10.0)) == [other] and waits == [0.5, 0.3]
    assert ready(made.select(0)) == [other] and len(waits) == 2  # what is asked without waiting does not wait
    now[0] += 3.0
    assert ready(made.select(None)) == [other] and len(waits) == 2


def test_a_time_that_is_nearer_than_the_next_look(looked):
    made, _, _, _, _, waits, _ = looked
    made.select(0.0001)
    assert made.select(0.1) == [] and waits == [0.1]


def test_another_thread_is_heard_at_once(looked):
    made, own, wake, other, peer, waits, now = looked
    made.select(0.0001)
    wake.send(b"x"), peer.send(b"x")
    assert set(ready(made.select(None))) == {own, other} and waits == [0.5] and now[0] == 100.0
