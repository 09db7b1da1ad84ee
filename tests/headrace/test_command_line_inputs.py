"""What the sources of a command line become: uploads, in order, through one temporary file."""

import io
import zipfile
from pathlib import Path

import pytest

from headrace.command_line.ending import CommandStopped
from headrace.command_line.inputs import PartLimits, check, uploads

SMALL = PartLimits(bytes_max=1000, documents_max=10)


def uploaded(
    *sources: str | Path, stdin: bytes = b"", limits: PartLimits = SMALL
) -> dict[str, bytes]:
    """Contents by file name, read when each is handed out."""
    names = [str(source) for source in sources]
    check(names)
    return {
        each.filename: each.path.read_bytes() for each in uploads(names, io.BytesIO(stdin), limits)
    }


def names_in(content: bytes) -> list[str]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return archive.namelist()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Texts in folders, and what is no text."""
    for name in ("b.txt", "a.md", "sub/c.html", "sub/d.PDF", "image.png", ".hidden.txt"):
        file = tmp_path / "texts" / name
        file.parent.mkdir(exist_ok=True, parents=True)
        file.write_text(f"content of {name}")
    return tmp_path / "texts"


def test_a_folder_is_packed_in_the_order_of_its_names(folder: Path) -> None:
    files = uploaded(folder)

    assert list(files) == ["documents-00001.zip"]
    assert names_in(files["documents-00001.zip"]) == ["a.md", "b.txt", "sub/c.html", "sub/d.PDF"]


def test_a_large_folder_becomes_several_parts(folder: Path) -> None:
    files = uploaded(folder, limits=PartLimits(bytes_max=1000, documents_max=3))

    assert {name: len(names_in(content)) for name, content in files.items()} == {
        "documents-00001.zip": 3,
        "documents-00002.zip": 1,
    }


def test_several_sources_keep_their_paths_apart(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)

    roomy = PartLimits(bytes_max=10_000, documents_max=10)
    files = uploaded("sub", "../texts/b.txt", str(folder / "a.md"), limits=roomy)

    absolute = str(folder / "a.md").lstrip("/")
    assert names_in(files["documents-00001.zip"]) == [
        "sub/c.html",
        "sub/d.PDF",
        "texts/b.txt",
        absolute,
    ]


def test_a_table_goes_up_as_it_is(tmp_path: Path) -> None:
    table = tmp_path / "rows.parquet"
    table.write_bytes(b"PAR1")

    assert uploaded(table) == {"rows.parquet": b"PAR1"}


def test_tables_in_a_folder_go_up_beside_its_texts(folder: Path) -> None:
    (folder / "sub" / "rows.csv").write_bytes(b"id,text\n1,one\n")

    assert list(uploaded(folder)) == ["documents-00001.zip", "rows.csv"]


def test_large_lines_and_rows_are_cut(tmp_path: Path) -> None:
    lines, rows = tmp_path / "lines.jsonl", tmp_path / "rows.csv"
    lines.write_bytes(b'{"text": "one"}\n' * 100)
    rows.write_bytes(b"id,text\n" + b"1,one\n" * 300)

    files = uploaded(lines, rows)

    assert list(files) == [
        *("lines-00001.jsonl", "lines-00002.jsonl"),
        *("rows-00001.csv", "rows-00002.csv"),
    ]
    assert files["lines-00001.jsonl"] + files["lines-00002.jsonl"] == lines.read_bytes()


def test_a_large_parquet_file_is_refused_by_name(tmp_path: Path) -> None:
    table = tmp_path / "rows.parquet"
    table.write_bytes(b"PAR1" * 300)

    with pytest.raises(CommandStopped, match=r"rows\.parquet is larger than 1000 bytes"):
        uploaded(table)


def test_standard_input_is_cut_like_a_file() -> None:
    files = uploaded("-", stdin=b'{"text": "one"}\n' * 100)

    assert list(files) == ["stdin-00001.jsonl", "stdin-00002.jsonl"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing.jsonl", r"missing\.jsonl: there is no such file$"),
        ("slides.pptx", r"slides\.pptx is of no known kind: "),
    ],
)
def test_what_cannot_be_read_is_named_before_anything_is_sent(
    tmp_path: Path, name: str, message: str
) -> None:
    (tmp_path / "slides.pptx").write_text("")

    with pytest.raises(CommandStopped, match=message):
        check([str(tmp_path / name)])


def test_a_file_that_was_uploaded_before_is_not_looked_for() -> None:
    assert uploaded("file-0198c0ffee") == {}


def test_a_manifest_that_names_no_bucket_is_refused(tmp_path: Path) -> None:
    manifest = tmp_path / "nightly.manifest"
    manifest.write_text("\nhttp://127.0.0.1/latest/meta-data\n")

    with pytest.raises(CommandStopped, match="line 2: not an s3:// address"):
        uploaded(manifest)
