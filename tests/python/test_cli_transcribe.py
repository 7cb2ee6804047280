"""`dreamstream transcribe` and `listen`, with a network whose words are levels of a constant signal."""

import io
import json
import struct
import subprocess
import sys
import wave

import numpy as np
import pytest

import dreamstream as ds
from dreamstream import cli, nn
from dreamstream.cli.decoding import captions, subtitles
from dreamstream.decode import log_probabilities
from dreamstream.decode.hypotheses import Word

RATE, FRAME = 1600, 16
TOKENS = ["-", "|", "a", "b", "c"]


class Levels(nn.Module):
    """The nearer the mean of a frame's samples is to a token's level, the likelier it is."""

    def __init__(self):
        super().__init__()
        self.mean = nn.Conv1d(1, 1, FRAME, stride=FRAME, bias=False)
        self.mean.weight.numpy()[:] = 1 / FRAME
        self.scores = nn.Linear(1, len(TOKENS))
        levels = np.arange(len(TOKENS)) / 10
        self.scores.weight.numpy()[:, 0], self.scores.bias.numpy()[:] = 2000 * levels, -1000 * levels**2

    def forward(self, x):
        return self.scores(self.mean(x.unsqueeze(1)).transpose(1, 2))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("words")
    ds.compile(Levels().eval(), ("B", "L"), rate=RATE).save(path / "levels.dsm")
    (path / "tokens.txt").write_text("\n".join(TOKENS))
    (path / "lexicon.txt").write_text("ab a b |\ncab c a b |\n")
    for name, text, rate in (("one", "ab cab ", RATE), ("two", "cab", RATE), ("fast", "ab ", 2 * RATE)):
        with wave.open(str(path / f"{name}.wav"), "wb") as file:
            file.setnchannels(1), file.setsampwidth(2), file.setframerate(rate)
            file.writeframes(spoken(text, rate).tobytes())
    return path


def spoken(text, rate=RATE):
    """100 ms of each letter, and 100 ms of the blank behind it."""
    levels = [TOKENS.index("|" if c == " " else c) if k == 0 else 0 for c in text for k in range(2)]
    return np.repeat(np.round(np.array(levels) * 3276.8).astype("<i2"), rate // 10)


@pytest.fixture
def call(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)

    def run(command, *args):
        try:
            status = cli.main([command, *args, "--model", "levels.dsm", "--tokens", "tokens.txt"])
        except SystemExit as stop:
            status = stop.code
        return status, *capsys.readouterr()

    return run


@pytest.mark.parametrize("more", [(), ("--beam", "0"), ("--lexicon", "lexicon.txt"), ("--chunk-ms", "37")])
def test_recordings(call, more):
    assert call("transcribe", "one.wav", *more) == (0, "ab cab\n", "")
    assert call("transcribe", "one.wav", "two.wav", *more)[1].split() == ["one.wav", "ab", "cab", "two.wav", "cab"]
    assert call("transcribe", "fast.wav", *more) == (0, "ab\n", "")


@pytest.mark.parametrize(
    ("options", "more", "want"),
    [
        ('{"beamSize": 0, "criterionType": "CTC", "eosScore": 1}', (), "ab cab"),
        ('{"beam": 9, "beamSizeToken": 3, "beamThreshold": 50.5, "logAdd": false, "silScore": 0}', (), "ab cab"),
        ('{"wordScore": -1e6, "unkScore": -Infinity}', ("--lexicon", "lexicon.txt"), ""),
        (
            '{"wordScore": -1e6, "unkScore": -Infinity}',
            ("--lexicon", "lexicon.txt", "--word-score", "0"),
            "ab cab",
        ),
        ("{}", ("--blank=-",), "ab cab"),
        ("{}", ("--blank=x",), "--blank x: expected a number, or one of the tokens"),
        ('{"beam": 0}', ("--word-score", "1"), "--word-score chooses among hypotheses; a beam of 0 has none"),
        ("{}", ("--lm-weight", "2"), "--lm-weight goes with --lm"),
        ("{}", ("--blank=99999999999999999999",), "an option of the decoder is too large"),
        ('{"criterionType": "ASG"}', (), "options.json: the decoder is of CTC, not of 'ASG'"),
        ('{"lmweight": 1}', (), "options.json: 'lmweight' is none of beam, "),
        ('{"beamSize": [1]}', (), "options.json: int() argument"),
        ('{"beamSize": 1e999}', (), "options.json: cannot convert"),
        ("[1]", (), "options.json: expected an object"),
        ("{", (), "options.json: "),
    ],
)
def test_options_of_a_decoder(call, folder, options, more, want):
    (folder / "options.json").write_text(options)
    status, out, error = call("transcribe", "one.wav", "--decoder-options", "options.json", *more)
    if status:
        assert want and want in error and not out
    else:
        assert (out.strip(), error) == (want, "")


def test_long_recordings_are_transcribed_whole(call, folder):
    with wave.open(str(folder / "long.wav"), "wb") as file:
        file.setnchannels(1), file.setsampwidth(2), file.setframerate(RATE)
        file.writeframes(spoken("ab cab " * 60).tobytes())
    assert call("transcribe", "long.wav")[1] == " ".join(["ab cab"] * 60) + "\n"
    assert call("transcribe", "long.wav", "two.wav")[1].split()[1:-2] == ["ab", "cab"] * 60


def test_standard_output_that_takes_nothing(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    (folder / "zwö.wav").write_bytes((folder / "two.wav").read_bytes())
    args = ["transcribe", "zwö.wav", "one.wav", "--model", "levels.dsm", "--tokens", "tokens.txt"]
    monkeypatch.setattr(sys, "stdout", None)  # closed by the shell, `>&-`
    assert cli.main(args) == 0
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), "ascii"))
    assert cli.main(args) == 1
    assert capsys.readouterr().err == "dreamstream: ascii has no '\\xf6': set PYTHONIOENCODING=utf-8\n"


