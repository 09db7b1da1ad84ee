"""Write a bundle from a GGUF file or a Hugging Face folder: tokenizer, template, ids and hash.

Runs once per model, in the model fetch or by hand (`python -m inference.tokenizer.build`): reading
a vocabulary out of GGUF takes seconds and hundreds of megabytes, which no serving process may pay.
Refuses a tokenizer it does not know rather than guess one that splits text differently.
"""

import argparse
import sys
from pathlib import Path

import msgspec

from inference.tokenizer.bundle import (
    FORMAT,
    METADATA_FILE,
    TEMPLATE_FILE,
    TOKENIZER_FILE,
    Bundle,
    BundleInvalid,
    BundleMetadata,
    bundle_hash,
    load_bundle,
)
from inference.tokenizer.gguf_parts import read_gguf_parts
from inference.tokenizer.hugging_face_parts import read_hugging_face_parts
from inference.tokenizer.prompt import PromptEncoder
from inference.tokenizer.token_bytes import TokenBytes
from inference.tokenizer.weights_digest import weights_digest


def build_bundle(weights: Path, folder: Path, name: str) -> Bundle:
    """Write the bundle of a GGUF file or a Hugging Face folder into `folder`, which contains it.

    Raises BundleInvalid for a model whose tokenizer, template or configuration is of no known kind.
    """
    within = weights.resolve()
    if folder.resolve() not in within.parents:
        raise BundleInvalid(f"{weights} is not inside {folder}")
    parts = read_hugging_face_parts(weights) if weights.is_dir() else read_gguf_parts(weights)
    try:
        digest = weights_digest(weights)
    except OSError as error:
        raise BundleInvalid(f"{weights}: {error.strerror}") from error
    metadata = BundleMetadata(
        format=FORMAT,
        name=name,
        context_tokens_max=parts.context_tokens_max,
        vocab_size=parts.vocab_size,
        bos_id=parts.bos_id,
        stop_ids=parts.stop_ids,
        weights_file=str(within.relative_to(folder.resolve())),
        weights_sha256=digest,
        hash="",
    )
    tokenizer_bytes, template_bytes = parts.tokenizer.to_str().encode(), parts.template.encode()
    metadata = msgspec.structs.replace(
        metadata, hash=bundle_hash(metadata, tokenizer_bytes, template_bytes)
    )
    (folder / TOKENIZER_FILE).write_bytes(tokenizer_bytes)
    (folder / TEMPLATE_FILE).write_bytes(template_bytes)
    # Last, so that an interrupted build leaves a folder that does not load.
    (folder / METADATA_FILE).write_bytes(msgspec.json.format(msgspec.json.encode(metadata)))
    bundle = load_bundle(folder)
    # What serving processes make of it: better refused here than there.
    PromptEncoder(bundle)
    TokenBytes(bundle)
    return bundle


def main(arguments: list[str]) -> int:
    """Command line: WEIGHTS FOLDER --name NAME."""
    parser = argparse.ArgumentParser(prog="python -m inference.tokenizer.build")
    parser.add_argument("weights", type=Path, help="a GGUF file or a Hugging Face folder")
    parser.add_argument("folder", type=Path, help="the bundle's folder, which contains the weights")
    parser.add_argument("--name", required=True)
    options = parser.parse_args(arguments)
    try:
        bundle = build_bundle(options.weights, options.folder, options.name)
    except BundleInvalid as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{bundle.folder} {bundle.hash}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
