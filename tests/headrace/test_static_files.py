"""What browsers load besides pages: found, kept, compressed, and nothing else given away."""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from django.conf import settings
from django.contrib.staticfiles import finders
from django.template import Context, Template, TemplateSyntaxError
from django.templatetags.static import static

from headrace import console_kit
from tests.headrace.door import Door

VENDOR = Path(console_kit.__file__).parent / "static" / "kit" / "vendor"
SHEET = "kit/vendor/tabler-1.6.1/tabler.min.css"
FONT = "kit/vendor/inter-5.3.0/inter-latin-wght-normal.woff2"
BUNDLE = "drf_spectacular_sidecar/swagger-ui-dist/swagger-ui-bundle.js"
KEPT_FOR_GOOD = "public, max-age=31536000, immutable"
FIRST_PAGE = (
    SHEET,
    "kit/vendor/inter-5.3.0/inter.css",
    FONT,
    "kit/vendor/htmx-2.0.11/htmx.min.js",
    "kit/vendor/htmx-ext-ws-2.0.4/ws.min.js",
    "kit/vendor/chart.js-4.6.1/chart.umd.min.js",
)
FIRST_PAGE_BYTES_MAX = 225_000
"""Of the 250 kB of a first page; the rest is for what we write ourselves."""

pytestmark = pytest.mark.usefixtures("django_database")


def fetch(url: str, **headers: str) -> httpx.Response:
    return Door().get(url, headers={"accept-encoding": "gzip, deflate", **headers})


def travelled_bytes(answer: httpx.Response) -> int:
    return int(answer.headers["content-length"])


def content(name: str) -> bytes:
    found = finders.find(name)
    assert isinstance(found, str)
    return Path(found).read_bytes()


@pytest.mark.parametrize("name", [SHEET, BUNDLE, "headrace/api_docs.js"])
def test_text_travels_compressed_and_is_kept_for_good(name: str) -> None:
    answer = fetch(static(name))

    assert answer.status_code == 200
    assert answer.headers["content-encoding"] == "gzip"
    assert answer.headers["vary"] == "Accept-Encoding"
    assert answer.content == content(name)
    assert answer.num_bytes_downloaded == travelled_bytes(answer) < len(content(name))
    assert answer.headers["cache-control"] == KEPT_FOR_GOOD
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"].startswith("default-src 'self'")
    assert not answer.cookies


def test_who_cannot_decompress_gets_the_file_as_it_is() -> None:
    answer = fetch(static(SHEET), **{"accept-encoding": "identity"})

    assert answer.content == content(SHEET)
    assert "content-encoding" not in answer.headers
    assert answer.headers["vary"] == "Accept-Encoding"


def test_a_font_is_not_compressed_again() -> None:
    answer = fetch(static(FONT))

    assert answer.headers["content-type"] == "font/woff2"
    assert answer.content == content(FONT)
    assert "content-encoding" not in answer.headers


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (SHEET, "text/css; charset=utf-8"),
        (BUNDLE, "text/javascript; charset=utf-8"),
        ("kit/vendor/tabler-icons-3.52.0/key.svg", "image/svg+xml"),
        ("drf_spectacular_sidecar/swagger-ui-dist/favicon-32x32.png", "image/png"),
    ],
)
def test_a_file_says_what_it_is(name: str, kind: str) -> None:
    assert fetch(static(name)).headers["content-type"] == kind


@pytest.mark.parametrize("query", ["", "?v=0123456789abcdef"])
def test_a_name_that_marks_no_content_of_ours_is_asked_again(query: str) -> None:
    answer = fetch(f"/static/headrace/api_docs.js{query}")
    again = fetch(
        f"/static/headrace/api_docs.js{query}", **{"if-none-match": answer.headers["etag"]}
    )

    assert answer.headers["cache-control"] == "no-cache"
    assert (again.status_code, again.content) == (304, b"")


@pytest.fixture
def folder_of_operator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(settings, "STATICFILES_DIRS", [tmp_path])
    finders.get_finder.cache_clear()  # type: ignore[attr-defined]  # it is an lru_cache
    yield tmp_path
    finders.get_finder.cache_clear()  # type: ignore[attr-defined]


def test_a_changed_file_has_another_url_at_once(folder_of_operator: Path) -> None:
    file = folder_of_operator / "ours.js"
    file.write_text("1;")
    before = static("ours.js")
    file.write_text("'two';")

    assert static("ours.js") != before
    assert fetch(static("ours.js")).content == b"'two';"
    assert fetch(before).headers["cache-control"] == "no-cache"


def test_a_head_has_the_headers_alone() -> None:
    got, head = fetch(static(SHEET)), Door().request("HEAD", static(SHEET))

    assert head.status_code == 200
    assert head.content == b""
    assert head.headers["content-length"] == got.headers["content-length"]


@pytest.mark.parametrize(
    "path",
    [
        "kit/vendor/tabler-1.6.1/none.css",
        "kit/vendor/tabler-1.6.1",
        "../settings.py",
        "kit/../../settings.py",
        "kit/%2e%2e/%2e%2e/settings.py",
        "//etc/passwd",
        "%00",
        "",
    ],
)
def test_nothing_but_files_of_apps_is_there(path: str) -> None:
    assert fetch(f"/static/{path}").status_code == 404


def test_a_page_cannot_name_a_file_that_is_not_there() -> None:
    with pytest.raises(ValueError, match=r"no app ships static/kit/none\.css"):
        static("kit/none.css")


def test_vendored_files_are_those_that_the_list_names() -> None:
    named = dict(re.findall(r"^\| `(\S+)` \|.*`([0-9a-f]{64})`", listed(), re.MULTILINE))
    there = {
        str(file.relative_to(VENDOR)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in VENDOR.rglob("*")
        if file.suffix in {".css", ".js", ".woff2"}
    }

    assert there == named
    assert all((folder / "LICENSE").is_file() for folder in VENDOR.iterdir() if folder.is_dir())
    assert not [name for name in there if b"sourceMappingURL" in (VENDOR / name).read_bytes()]


def listed() -> str:
    return (VENDOR / "VENDORED.md").read_text()


def test_a_first_page_leaves_room_for_what_we_write() -> None:
    total = sum(travelled_bytes(fetch(static(name))) for name in FIRST_PAGE)

    assert total < FIRST_PAGE_BYTES_MAX


def drawn(source: str) -> str:
    return Template("{% load icons %}" + source).render(Context())


def test_every_icon_is_drawn_inline_without_what_the_policy_forbids() -> None:
    for file in (VENDOR / "tabler-icons-3.52.0").glob("*.svg"):
        text = drawn(f'{{% icon "{file.stem}" class="ms-1" %}}')
        assert text.startswith('<svg class="icon ms-1" ')
        assert text.endswith("</svg>")
        assert 'aria-hidden="true"' in text
        assert "<path" in text
        assert not re.search(r"style=|<style|<script|<!--|xmlns|\son\w+=", text)


@pytest.mark.parametrize("name", ["none", "../../../apps", "key.svg", ""])
def test_an_icon_that_is_not_vendored_is_a_fault_of_the_template(name: str) -> None:
    with pytest.raises(TemplateSyntaxError, match="is vendored"):
        drawn(f'{{% icon "{name}" %}}')


def test_an_icon_takes_a_class_and_escapes_it() -> None:
    assert 'class="icon &quot;&gt;"' in Template("{% load icons %}{% icon 'key' class=c %}").render(
        Context({"c": '">'})
    )
    with pytest.raises(TemplateSyntaxError, match="an icon has no style"):
        drawn("{% icon 'key' style='color: red' %}")
