"""The library for programs in other languages, and what tests of these ask first."""

from pathlib import Path

import pytest

import dreamstream as ds

LIBRARY = Path(ds.__file__).parent / "lib" / "libdreamstream.so"

needs_library = pytest.mark.skipif(
    not LIBRARY.exists() or b"__asan_init" in (data := LIBRARY.read_bytes()) or b"__tsan_init" in data,
    reason="libdreamstream.so is not built, or with sanitizers",
)
