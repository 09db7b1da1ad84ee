"""A bundle loads whole and unaltered, or not at all, and without the heavy libraries."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from inference.tokenizer.build import build_bundle
from inference.tokenizer.bundle import Bundle, BundleInvalid, bundle_files, load_bundle


@pytest.fixture
def copied_folder(bundle: Bundle, tmp_path: Path) -> Path:
    """A bundle without weights, as a remote web process writes it."""
    for name, content in bundle_files(bundle).items():
        (tmp_path / name).write_bytes(content)
    return tmp_path


def test_the_served_files_make_the_same_bundle_elsewhere(
    bundle: Bundle, copied_folder: Path
) -> None:
    copy = load_bundle(copied_folder)

    assert copy.hash == bundle.hash
    assert copy.folder == copied_folder


@pytest.mark.parametrize("name", ["tokenizer.json", "chat_template.jinja"])
def test_an_altered_file_is_refused(copied_folder: Path, name: str) -> None:
    path = copied_folder / name
    path.write_bytes(path.read_bytes() + b" ")

    with pytest.raises(BundleInvalid, match="do not match the hash"):
        load_bundle(copied_folder)


@pytest.mark.parametrize("name", ["bundle.json", "tokenizer.json", "chat_template.jinja"])
def test_a_missing_file_is_named(copied_folder: Path, name: str) -> None:
    (copied_folder / name).unlink()

    with pytest.raises(BundleInvalid, match=name):
        load_bundle(copied_folder)


@pytest.mark.parametrize("content", [b"{}", b"not json", b'{"format": 1, "surprise": true}'])
def test_metadata_of_another_shape_is_refused(copied_folder: Path, content: bytes) -> None:
    (copied_folder / "bundle.json").write_bytes(content)

    with pytest.raises(BundleInvalid, match=r"bundle\.json"):
        load_bundle(copied_folder)


def test_a_changed_stop_id_is_refused(copied_folder: Path) -> None:
    path = copied_folder / "bundle.json"
    path.write_bytes(path.read_bytes().replace(b'"bos_id": null', b'"bos_id": 1'))

    with pytest.raises(BundleInvalid, match="do not match the hash"):
        load_bundle(copied_folder)


def test_building_twice_gives_the_same_hash(bundle: Bundle, tmp_path: Path) -> None:
    weights = shutil.copy(bundle.folder / bundle.weights_file, tmp_path / bundle.weights_file)

    rebuilt = build_bundle(Path(weights), tmp_path, bundle.name)

    assert rebuilt.hash == bundle.hash


def test_weights_outside_the_folder_are_refused(bundle: Bundle, tmp_path: Path) -> None:
    with pytest.raises(BundleInvalid, match="not inside"):
        build_bundle(bundle.folder / bundle.weights_file, tmp_path, bundle.name)


def test_the_model_is_what_its_metadata_says(bundle: Bundle) -> None:
    assert bundle.context_tokens_max == 8192
    assert bundle.vocab_size == 49152
    assert bundle.stop_ids == (0, 2)
    assert bundle.bos_id is None


def test_loading_and_encoding_import_neither_torch_nor_gguf(bundle_folder: Path) -> None:
    program = (
        "import sys; from pathlib import Path\n"
        "from inference.tokenizer.bundle import load_bundle\n"
        "from inference.tokenizer.prompt import PromptEncoder\n"
        "from inference.tokenizer.token_bytes import TokenBytes\n"
        f"bundle = load_bundle(Path({str(bundle_folder)!r}))\n"
        "PromptEncoder(bundle).encode_text('hello'), TokenBytes(bundle)\n"
        "print(sorted({'torch', 'gguf', 'numpy', 'triton'} & set(sys.modules)))"
    )
    repository = Path(__file__).resolve().parents[3]

    output = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, cwd=repository
    ).stdout

    assert output.strip() == "[]"
