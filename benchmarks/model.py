"""The model that benchmarks run: HEADRACE_MODEL_BUNDLE, or the one in the data folder."""

import os
from pathlib import Path

from headrace.standalone.data_folder import DataFolder
from headrace.standalone.model_fetch import fetch_model
from inference.tokenizer.bundle import Bundle, load_bundle


def loaded_bundle() -> Bundle:
    """Fetches the model into the data folder where it is missing. Raises BundleInvalid."""
    given = os.environ.get("HEADRACE_MODEL_BUNDLE")
    if given:
        return load_bundle(Path(given))
    folder = DataFolder.from_environment()
    folder.create()
    return load_bundle(fetch_model(folder))
