"""Real vocabularies of each kind encode llama.cpp's own test texts to the ids it expects.

The vocabularies lie in the source distribution of llama-cpp-python, which is downloaded (77 MB) and
never built; without a package index the tests are skipped.
"""

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from inference.tokenizer.gguf_parts import read_gguf_parts

REQUIREMENT = "llama-cpp-python==0.3.36"
DOWNLOAD_TIMEOUT_S = 240
SEPARATOR = "\n__ggml_vocab_test__\n"
VOCABULARIES = ("llama-spm", "phi-3", "gpt-2", "qwen2", "llama-bpe")
CASES = 47

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def vocabularies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vocabularies")
    try:
        subprocess.run(
            [
                *(sys.executable, "-m", "pip", "download", "--no-deps", "--quiet"),
                *("--no-binary", "llama-cpp-python", "--dest", str(folder), REQUIREMENT),
            ],
            check=True,
            capture_output=True,
            timeout=DOWNLOAD_TIMEOUT_S,
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"{REQUIREMENT} cannot be downloaded: {error}")
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        for member in packed:
            name = Path(member.name).name
            if name.startswith("ggml-vocab-") and (content := packed.extractfile(member)):
                (folder / name).write_bytes(content.read())
    return folder


@pytest.mark.parametrize("name", VOCABULARIES)
def test_texts_encode_to_the_expected_ids(vocabularies: Path, name: str) -> None:
    path = vocabularies / f"ggml-vocab-{name}.gguf"
    texts = path.with_name(f"{path.name}.inp").read_text(encoding="utf-8").split(SEPARATOR)
    expected = [
        [int(token_id) for token_id in line.split()]
        for line in path.with_name(f"{path.name}.out").read_text(encoding="utf-8").split("\n")
    ]

    tokenizer = _as_bundled(read_gguf_parts(path).tokenizer)

    assert len(texts) == CASES
    assert [tokenizer.encode(text, add_special_tokens=False).ids for text in texts] == expected


def _as_bundled(tokenizer: Tokenizer) -> Tokenizer:
    """Through the file that a bundle holds, with control tokens taken for text as in prompts."""
    reread = Tokenizer.from_str(tokenizer.to_str())
    reread.encode_special_tokens = True
    return reread
