"""The list of functions."""

CALLS = []


def calls(*several):
    """The arguments of each call; without any, one call without arguments."""

    def note(function):
        CALLS.append((function, several or ((),)))
        return function

    return note
