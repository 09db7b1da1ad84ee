"""Opens the engine's unix socket, readable by its owner only.

Replaces a socket that nobody listens on any more; never one that is in use, and never a file that
is not a socket. Called by the server, and by `__main__` before it loads any weights.
"""

import os
import socket
import stat
from pathlib import Path

from inference.socket_address import socket_address

BACKLOG = 64
CONNECT_S = 2.0


class SocketTaken(Exception):
    """The path belongs to a running engine or to something else."""


def open_listener(path: Path) -> socket.socket:
    """A bound, listening, non-blocking socket with mode 0600; raises SocketTaken or OSError."""
    remove_stale(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    previous_umask = os.umask(0o177)
    try:
        with socket_address(path) as address:
            listener.bind(address)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    finally:
        os.umask(previous_umask)
    return listener


def remove_stale(path: Path) -> None:
    """Makes way for a new socket; raises SocketTaken when the path is in use."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise SocketTaken(f"{path} exists and is not a socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(CONNECT_S)
        try:
            with socket_address(path) as address:
                probe.connect(address)
        except (ConnectionRefusedError, FileNotFoundError):
            path.unlink(missing_ok=True)
            return
        except TimeoutError:
            raise SocketTaken(f"{path} is held by a process that does not accept") from None
    raise SocketTaken(f"another engine listens on {path}")
