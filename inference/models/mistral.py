"""Mistral 7B, Ministral, Mistral Small 2501 and others of that shape: the plain decoder.

The first Mistral attends to a sliding window of 4,096 tokens. Within one window that is plain
attention, so the readers of weights end such a model's context there. Follows `MistralForCausalLM`.
"""

from inference.models.decoder import Family

MISTRAL = Family("mistral")
