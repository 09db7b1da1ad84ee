"""Llama 2 and 3, SmolLM2, TinyLlama and other models of that shape: the plain decoder.

Llama 3.1 and later stretch their rotary frequencies, which is the configuration's to say. Follows
`LlamaForCausalLM` of Hugging Face transformers, whose greedy answers are the goldens of its tests.
"""

from inference.models.decoder import Family

LLAMA = Family("llama")
