"""The Java classes: compiled into a jar, held by JUnit against what Python gets, every native call checked."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from c_library import needs_library

import dreamstream as ds
from dreamstream import nn
from dreamstream.config.jar import java_home

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
#: Programs run for moments: code is compiled once, and quickly; each native call is checked.
JAVA = ("-Xcheck:jni", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
JUNIT = ("junit-*.jar", "opentest4j*.jar", "apiguardian-api*.jar", "picocli.jar", "univocity-parsers*.jar")

pytestmark = [
    pytest.mark.skipif(not (ROOT / "csrc" / "java").is_dir(), reason="the tests are away from the sources"),
    needs_library,
]


def run(*command, status=0, **options):
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=240, **options)
    assert done.returncode == status, f"{done.returncode}\n{done.stdout[-6000:]}\n{done.stderr[-6000:]}"
    return done.stdout + done.stderr


@pytest.fixture(scope="session")
def jdk():
    """The folder of a JDK's programs."""
    try:
        return java_home() / "bin"
    except RuntimeError:
        pytest.skip("no JDK")


@pytest.fixture(scope="session")
def jar(jdk, tmp_path_factory):
    """The jar, made as a user makes it."""
    target = tmp_path_factory.mktemp("jar") / "dreamstream.jar"
    printed = run(sys.executable, "-m", "dreamstream.config", "--jar", target)
    assert printed.split() == [str(target)]
    return target


@pytest.fixture(scope="session")
def junit():
    """The class path of JUnit 5, from the system's packages."""
    found = [path for pattern in JUNIT for path in sorted(Path("/usr/share/java").glob(pattern))]
    if not any(path.name == "junit-platform-console.jar" for path in found):
        pytest.skip("no JUnit 5")
    return found


class Samples(nn.Module):
    """Samples in, 100 frames of four numbers per second out; some wait for samples that are to come."""

    def __init__(self):
        super().__init__()
        self.filters = nn.Conv1d(1, 6, 40, stride=16, padding=12)
        self.rnn = nn.GRU(6, 4, batch_first=True)

    def forward(self, x):
        return self.rnn(self.filters(x[:, None]).relu().transpose(1, 2))[0]


class Rates(nn.Module):
    """Two inputs of two rates; outputs at each rate, at the end, and one of booleans."""

    def __init__(self):
        super().__init__()
        self.down = nn.Conv1d(5, 6, 4, stride=2, padding=1)
        self.mix = nn.Linear(12, 6)
        self.rnn = nn.GRU(6, 7, batch_first=True)
        self.fine = nn.Conv1d(5, 3, 3, padding=1)

    def forward(self, x, y):
        h, _ = self.rnn(self.down(x).transpose(1, 2) + self.mix(y.reshape(y.size(0), y.size(1), 12)))
        return {"tags": h, "fine": self.fine(x), "whole": h.mean(1), "over": y > 0}


class Positive(nn.Module):
    """Samples in, booleans out."""

    def forward(self, x):
        return x > 0


def frames_first(array, axis):
    return np.ascontiguousarray(np.moveaxis(array, axis, 0))


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """A folder of models, inputs, and the outputs of Python's engine."""
    folder, rng = tmp_path_factory.mktemp("models"), np.random.default_rng(5)
    shutil.copy(HERE.parent / "attacks" / "tensor_missing.dsm", folder / "lacking.dsm")
    ds.compile(Positive(), ("B", "L"), blas=False).save(folder / "positive.dsm")
    ds.manual_seed(5)
    engine = ds.compile(Samples().eval(), ("B", "L"), rate=1600, blas=False)
    engine.save(folder / "samples.dsm")
    x = rng.standard_normal(9000, np.float32)
    x.tofile(folder / "samples.in")
    engine.step({"a": x}, sos="a", eos="a")["a"].tofile(folder / "samples.out")
    specs = {"x": ("B", 5, "L"), "y": ("B", "L", 4, 3)}
    engine = ds.compile(Rates().eval(), specs, rate={"x": 100, "y": 50}, blas=False)
    engine.save(folder / "rates.dsm")
    x, y = rng.standard_normal((5, 80), np.float32), rng.standard_normal((40, 4, 3), np.float32)
    frames_first(x, 1).tofile(folder / "rates.x")
    y.tofile(folder / "rates.y")
    made = engine.step({"a": {"x": x, "y": y}}, sos="a", eos="a")["a"]
    for name, array in made.items():
        frames_first(np.asarray(array), 1 if name == "fine" else 0).tofile(folder / f"rates.{name}")
    return folder


