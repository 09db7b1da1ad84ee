"""Tokens per second of the whole engine on seeded models, beside what the card allows.

The roofline of a decode step: weights and KV read once at the measured read bandwidth, or the
products at the measured dense rate, whichever takes longer. The engine, its runner and its graphs
are those that serve.
"""

from dataclasses import dataclass
from functools import partial

import torch

from benchmarks.gpu_check import ceilings, driving, models
from benchmarks.gpu_check.findings import Finding, Section, value_of
from benchmarks.gpu_check.sizes import ServingSizes
from benchmarks.gpu_check.timing import Place
from inference.contracts import BLOCK_TOKENS
from inference.engine.computing.cuda_runner import CudaRunner
from inference.models.projection import WeightFormat
from inference.models.step_tensors import KvFormat
from inference.weights.checkpoint import ModelConfig

FORMATS = (WeightFormat.BFLOAT16, WeightFormat.INT8, WeightFormat.INT4)
WARMING_STEPS = 2
ROOFLINE = "roofline"


@dataclass(frozen=True, slots=True)
class Subject:
    """One model in one format; `read_bytes` are the weights that a step reads."""

    name: str
    config: ModelConfig
    runner: CudaRunner
    read_bytes: int
    kv_token_bytes: float

    @property
    def parameters(self) -> int:
        """Of the products of one token, the head's included."""
        config = self.config
        attention = config.hidden_size * config.head_size * 2 * (config.heads + config.kv_heads)
        layer = attention + 3 * config.hidden_size * config.feed_forward_size
        return config.layers * layer + config.vocab_size * config.hidden_size


def run(
    section: Section,
    place: Place,
    sizes: ServingSizes,
    name: str,
    known: list[Finding],
    *,
    warms_only: bool = False,
) -> None:
    """One model in every format. With `warms_only` a single layer takes a few steps, which compiles
    every kernel that the measurement needs."""
    layers = 1 if warms_only else sizes.layers
    config = models.llama_config(name, layers=layers, shrink=sizes.shrink)
    for weight_format in FORMATS:
        measure = warm_format if warms_only else measure_format
        call = partial(measure, section, place, sizes, name, config, weight_format, known)
        section.attempt(f"{name} {weight_format}", call)
        place.release()


def subject_of(
    place: Place,
    sizes: ServingSizes,
    name: str,
    config: ModelConfig,
    weight_format: WeightFormat,
) -> Subject:
    """The model with a pool for the most streams."""
    tied = name in models.TIED
    model = models.drawn_model(config, place, weight_format, tied=tied)
    streams_max = max(sizes.streams)
    tokens = sizes.prompt + driving.tokens_asked(sizes.warm_steps, sizes.steps)
    blocks = streams_max * (-(-tokens // BLOCK_TOKENS) + 1)
    pool = models.pool_for(config, blocks, KvFormat.BFLOAT16, place.device)
    # The rows of the embedding that a step looks up are few, unless it is the head as well.
    embedding_bytes = config.vocab_size * config.hidden_size * torch.bfloat16.itemsize
    is_head = tied and weight_format is WeightFormat.BFLOAT16
    return Subject(
        name=f"{name} {weight_format}",
        config=config,
        runner=models.runner_for(model, pool, place, streams_max),
        read_bytes=model.weight_bytes - (0 if is_head else embedding_bytes),
        kv_token_bytes=pool.block_bytes / BLOCK_TOKENS,
    )


def warm_format(
    section: Section,
    place: Place,
    sizes: ServingSizes,
    name: str,
    config: ModelConfig,
    weight_format: WeightFormat,
    known: list[Finding],
) -> None:
    """A few steps at each number of streams."""
    subject = subject_of(place, sizes, name, config, weight_format)
    for streams in sizes.streams:
        what = f"{subject.name}, {streams} streams"
        section.attempt(what, partial(rate_of, subject, sizes, streams, WARMING_STEPS))


def measure_format(
    section: Section,
    place: Place,
    sizes: ServingSizes,
    name: str,
    config: ModelConfig,
    weight_format: WeightFormat,
    known: list[Finding],
) -> None:
    """One model in one format, at each number of streams; at most of them also step by step."""
    subject = subject_of(place, sizes, name, config, weight_format)
    section.figure(f"{subject.name}: weights read in a step", subject.read_bytes / 1e9, "GB")

    def measure(streams: int, what: str, *, ahead: bool) -> None:
        rate = rate_of(subject, sizes, streams, sizes.steps, ahead=ahead)
        section.figure(what, rate, "tokens/s", ROOFLINE, roofline(subject, sizes, streams, known))

    for streams in sizes.streams:
        what = f"{subject.name}, {streams} streams"
        section.attempt(what, partial(measure, streams, what, ahead=True))
    streams = max(sizes.streams)
    what = f"{subject.name}, {streams} streams, not a step ahead"
    section.attempt(what, partial(measure, streams, what, ahead=False))


def rate_of(
    subject: Subject, sizes: ServingSizes, streams: int, steps: int, *, ahead: bool = True
) -> float:
    """Tokens per second while `streams` decode."""
    make = driving.overlapped_engine_over if ahead else driving.engine_over
    engine = make(subject.runner, running_max=streams, step_tokens_max=sizes.step_tokens_max)
    generator = torch.Generator().manual_seed(streams)
    shape = (streams, sizes.prompt)
    prompts = torch.randint(subject.config.vocab_size, shape, generator=generator).tolist()
    return driving.decode_rate(engine, prompts, warm_steps=sizes.warm_steps, steps=steps)


def roofline(
    subject: Subject, sizes: ServingSizes, streams: int, known: list[Finding]
) -> float | None:
    """Tokens per second that the ceilings allow; None where they are not known."""
    read, dense = value_of(known, ceilings.READ), value_of(known, ceilings.DENSE)
    if not read or not dense:
        return None
    context = sizes.prompt + sizes.warm_steps + sizes.steps / 2
    moved = subject.read_bytes + streams * context * subject.kv_token_bytes
    computed = 2 * streams * subject.parameters
    return streams / max(moved / (read * 1e9), computed / (dense * 1e12))
