"""The bundle's weights as a Hugging Face folder in float32, for peers that read no GGUF.

The values are those our own reader dequantizes, so that all engines compute with the same numbers.
Called by `compare`; written once per benchmark folder.
"""

import json
import shutil
from pathlib import Path

from safetensors.torch import save_file

from inference.tokenizer.bundle import TEMPLATE_FILE, TOKENIZER_FILE, Bundle
from inference.weights.gguf_file import GgufFile

ARCHITECTURES = {"llama": "LlamaForCausalLM"}


def exported(bundle: Bundle, folder: Path) -> Path:
    """The folder with config.json, model.safetensors and the tokenizer; written where missing.

    Raises KeyError for an architecture that no peer was tried with.
    """
    target = folder.absolute() / f"{bundle.name}-{bundle.hash[:8]}-float32"
    config_file = target / "config.json"
    if config_file.exists():
        return target
    target.mkdir(parents=True, exist_ok=True)
    checkpoint = GgufFile(bundle.folder / bundle.weights_file)
    config = checkpoint.config
    names = checkpoint.names()
    save_file(
        {name: checkpoint.tensor(name).contiguous() for name in names},
        target / "model.safetensors",
        metadata={"format": "pt"},
    )
    for name in (TOKENIZER_FILE, TEMPLATE_FILE):
        shutil.copyfile(bundle.folder / name, target / name)
    (target / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"})
    )
    architecture = ARCHITECTURES[config.architecture]
    # Written last: it says that the folder is whole.
    config_file.write_text(
        json.dumps(
            {
                "architectures": [architecture],
                "model_type": config.architecture,
                "torch_dtype": "float32",
                "vocab_size": config.vocab_size,
                "max_position_embeddings": config.context_tokens_max,
                "num_hidden_layers": config.layers,
                "hidden_size": config.hidden_size,
                "intermediate_size": config.feed_forward_size,
                "num_attention_heads": config.heads,
                "num_key_value_heads": config.kv_heads,
                "head_dim": config.head_size,
                "rope_theta": config.rope_theta,
                "rms_norm_eps": config.norm_epsilon,
                "hidden_act": "silu",
                "tie_word_embeddings": "lm_head.weight" not in names,
                "bos_token_id": bundle.bos_id,
                "eos_token_id": list(bundle.stop_ids),
            }
        )
    )
    return target
