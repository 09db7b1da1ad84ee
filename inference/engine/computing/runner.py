"""Computes steps with torch: the weights, the KV pool, and the way from step to drawn tokens.

The runner of a CPU, and what the one of CUDA is built on. It keeps nothing between steps but the
pool; blocks and requests are the scheduler's. Made by `load_runner`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from inference.contracts import BLOCK_TOKENS
from inference.engine.computing.capacity import (
    MEMORY_SHARE,
    POOL_TOKENS_MAX,
    MemoryFacts,
    available_bytes,
    blocks_that_fit,
)
from inference.engine.computing.sampler import sample
from inference.engine.step import Drawn, SampleSpec, SequenceStep, StepOutput
from inference.models.decoder import Decoder
from inference.models.loader import load_model
from inference.models.projection import WeightFormat
from inference.models.step_tensors import KvFormat, KvPool, StepTensors
from inference.weights.checkpoint import CheckpointInvalid
from kernels.operations import Operations
from kernels.operations_cpu import CpuOperations
from kernels.paged_attention import Attend, AttentionBatch
from kernels.paged_attention_cpu import plan_cpu_attention

if TYPE_CHECKING:
    # Computing needs torch alone; the readers of bundles and weights need libraries of their own.
    from inference.tokenizer.bundle import Bundle

KV_FORMAT = "kv-1"
"""Part of the cache key; changes when the meaning of a block's contents does."""
STEP_TOKENS_MAX = 256
"""The server's default: what a step computes at most."""
INVARIANT = {
    ("cpu", WeightFormat.INT8),
    ("cpu", WeightFormat.INT4),
    ("cpu", WeightFormat.FLOAT16),
}
"""Where a row's product is its own to the bit, whoever comes with it."""
RUNNING_MAX = 64
"""The server's default: sequences that decode together at most."""


class TorchRunner:
    """A `Runner` over one model and one pool. Not thread-safe: one engine loop owns it."""

    def __init__(
        self, model: Decoder, pool: KvPool, *, cache_key: bytes, batch_invariant: bool = False
    ) -> None:
        self.block_count = pool.blocks
        self.vocab_size = model.config.vocab_size
        self.hidden_size = model.config.hidden_size
        self.context_tokens_max = model.config.context_tokens_max
        self.cache_key = cache_key
        self.memory = MemoryFacts(
            weight_bytes=model.weight_bytes, block_bytes=pool.block_bytes, blocks=pool.blocks
        )
        self._model = model
        self._pool = pool
        self._batch_invariant = batch_invariant
        self._device = pool.device
        self.device = str(self._device)

    def warm_up(self) -> None:
        """Computes one block for nobody: the first pass over the weights pages them in, which took
        the first request a second. What it leaves in the block is never found: it has no hash."""
        self.execute([SequenceStep("warm-up", range(BLOCK_TOKENS), 0, (0,))])

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
            return plan_cpu_attention(batch, BLOCK_TOKENS, invariant=self._batch_invariant)
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


