"""Achieved bandwidth and products per second of every kernel at real shapes, beside the ceilings.

Each figure is of the resource that bounds the kernel: bytes that must be moved once at the measured
read bandwidth, or products at the measured dense rate, whichever takes longer.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch.nn.functional import linear

from benchmarks.gpu_check import ceilings
from benchmarks.gpu_check.bench import BLOCK_TOKENS, Bench, layer_of, paged
from benchmarks.gpu_check.findings import Finding, Section, value_of
from benchmarks.gpu_check.sizes import SpeedSizes
from benchmarks.gpu_check.timing import Place, Stopwatch
from kernels.activation_triton import silu_mul_triton
from kernels.kv_layer import STORED_MAX
from kernels.logit_edits_triton import adjust_logits_triton
from kernels.normalization_triton import add_rms_norm_triton, rms_norm_triton
from kernels.paged_attention import AttentionBatch
from kernels.paged_attention_plan import Card
from kernels.paged_attention_triton import StaticDecode, card_of, plan_triton_attention
from kernels.quantized_linear import GROUP, QuantizedWeight
from kernels.quantized_linear_triton import quantized_linear_triton
from kernels.rotary_triton import rotate_and_store_triton
from kernels.token_sampling import WORD_TOKENS, DrawRows, TokenMasks
from kernels.token_sampling_triton import draw_triton


def run(
    section: Section,
    place: Place,
    sizes: SpeedSizes,
    known: list[Finding],
    *,
    warms_only: bool = False,
    card: Card | None = None,
) -> None:
    """Every kernel; with `warms_only` each is launched once, which compiles it. `card` is the
    device's own unless there is none."""
    bench = Bench(
        section,
        place,
        sizes,
        Stopwatch(place, warms_only=warms_only),
        card or card_of(place.device),
        value_of(known, ceilings.READ),
        value_of(known, ceilings.DENSE),
    )
    for stored_type in (torch.bfloat16, *STORED_MAX):
        kind = str(stored_type).removeprefix("torch.")
        section.attempt(f"decode attention, {kind} KV", partial(decode, bench, stored_type, kind))
    section.attempt("prefill attention", lambda: prefill(bench))
    for name, outputs, inputs in sizes.matrices:
        section.attempt(f"products {name}", partial(products, bench, name, outputs, inputs))
    section.attempt("norms and activation", lambda: elementwise(bench))
    for stored_type in (torch.bfloat16, *STORED_MAX):
        section.attempt(f"rotary, {stored_type} KV", partial(rotary, bench, stored_type))
    section.attempt("sampling", lambda: sampling(bench))


def decode(bench: Bench, stored_type: torch.dtype, kind: str) -> None:
    """A batch of decodes, planned for the step and from buffers that never move; one alone."""
    sizes = bench.sizes
    for streams in (sizes.streams, 1):
        batch, blocks = paged(bench, streams, sizes.context)
        layer = layer_of(bench, blocks, stored_type)
        query = bench.numbers(streams, sizes.heads, sizes.head_size)
        moved = layer.keys.nbytes + layer.values.nbytes + 2 * query.nbytes
        if layer.key_scales is not None and layer.value_scales is not None:
            moved += layer.key_scales.nbytes + layer.value_scales.nbytes
        static = StaticDecode(
            sequences=streams,
            blocks_max=batch.block_tables.shape[1],
            block_tokens=BLOCK_TOKENS,
            kv_heads=sizes.kv_heads,
            device=bench.place.device,
            card=bench.card,
        )
        static.update(batch)
        planned = plan_triton_attention(batch, bench.place.device, bench.card)
        name = f"decode attention, {kind} KV, {streams} x {sizes.context}"
        bench.measure(name, partial(planned, query, layer), moved=moved)
        bench.measure(f"{name}, static", partial(static, query, layer), moved=moved)


def prefill(bench: Bench) -> None:
    """A whole prompt: the causal half of its products."""
    sizes = bench.sizes
    length = sizes.prefill
    batch, blocks = paged(bench, 1, length)
    batch = AttentionBatch(
        torch.tensor([0, length], dtype=torch.int32), batch.context_lengths, batch.block_tables
    )
    layer = layer_of(bench, blocks, torch.bfloat16)
    query = bench.numbers(length, sizes.heads, sizes.head_size)
    attend = plan_triton_attention(batch, bench.place.device, bench.card)
    bench.measure(
        f"prefill attention of {length}",
        partial(attend, query, layer),
        moved=2 * query.nbytes + layer.keys.nbytes + layer.values.nbytes,
        products=2.0 * sizes.heads * sizes.head_size * length**2,
    )


