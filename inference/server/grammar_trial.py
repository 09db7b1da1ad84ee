"""`python -m inference.server.grammar_trial`: tries one grammar, and may die of it.

Reads the kind and the source of a grammar, compiles it over the 256 bytes and computes its first
mask, within limits of its own on time and memory. Exits 0 if the grammar is good and REFUSED, with
the message on stdout, if it is not; every other end says that it is too much. Started by
`grammar_trials`.
"""

import resource
import sys
import time
from pathlib import Path

from llguidance import LLTokenizer, TokenizerWrapper

from inference.contracts import Grammar, GrammarKind
from inference.engine.answering.grammar import GrammarInvalid
from inference.engine.answering.grammar_compiling import compiled

REFUSED = 3
"""The exit status of a trial whose grammar does not compile."""
CPU_S_MAX = 1
"""Full seconds are all that the kernel counts. Schemas of everyday sizes take 1 to 80 ms."""
MEMORY_BYTES_MAX = 32 << 20
"""On top of the interpreter. Schemas of everyday sizes take 1 to 13 MB, here and in the engine,
which keeps some and copies one for each of its answers."""


class _Bytes:
    """What llguidance wants to know of a vocabulary that is the 256 bytes and an end."""

    eos_token_id = 256
    bos_token_id = None
    special_token_ids = (256,)
    tokens = (*(bytes([byte]) for byte in range(256)), b"</s>")

    def __call__(self, text: bytes) -> list[int]:
        return list(text)


def main() -> int:
    """Tries the grammar on stdin; returns the exit status."""
    kind, _, source = sys.stdin.buffer.read().decode().partition("\n")
    tokenizer = LLTokenizer(TokenizerWrapper(_Bytes()))
    _limit_itself()
    try:
        compiled(tokenizer, Grammar(GrammarKind(kind), source))
    except GrammarInvalid as error:
        sys.stdout.buffer.write(str(error).encode())
        return REFUSED
    return 0


def _limit_itself() -> None:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    memory_bytes = pages * resource.getpagesize() + MEMORY_BYTES_MAX
    cpu_s = int(time.process_time()) + CPU_S_MAX
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))


if __name__ == "__main__":
    sys.exit(main())
