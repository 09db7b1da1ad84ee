"""What befalls a storage, told as StorageAway; where it is called, and nowhere else.

So an OSError that somebody's mistake raises is never taken for a storage that will be back. Called
by `storage` and its backends.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from batch_jobs.contracts import StorageAway


@contextmanager
def faults_told(*kinds: type[Exception]) -> Iterator[None]:
    """Raises StorageAway for an OSError, and for `kinds`; a file that is not there stays one."""
    faults: tuple[type[Exception], ...] = (OSError, *kinds)
    try:
        yield
    except FileNotFoundError:
        raise
    except faults as error:
        raise StorageAway(f"files cannot be stored or read now: {error}") from error
