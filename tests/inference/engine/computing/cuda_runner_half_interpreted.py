"""A toy model in bfloat16 through the runner for CUDA, interpreted, over each format of KV.

Prints as JSON how far the log probabilities of known tokens are from those of float32.
"""

import json
import sys
import tempfile
from pathlib import Path

import torch

from inference.engine.step import SampleSpec, SequenceStep
from inference.models.step_tensors import KvFormat
from tests.inference.engine.computing.cuda_runner_interpreted import pair, prompt
from tests.inference.models.toy_families import VOCABULARY
from tests.kernels.interpreter import repair_bfloat16

ALL = SampleSpec(temperature=0.0, logprobs=VOCABULARY)


def largest_difference(folder: Path, kv_format: KvFormat) -> float:
    """Over a prompt whose tokens all ask, a chunk behind it, and a decode in a graph."""
    two = pair(folder, "qwen3-untied", cuda_format=kv_format, cuda_dtype=torch.bfloat16)
    tokens, table = prompt(24), [3, 1]
    steps = [
        SequenceStep("a", tokens[:18], 0, table, (ALL,) * 18),
        SequenceStep("a", tokens[18:23], 18, table, (ALL,) * 5),
        SequenceStep("a", tokens[23:], 23, table, (ALL,)),
    ]
    largest = 0.0
    for step in steps:
        [found], [expected] = two.cuda.execute([step]), two.plain.execute([step])
        for one, other in zip(found.drawn, expected.drawn, strict=True):
            assert one.logprob is not None
            assert other.logprob is not None
            theirs = dict(other.logprob.top)
            largest = max(
                largest,
                *(abs(value - theirs[token_id]) for token_id, value in one.logprob.top),
            )
    return largest


def main() -> None:
    torch.set_num_threads(1)
    repair_bfloat16()
    formats = (KvFormat.BFLOAT16, KvFormat.INT8, KvFormat.FLOAT8)
    with tempfile.TemporaryDirectory() as folder:
        found = {kv.value: largest_difference(Path(folder), kv) for kv in formats}
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
