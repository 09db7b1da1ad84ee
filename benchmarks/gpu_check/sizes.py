"""How large everything is that is looked at: on a GPU, or in a dry run through an interpreter.

Both go through the same lines, so a dry run finds what is wrong in them. Pure data.
"""

from dataclasses import dataclass

from tests.kernels.paged_cases import CASES, DECODES, MIXED, PagedCase

LinearShape = tuple[int, int, int]
"""(rows, outputs, inputs)."""


@dataclass(frozen=True, slots=True)
class SpeedSizes:
    """Shapes that kernels are timed at. `matrices` are (name, outputs, inputs), `reads` and
    `copies` counted in bytes, `square` the side of a dense product."""

    streams: int
    context: int
    prefill: int
    heads: int
    kv_heads: int
    head_size: int
    rows: tuple[int, ...]
    matrices: tuple[tuple[str, int, int], ...]
    hidden: int
    feed_forward: int
    tokens: int
    vocabulary: int
    bandwidth_bytes: int
    square: int


@dataclass(frozen=True, slots=True)
class ServingSizes:
    """How whole models are measured: `steps` of decoding after `prompt` tokens each and
    `warm_steps`. `layers` replaces those of the models where it is not None."""

    streams: tuple[int, ...]
    peer_streams: tuple[int, ...]
    prompt: int
    warm_steps: int
    steps: int
    peer_steps: int
    step_tokens_max: int
    layers: int | None = None
    shrink: int = 1
    """Every width of the models is divided by this, the vocabulary by its square."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """All of them. `linears` are compared in the dtype of the models, `other_linears` in others."""

    attention: tuple[PagedCase, ...]
    other_attention: tuple[PagedCase, ...]
    linears: tuple[LinearShape, ...]
    other_linears: tuple[LinearShape, ...]
    norms: tuple[tuple[int, int], ...]
    rotary: tuple[tuple[int, int, int], ...]
    """(heads, KV heads, head size)."""
    rotary_rows: int
    noises: int
    vocabularies: tuple[int, ...]
    families: tuple[str, ...]
    parity_prompts: tuple[int, ...]
    parity_tokens: int
    speed: SpeedSizes
    serving: ServingSizes


LLAMA = {"heads": 32, "kv_heads": 8, "head_size": 128}
LONG = tuple((1, context) for context in (4000, 17, 2048, 1, 777))
EIGHT_BILLION = (
    ("qkv", 6144, 4096),
    ("out", 4096, 4096),
    ("up", 28672, 4096),
    ("down", 4096, 14336),
)

FULL = Sizes(
    attention=(
        PagedCase("ragged decodes", LONG, **LLAMA),
        PagedCase("one long decode", ((1, 9000),), **LLAMA),
        PagedCase("many decodes", ((1, 300), (1, 33), (1, 512), (1, 64)) * 24, **LLAMA),
        PagedCase("prefills and decodes", ((700, 700), (1, 900), (129, 1000), (16, 16)), **LLAMA),
        PagedCase("three heads share", MIXED),
        PagedCase("few heads of 64", LONG[:3], heads=32, kv_heads=8, head_size=64),
    ),
    other_attention=(*CASES, PagedCase("long", ((1, 3000), (70, 800)), **LLAMA)),
    linears=(
        (1, 70, 96),
        (3, 64, 32),
        (17, 130, 256),
        (70, 129, 160),
        (2, 64, 1120),
        *((rows, 4096, 14336) for rows in (1, 16, 64, 256)),
        *((rows, 6144, 4096) for rows in (1, 33, 500)),
    ),
    other_linears=((1, 70, 96), (17, 130, 256), (70, 129, 160), (2, 64, 1120)),
    norms=((1, 576), (7, 1), (3, 1000), (300, 4096), (2, 16384)),
    rotary=((9, 3, 64), (4, 4, 128), (20, 1, 16), (32, 8, 128)),
    rotary_rows=300,
    noises=8192,
    vocabularies=(40, 9000, 128256),
    families=("llama", "mistral", "qwen2", "qwen3"),
    parity_prompts=(1, 6, 33, 80),
    parity_tokens=24,
    speed=SpeedSizes(
        streams=64,
        context=2048,
        prefill=4096,
        **LLAMA,
        rows=(1, 16, 64, 256),
        matrices=EIGHT_BILLION,
        hidden=4096,
        feed_forward=14336,
        tokens=4096,
        vocabulary=128256,
        bandwidth_bytes=4 << 30,
        square=8192,
    ),
    serving=ServingSizes(
        streams=(1, 8, 64, 256),
        peer_streams=(1, 64, 8, 256),
        prompt=256,
        warm_steps=4,
        steps=64,
        peer_steps=24,
        step_tokens_max=8192,
    ),
)

TINY = Sizes(
    attention=(PagedCase("ragged decodes", DECODES[:3]),),
    other_attention=(PagedCase("mixed", ((1, 40), (9, 20)), heads=2, kv_heads=2, head_size=16),),
    linears=((3, 64, 64), (2, 64, 1120)),
    other_linears=((1, 70, 96),),
    norms=((3, 100),),
    rotary=((4, 2, 16),),
    rotary_rows=5,
    noises=256,
    vocabularies=(40,),
    families=("qwen3",),
    parity_prompts=(3, 17),
    parity_tokens=3,
    speed=SpeedSizes(
        streams=2,
        context=32,
        prefill=16,
        heads=2,
        kv_heads=1,
        head_size=16,
        rows=(1, 16),
        matrices=(("qkv", 64, 64),),
        hidden=64,
        feed_forward=96,
        tokens=4,
        vocabulary=300,
        bandwidth_bytes=1 << 20,
        square=64,
    ),
    serving=ServingSizes(
        streams=(2,),
        peer_streams=(2,),
        prompt=17,
        warm_steps=1,
        steps=2,
        peer_steps=2,
        step_tokens_max=64,
        layers=1,
        shrink=16,
    ),
)