@pytest.fixture(scope="session")
def classes(jdk, jar, junit, tmp_path_factory):
    """The class path of the tests."""
    folder = tmp_path_factory.mktemp("classes")
    path = os.pathsep.join(map(str, [jar, *junit]))
    sources = sorted((HERE / "dreamstream").glob("*.java"))
    run(jdk / "javac", "-Xlint:all,-processing,-classfile,-path", "-cp", path, "-d", folder, *sources)
    return os.pathsep.join([str(folder), path])


def test_junit(jdk, classes, models):
    names = sorted(path.stem for path in HERE.glob("dreamstream/*Test.java"))
    launcher = [
        "org.junit.platform.console.ConsoleLauncher",
        "--disable-banner",
        "--disable-ansi-colors",
        "--details=tree",
    ]
    chosen = [word for name in names for word in ("--select-class", f"dreamstream.{name}")]
    set_to = f"-Ddreamstream.test.folder={models}", "-Ddreamstream.test.stress=500"
    said = run(jdk / "java", *JAVA, *set_to, "-cp", classes, *launcher, *chosen)
    assert "WARNING" not in said and "FATAL" not in said, said
    assert all(f"─ {name} " in said for name in names), said  # those without a test are not named


def test_without_a_jdk(tmp_path, monkeypatch):
    """The package is there all the same; who asks for the jar is told what it needs."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    said = run(sys.executable, "-m", "dreamstream.config", "--jar", tmp_path / "dreamstream.jar", status=1)
    assert f"{tmp_path / 'bin' / 'javac'} is not found" in said and "JAVA_HOME" in said and "Traceback" not in said
    assert not (tmp_path / "dreamstream.jar").exists()


PLACES = {
    "jar": ([], 0),
    "folder": (["-Ddreamstream.library.path={}"], 0),
    "file": (["-Ddreamstream.library.path={}/libdreamstream_jni.so"], 0),
    "system": (["-Ddreamstream.extract=false", "-Djava.library.path={}"], 0),
    "none": (["-Ddreamstream.extract=false", "-Djava.library.path="], 1),
    "missing": (["-Ddreamstream.library.path={}/none"], 1),
}


@pytest.mark.parametrize("place", PLACES)
def test_places_of_the_library(jdk, jar, classes, models, tmp_path, place):
    """A program finds it, or says that it can't; it leaves while threads are in calls, and nothing crashes."""
    given, status = PLACES[place]
    with zipfile.ZipFile(jar) as file:
        file.extractall(tmp_path)
    (folder,) = tmp_path.glob("dreamstream/native/*/lib")
    words = [*JAVA, *(word.format(folder) for word in given), "-cp", classes, "dreamstream.Leaving"]
    said = run(jdk / "java", *words, models / "samples.dsm", status=status)
    assert said.strip() == ds.__version__ if status == 0 else "UnsatisfiedLinkError" in said


def test_example(jdk, jar, tmp_path):
    """Silero of the guide, from Java: the same bits as Python's."""
    from dreamstream.models import SileroVAD

    model, rng = SileroVAD().eval(), np.random.default_rng(3)
    given = Path(os.environ.get("DREAMSTREAM_TEST_DATA", ""), "silero_vad_16k.safetensors")
    if "DREAMSTREAM_TEST_DATA" in os.environ and given.is_file():
        model.load_state_dict(given)
    else:
        for p in model.parameters():
            p.numpy()[...] = rng.standard_normal(p.shape) / np.sqrt(max(1, np.prod(p.shape[1:])))
    engine = ds.compile(model, ("B", "L"), rate=16000, blas=False)
    engine.save(tmp_path / "silero.dsm")
    samples = (rng.standard_normal(20000) * 0.3).astype(np.float32)
    samples.tofile(tmp_path / "samples.f32")
    expected = engine.step({"a": samples}, sos="a", eos="a")["a"]
    source = ROOT / "docs" / "examples" / "Speech.java"
    said = run(jdk / "java", "-cp", jar, source, tmp_path / "silero.dsm", tmp_path / "samples.f32")
    bits = np.array([int(line.split()[0]) for line in said.splitlines()], np.int32)
    assert len(bits) > 30 and np.array_equal(bits.view(np.float32), expected)
