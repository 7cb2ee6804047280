"""Sockets that are looked at once a tick."""

import selectors
import socket

from dreamstream.serve import clock


def ready(found):
    return {key.fileobj for key, _ in found}


def test_looks_are_a_tick_apart(monkeypatch):
    now, waits, select = [100.0], [], clock.select.select

    def wait(own, _write, _other, seconds):
        waits.append(round(seconds, 6))
        found = select(own, (), (), 0)
        now[0] += 0 if found[0] else seconds
        return found

    monkeypatch.setattr(clock.select, "select", wait)
    monkeypatch.setattr(clock.time, "monotonic", lambda: now[0])
    (own, wake), (other, peer), made = socket.socketpair(), socket.socketpair(), clock.Clock(0.5)
    with own, wake, other, peer:
        made.register(own, selectors.EVENT_READ), made.register(other, selectors.EVENT_READ)
        assert made.select(0.0001) == []
        assert made.select(0.1) == [] and waits == [0.1]  # a time that is nearer than the next look
        now[0] += 3.0
        peer.send(b"x")
        assert ready(made.select(None)) == {other} and waits == [0.1]  # after a pause at once
        assert ready(made.select(None)) == {other} and waits == [0.1, 0.5]
        now[0] += 0.2
        assert ready(made.select(10.0)) == {other} and waits == [0.1, 0.5, 0.3]
        assert ready(made.select(0)) == {other} and len(waits) == 3  # what is asked without waiting does not wait
        then = now[0]
        wake.send(b"x")  # as another thread does
        assert ready(made.select(None)) == {own, other} and waits[3:] == [0.5] and now[0] == then
    made.close()
