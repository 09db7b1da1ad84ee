"""What a child process may use, set by itself before it reads anything. Imports nothing heavy."""

import os
import resource
import signal
import sys

OPEN_FILES_MAX = 64


def child_command(module: str, *arguments: str) -> list[str]:
    """How a program of this folder is started: isolated from the user's settings and paths."""
    return [sys.executable, "-I", "-m", f"{__package__}.{module}", *arguments]


def child_environment() -> dict[str, str]:
    """Nothing of the house's: no addresses, no secrets."""
    return {
        "PATH": os.defpath,
        "LANG": "C.UTF-8",
        # Its other pools take more addresses than the limit allows.
        "ARROW_DEFAULT_MEMORY_POOL": "system",
        "OMP_NUM_THREADS": "1",
    }


def limit_memory(memory_bytes_max: int) -> None:
    """For good; no core is dumped, no file written."""
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes_max, memory_bytes_max))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES_MAX, OPEN_FILES_MAX))


def limit_time(cpu_s: int, wall_s: int) -> None:
    """From now on; over it, the kernel ends us."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    soft = int(used.ru_utime + used.ru_stime) + cpu_s + 1
    resource.setrlimit(resource.RLIMIT_CPU, (soft, resource.RLIM_INFINITY))
    signal.alarm(wall_s)