def load_runner(
    bundle: "Bundle",
    *,
    pool_tokens: int | None,
    threads: int,
    device: str,
    weight_format: str = "auto",
    kv_format: str = "auto",
    step_tokens_max: int = STEP_TOKENS_MAX,
    running_max: int = RUNNING_MAX,
    batch_invariant: bool = False,
) -> "TorchRunner":
    """Load the bundle's weights and reserve a pool of `pool_tokens` (rounded down to blocks).

    `device` is "auto" (CUDA when present), "cpu" or "cuda"; the formats are "auto" or names of
    WeightFormat and KvFormat. With `pool_tokens` None the pool takes its share of what memory is
    left after a step of `step_tokens_max`. With `batch_invariant` an answer is the same to the bit
    in any company and however its prompt is cut into steps. Sets torch's thread count for the whole
    process. Raises CheckpointInvalid for weights that are missing, altered or not understood,
    ValueError for formats that the device does not have, or that are not batch-invariant,
    PoolTooSmall.
    """
    from inference.weights.open_checkpoint import open_checkpoint

    if threads < 1 or (pool_tokens is not None and pool_tokens < BLOCK_TOKENS):
        raise ValueError("a runner needs at least one block and one thread")
    torch.set_num_threads(threads)
    place = torch.device(_resolved(device))
    formats = resolved_formats(weight_format, kv_format, place.type)
    if batch_invariant and (place.type, formats.weights) not in INVARIANT:
        raise ValueError("only int8, int4 and float16 weights on a CPU are batch-invariant")
    path = bundle.folder / bundle.weights_file
    _verify(path, bundle)
    model = load_model(
        open_checkpoint(path),
        operations=_operations(place),
        device=place,
        dtype=formats.activations,
        weight_format=formats.weights,
    )
    config = model.config
    if (config.vocab_size, config.context_tokens_max) != (
        bundle.vocab_size,
        bundle.context_tokens_max,
    ):
        raise CheckpointInvalid(f"{path}: vocabulary or context differ from the bundle's")
    cache_key = ":".join((bundle.weights_sha256, *formats.names, KV_FORMAT)).encode()

    def runner_of(blocks: int) -> TorchRunner:
        pool = KvPool(
            layers=config.layers,
            kv_heads=config.kv_heads,
            blocks=blocks,
            block_tokens=BLOCK_TOKENS,
            head_size=config.head_size,
            dtype=formats.kv.dtype,
            device=place,
        )
        if place.type == "cpu":
            return TorchRunner(model, pool, cache_key=cache_key, batch_invariant=batch_invariant)
        from inference.engine.computing.cuda_runner import make_cuda_runner

        return make_cuda_runner(model, pool, cache_key=cache_key, running_max=running_max)

    if pool_tokens is not None:
        return runner_of(pool_tokens // BLOCK_TOKENS)
    return runner_of(
        _blocks_left(runner_of, place, min(step_tokens_max, config.context_tokens_max))
    )


def _blocks_left(
    runner_of: Callable[[int], TorchRunner], device: torch.device, step_tokens: int
) -> int:
    """Blocks for the memory that is left while the largest step is computed."""
    needed = -(-step_tokens // BLOCK_TOKENS)
    small = runner_of(needed)
    largest = SequenceStep(
        "profile", [0] * step_tokens, 0, range(needed), (SampleSpec(),) * min(64, step_tokens)
    )
    small.execute([largest])
    on_cuda = device.type == "cuda"
    # torch keeps what the step took, so on CUDA it counts as used.
    free_bytes = torch.cuda.mem_get_info(device)[0] if on_cuda else available_bytes()
    return blocks_that_fit(
        free_bytes + small.memory.pool_bytes,
        small.memory.block_bytes,
        share=MEMORY_SHARE[device.type],
        blocks_max=POOL_TOKENS_MAX // BLOCK_TOKENS,
    )


@dataclass(frozen=True, slots=True)
class Formats:
    """How a model is computed and stored."""

    weights: WeightFormat
    kv: KvFormat
    activations: torch.dtype

    @property
    def names(self) -> tuple[str, str, str]:
        """What the cache key needs: KV computed otherwise is other KV."""
        return self.weights.value, self.kv.value, str(self.activations).removeprefix("torch.")


def resolved_formats(weight_format: str, kv_format: str, device_type: str) -> Formats:
    """The formats by name, or the device's own for "auto".

    Raises ValueError for a name that is unknown, or that the device has no kernels for.
    """
    own = WeightFormat.BFLOAT16 if device_type == "cuda" else WeightFormat.INT8
    weights = WeightFormat(own if weight_format == "auto" else weight_format)
    half = device_type == "cuda" and weights is not WeightFormat.FLOAT32
    activations = torch.bfloat16 if half else torch.float32
    plain = KvFormat.BFLOAT16 if half else KvFormat.FLOAT32
    kv = plain if kv_format == "auto" else KvFormat(kv_format)
    known = {plain, KvFormat.INT8} | ({KvFormat.FLOAT8} if device_type == "cuda" else set())
    if kv not in known or (device_type == "cuda" and weights is WeightFormat.FLOAT16):
        raise ValueError(f"{device_type} has no kernels for {weights} weights over {kv} KV")
    return Formats(weights, kv, activations)


def _operations(device: torch.device) -> Operations:
    if device.type == "cpu":
        return CpuOperations()
    from kernels.operations_triton import TritonOperations

    return TritonOperations()


def _resolved(device: str) -> str:
    if device not in ("auto", "cpu", "cuda"):
        raise ValueError(f"device {device!r} is not auto, cpu or cuda")
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return device


def _verify(path: Path, bundle: "Bundle") -> None:
    from inference.tokenizer.weights_digest import weights_digest

    try:
        actual = weights_digest(path)
    except OSError as error:
        raise CheckpointInvalid(f"{path}: {error.strerror}") from error
    if actual != bundle.weights_sha256:
        raise CheckpointInvalid(f"{path}: not the weights this bundle was built from")