def test_words_with_times(call):
    status, out, _ = call("transcribe", "one.wav", "--json")
    found = json.loads(out)
    assert (status, found["text"]) == (0, "ab cab")
    assert [(w["word"], w["start"], w["end"]) for w in found["words"]] == [("ab", 0.0, 0.3), ("cab", 0.6, 1.1)]
    assert all(w["confidence"] > 0.9 for w in found["words"])


def test_subtitles(call):
    assert call("transcribe", "one.wav", "--srt")[1] == "1\n00:00:00,000 --> 00:00:01,100\nab cab\n"
    assert call("transcribe", "one.wav", "--vtt")[1] == "WEBVTT\n\n00:00:00.000 --> 00:00:01.100\nab cab\n"
    assert call("transcribe", "one.wav", "two.wav", "--srt")[0] == 1
    words = [Word(str(k), s, s + 0.5, 1.0, True) for k, s in enumerate((0, 1, 3, 4, 5, 6, 7, 8, 9, 3600))]
    assert [[w.text for w in run] for run in captions(words)] == [list("01"), list("234567"), ["8"], ["9"]]
    assert "01:00:00,000 --> 01:00:00,500" in subtitles(words, "srt")
    odd = [Word("a\n\nb\x1b", 0.0, 1.0, 1.0, True), Word("<i> --> &", 1.0, 2.0, 1.0, True)]
    assert subtitles(odd, "srt").splitlines()[2:] == ["a b <i> --> &"]
    assert subtitles(odd, "vtt").splitlines()[3:] == ["a b &lt;i&gt; --&gt; &amp;"]


def test_what_does_not_fit(call, folder):
    (folder / "few.txt").write_text("-\na\n")
    status, _, error = call("transcribe", "one.wav", "--tokens", "few.txt")  # which the fixture's own comes after
    assert status == 0
    assert cli.main(["transcribe", "one.wav", "--model", "levels.dsm", "--tokens", "few.txt"]) == 1
    for option, content, says in (
        ("--lm", b"mmap lm http://kheafield.com/code format version 5\n\0", "language model: expected a binary"),
        ("--lm", b"x", "language model: expected"),
        ("--lexicon", b"x\n", "lexicon, line 1"),
        ("--hotwords", b"zzz\n", "hotwords, line 1"),
    ):
        (folder / "wrong.txt").write_bytes(content)
        status, _, error = call("transcribe", "one.wav", option, "wrong.txt")
        assert status == 1 and f"dreamstream: wrong.txt: {says}" in error
    status, _, error = call("transcribe", "missing.wav")
    assert status == 1 and "missing.wav: No such file" in error


