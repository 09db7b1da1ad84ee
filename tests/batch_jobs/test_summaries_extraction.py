"""Text out of HTML and PDF, and a child process that hostile documents cannot hold up."""

import io
import os
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fpdf import FPDF
from pypdf import PdfWriter

from batch_jobs.summaries.extraction import ChildExtractor, ExtractionLimits
from batch_jobs.summaries.sources.documents import DocumentUnreadable

MIB = 1 << 20
LIMITS = ExtractionLimits(
    memory_bytes_max=512 * MIB,
    cpu_s=5,
    wall_s=10,
    text_bytes_max=MIB,
    pages_max=20,
    documents_max=100,
)
PAGE = b"""<!doctype html><html><head><title>Rivers</title><style>p {}</style></head><body>
<nav><a href="/">Home</a></nav><script>var secret = 1</script>
<h2>The &Uuml;ber river</h2><p>It is <b>very</b>
long.<br>And deep.</p><ul><li>one<li>two</ul>
<table><tr><td>a</td><td>b</td></tr></table><template>unseen</template></body></html>"""


def pdf(*pages: str) -> bytes:
    document = FPDF()
    document.set_font("helvetica", size=12)
    for text in pages:
        document.add_page()
        document.cell(text=text)
    return bytes(document.output())


def written(writer: PdfWriter) -> bytes:
    target = io.BytesIO()
    writer.write(target)
    return target.getvalue()


@pytest.fixture
def extractor() -> Iterator[ChildExtractor]:
    with ChildExtractor(LIMITS) as child:
        yield child


def refusal(extractor: ChildExtractor, kind: str, content: bytes) -> str:
    with pytest.raises(DocumentUnreadable) as raised:
        extractor.extract(kind, content)
    return raised.value.code


def test_html_keeps_its_words_and_their_structure(extractor: ChildExtractor) -> None:
    assert extractor.extract("html", PAGE).split("\n\n") == [
        "Rivers",
        "Home",
        "## The Über river",
        "It is very long.\nAnd deep.",
        "- one",
        "- two",
        "a b",
    ]


def test_html_is_read_in_the_encoding_it_names(extractor: ChildExtractor) -> None:
    page = '<meta charset="koi8-r"><p>Привет, мир'.encode("koi8-r")

    assert extractor.extract("html", page) == "Привет, мир"


def test_the_pages_of_a_pdf_are_paragraphs(extractor: ChildExtractor) -> None:
    assert extractor.extract("pdf", pdf("first page", "second page")) == "first page\n\nsecond page"


def test_a_pdf_without_text_or_behind_a_password_says_so(extractor: ChildExtractor) -> None:
    blank, locked = PdfWriter(), PdfWriter()
    blank.add_blank_page(100, 100)
    locked.add_blank_page(100, 100)
    locked.encrypt("secret", algorithm="RC4-128")

    assert refusal(extractor, "pdf", written(blank)) == "no_text"
    assert refusal(extractor, "pdf", written(locked)) == "encrypted"
    assert refusal(extractor, "pdf", pdf(*["x"] * 21)) == "document_too_large"


@pytest.mark.parametrize(
    "content",
    [b"", b"%PDF-1.7\ngarbage", pdf("cut off")[:300], b"%PDF-1.4\n" + os.urandom(100_000)],
    ids=["empty", "garbage", "cut", "random"],
)
def test_what_is_no_pdf_fails_alone(extractor: ChildExtractor, content: bytes) -> None:
    assert refusal(extractor, "pdf", content) in ("invalid_pdf", "extraction_failed")
    assert extractor.extract("pdf", pdf("fine")) == "fine"


def pdf_bomb() -> bytes:
    """A page whose few kilobytes unpack to hundreds of megabytes of drawing."""
    packer = zlib.compressobj(9)
    packed = b"".join(packer.compress(b"0 0 m " * (1 << 20)) for _ in range(40)) + packer.flush()
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]/Contents 4 0 R>>",
        b"<</Filter/FlateDecode/Length %d>>stream\n%s\nendstream" % (len(packed), packed),
    ]
    content, places = b"%PDF-1.4\n", []
    for number, each in enumerate(objects, 1):
        places.append(len(content))
        content += b"%d 0 obj\n%s\nendobj\n" % (number, each)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    return content + (
        b"xref\n0 5\n0000000000 65535 f \n%strailer<</Size 5/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF"
        % (table, len(content))
    )


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "make"),
    [
        ("html", lambda: b"<div>" * 300_000 + b"deep"),
        ("html", lambda: b"<p>x" * 1_500_000),
        ("html", lambda: b"<a" * 2_000_000),
        ("pdf", pdf_bomb),
    ],
    ids=["deep", "wide", "unclosed", "packed"],
)
def test_a_document_that_takes_too_much_costs_no_more_than_its_limits(
    kind: str, make: Callable[[], bytes]
) -> None:
    with ChildExtractor(replace(LIMITS, cpu_s=2, wall_s=4)) as extractor:
        # pypdf itself stops unpacking at some point, and then there is no text.
        assert refusal(extractor, kind, make()) in (
            "extraction_failed",
            "extraction_timeout",
            "no_text",
        )
        assert extractor.extract("html", b"<p>next") == "next"


def test_a_child_that_does_not_answer_in_time_is_replaced() -> None:
    with ChildExtractor(replace(LIMITS, wall_s=0.0)) as hasty:
        assert refusal(hasty, "html", PAGE) == "extraction_timeout"
        assert refusal(hasty, "html", PAGE) == "extraction_timeout"


def test_the_child_sees_nothing_of_the_house(
    extractor: ChildExtractor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_PLANTED", "secret")
    extractor.extract("html", PAGE)
    child = extractor._child
    assert child is not None

    assert b"HEADRACE" not in Path(f"/proc/{child.pid}/environ").read_bytes()
    limits = Path(f"/proc/{child.pid}/limits").read_text()
    assert f"{512 * MIB}" in next(line for line in limits.splitlines() if "address" in line)


def test_no_child_outlives_its_extractor() -> None:
    with ChildExtractor(replace(LIMITS, documents_max=1)) as extractor:
        extractor.extract("html", PAGE)
        first = extractor._child
        extractor.extract("html", PAGE)
        second = extractor._child

    assert first is not None and second is not None
    assert first.pid != second.pid
    assert first.returncode is not None
    assert second.returncode is not None
