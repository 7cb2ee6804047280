"""A cluster of Ray: workers as actors that nobody starts again, vaults as actors that outlive servers."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from functools import partial
from typing import Any

from ..data.ray import connect
from .pool import Worker
from .vaults import Vault

try:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
except ImportError:
    raise ImportError("a cluster needs the package ray: pip install 'dreamstream[ray]'") from None

#: In which vaults have their names.
_NAMESPACE = "dreamstream"
#: Ray's own attempts would do a step twice, and what it starts again has no streams.
_ONCE = {"max_restarts": 0, "max_task_retries": 0}
#: Seconds for which nothing begins on a node that has lost something: Ray takes 15 to notice that a node is gone.
_AVOIDED = 20.0


class RayHandle:
    """An actor."""

    def __init__(self, actor: Any, killed: Callable[[], None]) -> None:
        self.actor, self._killed = actor, killed

    def call(self, method: str, *args: Any) -> Future[Any]:
        """Call a method, after those that were called before."""
        try:
            answer: Future[Any] = getattr(self.actor, method).remote(*args).future()
        except Exception as error:  # of an actor that is known to be dead
            answer = Future()
            answer.set_exception(error)
        return answer

    def fill_from(self, other: RayHandle) -> Future[Any]:
        """Let a vault take what another has, which goes from one to the other."""
        return self.call("merge", other.actor.content.remote())

    def kill(self) -> None:
        """End the actor at once, whatever it does."""
        self._killed()
        ray.kill(self.actor, no_restart=True)


class RayCluster:
    """A Ray that runs; ConnectionError is raised where there is none.

    `address` is that of its head, as ``127.0.0.1:6379``; ``"local"`` begins one in this process's machine, which
    ends with it. Vaults forget a stream that no server has after `keep` seconds. A worker has `threads` processor
    cores.
    """

    def __init__(self, address: str, keep: float, threads: int = 1) -> None:
        self._keep, self._threads, self._turn = keep, threads, itertools.count()
        self._where: dict[int, Future[str]] = {}  # the nodes of vaults
        self._lost: dict[str, float] = {}  # when something was lost on a node
        # As many workers as are asked for, whatever cores this machine has; Ray's own niceness, 15, is for bulk.
        own = {"num_cpus": 1000, "_system_config": {"worker_niceness": 0}} if address == "local" else {}
        connect(address, namespace=_NAMESPACE, **own)

    def _at(self, number: int, besides: str = "") -> str:
        """Return on which node something is to be: not on this process's or another, where there are enough."""
        here = ray.get_runtime_context().get_node_id()
        nodes = sorted(n["NodeID"] for n in ray.nodes() if n["Alive"] and n["NodeID"] != besides)
        nodes = [node for node in nodes if node != here] or nodes or [here]
        then = {node: self._lost.get(node, -math.inf) for node in nodes}
        nodes = [n for n in nodes if then[n] < time.monotonic() - _AVOIDED] or [min(nodes, key=then.__getitem__)]
        return nodes[number % len(nodes)]

    def _lose(self, node: str) -> None:
        self._lost[node] = time.monotonic()

    def worker(self, make: Any) -> RayHandle:
        """Begin a worker, on one node after the other."""
        actor: Any = ray.remote(Worker)
        node = self._at(next(self._turn))
        made = actor.options(num_cpus=self._threads, **_ONCE, **_on(node)).remote(make)
        return RayHandle(made, partial(self._lose, node))

    def vault(self, number: int) -> RayHandle:
        """Return a vault, on another node than the other one's."""
        other, besides = self._where.get(1 - number), ""
        if other is not None and wait([other], 5.0).done and other.exception() is None:
            besides = other.result()
        actor: Any = ray.remote(_Vault)
        options = {"name": f"vault-{number}", "get_if_exists": True, "lifetime": "detached", "num_cpus": 0}
        node = self._at(number, besides)  # unless it is there already
        made = actor.options(**options, **_ONCE, **_on(node)).remote(self._keep)
        handle = RayHandle(made, partial(self._gone, number))
        self._where[number] = handle.call("where")
        return handle

    def _gone(self, number: int) -> None:
        where = self._where[number]
        if where.done() and where.exception() is None:
            self._lose(where.result())


def _on(node: str) -> dict[str, Any]:
    return {"scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=True)}


class _Vault(Vault):
    def where(self) -> str:
        """Return its node."""
        return str(ray.get_runtime_context().get_node_id())
