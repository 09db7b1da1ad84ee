"""From chat messages or text to prompt ids, so that what a user types stays text.

Renders the model's template in a sandbox and encodes it with no control token taken from message
content. Called by the web process (the count is needed for the hold) and by tests; never imports
torch. One instance serves all threads: nothing changes after construction.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NoReturn

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer
from tokenizers.pre_tokenizers import Metaspace

from inference.tokenizer.bundle import TEMPLATE_FILE, TOKENIZER_FILE, Bundle, BundleInvalid
from inference.tokenizer.token_texts import TokenTexts

BREAK_CHARACTERS = range(0xE000, 0xF900)
"""Private-use code points tried as the break; a prompt that holds all 6,400 is refused."""


class PromptInvalid(ValueError):
    """The text cannot be encoded; the message says why and is fit for the caller."""


class TemplateRefused(PromptInvalid):
    """The model's chat template does not take these messages."""


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message of a conversation."""

    role: str
    content: str


def _now() -> datetime:
    return datetime.now(UTC)


class PromptEncoder:
    """Encodes prompts for one bundle. Thread-safe."""

    def __init__(self, bundle: Bundle, *, now: Callable[[], datetime] = _now) -> None:
        """Reads the bundle's files; raises BundleInvalid when the template does not parse.

        `now` is the time that templates write into their system prompts.
        """
        self._bos_id = bundle.bos_id
        self._tokenizer = Tokenizer.from_file(str(bundle.folder / TOKENIZER_FILE))
        self._tokenizer.encode_special_tokens = True
        self._inner_tokenizer = _without_first_prefix(self._tokenizer)
        self.token_texts = TokenTexts(self._tokenizer)
        special = {
            token.content: token_id
            for token_id, token in self._tokenizer.get_added_tokens_decoder().items()
            if token.special
        }
        self._special_ids = special
        longest_first = sorted(special, key=len, reverse=True)
        any_special = "|".join(map(re.escape, longest_first)) or "(?!)"
        self._split = re.compile(f"({any_special})")
        # The lookahead finds overlapping occurrences too: each loses its first character to the
        # break, so none survives.
        self._starts_special = re.compile(f"(?=(?:{any_special}))(.)", re.DOTALL)
        self._heads = frozenset(t[:n] for t in special for n in range(1, len(t)))
        self._tails = frozenset(t[n:] for t in special for n in range(1, len(t)))
        self._middles = frozenset(
            t[n:end] for t in special for n in range(1, len(t)) for end in range(n + 1, len(t))
        )
        self._part_length_max = max(map(len, special), default=1) - 1
        self._template_source = (bundle.folder / TEMPLATE_FILE).read_text(encoding="utf-8")
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = lambda pattern: now().strftime(pattern)
        try:
            self._template = environment.from_string(self._template_source)
        except TemplateError as error:
            raise BundleInvalid(f"{bundle.folder / TEMPLATE_FILE}: {error}") from error

    def encode_chat(self, messages: Sequence[ChatMessage]) -> list[int]:
        """Ids of the conversation as the template writes it, ending where the answer begins.

        The template writes every control token itself, a begin-of-sequence one included; one that
        is spelled out in a role or a content is encoded as the text it is. Raises TemplateRefused.
        """
        mark = self._break_character(messages)
        broken = [
            {
                # Templates build control tokens around a role (`<|user|>`), never around content.
                "role": self._broken(message.role, mark, inner=frozenset()),
                "content": self._broken(message.content, mark, inner=self._middles),
            }
            for message in messages
        ]
        try:
            # Templates ask whether `tools` is none where they are written to always get them.
            rendered = self._template.render(
                messages=broken, add_generation_prompt=True, tools=None, documents=None
            )
        except (TemplateError, TypeError) as error:
            raise TemplateRefused(f"the chat template refused the messages: {error}") from error
        ids: list[int] = []
        # re.split with one group alternates plain text and control tokens.
        for index, segment in enumerate(self._split.split(rendered)):
            if index % 2:
                ids.append(self._special_ids[segment])
            elif segment:
                text = segment.replace(mark, "")
                ids += self._plain_ids(text, TemplateRefused, inner=index > 0)
        return ids

    def encode_text(self, text: str) -> list[int]:
        """Ids of plain text, nothing in it special, after the model's BOS where it wants one.

        Bytes that the vocabulary lacks are left out, as in the model's own tokenizer, so that the
        ids can be fewer than expected or none. Raises PromptInvalid for text that is not Unicode
        (a lone surrogate).
        """
        ids = self._plain_ids(text, PromptInvalid)
        return ids if self._bos_id is None else [self._bos_id, *ids]

    def _plain_ids(
        self, text: str, error_type: type[PromptInvalid], *, inner: bool = False
    ) -> list[int]:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise error_type("the text holds a lone surrogate, which is not Unicode") from error
        tokenizer = self._inner_tokenizer if inner else self._tokenizer
        # The same ids as `encode`, which keeps every other thread waiting until it is done.
        (encoding,) = tokenizer.encode_batch_fast([text], add_special_tokens=False)
        ids: list[int] = encoding.ids
        return ids

    def _break_character(self, messages: Sequence[ChatMessage]) -> str:
        texts = [self._template_source]
        for message in messages:
            texts += (message.role, message.content)
        for code_point in BREAK_CHARACTERS:
            candidate = chr(code_point)
            if not any(candidate in text for text in texts):
                return candidate
        raise TemplateRefused("the messages use every private-use character there is")

    def _broken(self, text: str, mark: str, *, inner: frozenset[str]) -> str:
        """`text` with `mark` inside each control token spelled in it.

        Also at its start or end where a piece of a control token stands that the template's own
        text might complete (`inner`: pieces it might complete on both sides); inside the outer
        white space, which templates like to trim.
        """
        body = text.strip()
        before, _, after = text.partition(body) if body else (text, "", "")
        lengths = range(1, min(len(body), self._part_length_max) + 1)
        opens = body in inner or any(body[:length] in self._tails for length in lengths)
        closes = any(body[-length:] in self._heads for length in lengths)
        inside = self._starts_special.sub(lambda match: match[1] + mark, body)
        return before + mark * opens + inside + mark * closes + after


def _without_first_prefix(tokenizer: Tokenizer) -> Tokenizer:
    """The tokenizer for text behind a control token.

    Some vocabularies of SentencePiece put a space before the first word of a text and only there.
    Each piece between control tokens is encoded alone, so all but the first need one that does not.
    """
    splitter = tokenizer.pre_tokenizer
    if not isinstance(splitter, Metaspace) or splitter.prepend_scheme != "first":
        return tokenizer
    inner = Tokenizer.from_str(tokenizer.to_str())
    inner.encode_special_tokens = True
    inner.pre_tokenizer = Metaspace(
        replacement=splitter.replacement, prepend_scheme="never", split=splitter.split
    )
    return inner


def _raise_exception(message: str) -> NoReturn:
    """What templates call to refuse a conversation."""
    raise TemplateError(message)
