"""Writing stored files: bytes first, the row last, so that a row always has its bytes."""

from collections.abc import Iterable
from datetime import datetime

from batch_jobs.contracts import FileInfo, Owner


def write_file(
    owner: Owner,
    purpose: str,
    filename: str,
    parts: Iterable[bytes],
    *,
    expires_at: datetime | None = None,
    using: str = "housekeeper",
) -> FileInfo:
    """Stores what `parts` yields, through a temporary file; never all of it in memory."""
    raise NotImplementedError
