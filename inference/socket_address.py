"""Unix socket addresses for paths of any length.

The kernel takes 107 bytes; a longer path is reached through a descriptor of its folder. Both ends
use it: the client to connect, the engine server to bind.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

UNIX_PATH_BYTES_MAX = 107


@contextmanager
def socket_address(path: Path) -> Iterator[str]:
    """A string that names this socket to connect() or bind() while the context is open.

    Raises OSError when a long path's folder cannot be opened.
    """
    if len(os.fsencode(path)) <= UNIX_PATH_BYTES_MAX:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
