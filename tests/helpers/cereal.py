"""Files as wav2letter@anywhere writes them by cereal: modules as tuples, from which bytes are made."""

import struct

import numpy as np

NAME = "w2l::streaming::"


class Writer:
    """Writes modules; names of types and objects are numbered as they come. Matrices fill whole rooms."""

    def __init__(self, room=512):
        self.room = room
        self.parts, self._types, self._n_objects = [], {}, 0

    def bytes(self):
        return b"".join(self.parts)

    def put(self, form, *values):
        self.parts.append(struct.pack("<" + form, *values))

    def text(self, text):
        self.put("Q", len(text))
        self.parts.append(text.encode())

    def object(self):
        self._n_objects += 1
        self.put("I", self._n_objects | 1 << 31)

    def module(self, module, kind=None):
        """A module `(type, ...)`; `kind` is the type of the pointer, where it is no base class."""
        name, *given = module
        if name == kind:
            self.put("I", 1 << 30)
        elif name in self._types:
            self.put("I", self._types[name])
        else:
            self._types[name] = len(self._types) + 1
            self.put("I", self._types[name] | 1 << 31)
            self.text(NAME + name)
        self.object()
        getattr(self, "_" + name)(*given)

    # ---------------------------------------------------------------- modules
    def _Sequential(self, *modules):
        self.put("Q", len(modules))
        for module in modules:
            self.module(module)

    def _TDSBlock(self, *modules):
        self._Sequential(*modules)
        self.put("II", 1, 1)

    def _Residual(self, module):
        self.module(module)
        self.put("I", 1)
        self.module(("Identity",), "Identity")

    def _Identity(self):
        pass

    def _Relu(self):
        self.put("I", 1)

    def _LayerNorm(self, size, weight, bias):
        self.put("iff", size, weight, bias)

    def _LocalNorm(self, *numbers):
        self.put("iii", *numbers)

    def _LogMelFeature(self, *numbers):
        self.put("iiii", *numbers)

    def _Conv1dFbGemm(self, weight, bias, groups, stride, left, right):
        """Weights `(out, kernel, in)`, of one of the groups, which share them."""
        n_out, kernel, n_in = weight.shape
        self.put("7I", groups, n_in * groups, n_out * groups, kernel, stride, right, left)
        self._parameter(bias)
        self._packed(weight.reshape(n_out, -1).T)

    def _LinearFbGemm(self, weight, bias):
        """Weights `(in, out)`."""
        self.put("II", *weight.shape)
        self._parameter(bias)
        self._packed(weight)

    # ---------------------------------------------------------------- weights
    def _parameter(self, values):
        self.object()
        data = np.asarray(values, "<f4").tobytes()
        self.put("IQ", 1, len(data))
        self.parts.append(data)
        self.put("II", 0, len(data))
        self.text("b")

    def _packed(self, matrix):
        rows, columns = matrix.shape
        size = -(-rows * columns // self.room) * self.room
        self.put("8i", rows, columns, 512, rows, 16, 1, -(-columns // 16), size)
        self.put("Q", size)
        self.parts.append(np.pad(matrix.astype("<f2").reshape(-1), (0, size - matrix.size)).tobytes())


def written(*modules, room=512):
    """The bytes of a file with these modules."""
    writer = Writer(room)
    writer.module(("Sequential", *modules), "Sequential")
    return writer.bytes()
