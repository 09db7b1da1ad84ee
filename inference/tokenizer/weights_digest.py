"""The hash that ties a bundle to its weights, be they one file or a Hugging Face folder.

The build of a bundle stores it and the runner compares it before it loads anything. Torch-free;
reads every byte of the weights, which takes about a second per gigabyte.
"""

import hashlib
from pathlib import Path

from inference.hugging_face_config import CONFIG_FILE

FOLDER_PATTERNS = (CONFIG_FILE, "*.safetensors", "*.safetensors.index.json")
"""What decides the numbers a model computes; a folder's tokenizer is in the bundle already."""


def weights_digest(path: Path) -> str:
    """Hex SHA-256 of a file; of a folder, over name and hash of each file that makes the model.

    Raises OSError when a file cannot be read, FileNotFoundError when a folder holds no weights.
    """
    if not path.is_dir():
        return _file_digest(path)
    files = sorted({file for pattern in FOLDER_PATTERNS for file in path.glob(pattern)})
    if not any(file.suffix == ".safetensors" for file in files):
        raise FileNotFoundError(2, "no safetensors files", str(path))
    digest = hashlib.sha256(b"headrace-weights-1")
    for file in files:
        # Neither a name nor a hexadecimal hash holds the separators.
        digest.update(f"{file.name}/{_file_digest(file)}\n".encode())
    return digest.hexdigest()


def _file_digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
