"""Runs every paged case through the Triton kernel in the interpreter; prints errors as JSON.

A program of its own because Triton decides on the interpreter once, when it is imported.
"""

import json
import sys

import torch

from kernels.paged_attention import paged_attention_reference
from kernels.paged_attention_triton import plan_triton_attention
from tests.kernels.paged_cases import CASES, paged_step


def main() -> None:
    errors = {}
    for case in CASES:
        query, keys, values, batch = paged_step(case)
        # As in the model, queries are a slice of a wider tensor.
        wider = torch.cat((query, torch.full_like(query[:, :2], torch.nan)), dim=1)
        expected = paged_attention_reference(query, keys, values, batch)
        attend = plan_triton_attention(batch, torch.device("cpu"))
        actual = attend(wider[:, : case.heads], keys, values)
        errors[case.name] = float((actual - expected).abs().max())
    json.dump(errors, sys.stdout)


if __name__ == "__main__":
    main()
