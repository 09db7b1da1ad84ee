"""Qwen 3, dense: an RMS norm on each head of q and k, no biases. Follows `Qwen3ForCausalLM`."""

from inference.models.decoder import Family

QWEN3 = Family("qwen3", head_norms=True)
