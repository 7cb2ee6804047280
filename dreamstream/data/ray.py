"""Recordings on the machines of a Ray: each is run once, by whoever is free."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..errors import SourceError


def connect(address: str, **options: Any) -> Any:
    """Return the package ray, connected; ``"local"`` begins one on this machine, which ends with this process.

    Without the package ray there is an ImportError, and without a Ray at the address a ConnectionError.
    """
    try:
        import ray
    except ImportError:
        raise ImportError("a cluster needs the package ray: pip install 'dreamstream[ray]'") from None
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # as it asks for, in a warning
    options = {"log_to_driver": False, "logging_level": logging.ERROR, **options}
    if address == "local":
        options |= {"include_dashboard": False, "_node_ip_address": "127.0.0.1", "object_store_memory": 128 << 20}
        if "RAY_TMPDIR" in os.environ:
            options["_temp_dir"] = os.environ["RAY_TMPDIR"]
    elif address.startswith("127."):
        options["_node_ip_address"] = "127.0.0.1"
    try:
        ray.init(address, **options)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ConnectionError(f"there is no Ray at {address}: {error}") from error
    return ray


def results_on_ray(
    address: str, make: type, args: Sequence[Any], paths: Sequence[str], size: int, workers: int
) -> Iterator[tuple[str, int, Any, SourceError | None]]:
    """Yield of each recording, as it is done, its path, frames and values, or why it can't be run.

    `address` is that of `connect`. On each of the `workers`, `make` is made of `args`: a function of a list of
    paths, `size` at a time, that returns what `columns` does.
    """
    ray = connect(address)
    import ray.data as data

    logging.getLogger("ray.data").setLevel(logging.ERROR)
    context = data.DataContext.get_current()
    context.enable_progress_bars = context.print_on_execution_start = False
    blocks = -(-len(paths) // size)
    recordings = data.from_items([{"path": path} for path in paths], override_num_blocks=blocks)
    results = recordings.map_batches(
        make, batch_size=size, compute=data.ActorPoolStrategy(size=workers), fn_constructor_args=args
    )
    for row in results.iter_rows():
        error = SourceError(row["error"], [row["path"]]) if row["error"] else None
        yield row["path"], int(row["frames"]), json.loads(row["values"]), error
    ray.shutdown()


def columns(rows: Sequence[tuple[str, int, Any, SourceError | None]]) -> dict[str, Any]:
    """Return the results of recordings as Ray has them."""
    return {
        "path": np.array([path for path, *_ in rows], object),
        "frames": np.array([n for _, n, *_ in rows]),
        "values": np.array([json.dumps(values) for *_, values, _ in rows], object),
        "error": np.array(["" if error is None else error._message for *_, error in rows], object),
    }
