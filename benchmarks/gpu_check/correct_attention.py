"""Paged attention on the device against the reference in float64 over the same stored numbers.

Ragged prefills and decodes, shared KV heads, split contexts, every KV format, and the static
buffers that decoding in CUDA graphs reads.
"""

from functools import partial

import torch

from benchmarks.gpu_check.findings import Section
from benchmarks.gpu_check.timing import Place
from kernels.kv_layer import STORED_MAX, KvLayer
from kernels.paged_attention import AttentionBatch, paged_attention_reference
from kernels.paged_attention_plan import Card
from kernels.paged_attention_triton import StaticDecode, card_of, plan_triton_attention
from tests.kernels.paged_cases import BLOCK_TOKENS, PagedCase, paged_step

ERROR_MAX = {torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 1.3e-3}
"""Over 1 plus the size of the output: half a unit of the last place, and as much for the weights;
in float32 the device's exponential is good to a few units."""
SPLIT_TOKENS_MIN = 32
"""Splits even the short contexts of these cases."""
STATIC_ROWS_MORE = 3
STATIC_BLOCKS_MORE = 5


def run(section: Section, place: Place, dtype: torch.dtype, cases: tuple[PagedCase, ...]) -> None:
    """All cases in queries of `dtype`, stored alike; the last one in every other format too."""
    cards = {"whole": Card(1, card_of(place.device).native_float8), "split": splitting(place)}
    for case in cases:
        for stored_type in (dtype, *STORED_MAX) if case is cases[-1] else (dtype,):
            for how, card in cards.items():
                name = f"{case.name}, {short(stored_type)} KV, {how}"
                check = partial(check_step, section, place, case, dtype, stored_type, card, name)
                section.attempt(name, check)
    for case in cases:
        if all(queries == 1 for queries, _ in case.lengths):
            name = f"{case.name}, static"
            section.attempt(name, partial(check_static, section, place, case, dtype, name))


def splitting(place: Place) -> Card:
    """The device's own card, but one that splits short contexts into many parts."""
    own = card_of(place.device)
    return Card(max(own.processors, 64), own.native_float8, SPLIT_TOKENS_MIN)


def check_step(
    section: Section,
    place: Place,
    case: PagedCase,
    dtype: torch.dtype,
    stored_type: torch.dtype,
    card: Card,
    name: str,
) -> None:
    """One step, whose queries are a slice of a wider tensor as in a model."""
    query, layer, batch = paged_step(case, dtype, stored_type)
    query, layer = query.to(place.device), moved(layer, place)
    wider = torch.cat((query, torch.full_like(query[:, :2], torch.nan)), dim=1)
    attend = plan_triton_attention(batch, place.device, card)
    actual = attend(wider[:, : query.shape[1]], layer)
    section.check(name, distance(actual, query, layer, batch, place), tolerance(dtype, stored_type))


def check_static(
    section: Section, place: Place, case: PagedCase, dtype: torch.dtype, name: str
) -> None:
    """Buffers that never move, with rows of padding, twice: the second step is shorter."""
    query, layer, batch = paged_step(case, dtype)
    query, layer = query.to(place.device), moved(layer, place)
    rows = len(query) + STATIC_ROWS_MORE
    static = StaticDecode(
        sequences=rows,
        blocks_max=batch.block_tables.shape[1] + STATIC_BLOCKS_MORE,
        block_tokens=BLOCK_TOKENS,
        kv_heads=case.kv_heads,
        device=place.device,
        card=splitting(place),
    )
    worst = 0.0
    for count in (len(query), max(1, len(query) // 2)):
        part = AttentionBatch(
            batch.query_starts[: count + 1],
            batch.context_lengths[:count],
            batch.block_tables[:count],
        )
        static.update(part)
        padding = query.new_full((rows - count, *query.shape[1:]), torch.nan)
        attended = static(torch.cat((query[:count], padding)), layer)
        worst = max(worst, distance(attended[:count], query[:count], layer, part, place))
        worst = max(worst, float(attended[count:].abs().max()))
    section.check(name, worst, tolerance(dtype, dtype))


def distance(
    actual: torch.Tensor, query: torch.Tensor, layer: KvLayer, batch: AttentionBatch, place: Place
) -> float:
    """The largest error, over 1 plus the size of what it is in."""
    on_device = AttentionBatch(
        batch.query_starts, batch.context_lengths, batch.block_tables.to(place.device)
    )
    expected = paged_attention_reference(query.double(), layer, on_device)
    return float(((actual.double() - expected).abs() / (1.0 + expected.abs())).max())


def moved(layer: KvLayer, place: Place) -> KvLayer:
    """The layer on the device."""
    tensors = (layer.keys, layer.values, layer.key_scales, layer.value_scales)
    return KvLayer(*(None if t is None else t.to(place.device) for t in tensors))  # type: ignore[arg-type]  # the first two are none


def tolerance(dtype: torch.dtype, stored_type: torch.dtype) -> float:
    """Float16 queries multiply quantized values in bfloat16."""
    widens = dtype is torch.float16 and stored_type in STORED_MAX
    return ERROR_MAX[torch.bfloat16 if widens else dtype]


def short(dtype: torch.dtype) -> str:
    """Its name without torch's."""
    return str(dtype).removeprefix("torch.")
