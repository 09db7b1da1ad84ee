"""The program that parses HTML and PDF of strangers, as a child of `extraction.ChildExtractor`.

Reads documents from its standard input and answers each on its standard output.
"""

import io
import json
import logging
import signal
import struct
import sys
from typing import Any

from batch_jobs.summaries.children.limits import limit_memory, limit_time

HEADER = struct.Struct("<24sI")
"""Before each document its kind, before each answer a code (`ok` or an error's), and the bytes."""
BLOCKS = """
    address article aside blockquote body caption dd details div dl dt fieldset figcaption figure
    footer form h1 h2 h3 h4 h5 h6 header hr li main nav ol option p pre section summary table title
    tr ul
"""
UNSEEN = ["script", "style", "noscript", "template", "svg", "iframe", "object", "canvas"]
PARAGRAPH = "\x1e"
LINE = "\x1f"


class Unreadable(Exception):
    """The document cannot be read; `code` says why."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def text_of_html(content: bytes) -> str:
    """The words of a page, its paragraphs apart, its headings marked as Markdown does."""
    from bs4 import BeautifulSoup, Tag

    soup = BeautifulSoup(content, "html.parser")
    for tag in soup.find_all(UNSEEN):
        tag.decompose()
    for tag in soup.find_all([*BLOCKS.split(), "br", "td", "th"]):
        if not isinstance(tag, Tag):
            continue
        if tag.name in ("br", "td", "th"):
            tag.insert_after(LINE if tag.name == "br" else " ")
            continue
        if tag.name[0] == "h" and tag.name[1:].isdigit():
            tag.insert(0, "#" * int(tag.name[1:]) + " ")
        elif tag.name == "li":
            tag.insert(0, "- ")
        tag.insert_before(PARAGRAPH)
        tag.insert_after(PARAGRAPH)
    paragraphs = []
    for paragraph in soup.get_text().split(PARAGRAPH):
        lines = (" ".join(line.split()) for line in paragraph.split(LINE))
        if text := "\n".join(line for line in lines if line):
            paragraphs.append(text)
    return "\n\n".join(paragraphs)


def text_of_pdf(content: bytes, pages_max: int, text_bytes_max: int) -> str:
    """The words of a PDF, page by page."""
    from pypdf import PdfReader
    from pypdf.errors import PyPdfError

    try:
        reader = PdfReader(io.BytesIO(content))
        if reader.is_encrypted and not reader.decrypt(""):
            raise Unreadable("encrypted", "the PDF asks for a password")
        if len(reader.pages) > pages_max:
            raise Unreadable("document_too_large", f"the PDF has more than {pages_max} pages")
        pages, chars = [], 0
        for page in reader.pages:
            text = page.extract_text().strip()
            chars += len(text)
            if chars > text_bytes_max:
                raise Unreadable("document_too_large", f"its text is over {text_bytes_max} bytes")
            if text:
                pages.append(text)
    except PyPdfError as error:
        raise Unreadable("invalid_pdf", f"the PDF is not readable: {error}") from error
    return "\n\n".join(pages)


def extract(kind: str, content: bytes, limits: dict[str, Any]) -> tuple[str, bytes]:
    """The answer to one document: a code and, with `ok`, its text, else a message."""
    try:
        if kind == "pdf":
            text = text_of_pdf(content, limits["pages_max"], limits["text_bytes_max"])
        else:
            text = text_of_html(content)
        encoded = text.encode("utf-8", "replace")
        if len(encoded) > limits["text_bytes_max"]:
            raise Unreadable("document_too_large", "its text is too long")  # noqa: TRY301
        if not text.strip():
            raise Unreadable("no_text", "it holds no text (a scan?)")  # noqa: TRY301
    except Unreadable as error:
        return error.code, str(error).encode()
    except (MemoryError, RecursionError):
        return "extraction_failed", b"reading it took more memory than is allowed"
    except Exception as error:  # noqa: BLE001 - a process edge: parsers fail in many ways
        return "extraction_failed", f"{type(error).__name__}: {error}".encode()[:500]
    return "ok", encoded


def main() -> None:
    """Answers documents until there are no more."""
    limits = json.loads(sys.argv[1])
    limit_memory(limits["memory_bytes_max"])
    logging.disable(logging.CRITICAL)
    incoming, outgoing = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr
    while len(header := incoming.read(HEADER.size)) == HEADER.size:
        kind, size_bytes = HEADER.unpack(header)
        content = incoming.read(size_bytes)
        limit_time(limits["cpu_s"], 2 * limits["cpu_s"])
        code, answer = extract(kind.rstrip(b"\0").decode(), content, limits)
        outgoing.write(HEADER.pack(code.encode(), len(answer)) + answer)
        outgoing.flush()
        signal.alarm(0)


if __name__ == "__main__":
    main()
