"""The oracle of whole models: float32 on the CPU, its answers, and how sure it was of each token.

Also any model's logits over given tokens, which say more than tokens do. Called by `parity`.
"""

from collections.abc import Mapping, Sequence

import torch

from benchmarks.gpu_check import driving, models
from benchmarks.gpu_check.timing import Place
from inference.contracts import BLOCK_TOKENS
from inference.engine.computing.runner import TorchRunner, attention_batch
from inference.engine.step import SequenceStep
from inference.models.decoder import Decoder
from inference.models.loader import load_model
from inference.models.step_tensors import KvFormat, StepTensors
from inference.weights.checkpoint import ModelConfig
from kernels.operations_cpu import CpuOperations
from kernels.paged_attention import Attend, AttentionBatch
from kernels.paged_attention_cpu import plan_cpu_attention
from kernels.paged_attention_triton import plan_triton_attention

CPU = Place(torch.device("cpu"))
BLOCKS = 64
"""Of a toy's pool."""
STEP_TOKENS_MAX = 64
"""Cuts the longest prompts into chunks."""


@torch.inference_mode()
def forced_logits(
    model: Decoder, token_ids: Sequence[int], place: Place, kv_format: KvFormat
) -> torch.Tensor:
    """[tokens, vocabulary]: the second half of the tokens finds the first in the cache."""
    blocks = -(-len(token_ids) // BLOCK_TOKENS)
    table = list(range(blocks))[::-1]
    pool = models.pool_for(model.config, blocks, kv_format, place.device)
    half = len(token_ids) // 2
    parts = []
    for start, end in ((0, half), (half, len(token_ids))):
        if start == end:
            continue
        batch = attention_batch([SequenceStep("forced", token_ids[start:end], start, table)])
        positions = torch.arange(start, end)
        slots = torch.tensor(table)[positions // BLOCK_TOKENS] * BLOCK_TOKENS
        step = StepTensors(
            token_ids=torch.tensor(token_ids[start:end]).to(place.device),
            positions=positions.to(place.device),
            slots=(slots + positions % BLOCK_TOKENS).to(place.device),
            logit_rows=torch.arange(end - start),
            attend=attention_of(batch, model, place),
        )
        parts.append(model.logits(model.normed(model.hidden(step, pool))))
    return torch.cat(parts)


def attention_of(batch: AttentionBatch, model: Decoder, place: Place) -> Attend:
    """The attention that goes with the model's operations."""
    if place is CPU:
        return plan_cpu_attention(batch, BLOCK_TOKENS)
    return plan_triton_attention(batch, place.device)


def cpu_model(config: ModelConfig, tensors: Mapping[str, torch.Tensor]) -> Decoder:
    """The oracle: float32 on the CPU."""
    return load_model(
        models.TensorCheckpoint(config, tensors),
        operations=CpuOperations(),
        device=CPU.device,
        dtype=torch.float32,
    )


def cpu_answers(model: Decoder, prompts: list[list[int]], tokens: int) -> list[list[int]]:
    """Its greedy answers."""
    pool = models.pool_for(model.config, BLOCKS, KvFormat.FLOAT32, CPU.device)
    runner = TorchRunner(model, pool, cache_key=b"")
    engine = driving.engine_over(runner, running_max=len(prompts), step_tokens_max=STEP_TOKENS_MAX)
    return driving.answers(engine, prompts, tokens)


def margins_of(
    model: Decoder, prompts: list[list[int]], outputs: list[list[int]]
) -> list[list[float]]:
    """How far the two best logits lie apart where each output token was chosen, in spreads."""
    margins = []
    for prompt, output in zip(prompts, outputs, strict=True):
        logits = forced_logits(model, [*prompt, *output], CPU, KvFormat.FLOAT32)
        choices = logits[len(prompt) - 1 : -1]
        best = choices.topk(2).values
        margins.append(((best[:, 0] - best[:, 1]) / choices.std(-1)).tolist())
    return margins
