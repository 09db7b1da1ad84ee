"""Computes steps with torch: the weights, the KV pool, and the way from step to drawn tokens.

The only module of the engine that imports torch, with what it uses in models, weights, kernels and
the sampler. It keeps nothing between steps but the pool; blocks and requests are the scheduler's.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import torch

from inference.contracts import BLOCK_TOKENS
from inference.engine.sampler import sample
from inference.engine.step import Drawn, Runner, SampleSpec, SequenceStep, StepOutput
from inference.models.decoder import Decoder
from inference.models.loader import load_model
from inference.models.step_tensors import KvPool, StepTensors
from inference.tokenizer.bundle import Bundle
from inference.weights.checkpoint import CheckpointInvalid
from inference.weights.gguf_file import GgufFile
from kernels.operations_cpu import CpuOperations
from kernels.paged_attention import Attend, AttentionBatch
from kernels.paged_attention_cpu import plan_cpu_attention

KV_FORMAT = "kv-1"
"""Part of the cache key; changes when the meaning of a block's contents does."""


class TorchRunner:
    """A `Runner` over one model and one pool. Not thread-safe: one engine loop owns it."""

    def __init__(self, model: Decoder, pool: KvPool, *, cache_key: bytes) -> None:
        self.block_count = pool.blocks
        self.vocab_size = model.config.vocab_size
        self.context_tokens_max = model.config.context_tokens_max
        self.cache_key = cache_key
        self._model = model
        self._pool = pool
        self._device = pool.device
        self.device = str(self._device)

    @torch.inference_mode()
    def execute(self, steps: Sequence[SequenceStep]) -> list[StepOutput]:
        """The outputs of the sequence steps, in order."""
        if not steps:
            return []
        tensors = self._tensors(steps)
        hidden = self._model.hidden(tensors, self._pool)
        drawn = self._drawn(hidden, tensors.logit_rows, [s for step in steps for s in step.samples])
        outputs, row, draw = [], 0, 0
        for step in steps:
            row, first_row = row + len(step.token_ids), row
            draw, first_draw = draw + len(step.samples), draw
            pooled = self._pooled(hidden[first_row:row]) if step.pool else ()
            outputs.append(StepOutput(tuple(drawn[first_draw:draw]), pooled))
        return outputs

    def _drawn(
        self, hidden: torch.Tensor, rows: torch.Tensor, specs: Sequence[SampleSpec]
    ) -> list[Drawn]:
        if not specs:
            return []
        return sample(self._model.logits(self._model.normed(hidden[rows])), specs)

    def _pooled(self, hidden: torch.Tensor) -> tuple[float, ...]:
        return tuple(self._model.normed(hidden).float().sum(0).tolist())

    def _tensors(self, steps: Sequence[SequenceStep]) -> StepTensors:
        token_ids: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        logit_rows: list[int] = []
        for step in steps:
            end = step.start + len(step.token_ids)
            assert 0 <= step.start < end <= len(step.block_table) * BLOCK_TOKENS
            assert end <= self.context_tokens_max
            assert len(step.samples) <= len(step.token_ids)
            token_ids += step.token_ids
            positions += range(step.start, end)
            slots += (
                step.block_table[position // BLOCK_TOKENS] * BLOCK_TOKENS + position % BLOCK_TOKENS
                for position in range(step.start, end)
            )
            logit_rows += range(len(token_ids) - len(step.samples), len(token_ids))
        return StepTensors(
            token_ids=self._vector(token_ids),
            positions=self._vector(positions),
            slots=self._vector(slots),
            logit_rows=self._vector(logit_rows),
            attend=self._attend(steps),
        )

    def _attend(self, steps: Sequence[SequenceStep]) -> Attend:
        batch = attention_batch(steps)
        if self._device.type == "cpu":
            return plan_cpu_attention(batch, BLOCK_TOKENS)
        from kernels.paged_attention_triton import plan_triton_attention

        return plan_triton_attention(batch, self._device)

    def _vector(self, values: list[int]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self._device)


def attention_batch(steps: Sequence[SequenceStep]) -> AttentionBatch:
    """The step's sequences as the attention kernels take them, on the CPU."""
    starts, contexts, tables = [0], [], []
    for step in steps:
        starts.append(starts[-1] + len(step.token_ids))
        contexts.append(step.start + len(step.token_ids))
        tables.append(step.block_table[: -(-contexts[-1] // BLOCK_TOKENS)])
    widest = max(map(len, tables))
    return AttentionBatch(
        query_starts=torch.tensor(starts, dtype=torch.int32),
        context_lengths=torch.tensor(contexts, dtype=torch.int32),
        # Padding repeats a sequence's own last block: nobody ever reads a neighbour's values.
        block_tables=torch.tensor(
            [[*table, *[table[-1]] * (widest - len(table))] for table in tables], dtype=torch.int32
        ),
    )


def load_runner(bundle: Bundle, *, pool_tokens: int, threads: int, device: str) -> Runner:
    """Load the bundle's weights and reserve a pool of `pool_tokens` (rounded down to blocks).

    `device` is "auto" (CUDA when present), "cpu" or "cuda". Sets torch's thread count for the whole
    process. Raises CheckpointInvalid for weights that are missing, altered or not understood.
    """
    blocks = pool_tokens // BLOCK_TOKENS
    if blocks < 1 or threads < 1:
        raise ValueError("a runner needs at least one block and one thread")
    torch.set_num_threads(threads)
    place = torch.device(_resolved(device))
    path = bundle.folder / bundle.weights_file
    _verify(path, bundle)
    model = load_model(
        GgufFile(path), operations=CpuOperations(), device=place, dtype=torch.float32
    )
    config = model.config
    if (config.vocab_size, config.context_tokens_max) != (
        bundle.vocab_size,
        bundle.context_tokens_max,
    ):
        raise CheckpointInvalid(f"{path}: vocabulary or context differ from the bundle's")
    pool = KvPool(
        layers=config.layers,
        kv_heads=config.kv_heads,
        blocks=blocks,
        block_tokens=BLOCK_TOKENS,
        head_size=config.head_size,
        dtype=torch.float32,
        device=place,
    )
    cache_key = f"{bundle.weights_sha256}:float32:{KV_FORMAT}".encode()
    return TorchRunner(model, pool, cache_key=cache_key)


def _resolved(device: str) -> str:
    if device not in ("auto", "cpu", "cuda"):
        raise ValueError(f"device {device!r} is not auto, cpu or cuda")
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return device


def _verify(path: Path, bundle: Bundle) -> None:
    try:
        with path.open("rb") as file:
            actual = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise CheckpointInvalid(f"{path}: {error.strerror}") from error
    if actual != bundle.weights_sha256:
        raise CheckpointInvalid(f"{path}: not the weights this bundle was built from")
