"""Tiny vocabularies as GGUF files and Hugging Face folders, small enough to encode by hand."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from inference.tokenizer.bundle import TOKENIZER_FILE

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = gguf.TokenType
ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())
WORDS = ("12", "123", "1234", "'L", "'LL", "Ġa", "an", "Ġan", "Ã©")
MERGES = ("1 2", "12 3", "123 4", "' L", "'L L", "Ġ a", "a n", "Ġa n", "Ã ©")
WHOLE = "Ġwhole"
"""A word that no merges lead to."""
BYTE_LEVEL_TOKENS = (
    *((token, NORMAL) for token in (*ALPHABET, *WORDS, WHOLE)),
    ("<|begin|>", CONTROL),
    ("<|im_end|>", CONTROL),
    ("<think>", USER_DEFINED),
    ("[PAD]", UNUSED),
)
BEST_FIRST = ("ab", "bc", "▁a", "abc", "▁abc", "cd", "▁▁", "dd", "▁", "a", "b", "c", "d")
PIECES = {piece: -float(rank) for rank, piece in enumerate(BEST_FIRST)}
"""Scores of SentencePiece by piece."""
PIECE_TOKENS = (
    ("<unk>", UNKNOWN, 0.0),
    ("<s>", CONTROL, 0.0),
    ("</s>", CONTROL, 0.0),
    *((f"<0x{byte:02X}>", BYTE, 0.0) for byte in range(256)),
    *((piece, NORMAL, score) for piece, score in PIECES.items()),
)
TEMPLATE = "{{ bos_token }}{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}"


def write_vocabulary(
    path: Path,
    pre: str,
    *,
    tokens: Sequence[tuple[Any, ...]] = BYTE_LEVEL_TOKENS,
    template: str | None = TEMPLATE,
    ids: dict[str, str] | None = None,
    flags: dict[str, bool] | None = None,
    leave_out: str | None = None,
) -> None:
    """A GGUF file without weights: SentencePiece where `pre` is "llama", else byte-level BPE."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_tokenizer_model("llama" if pre == "llama" else "gpt2")
    writer.add_tokenizer_pre("default" if pre == "llama" else pre)
    texts = [token[0] for token in tokens]
    writer.add_token_list(texts)
    writer.add_token_types([token[1] for token in tokens])
    if pre == "llama":
        writer.add_token_scores([token[2] for token in tokens])
    elif leave_out != "merges":
        writer.add_token_merges(list(MERGES))
    for name, text in (ids or {}).items():
        writer.add_uint32(f"tokenizer.ggml.{name}_token_id", texts.index(text))
    for name, value in (flags or {}).items():
        writer.add_bool(f"tokenizer.ggml.{name}", value)
    if template is not None:
        writer.add_chat_template(template)
    writer.add_tensor("token_embd.weight", np.zeros((len(texts), 1), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def byte_level_tokenizer() -> Tokenizer:
    """The same byte-level vocabulary as a tokenizer.json has it."""
    normal = [token for token, kind in BYTE_LEVEL_TOKENS if kind == NORMAL]
    merges = [(left, right) for left, right in (merge.split(" ") for merge in MERGES)]
    tokenizer = Tokenizer(models.BPE({t: i for i, t in enumerate(normal)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|begin|>", "<|im_end|>"])
    tokenizer.add_tokens(["<think>"])
    return tokenizer


def write_model_folder(
    folder: Path, tokenizer: Tokenizer | None = None, **files: dict[str, Any]
) -> None:
    """A Hugging Face folder; `files` by stem are written over the usual ones, as JSON."""
    folder.mkdir(parents=True)
    chosen = tokenizer or byte_level_tokenizer()
    config = {
        "model_type": "llama",
        "vocab_size": 300,
        "hidden_size": 8,
        "intermediate_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "max_position_embeddings": 64,
        "rms_norm_eps": 1e-5,
    }
    contents = {"config": config, "tokenizer_config": {"chat_template": TEMPLATE}} | files
    for stem, content in contents.items():
        (folder / f"{stem}.json").write_text(json.dumps(content))
    (folder / TOKENIZER_FILE).write_text(chosen.to_str())
    save_file({"lm_head.weight": torch.zeros(1)}, folder / "model.safetensors")
