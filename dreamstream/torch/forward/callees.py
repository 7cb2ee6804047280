"""For the tracer: which functions of torch call users' functions, and what compiled ones were made from."""

from ...tracing.callees import GOES_ON, ORIGINALS
from ..private import CALLS_USERS, original_of

GOES_ON.update(CALLS_USERS)
ORIGINALS.append(original_of)
