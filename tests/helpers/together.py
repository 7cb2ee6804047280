"""Functions at the same time, for tests of what threads do."""

import threading
from collections.abc import Callable


def in_threads(*tasks: Callable[[], object]) -> None:
    """Run functions at the same time; raise what any of them raises."""
    gate, errors = threading.Barrier(len(tasks)), list[BaseException]()

    def run(task: Callable[[], object]) -> None:
        try:
            gate.wait()
            task()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(t,)) for t in tasks]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if errors:
        raise errors[0]
