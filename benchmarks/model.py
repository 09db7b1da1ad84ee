"""The model that benchmarks run: HEADRACE_MODEL_BUNDLE, or the one in the data folder."""

import os
from pathlib import Path

from inference.tokenizer.bundle import Bundle, load_bundle

DEFAULT = "models/smollm2-135m-instruct"


def loaded_bundle() -> Bundle:
    """Raises BundleInvalid when it has not been fetched; `make up` fetches it."""
    data = Path(os.environ.get("HEADRACE_DATA", ".data"))
    return load_bundle(Path(os.environ.get("HEADRACE_MODEL_BUNDLE", data / DEFAULT)))
