"""Qwen 2 and 2.5: biases on q, k and v, and nowhere else. Follows `Qwen2ForCausalLM`."""

from inference.models.decoder import Family

QWEN2 = Family("qwen2", qkv_bias=True)
