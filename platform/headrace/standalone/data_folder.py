"""Where everything that a single-box Headrace keeps lies, and the secrets it makes for itself.

Nothing of ours is ever written outside this folder and the virtual environment. Called by every
module of `standalone`, before Django is configured: it must not import Django.
"""

import json
import os
import secrets
from dataclasses import asdict, dataclass, fields
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]
SECRET_BYTES = 32


class SetUpError(Exception):
    """The house cannot be set up; the message says why and what to do, and is shown bare."""


@dataclass(frozen=True, slots=True)
class Secrets:
    """Made once per data folder; hexadecimal, so that no URL or file needs quoting."""

    secret_key: str
    postgres_superuser: str
    postgres_owner: str
    postgres_app: str
    postgres_housekeeper: str
    valkey: str


@dataclass(frozen=True, slots=True)
class DataFolder:
    """The layout of one data folder. Two houses on one machine need two of them."""

    root: Path

    @classmethod
    def from_environment(cls) -> "DataFolder":
        """The folder that HEADRACE_DATA names, or `.data` of the repository."""
        return cls(Path(os.environ.get("HEADRACE_DATA") or REPOSITORY / ".data").resolve())

    @classmethod
    def of_demo(cls) -> "DataFolder":
        """The folder that HEADRACE_DEMO_DATA names, or `.demo`; never that of `make up`."""
        return cls(Path(os.environ.get("HEADRACE_DEMO_DATA") or REPOSITORY / ".demo").resolve())

    @property
    def postgres(self) -> Path:
        return self.root / "postgres"

    @property
    def valkey(self) -> Path:
        return self.root / "valkey"

    @property
    def models(self) -> Path:
        return self.root / "models"

    @property
    def run(self) -> Path:
        return self.root / "run"

    @property
    def journal(self) -> Path:
        return self.root / "journal"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def temporary(self) -> Path:
        return self.root / "tmp"

    @property
    def engine_socket(self) -> Path:
        return self.run / "engine.sock"

    @property
    def demo_file(self) -> Path:
        return self.root / "demo.json"

    def create(self) -> None:
        """Makes the folders that are missing; raises SetUpError where that is not allowed."""
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            for folder in (self.models, self.run, self.journal, self.logs, self.temporary):
                folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise SetUpError(f"cannot create the data folder {self.root}: {error}") from error

    def secrets(self) -> Secrets:
        """The secrets of this folder, made on first use."""
        file = self.root / "secrets.json"
        if not file.exists():
            made = Secrets(
                **{each.name: secrets.token_hex(SECRET_BYTES) for each in fields(Secrets)}
            )
            write_private(file, json.dumps(asdict(made), indent=2) + "\n")
        try:
            return Secrets(**json.loads(file.read_text()))
        except (ValueError, TypeError) as error:
            raise SetUpError(
                f"{file} is damaged ({error}); restore it: it opens the database"
            ) from error


def write_private(file: Path, text: str) -> None:
    """Replaces `file` atomically, readable by its owner only."""
    draft = file.with_name(f"{file.name}.{os.getpid()}.draft")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    draft.replace(file)
