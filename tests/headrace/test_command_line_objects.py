"""Sources in a bucket, read with the caller's own credentials from a server that speaks S3."""

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from moto.server import ThreadedMotoServer

from headrace.command_line.ending import CommandStopped
from headrace.command_line.inputs import PartLimits, check, uploads

BUCKET = "mill"
OBJECTS = {
    "mail/2025/b.txt": b"second",
    "mail/2025/a.html": b"<p>first</p>",
    "mail/2025/rows.jsonl": b'{"text": "a row"}\n' * 100,
    "mail/2025/photo.jpg": b"no text",
    "mail/20/z.txt": b"of another folder",
}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """A server with a bucket of mail."""
    server = ThreadedMotoServer("127.0.0.1", 0)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Its address; the credentials are where every tool looks for them."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", server)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of-no-use")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of-no-use")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    client = boto3.client("s3")
    client.create_bucket(Bucket=BUCKET)
    for key, content in OBJECTS.items():
        client.put_object(Bucket=BUCKET, Key=key, Body=content)
    return f"s3://{BUCKET}"


def uploaded(*sources: str) -> dict[str, bytes]:
    """Contents by file name, read when each is handed out."""
    check(sources)
    limits = PartLimits(bytes_max=1500, documents_max=10)
    return {
        each.filename: each.path.read_bytes() for each in uploads(sources, io.BytesIO(), limits)
    }


def members(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_a_prefix_is_read_like_a_folder(bucket: str) -> None:
    files = uploaded(f"{bucket}/mail/2025")

    assert list(files) == ["documents-00001.zip", "rows-00001.jsonl", "rows-00002.jsonl"]
    assert members(files["documents-00001.zip"]) == {"a.html": b"<p>first</p>", "b.txt": b"second"}
    rows = files["rows-00001.jsonl"] + files["rows-00002.jsonl"]
    assert rows == OBJECTS["mail/2025/rows.jsonl"]


def test_a_prefix_is_no_prefix_of_other_folders(bucket: str) -> None:
    files = uploaded(f"{bucket}/mail/20")

    assert members(files["documents-00001.zip"]) == {"z.txt": b"of another folder"}


def test_one_object_is_a_source_too(bucket: str) -> None:
    files = uploaded(f"{bucket}/mail/2025/b.txt")

    assert members(files["documents-00001.zip"]) == {"b.txt": b"second"}


def test_a_manifest_names_objects_one_a_line(bucket: str, tmp_path: Path) -> None:
    manifest = tmp_path / "nightly.manifest"
    manifest.write_text(f"{bucket}/mail/20/z.txt\n\n{bucket}/mail/2025/a.html\n")

    files = uploaded(str(manifest))

    assert members(files["documents-00001.zip"]) == {
        "mill/mail/20/z.txt": b"of another folder",
        "mill/mail/2025/a.html": b"<p>first</p>",
    }


@pytest.mark.parametrize("place", ["/nothing/here", "-of-nobody/mail"])
def test_what_is_not_there_is_said_in_a_line(bucket: str, place: str) -> None:
    with pytest.raises(CommandStopped, match=r"^S3: An error occurred \((404|NoSuchBucket)\)"):
        uploaded(f"{bucket}{place}")
