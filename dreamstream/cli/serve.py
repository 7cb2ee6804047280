"""``dreamstream serve``: models for live streams over WebSockets."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib
import os
import signal
import ssl
import sys
from collections.abc import Collection
from dataclasses import fields, replace
from functools import partial
from typing import Any

import dreamstream as ds

from .. import models
from .._core import shown
from ..errors import DreamStreamError, FormatError
from ..serve.limits import Limits
from .arguments import Commands, add_command, add_threads, at_least, named_model
from .decoding import DECODER_OPTIONS, add_decoder, decoder_of

#: Limits that are options, and what they say.
_OPTIONS = {
    "tick": "seconds from a look at sockets, and a step of what has come, to the next",
    "streams": "streams in all",
    "grace": "seconds for which a stream without a connection stays in the engine",
    "keep": "seconds for which such a stream stays in the store",
    "save": "seconds of input between a stream's records in the store",
    "drain": "seconds for which streams may go on after SIGTERM",
}


def _served(name: str, source: str, args: argparse.Namespace, limits: Limits, cluster: Any) -> Any:
    """Return a model that serves; one of the package's own has its decoder with it."""
    from ..serve import Model
    from ..serve.pool import Pool
    from ..serve.runner import Runner

    found = named_model(source)
    if found is None:
        model = engine = ds.load(source, threads=args.threads, max_streams=args.streams)
    else:
        model, options = found(pretrained=True).eval(), {"threads": args.threads, "max_streams": args.streams}
        engine = ds.compile(model, model.spec, rate=model.sample_rate, verify=False, **options)
    decodes = isinstance(model, models.Commands)
    decoder = decoder_of(args, source, model if decodes else engine) if decodes or args.tokens else None
    _tell_cost(name, engine, limits.save)
    pool = None if cluster is None else Pool(cluster, partial(Runner, engine, decoder), *(args.workers or (1, 1)))
    return Model(name, engine, limits, decoder, pool)


def _tell_cost(name: str, engine: ds.Engine, save: float) -> None:
    """Say what it takes that streams can be resumed."""
    from ..serve.runner import cost_of

    try:
        cost = cost_of(engine)
    except DreamStreamError:  # it takes no second of zeros; streams hear what it takes
        return
    text = f"dreamstream serve: {shown(name)}: a stream's state is {cost.size:,} bytes, kept every {save:g} s"
    if cost.growth > 0:
        text += (
            f"; it grows by {cost.growth:,} with each second, of which a record has what is new; to resume a "
            f"stream after ten minutes takes {600 * cost.growth / 1e6:,.0f} MB and some {300 * cost.seconds:.1g} s"
        )
    print(text, file=sys.stderr)


def _workers(text: str) -> tuple[int, int]:
    least, _, most = text.partition(":")
    return at_least(1, int)(least), at_least(1, int)(most or least)


def _authorize(text: str | None) -> Any:
    """Return the function that MODULE:FUNCTION names."""
    if text is None:
        return None
    module, _, name = text.partition(":")
    try:
        sys.path.insert(0, os.getcwd())
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise FormatError(f"--auth {text}: {error}") from error
    finally:
        del sys.path[0]
    if not callable(found):
        raise FormatError(f"--auth {text}: {name} is no function")
    return found


def _tls(cert: str | None, key: str | None) -> ssl.SSLContext | None:
    """Return what encrypts, if a certificate is given."""
    if cert is None:
        return None
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        tls.load_cert_chain(cert, key)
    except OSError as error:
        raise FormatError(f"--cert {cert} --key {key}: no certificate and key in PEM: {error}") from error
    return tls


def _check_options(args: argparse.Namespace, sources: Collection[str]) -> None:
    """Raise for an option that would do nothing without another."""
    commands = [source for source in sources if named_model(source) is models.Commands]
    if args.tokens and len(commands) == len(sources):
        raise FormatError("--tokens goes with other models: the package's own has its tokens")
    goes_with = {
        "key": ("cert", args.cert),
        "workers": ("ray", args.ray),
        "durable": ("state", args.state or args.ray),
    }
    goes_with |= dict.fromkeys(DECODER_OPTIONS, ("tokens", args.tokens or commands))
    for name, (other, is_given) in goes_with.items():
        value = getattr(args, name)
        if value is not None and value is not False and not is_given:
            raise FormatError(f"--{name.replace('_', '-')} goes with --{other}")


