"""Prompts for the real model: chats, and long texts that differ between calls."""

from itertools import count

from openai.types.chat import ChatCompletionMessageParam

_serial = count()


def chat(text: str) -> list[ChatCompletionMessageParam]:
    """A conversation of one user message."""
    return [{"role": "user", "content": text}]


def long_text(words: int) -> str:
    """About `words` words that no earlier call returned, so that no cache knows them."""
    serial = next(_serial)
    return f"Story {serial}. " + " ".join(f"word{serial}x{i % 97}" for i in range(words // 3))


STORY = chat("Write a very long story about a river, a mill and a miller. Never stop early.")
"""Long enough an answer to be interrupted."""
