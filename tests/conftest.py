"""What holds for all tests: fixtures, their order, the fast tier, and the list of skips."""

import asyncio
import faulthandler
import fnmatch
import functools
import gc
import importlib.util
import inspect
import logging
import os
import zlib
from pathlib import Path

import numpy as np
import pytest

try:
    import hypothesis
except ImportError:  # the tests that need it say so themselves
    pass
else:
    hypothesis.settings.register_profile(
        "dreamstream", deadline=None, derandomize=True, print_blob=True, max_examples=50
    )
    hypothesis.settings.register_profile("thorough", deadline=None, max_examples=2000)
    hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dreamstream"))


HERE = Path(__file__).resolve().parent
gc.disable()  # until all tests are collected: none of them can be freed before

#: What is in the fast tier as a whole; of the laws, those that `ds_laws.fast` names, each marked.
FAST = ("attacks", "decode", "python", "source", "tracing")
#: But for what takes seconds: compilers, processes, memory, every failing allocation, other packages, training,
#: many random cases.
NOT_FAST = {
    "test_backends.py", "test_benchmarks.py", "test_bulk.py", "test_checkpoints.py", "test_cli.py",
    "test_cli_bench.py", "test_cli_files.py", "test_cli_run.py", "test_cli_transcribe.py", "test_config_flags.py",
    "test_decode_peers.py", "test_decode_streams.py", "test_decode_transducer.py", "test_docs.py",
    "test_doctests.py", "test_draws.py", "test_examples_c.py", "test_examples_foreign.py", "test_faults.py",
    "test_faults_files.py", "test_files.py", "test_header.py", "test_hostile_clients.py",
    "test_loader_processes.py", "test_loop_chains.py", "test_mass.py", "test_memory.py", "test_memory_experts.py",
    "test_memory_files.py", "test_narrow_products.py", "test_optim.py", "test_pickles.py", "test_prepared.py",
    "test_programs.py", "test_readme.py", "test_relative_attention.py", "test_resample.py",
    "test_rules_reshape.py", "test_sanitized.py", "test_silero.py", "test_snapshots.py", "test_source.py",
    "test_stream_loader.py", "test_tensor_gradients.py", "test_trainer.py", "test_training.py",
    "test_training_commands.py", "test_training_digits.py", "test_training_kept.py", "test_wav2letter.py",
    "test_wav2letter_files.py",
}  # fmt: skip
#: Folders of which nothing is in the fast tier: not even looked at, for that takes as long as running it.
NONE_FAST = ("c", "fuzz", "golden", "threads", "torch")
#: Of alike models of other packages the default tier has one in so many, by turns that follow from their names.
ONE_IN = {"test_decoders.py": 4, "test_attention_encoders.py": 3, "test_experts_of_others.py": 2}
#: What compiles the engine once more, with sanitizers too, comes last: the rest has told what it can by then. What
#: takes longest of it comes first, so that no process is left alone with it at the end.
LAST = ("fuzz", "c")
STDERR = pytest.StashKey()


def pytest_addoption(parser):
    parser.addoption("--skips", metavar="FILE", help="fail where a test is skipped that FILE does not list")


@functools.cache
def folder_of(path):
    """Return the folder of tests that a path lies in; empty for the folder of all."""
    return next(iter(path.relative_to(HERE).parts), "") if path.is_relative_to(HERE) else ""


def pytest_configure(config):
    config.stash[STDERR] = os.dup(2)  # before it is captured


def pytest_report_header():
    return None if importlib.util.find_spec("torch") else "tests/torch is left out: torch is not installed"


def pytest_ignore_collect(collection_path, config):
    folder = folder_of(collection_path)
    if config.option.markexpr == "fast" and folder in NONE_FAST:
        return True
    if folder == "torch" and not config.getoption("skips") and not importlib.util.find_spec("torch"):
        return True  # where a list says what may be skipped, it is missed
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Run a test that is a coroutine to its end."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


def pytest_collection_modifyitems(items):
    for item in items:
        folder = folder_of(item.path)
        if zlib.crc32(item.nodeid.encode()) % ONE_IN.get(item.path.name, 1):
            item.add_marker("slow")
        compiles = "c_build" in item.fixturenames and folder != "source"  # which looks at what is there
        slow = compiles or item.path.name in NOT_FAST or item.get_closest_marker("slow") is not None
        if folder in FAST and not slow:
            item.add_marker("fast")
    items.sort(key=lambda item: ("", *LAST).index(folder_of(item.path)) if folder_of(item.path) in LAST else 0)


def pytest_collection_finish():
    gc.freeze()  # what was imported and collected stays to the end
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers():
    """Of `-n auto`: a process more than processors, for those of servers and of Ray wait most of their time."""
    given = os.environ.get("PYTEST_XDIST_AUTO_NUM_WORKERS")
    return int(given) if given else len(os.sched_getaffinity(0)) + 1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """A worker has one end of the list, so that files are set up once, and takes of the other's what is left."""
    if config.getoption("dist") != "load":
        return None
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log)


@pytest.fixture(scope="module", autouse=True)
def passed_by(pytestconfig):
    """What came before a file mostly stays to the end: the collector need not walk through it each time.

    A file that takes ten minutes shows where it is; to ask that of each test starts as many threads.
    """
    faulthandler.dump_traceback_later(600, file=pytestconfig.stash[STDERR])
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter, config):
    """Say which skips are not on the list: lines of a pattern of tests, a colon, and a pattern of the reason."""
    if config.getoption("skips") is None:
        return
    lines = Path(config.getoption("skips")).read_text(encoding="utf-8").splitlines()
    listed = [line.split(": ", 1) for line in lines if line and not line.startswith("#")]
    unlisted = []
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2].removeprefix("Skipped: ") if isinstance(report.longrepr, tuple) else ""
        if not any(fnmatch.fnmatch(report.nodeid, t) and fnmatch.fnmatch(reason, r) for t, r in listed):
            unlisted.append(f"{report.nodeid}: {reason}")
    if unlisted:
        terminalreporter.section("skipped, and not on the list")
        terminalreporter.write_line("\n".join(unlisted))
        terminalreporter._session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture
def rng() -> np.random.Generator:
    """Random numbers, the same in every run."""
    return np.random.default_rng(20240229)


@pytest.fixture
def logged():
    """What is logged, as texts: pytest's plugin is off, for in each test it looks at all of torch's loggers."""
    texts, handler = [], logging.Handler()
    handler.emit = lambda record: texts.append(handler.format(record))
    logging.getLogger().addHandler(handler)
    yield texts
    logging.getLogger().removeHandler(handler)


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of recordings and reference outputs that DREAMSTREAM_TEST_DATA names, else a skip."""
    folder = os.environ.get("DREAMSTREAM_TEST_DATA")
    if not folder:
        pytest.skip("DREAMSTREAM_TEST_DATA does not name a folder of test data")
    if not Path(folder).is_dir():
        pytest.fail(f"DREAMSTREAM_TEST_DATA={folder} is not a folder")
    return Path(folder)


@pytest.fixture(scope="session")
def c_build():
    """The module tests/c/build.py."""
    path = Path(__file__).parent / "c" / "build.py"
    spec = importlib.util.spec_from_file_location("dreamstream_tests_c_build", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
