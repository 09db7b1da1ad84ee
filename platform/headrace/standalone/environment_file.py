"""Read `.env` of the repository, for `make up`, `make demo` and manage.py. Tests never do."""

import os
from pathlib import Path

from headrace.standalone.data_folder import REPOSITORY, SetUpError


def load_environment_file(file: Path = REPOSITORY / ".env") -> None:
    """Sets each NAME=value of `file` that the environment does not have already."""
    if not file.exists():
        return
    for number, line in enumerate(file.read_text().splitlines(), start=1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        name, equals, value = text.partition("=")
        if not equals or not name.strip().isidentifier():
            raise SetUpError(f"{file}, line {number}: expected NAME=value")
        os.environ.setdefault(name.strip(), value.strip().strip("\"'"))
