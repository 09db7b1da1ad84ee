"""Rows to draw from: seeded logits under every mixture of temperature and filters."""

import itertools

import torch

from kernels.token_sampling import DrawRows, TokenEdits, TokenMasks

FILTERS = tuple(itertools.product((0.05, 1.3), (0, 1, 20, 10**6), (1.0, 0.9, 0.2), (0.0, 0.1)))
"""(temperature, top_k, top_p, min_p) of the rows, after one greedy row without and one with
filters, which it has no use for."""


def sampled_rows(vocabulary: int) -> tuple[torch.Tensor, DrawRows]:
    """(logits [rows, vocabulary] with some equal and some impossible tokens, how to draw)."""
    generator = torch.Generator().manual_seed(vocabulary)
    filters = ((0.0, 0, 1.0, 0.0), (0.0, 5, 0.5, 0.0), *FILTERS)
    logits = torch.randn(len(filters), vocabulary, generator=generator) * 3
    logits[1::2] = logits[1::2].round(decimals=1)
    logits[::3, ::7] = -torch.inf
    temperatures, top_ks, top_ps, min_ps = zip(*filters, strict=True)
    return logits, DrawRows(
        temperatures=torch.tensor(temperatures),
        top_ks=torch.tensor(top_ks, dtype=torch.int32),
        top_ps=torch.tensor(top_ps),
        min_ps=torch.tensor(min_ps),
        noise_keys=torch.randint(-(2**62), 2**62, (len(filters),), generator=generator) * 2,
        limited=torch.tensor(
            [
                row
                for row, (temperature, *limits) in enumerate(filters)
                if temperature > 0.0 and limits != [0, 1.0, 0.0]
            ],
            dtype=torch.int32,
        ),
    )


def edited_rows(rows: int, vocabulary: int) -> tuple[torch.Tensor, TokenEdits, TokenMasks]:
    """(logits, an edit of every fifth token at random, masks for every other row)."""
    generator = torch.Generator().manual_seed(vocabulary + 1)
    logits = torch.randn(rows, vocabulary, generator=generator) * 3
    edited = torch.randperm(rows * vocabulary, generator=generator)[: rows * vocabulary // 5]
    biases = torch.randn(len(edited), generator=generator)
    biases[::9] = -torch.inf
    edits = TokenEdits(
        rows=(edited // vocabulary).int(),
        token_ids=(edited % vocabulary).int(),
        biases=biases,
        repetitions=torch.rand(len(edited), generator=generator) * 2 + 0.1,
        penalties=torch.randn(len(edited), generator=generator),
    )
    masked = torch.arange(0, rows, 2, dtype=torch.int32)
    words = torch.randint(-(2**31), 2**31, (len(masked), -(-vocabulary // 32)), generator=generator)
    return logits, edits, TokenMasks(masked, words.int())
