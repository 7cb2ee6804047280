"""What a tracer has to know of torch's functions: which call users' functions, what was compiled from what."""

from ...tracing.callees import GOES_ON, ORIGINALS
from ..private import CALLS_USERS, original_of

GOES_ON.update(CALLS_USERS)
ORIGINALS.append(original_of)
