"""Decode steps as CUDA graphs: one launch of a whole model instead of several hundred kernels.

A graph is captured for a number of rows over tensors that never move; a step is copied into them
and the rest of the rows are padding, which reads no KV and stores none. Called by `cuda_runner`,
which runs everything but one token per sequence without graphs.
"""

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np
import torch

from inference.contracts import BLOCK_TOKENS
from inference.engine.computing.cuda_device import Device, uploaded
from inference.engine.computing.runner import attention_batch
from inference.engine.step import SequenceStep
from inference.models.decoder import Decoder
from inference.models.step_tensors import KvPool, StepTensors
from kernels.paged_attention import AttentionBatch
from kernels.paged_attention_plan import Card
from kernels.paged_attention_triton import StaticDecode

GRAPH_ROWS_MAX = 256
"""Larger steps run without: their kernels take longer than they take to launch."""
ROWS_APART = 8
NOT_STORED = -1
"""The slot of a padding row."""


def bucket_sizes(running_max: int) -> tuple[int, ...]:
    """The numbers of rows that graphs are captured for: 1, 2, 4, then every eighth, up to the first
    that holds `running_max`."""
    sizes = (1, 2, 4, *range(ROWS_APART, GRAPH_ROWS_MAX + 1, ROWS_APART))
    return sizes[: bisect_left(sizes, running_max) + 1]


class DecodeGraph:
    """One captured step of `rows` sequences with one token each."""

    def __init__(
        self, model: Decoder, pool: KvPool, device: Device, *, rows: int, card: Card
    ) -> None:
        """Reserves the inputs and captures; a run over padding alone changes no KV."""
        self._device = device
        self._rows = rows
        self._context_tokens_max = model.config.context_tokens_max
        self._inputs = torch.zeros((3, rows), dtype=torch.int64, device=device.place)
        self.token_ids, positions, slots = self._inputs
        slots.fill_(NOT_STORED)
        self._attend = StaticDecode(
            sequences=rows,
            blocks_max=min(pool.blocks, -(-model.config.context_tokens_max // BLOCK_TOKENS)),
            block_tokens=BLOCK_TOKENS,
            kv_heads=model.config.kv_heads,
            device=device.place,
            card=card,
        )
        step = StepTensors(
            token_ids=self.token_ids,
            positions=positions,
            slots=slots,
            logit_rows=slots[:0],
            attend=self._attend,
        )
        self._replay = device.capture(lambda: model.hidden(step, pool))

    def write(self, steps: Sequence[SequenceStep]) -> None:
        """Copies a step into place. Its `token_ids` may still be changed before the replay."""
        # Beyond it lie no angles, and what the device reads out of bounds ends the process.
        assert all(0 <= step.start < self._context_tokens_max for step in steps)
        inputs = np.zeros((3, self._rows), dtype=np.int64)
        inputs[2] = NOT_STORED
        inputs[:, : len(steps)] = np.array(
            [
                (
                    step.token_ids[0],
                    step.start,
                    step.block_table[step.start // BLOCK_TOKENS] * BLOCK_TOKENS
                    + step.start % BLOCK_TOKENS,
                )
                for step in steps
            ]
        ).T
        batch = attention_batch(steps)
        tables = self._device.pinned(batch.block_tables.nbytes).view(torch.int32)
        tables = tables.view(batch.block_tables.shape).copy_(batch.block_tables)
        self._attend.update(AttentionBatch(batch.query_starts, batch.context_lengths, tables))
        self._inputs.copy_(uploaded(self._device, [inputs])[0])

    def replay(self) -> torch.Tensor:
        """Enqueues the step: [rows, hidden_size], which the next replay overwrites."""
        return self._replay()


class DecodeGraphs:
    """The graphs of one model and pool, captured when first needed."""

    def __init__(
        self, model: Decoder, pool: KvPool, device: Device, *, running_max: int, card: Card
    ) -> None:
        self._model = model
        self._pool = pool
        self._device = device
        self._card = card
        self._graphs: dict[int, DecodeGraph | None] = dict.fromkeys(bucket_sizes(running_max))

    def serving(self, steps: Sequence[SequenceStep]) -> DecodeGraph | None:
        """The smallest graph that the steps fit; None if they decode more than one token each or
        are too many."""
        if any(len(step.token_ids) != 1 for step in steps):
            return None
        rows = next((rows for rows in self._graphs if rows >= len(steps)), None)
        return None if rows is None else self._captured(rows)

    def capture_all(self) -> None:
        """Captures what is missing, the largest first, whose memory serves the others."""
        for rows in reversed(self._graphs):
            self._captured(rows)

    def _captured(self, rows: int) -> DecodeGraph:
        graph = self._graphs[rows]
        if graph is None:
            graph = DecodeGraph(self._model, self._pool, self._device, rows=rows, card=self._card)
            self._graphs[rows] = graph
        return graph