def products(bench: Bench, name: str, outputs: int, inputs: int) -> None:
    """One matrix at each number of rows: eight bits, four bits, and torch's own in bfloat16."""
    device = bench.place.device
    scales = [
        torch.ones((outputs, inputs // GROUP), dtype=torch.float16, device=device) for _ in range(2)
    ]
    whole = torch.randint(-99, 99, (outputs, inputs), dtype=torch.int8, device=device)
    halves = torch.randint(0, 255, (outputs, inputs // 2), dtype=torch.uint8, device=device)
    eight = QuantizedWeight(whole, torch.ones(outputs, device=device))
    four = QuantizedWeight(halves, *scales)
    plain = bench.numbers(outputs, inputs)
    kinds: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], int]] = {
        "w8a16": (partial(quantized_linear_triton, weight=eight), whole.nbytes),
        "w4a16": (
            partial(quantized_linear_triton, weight=four),
            halves.nbytes + 2 * scales[0].nbytes,
        ),
        "torch bfloat16": (partial(linear, weight=plain), plain.nbytes),
    }
    for kind, (multiply, weight_bytes) in kinds.items():
        for rows in bench.sizes.rows:
            hidden = bench.numbers(rows, inputs)
            bench.measure(
                f"{kind} {name}, {rows} rows",
                partial(multiply, hidden),
                moved=weight_bytes + hidden.nbytes + 2 * rows * outputs,
                products=2.0 * rows * outputs * inputs,
            )


def elementwise(bench: Bench) -> None:
    """Norms, sums and the activation, of a prefill and of a batch of decodes."""
    sizes = bench.sizes
    for rows in (sizes.tokens, sizes.streams):
        hidden, delta = (bench.numbers(rows, sizes.hidden) for _ in range(2))
        weight, gate_up = bench.numbers(sizes.hidden), bench.numbers(rows, 2 * sizes.feed_forward)
        bench.measure(
            f"norm, {rows} rows",
            partial(rms_norm_triton, hidden, weight, 1e-5),
            moved=2 * hidden.nbytes,
        )
        bench.measure(
            f"sum and norm, {rows} rows",
            partial(add_rms_norm_triton, hidden, delta, weight, 1e-5),
            moved=4 * hidden.nbytes,
        )
        bench.measure(
            f"silu, {rows} rows", partial(silu_mul_triton, gate_up), moved=1.5 * gate_up.nbytes
        )


def rotary(bench: Bench, stored_type: torch.dtype) -> None:
    """Rotation and the write into the pool, of a prefill and of a batch of decodes."""
    sizes = bench.sizes
    device = bench.place.device
    for rows in (sizes.tokens, sizes.streams):
        qkv = bench.numbers(rows, sizes.heads + 2 * sizes.kv_heads, sizes.head_size)
        layer = layer_of(bench, -(-rows // BLOCK_TOKENS), stored_type)
        turns = torch.randn(2, rows, sizes.head_size // 2, device=device)
        slots = torch.arange(rows, device=device)
        written = 2 * rows * sizes.kv_heads * sizes.head_size * stored_type.itemsize
        bench.measure(
            f"rotary, {str(stored_type).removeprefix('torch.')} KV, {rows} rows",
            partial(rotate_and_store_triton, qkv, turns[0], turns[1], slots, layer),
            moved=qkv.nbytes + rows * sizes.heads * sizes.head_size * 2 + written,
        )


def sampling(bench: Bench) -> None:
    """Draws from all of a vocabulary, by noise alone and within top-p; grammar masks."""
    rows, vocabulary = bench.sizes.streams, bench.sizes.vocabulary
    device = bench.place.device
    logits = torch.randn(rows, vocabulary, device=device) * 3
    for name, top_p in (("noise", 1.0), ("top-p", 0.9)):
        limited = torch.arange(rows if top_p < 1.0 else 0, dtype=torch.int32, device=device)
        how = DrawRows(
            temperatures=torch.full((rows,), 0.8, device=device),
            top_ks=torch.zeros(rows, dtype=torch.int32, device=device),
            top_ps=torch.full((rows,), top_p, device=device),
            min_ps=torch.zeros(rows, device=device),
            noise_keys=torch.arange(rows, device=device) * 7919,
            limited=limited,
        )
        call = partial(draw_triton, logits, how)
        bench.measure(f"draws by {name}, {rows} x {vocabulary}", call, moved=logits.nbytes)
    words = torch.randint(
        -(2**31), 2**31 - 1, (rows, -(-vocabulary // WORD_TOKENS)), device=device
    ).int()
    masks = TokenMasks(torch.arange(rows, dtype=torch.int32, device=device), words)
    bench.measure(
        f"masks, {rows} x {vocabulary}",
        partial(adjust_logits_triton, logits, None, masks),
        moved=words.nbytes + logits.nbytes / 2,
    )
