"""What cheaper formats cost in quality: the same text, teacher-forced, beside float32.

`python -m benchmarks.quality` prints, for each pair of weight and KV formats, the Kullback-Leibler
divergence of the next-token distribution from that of float32, how often the most probable token is
the same, and the perplexity. The text is this repository's own documentation.
"""

import math
from dataclasses import dataclass, field
from pathlib import Path

import torch

from benchmarks.model import loaded_bundle
from benchmarks.report import machine
from inference.contracts import BLOCK_TOKENS
from inference.engine.computing.runner import attention_batch
from inference.engine.step import SequenceStep
from inference.models.decoder import Decoder
from inference.models.loader import load_model
from inference.models.projection import WeightFormat
from inference.models.step_tensors import KvFormat, KvPool, StepTensors
from inference.tokenizer.bundle import TOKENIZER_FILE, Bundle
from inference.weights.open_checkpoint import open_checkpoint
from kernels.operations_cpu import CpuOperations
from kernels.paged_attention_cpu import plan_cpu_attention

REPOSITORY = Path(__file__).resolve().parents[1]
TEXT_TOKENS = 2048
WINDOW_TOKENS = 512
"""The text is read in windows that start anew, so that every length of context counts."""
STEP_TOKENS = 64
"""A window is computed in steps of so many, so that most of its keys were stored before."""
WEIGHTS = (
    WeightFormat.FLOAT32,
    WeightFormat.FLOAT16,
    WeightFormat.BFLOAT16,
    WeightFormat.INT8,
    WeightFormat.INT4,
)
KV = (KvFormat.FLOAT32, KvFormat.INT8)


@dataclass
class Scores:
    """Of one pair of formats, per token of the text."""

    divergences: list[float] = field(default_factory=list)
    agreements: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)

    def add(self, logits: torch.Tensor, expected: torch.Tensor, next_ids: torch.Tensor) -> None:
        """Rows of logits beside those of float32, and the tokens that did follow."""
        ours, theirs = logits.log_softmax(-1), expected.log_softmax(-1)
        self.divergences += (theirs.exp() * (theirs - ours)).sum(-1).tolist()
        self.agreements += (ours.argmax(-1) == theirs.argmax(-1)).float().tolist()
        self.losses += (-ours.gather(1, next_ids[:, None])[:, 0]).tolist()


def text_tokens(bundle: Bundle) -> list[int]:
    """The first TEXT_TOKENS tokens of the README and the pages in docs/."""
    from tokenizers import Tokenizer

    pages = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
    text = "\n\n".join(page.read_text() for page in pages)
    encoding = Tokenizer.from_file(str(bundle.folder / TOKENIZER_FILE)).encode(
        text, add_special_tokens=False
    )
    return list(encoding.ids[:TEXT_TOKENS])


def window_logits(model: Decoder, kv_format: KvFormat, token_ids: list[int]) -> torch.Tensor:
    """Logits after each token of one window, [tokens, vocabulary]."""
    config = model.config
    table = list(range(math.ceil(len(token_ids) / BLOCK_TOKENS)))
    pool = KvPool(
        layers=config.layers,
        kv_heads=config.kv_heads,
        blocks=len(table),
        block_tokens=BLOCK_TOKENS,
        head_size=config.head_size,
        dtype=kv_format.dtype,
        device=torch.device("cpu"),
    )
    rows = []
    for start in range(0, len(token_ids), STEP_TOKENS):
        share = token_ids[start : start + STEP_TOKENS]
        positions = torch.arange(start, start + len(share))
        tensors = StepTensors(
            token_ids=torch.tensor(share),
            positions=positions,
            slots=positions,
            logit_rows=positions,
            attend=plan_cpu_attention(
                attention_batch([SequenceStep("window", share, start, table)]), BLOCK_TOKENS
            ),
        )
        rows.append(model.logits(model.normed(model.hidden(tensors, pool))))
    return torch.cat(rows)


@torch.inference_mode()
def main() -> None:
    """Prints the table."""
    torch.set_num_threads(1)
    bundle = loaded_bundle()
    models = {
        weights: load_model(
            open_checkpoint(bundle.folder / bundle.weights_file),
            operations=CpuOperations(),
            device=torch.device("cpu"),
            dtype=torch.float32,
            weight_format=weights,
        )
        for weights in WEIGHTS
    }
    scores = {(weights, kv): Scores() for weights in WEIGHTS for kv in KV}
    token_ids = text_tokens(bundle)
    for start in range(0, len(token_ids) - 1, WINDOW_TOKENS):
        window = token_ids[start : start + WINDOW_TOKENS + 1]
        given, next_ids = window[:-1], torch.tensor(window[1:])
        expected = window_logits(models[WeightFormat.FLOAT32], KvFormat.FLOAT32, given)
        for (weights, kv), score in scores.items():
            score.add(window_logits(models[weights], kv, given), expected, next_ids)
    print_table(scores, len(token_ids))


def print_table(scores: dict[tuple[WeightFormat, KvFormat], Scores], tokens: int) -> None:
    """Markdown, to standard output."""
    print(f"\n### Quality against float32, {tokens} tokens, teacher-forced\n")
    print("| weights | KV | mean KL | 99th percentile | top-1 agreement | perplexity |")
    print("|---|---|---|---|---|---|")
    for (weights, kv), score in scores.items():
        divergences = torch.tensor(score.divergences)
        print(
            f"| {weights} | {kv} | {divergences.mean():.5f} | {divergences.quantile(0.99):.4f} "
            f"| {torch.tensor(score.agreements).mean():.4f} "
            f"| {torch.tensor(score.losses).mean().exp():.2f} |"
        )
    print(f"\nmachine: {machine()}")


if __name__ == "__main__":
    main()
