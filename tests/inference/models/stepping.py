"""Steps a model by hand, without a runner: logits of every token of some sequence steps."""

import torch

from inference.contracts import BLOCK_TOKENS
from inference.engine.runner import attention_batch
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


def greedy(model: Decoder, prompt: list[int], count: int) -> tuple[list[int], list[float]]:
    """The `count` tokens that follow `prompt`, and how far each led the runner-up in logits."""
    pool = pool_for(model)
    blocks = list(range(pool.blocks))
    output: list[int] = []
    margins: list[float] = []
    uncomputed, start = prompt, 0
    while len(output) < count:
        logits = step_logits(model, pool, [SequenceStep("a", uncomputed, start, blocks)])[-1]
        best = logits.topk(2)
        output.append(int(best.indices[0]))
        margins.append(float(best.values[0] - best.values[1]))
        start += len(uncomputed)
        uncomputed = output[-1:]
    return output, margins
