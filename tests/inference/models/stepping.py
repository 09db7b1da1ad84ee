"""Steps a model by hand, without a runner: logits of every token of some sequence steps."""

import torch

from inference.contracts import BLOCK_TOKENS
from inference.engine.computing.runner import attention_batch
from inference.engine.step import SequenceStep
from inference.models.decoder import Decoder
from inference.models.loader import load_model
from inference.models.step_tensors import KvPool, StepTensors
from inference.weights.checkpoint import Checkpoint
from kernels.operations_cpu import CpuOperations
from kernels.paged_attention_cpu import plan_cpu_attention

CPU = torch.device("cpu")


def load_on_cpu(checkpoint: Checkpoint) -> Decoder:
    """The model in float32."""
    return load_model(checkpoint, operations=CpuOperations(), device=CPU, dtype=torch.float32)


def pool_for(model: Decoder, blocks: int = 8) -> KvPool:
    """An empty pool."""
    return KvPool(
        layers=model.config.layers,
        kv_heads=model.config.kv_heads,
        blocks=blocks,
        block_tokens=BLOCK_TOKENS,
        head_size=model.config.head_size,
        dtype=torch.float32,
        device=CPU,
    )


def step_logits(model: Decoder, pool: KvPool, steps: list[SequenceStep]) -> torch.Tensor:
    """[tokens of all steps, vocabulary]."""
    tokens, positions, slots = [], [], []
    for step in steps:
        for position, token in enumerate(step.token_ids, step.start):
            tokens.append(token)
            positions.append(position)
            block = step.block_table[position // BLOCK_TOKENS]
            slots.append(block * BLOCK_TOKENS + position % BLOCK_TOKENS)
    tensors = StepTensors(
        token_ids=torch.tensor(tokens),
        positions=torch.tensor(positions),
        slots=torch.tensor(slots),
        logit_rows=torch.arange(len(tokens)),
        attend=plan_cpu_attention(attention_batch(steps), BLOCK_TOKENS),
    )
    return model.logits(model.normed(model.hidden(tensors, pool)))


def greedy(model: Decoder, prompts: list[list[int]], count: int) -> list[list[int]]:
    """The `count` tokens that follow each prompt, all computed together."""
    blocks_each = -(-(max(map(len, prompts)) + count) // BLOCK_TOKENS)
    pool = pool_for(model, blocks_each * len(prompts))
    # Scattered, so that no sequence's blocks are adjacent.
    tables = [list(range(index, pool.blocks, len(prompts))) for index in range(len(prompts))]
    outputs: list[list[int]] = [[] for _ in prompts]
    uncomputed, starts = prompts, [0] * len(prompts)
    for _ in range(count):
        steps = [
            SequenceStep(str(index), uncomputed[index], starts[index], tables[index])
            for index in range(len(prompts))
        ]
        lengths = [len(step.token_ids) for step in steps]
        last_rows = torch.tensor(lengths).cumsum(0) - 1
        drawn = step_logits(model, pool, steps)[last_rows].argmax(-1).tolist()
        starts = [start + length for start, length in zip(starts, lengths, strict=True)]
        uncomputed = [[token] for token in drawn]
        for output, token in zip(outputs, drawn, strict=True):
            output.append(token)
    return outputs
