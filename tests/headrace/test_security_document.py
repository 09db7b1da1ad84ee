"""docs/security.md names the tests that prove it: each of them is there."""

import re

from headrace.standalone.data_folder import REPOSITORY

TEXT = (REPOSITORY / "docs" / "security.md").read_text(encoding="utf-8")


def test_every_proof_that_is_named_exists() -> None:
    paths = set(re.findall(r"`((?:tests|tenants|billing)/[\w/.]+)`", TEXT))
    names = set(re.findall(r"`(test_\w+)`", TEXT))
    defined = {
        name
        for path in (REPOSITORY / "tests").rglob("test_*.py")
        for name in re.findall(r"^(?:async )?def (test_\w+)", path.read_text("utf-8"), re.MULTILINE)
    }

    assert [path for path in sorted(paths) if not (REPOSITORY / path).exists()] == []
    assert sorted(names - defined) == []
    assert len(names) > 40
