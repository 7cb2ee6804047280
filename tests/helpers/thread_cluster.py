"""A cluster of threads, whose workers and vaults die, hang and wake when a test says so."""

import contextlib
import pickle
import threading
import time
from concurrent.futures import Future, InvalidStateError
from functools import partial

from dreamstream.serve.pool import Worker
from dreamstream.serve.vaults import Vault


class Thing:
    """An object in a thread of its own, which takes calls in their order."""

    def __init__(self, make, late=True):
        self.calls, self.more, self.late = [], threading.Condition(), late
        self.dead = self.stopped = self.killed = False
        self.delay = 0.0
        self.done = 0
        threading.Thread(target=self._run, args=(make,), daemon=True).start()

    def _run(self, make):
        made = make()
        while True:
            with self.more:
                self.more.wait_for(lambda: self.calls and not self.stopped)
                method, args, answer = self.calls.pop(0)
            time.sleep(self.delay)
            try:
                found = pickle.loads(pickle.dumps(getattr(made, method)(*pickle.loads(args))))
            except Exception as error:
                answer.set_exception(error)
            else:
                self.done += 1
                with contextlib.suppress(InvalidStateError):  # it was killed meanwhile
                    answer.set_result(found)

    def call(self, method, *args):
        answer = Future()
        if self.dead:
            answer.set_exception(RuntimeError("it is dead"))
        else:
            with self.more:
                self.calls.append((method, pickle.dumps(args), answer))
                self.more.notify()
        return answer

    def fill_from(self, other):
        answer = Future()

        def merge(content):
            if content.exception() is not None:
                answer.set_exception(content.exception())
            else:
                self.call("merge", content.result()).add_done_callback(lambda done: answer.set_result(None))

        other.call("content").add_done_callback(merge)
        return answer

    def kill(self):
        """End; one that is `late` has answers all the same."""
        self.killed = True
        if not self.late:
            self.die()

    def die(self):
        """End, with all that was asked; unlike one that is stopped, which can be asked, and is silent."""
        with self.more:
            self.dead, calls = True, self.calls[:]
            self.calls.clear()
        for _, _, answer in calls:
            answer.set_exception(RuntimeError("it has died"))

    def stop(self, stopped=True):
        with self.more:
            self.stopped = stopped
            self.more.notify()


class Threads:
    """A cluster of threads."""

    def __init__(self):
        self.workers, self.vaults = [], {}

    def worker(self, make):
        self.workers.append(Thing(partial(Worker, make)))
        return self.workers[-1]

    def vault(self, number):
        there = self.vaults.get(number)
        if there is None or there.dead:
            self.vaults[number] = Thing(partial(Vault, 60.0), late=False)
        return self.vaults[number]

    def alive(self):
        return [w for w in self.workers if not (w.dead or w.stopped or w.killed)]