def _run(args: argparse.Namespace) -> int:
    from ..serve import Service, open_store
    from ..serve.clock import Clock
    from ..serve.records import Store
    from ..serve.server import serve
    from ..serve.vaults import VaultStore

    given = {f.name: getattr(args, f.name) for f in fields(Limits) if f.name in _OPTIONS}
    limits = replace(Limits(), **given)
    authorize = _authorize(args.auth)
    sources = {}
    for text in args.models:
        name, _, path = text.rpartition("=")
        name = name or os.path.splitext(os.path.basename(path))[0]
        if name in sources:
            raise FormatError(f"two models are called {name}; give them names: NAME={path}")
        sources[name] = path
    _check_options(args, sources.values())
    tls = _tls(args.cert, args.key)
    cluster = None
    if args.ray:
        from ..serve.ray import RayCluster

        cluster = RayCluster(args.ray, limits.keep, args.threads or 1)
    served = {name: _served(name, path, args, limits, cluster) for name, path in sources.items()}
    if cluster is not None and args.state is None:
        store: Store = VaultStore(cluster, args.durable)
    else:  # last, so that a server that has waited for it lacks nothing else
        store = open_store(args.state, args.durable, limits.keep, args.standby)

    def listening(host: str, port: int) -> None:
        where = f"[{host}]" if ":" in host else host
        names = ", ".join(shown(name) for name in served)
        print(f"{names} at {'wss' if tls else 'ws'}://{where}:{port}", flush=True)

    async def run() -> None:
        service = Service(served, store, limits, authorize)

        def renew() -> None:
            for name, path in sources.items():
                try:
                    model = _served(name, path, args, limits, cluster)
                except (DreamStreamError, OSError) as error:
                    print(f"dreamstream serve: {name} stays as it is: {error}", file=sys.stderr)
                    continue
                if model.fingerprint != service.models[name].fingerprint:
                    service.replace(name, model)
                    print(f"{shown(name)} is {model.fingerprint} from now on", flush=True)

        with contextlib.suppress(AttributeError, NotImplementedError):  # systems without it
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, renew)
        await serve(service, args.host, args.port, tls, listening, args.standby)

    with contextlib.closing(asyncio.SelectorEventLoop(Clock(limits.tick))) as loop:
        loop.run_until_complete(run())
    return 0


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(commands, "serve", "serve models to live streams over WebSockets")
    text = "a .dsm, or a model's name; NAME=MODEL gives it another"
    parser.add_argument("models", nargs="+", metavar="MODEL", help=text)
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen at (127.0.0.1)")
    parser.add_argument("--port", type=at_least(0, int, 65535), default=8765, help="0: a free one (8765)")
    text = "where streams are kept, so that they survive this process: a folder, or redis://HOST"
    parser.add_argument("--state", metavar="WHERE", help=text)
    text = "flush each record to the disk; of vaults: have it in both"
    parser.add_argument("--durable", action="store_true", help=text)
    text = "wait, with all that it needs, while another server has the folder and the port; then take its place"
    parser.add_argument("--standby", action="store_true", help=text)
    text = "a Ray whose nodes step the streams: its head's address, or `local`; --state is by default its vaults"
    parser.add_argument("--ray", metavar="ADDRESS", help=text)
    text = "workers of a Ray, and the most where load asks for more, besides a spare one (1)"
    parser.add_argument("--workers", type=_workers, metavar="N[:MOST]", help=text)
    text = "called as f(token, address): may this client stream?"
    parser.add_argument("--auth", metavar="MODULE:FUNCTION", help=text)
    parser.add_argument("--cert", metavar="FILE", help="a certificate for TLS")
    parser.add_argument("--key", metavar="FILE", help="its key, if that is in another file")
    for name, text in _OPTIONS.items():
        value = getattr(Limits(), name)
        kind = at_least(int(name == "streams"), type(value))
        parser.add_argument(f"--{name}", type=kind, default=value, metavar="N", help=f"{text} ({value:g})")
    add_decoder(parser.add_argument_group("words, in the place of scores of tokens"), required=False)
    add_threads(parser)
    parser.set_defaults(run=_run)
