"""Picks the reader for weights by what lies at their path. Called by the runner."""

from pathlib import Path

from inference.weights.checkpoint import Checkpoint
from inference.weights.gguf_file import GgufFile
from inference.weights.safetensors_folder import SafetensorsFolder


def open_checkpoint(path: Path) -> Checkpoint:
    """A Hugging Face folder or a GGUF file. Raises CheckpointInvalid when it is neither."""
    return SafetensorsFolder(path) if path.is_dir() else GgufFile(path)
