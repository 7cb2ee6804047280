"""Streams any exported model with onnxruntime and NumPy alone: all that it needs to know is in the file.

    python run_onnx.py model.onnx [frames of a stream]

shows random streams at work. `Runner` is for programs of one's own.
"""

import json
import sys

import numpy as np
import onnxruntime


class Runner:
    """The streams of one exported model.

    Parameters
    ----------
    path : str
    """

    def __init__(self, path):
        self.session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        self.manifest = json.loads(self.session.get_modelmeta().custom_metadata_map["dreamstream"])
        if self.manifest["format"] != 1:
            raise ValueError(f"manifest {self.manifest['format']} is not known here")
        self.states = {}  # id -> the arrays of one row
        self.starts = {}  # id -> per output, how many frames have come out
        self.fetched = [o[key] for o in self.manifest["outputs"] for key in ("name", "lengths")]
        self.fetched += [s["next"] for s in self.manifest["states"]]

    def step(self, chunks, eos=()):
        """Advance streams.

        Parameters
        ----------
        chunks : dict
            Per id an array with the input's dimensions but for "B", or a dict of them by name. An id that is new
            starts a stream.
        eos : collection of str
            Streams that end with this call; one that is only here ends with no frames more.

        Returns
        -------
        dict
            Per id and output (starts, array): where the frames begin that came out, and the frames.
        """
        first = self.manifest["inputs"][0]["name"]
        todo = {i: x if isinstance(x, dict) else {first: x} for i, x in chunks.items()}
        todo.update({i: {} for i in eos if i not in todo})
        parts = {i: [[] for _ in self.manifest["outputs"]] for i in todo}
        starts = {i: list(self.starts.get(i, [0] * len(parts[i]))) for i in todo}
        while todo:
            rows = dict(list(todo.items())[: self.manifest["chunk"]["rows"]])
            now, rest = self._cut(rows)
            ends = [i for i in rows if i in eos and i not in rest]
            for i, outputs in self._call(now, ends).items():
                for collected, y in zip(parts[i], outputs):
                    collected.append(y)
            todo = {i: rest.get(i) or x for i, x in todo.items() if i in rest or i not in rows}
        return {
            i: {
                o["name"]: (start, np.concatenate(ys, self._axis(o)))
                for o, start, ys in zip(self.manifest["outputs"], starts[i], parts[i])
            }
            for i in parts
        }

    def _axis(self, port):
        """Return which axis of a row's array holds frames; an output without L has them in front."""
        dims = [d for d in port["dims"] if d != "B"]
        return dims.index("L") if "L" in dims else 0

    def _cut(self, rows):
        """Return what fits into one call, and what is left, by id."""
        frames = self.manifest["chunk"]["frames"]
        if frames is None:
            return rows, {}
        now, rest = {}, {}
        for i, arrays in rows.items():
            now[i], more = {}, {}
            for port in self.manifest["inputs"]:
                x, axis, n = arrays.get(port["name"]), self._axis(port), frames[port["name"]]
                if x is not None:
                    now[i][port["name"]], more[port["name"]] = np.split(x, [n], axis)
            if any(x.size for x in more.values()):
                rest[i] = more
        return now, rest

    def _call(self, chunks, eos):
        """Run the model once; return per id its outputs' frames."""
        manifest, ids = self.manifest, list(chunks)
        n_rows = manifest["chunk"]["rows"] or len(ids)
        ids += [None] * (n_rows - len(ids))  # rows of no stream
        feed = {"sos": np.array([i not in self.states for i in ids]), "eos": np.array([i in eos for i in ids])}
        for port in manifest["inputs"]:
            axis = self._axis(port)
            rows = [chunks[i].get(port["name"]) if i is not None else None for i in ids]
            lengths = [0 if x is None else x.shape[axis] for x in rows]
            width = manifest["chunk"]["frames"]
            width = width[port["name"]] if width else max(1, *lengths)
            shape = {"B": n_rows, "L": width}
            padded = np.zeros([shape.get(d, d) for d in port["dims"]], port["dtype"])
            by_row = np.moveaxis(padded, port["dims"].index("B"), 0)
            for row, x, n in zip(by_row, rows, lengths):
                if n:
                    np.moveaxis(row, axis, 0)[:n] = np.moveaxis(x, axis, 0)
            feed[port["name"]], feed[port["lengths"]] = padded, np.array(lengths, np.int64)
        for k, state in enumerate(manifest["states"]):
            feed[state["name"]] = np.stack([self._state(i, k) for i in ids])
        found = dict(zip(self.fetched, self.session.run(self.fetched, feed)))
        out = {i: [] for i in chunks}
        for row, i in enumerate(chunks):
            for k, port in enumerate(manifest["outputs"]):
                n = found[port["lengths"]][row]
                y = np.take(found[port["name"]], row, port["dims"].index("B"))
                y = y if "L" in port["dims"] else y[None]
                out[i].append(y.take(range(n), self._axis(port)))
                self.starts.setdefault(i, [0] * len(manifest["outputs"]))[k] += int(n)
            self.states[i] = [found[s["next"]][row] for s in manifest["states"]]
            if i in eos:
                del self.states[i], self.starts[i]
        return out

    def _state(self, stream, k):
        """Return a state of one stream, or of one that starts."""
        if stream in self.states:
            return self.states[stream][k]
        state = self.manifest["states"][k]
        return np.broadcast_to(np.array(state["initial"], state["dtype"]), state["dims"][1:])


def main(path, n_frames=200):
    """Stream random frames through a model, two streams at once."""
    runner, rng = Runner(path), np.random.default_rng(0)
    inputs = runner.manifest["inputs"]
    first, streams = inputs[0]["rate"], ("a", "b")
    for at in range(0, n_frames, 24):
        chunks = {}
        for stream in streams:
            n = min(24, n_frames - at)
            chunks[stream] = {}
            for port in inputs:
                ratio = port["rate"][0] * first[1] / (port["rate"][1] * first[0])
                shape = [int(n * ratio) if d == "L" else d for d in port["dims"] if d != "B"]
                chunks[stream][port["name"]] = rng.standard_normal(shape).astype(port["dtype"])
        for stream, outputs in runner.step(chunks, eos=streams if at + 24 >= n_frames else ()).items():
            for name, (start, frames) in outputs.items():
                print(f"{stream}: {name} from frame {start}, shape {frames.shape}")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
