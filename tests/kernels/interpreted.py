"""Runs a program of the tests in Triton's interpreter and reads what it found, as JSON.

Programs of their own because Triton decides on the interpreter once, when it is imported.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
TIME_MAX_S = 240


def interpreted(program: str, folder: str = "tests.kernels") -> Any:
    """What `python -m <folder>.<program>` prints under TRITON_INTERPRET=1."""
    output = subprocess.run(
        [sys.executable, "-m", f"{folder}.{program}"],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
        env=os.environ | {"TRITON_INTERPRET": "1"},
        timeout=TIME_MAX_S,
    ).stdout
    return json.loads(output)
