"""The runner on CUDA: launches a step and reads its tokens later, decodes by graphs.

Must never make the device wait for the host between two decode steps: tokens that the host has not
seen yet go from one step into the next on the device. Made by `make_cuda_runner` for
`runner.load_runner`; the only stream is the default one, so steps follow each other as launched.
"""

from collections.abc import Sequence
from itertools import accumulate, islice

import numpy as np
import torch

from inference.contracts import BLOCK_TOKENS
from inference.engine.computing.cuda_device import CudaDevice, Device, Download, uploaded
from inference.engine.computing.cuda_graphs import DecodeGraphs
from inference.engine.computing.device_sampling import LaunchedDraws
from inference.engine.computing.runner import TorchRunner, attention_batch
from inference.engine.step import PENDING, Launched, SampleSpec, SequenceStep, StepOutput
from inference.models.decoder import Decoder
from inference.models.step_tensors import KvPool
from kernels.paged_attention import Attend
from kernels.paged_attention_triton import card_of, plan_triton_attention
from kernels.token_sampling import WORD_TOKENS

WARM_UP_TOKENS = 64
"""Enough queries for the tiles of a prefill."""


class CudaRunner(TorchRunner):
    """A `LaunchingRunner`. Not thread-safe: one engine loop owns it."""

    def __init__(
        self, model: Decoder, pool: KvPool, *, cache_key: bytes, running_max: int, device: Device
    ) -> None:
        """Steps of up to `running_max` sequences that decode run as graphs, captured when first
        needed unless `warm_up` did."""
        super().__init__(model, pool, cache_key=cache_key)
        self._where = device
        self._card = card_of(device.place)
        self._graphs = DecodeGraphs(model, pool, device, running_max=running_max, card=self._card)
        self._last_ids = torch.empty(0, dtype=torch.int64, device=device.place)
        """What the last launch draws."""
        self._last_places: dict[str, int] = {}
        """Where in it each sequence's newest token is."""

    @torch.inference_mode()
    def warm_up(self) -> None:
        """Captures the graphs and compiles what prefill and sampling need, which takes seconds:
        before the first request. What it leaves in the first blocks is never found."""
        self._graphs.capture_all()
        tokens = min(WARM_UP_TOKENS, self.context_tokens_max, self.block_count * BLOCK_TOKENS)
        everything = SampleSpec(
            top_p=0.5,
            logit_bias=((0, 1.0),),
            allowed=bytes([0xFF]) * (4 * -(-self.vocab_size // WORD_TOKENS)),
            logprobs=1,
        )
        blocks = range(-(-tokens // BLOCK_TOKENS))
        self.execute([SequenceStep("warm-up", [0] * tokens, 0, blocks, (everything,))])

    def execute(self, steps: Sequence[SequenceStep]) -> list[StepOutput]:
        """The outputs of the sequence steps, in order."""
        return self.launch(steps).outputs()

    @torch.inference_mode()
    def launch(self, steps: Sequence[SequenceStep]) -> Launched:
        """Enqueues a step behind those launched before; a PENDING token is what the launch before
        draws last for the same sequence."""
        if not steps:
            return _LaunchedStep((), None, None)
        hidden, rows = self._launched_hidden(steps)
        specs = [spec for step in steps for spec in step.samples]
        draws = None
        if specs:
            logits = self._model.logits(self._model.normed(hidden[rows]))
            draws = LaunchedDraws(logits, specs, self._where)
        self._remember(steps, draws)
        sizes = tuple((len(step.samples), step.pool) for step in steps)
        return _LaunchedStep(sizes, draws, self._launched_sums(hidden, steps))

    def _launched_hidden(
        self, steps: Sequence[SequenceStep]
    ) -> tuple[torch.Tensor, torch.Tensor | slice]:
        """The hidden states of a step, and which of them are drawn from."""
        graph = self._graphs.serving(steps)
        if graph is None:
            tensors = self._tensors(steps)
            self._fill_pending(tensors.token_ids, steps)
            return self._model.hidden(tensors, self._pool), tensors.logit_rows
        graph.write(steps)
        self._fill_pending(graph.token_ids, steps)
        hidden = graph.replay()
        if all(step.samples for step in steps):
            return hidden, slice(len(steps))
        return hidden, self._vector([row for row, step in enumerate(steps) if step.samples])

    def _fill_pending(self, token_ids: torch.Tensor, steps: Sequence[SequenceStep]) -> None:
        ends = accumulate(len(step.token_ids) for step in steps)
        pending = [
            (end - 1, self._last_places[step.sequence_id])
            for end, step in zip(ends, steps, strict=True)
            if step.token_ids[-1] == PENDING
        ]
        if pending:
            [[rows, places]] = uploaded(self._where, [np.array(pending).T])
            # A row that drew nothing fails its own step; this one just must not read past a table.
            token_ids.index_copy_(0, rows, self._last_ids[places].clamp_min(0))

    def _remember(self, steps: Sequence[SequenceStep], draws: LaunchedDraws | None) -> None:
        ends = accumulate(len(step.samples) for step in steps)
        self._last_places = {
            step.sequence_id: end - 1 for end, step in zip(ends, steps, strict=True) if step.samples
        }
        if draws is not None:
            self._last_ids = draws.token_ids

    def _launched_sums(
        self, hidden: torch.Tensor, steps: Sequence[SequenceStep]
    ) -> Download | None:
        ends = accumulate(len(step.token_ids) for step in steps)
        sums = [
            self._model.normed(hidden[end - len(step.token_ids) : end]).float().sum(0)
            for end, step in zip(ends, steps, strict=True)
            if step.pool
        ]
        return Download(self._where, sums) if sums else None

    def _attend(self, steps: Sequence[SequenceStep]) -> Attend:
        return plan_triton_attention(attention_batch(steps), self._where.place, self._card)

    def _vector(self, values: list[int]) -> torch.Tensor:
        return uploaded(self._where, [np.array(values, dtype=np.int64)])[0]


class _LaunchedStep:
    """A `Launched`: `sizes` are the draws of each sequence step, and whether it is pooled."""

    def __init__(
        self,
        sizes: Sequence[tuple[int, bool]],
        draws: LaunchedDraws | None,
        sums: Download | None,
    ) -> None:
        self._sizes = sizes
        self._draws = draws
        self._sums = sums

    def outputs(self) -> list[StepOutput]:
        """Waits for the step. Raises NothingAllowed."""
        drawn = iter(self._draws.read() if self._draws else ())
        sums = iter(self._sums.read() if self._sums else ())
        return [
            StepOutput(tuple(islice(drawn, count)), tuple(next(sums).tolist()) if pools else ())
            for count, pools in self._sizes
        ]


def make_cuda_runner(
    model: Decoder, pool: KvPool, *, cache_key: bytes, running_max: int
) -> CudaRunner:
    """A runner of a model and a pool that lie on the same GPU."""
    device = CudaDevice(pool.device)
    return CudaRunner(model, pool, cache_key=cache_key, running_max=running_max, device=device)