def test_what_is_no_recording_ends_no_other(call, folder):
    (folder / "junk.wav").write_bytes(b"no sound")
    status, out, err = call("transcribe", "one.wav", "junk.wav", "none.wav", "--json")
    assert status == 1 and [json.loads(line)["file"] for line in out.splitlines()] == ["one.wav"]
    assert "junk.wav" in err and "none.wav" in err and len(err.splitlines()) == 2
    assert call("transcribe", "junk.wav", "none.wav")[:2] == (1, "")
    samples = np.frombuffer(spoken("ab cab "), "<i2").astype("<f4") / 32768
    samples[len(samples) // 2 :] = np.nan
    head = struct.pack("<4sI4s4sIHHIIHH4sI", b"RIFF", 36 + samples.nbytes, b"WAVE", b"fmt ", 16, 3, 1, RATE,
                       4 * RATE, 4, 32, b"data", samples.nbytes)  # fmt: skip
    (folder / "broken.wav").write_bytes(head + samples.tobytes())
    status, out, err = call("transcribe", "broken.wav", "one.wav", "--json")
    assert (status, [json.loads(line)["text"] for line in out.splitlines()]) == (1, ["ab c", "ab cab"])
    assert "broken.wav: before 0.96 s there are samples that are no numbers" in err


def listening(folder, *more):
    command = [
        sys.executable,
        "-m",
        "dreamstream",
        "listen",
        "-",
        "--model",
        "levels.dsm",
        "--tokens",
        "tokens.txt",
    ]
    return subprocess.Popen([*command, *more], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def test_listening(folder):
    for more, want in (((), "ab cab ab"), (("--json",), "ab cab ab")):
        process = listening(folder, *more)
        samples = spoken("ab cab ab").tobytes()
        for at in range(0, len(samples), 333):
            process.stdin.write(samples[at : at + 333])
            process.stdin.flush()
        out = process.communicate()[0].decode()
        lines = [json.loads(line)["word"] for line in out.splitlines()] if more else out.split()
        assert process.returncode == 0 and " ".join(lines) == want


def test_words_are_there_as_soon_as_they_are_final(folder):
    process = listening(folder)
    process.stdin.write(spoken("ab cab ").tobytes() + bytes(2 * 4 * RATE))  # and four seconds of silence
    process.stdin.flush()
    assert process.stdout.readline().split()[0] == b"ab"
    process.communicate()


def test_scores_become_log_probabilities():
    raw = np.array([[1.0, 2.0, 3.0], [-np.inf, 0.0, -np.inf]])
    assert np.allclose(np.exp(log_probabilities(raw)).sum(1), 1) and np.allclose(
        log_probabilities(log_probabilities(raw))[0], log_probabilities(raw)[0]
    )
    assert log_probabilities(np.empty((0, 3))).shape == (0, 3)


def test_a_plot_of_words(call, folder, monkeypatch):
    """Each word stands where it was said, and below it from its end to when it was final."""
    figure = pytest.importorskip("matplotlib.figure")
    drawn = []
    monkeypatch.setattr(figure.Figure, "savefig", lambda self, path, **_: drawn.append((path, self)))
    assert (
        call("transcribe", "one.wav", "two.wav", "--beam", "0", "--plot", "words.png", "--chunk-ms", "100")[0] == 0
    )
    ((path, picture),) = drawn
    assert path == "words.png" and [axes.get_title() for axes in picture.axes] == ["one.wav", "two.wav"]
    first, second = picture.axes
    assert [(t.get_text(), t.get_position()[0]) for t in first.texts] == [
        ("ab", 0.15),
        ("cab", pytest.approx(0.85)),
    ]
    assert [t.get_text() for t in second.texts] == ["cab"]
    waits = [line.get_xdata() for line in first.lines if len(line.get_xdata()) == 2]
    assert [begin for begin, _ in waits] == [0.3, 1.1] and all(begin < final for begin, final in waits)
    assert waits[0][1] < 0.8 and waits[1][1] <= 1.4  # as soon as the space behind the word is sure


def test_a_plot_needs_what_draws_it(call, monkeypatch):
    assert "--plot writes" in call("transcribe", "one.wav", "--plot", "words.txt")[2]
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "pip install matplotlib" in call("transcribe", "one.wav", "--plot", "words.png")[2]
