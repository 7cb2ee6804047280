"""What errors of torch's own mean for streams: they come from where streams are lost, and don't say so."""

from __future__ import annotations

from ...errors import NotStreamableError
from ...operations.refusals import GRADIENTS
from ...source_line import line_of
from ..private import is_transformed

COMPILED = (
    "a stream can't pass through compiled code, such as what torch.jit.trace made; call a plain function, or say "
    "how the module streams with @ds.register"
)


def refusal_of(
    error: Exception, beneath: NotStreamableError | None, misused: NotStreamableError | None
) -> NotStreamableError | None:
    """Return what an error means for streams; None where it does not come of them.

    `beneath` is what was refused within compiled code, which makes another error of it; `misused` is the last
    refusal of a size, which torch may have made another error of.
    """
    line = line_of(error)
    if is_transformed(error):
        reason, remedy = GRADIENTS.words
        name = "torch.func"
        if "dynamicLayerStack" in str(error):
            name, reason, remedy = "torch.vmap", "it takes streams apart", "call the function on the whole tensor"
        return NotStreamableError(f"{name} of a stream inside a forward, at {line}: {reason}; {remedy}")
    if "leaf Variable that requires grad" in str(error):
        return NotStreamableError(
            f"a torch.autograd.Function writes into a stream at {line}: its gradient can't follow that; return a "
            "new tensor, without ctx.mark_dirty"
        )
    if isinstance(error, TypeError):
        if "TorchLength" in str(error) or "TorchBatch" in str(error):
            text = f"a tensor's type is called with a size of streams at {line}: use torch.arange or zeros"
            return NotStreamableError(text).with_traceback(error.__traceback__)
        return misused if misused is not None and f", at {line}" in str(misused) else None
    if beneath is None and "TorchScript interpreter" in str(error):
        return NotStreamableError(f"{COMPILED}. It failed: {str(error).strip().splitlines()[-1]}")
    return beneath
