"""What pages let a browser load, run and send forms to."""

import pytest
from django.conf import settings

from tests.headrace.door import Door

LOGIN = "/accounts/login/"

pytestmark = pytest.mark.usefixtures("django_database")


def directives() -> dict[str, list[str]]:
    policy = Door().get(LOGIN).headers["content-security-policy"]
    parts = [part.split() for part in policy.split(";")]
    return {name: sources for name, *sources in parts}


def test_a_page_runs_nothing_inline_and_loads_nothing_from_elsewhere() -> None:
    found = directives()

    assert found["default-src"] == ["'self'"]
    assert not {"script-src", "style-src", "font-src", "connect-src"} & set(found)
    assert "unsafe" not in str(found)
    assert found["img-src"] == ["'self'", "data:"]
    assert found["frame-ancestors"] == found["object-src"] == found["base-uri"] == ["'none'"]


@pytest.mark.parametrize(
    ("key", "base", "beyond"),
    [
        ("", "", []),
        ("sk_test", "", ["https://checkout.stripe.com", "https://billing.stripe.com"]),
        ("sk_test", "http://127.0.0.1:9999", ["http://127.0.0.1:9999"]),
    ],
)
def test_a_form_may_end_where_money_is_paid_in(
    key: str, base: str, beyond: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "STRIPE_API_KEY", key)
    monkeypatch.setattr(settings, "STRIPE_API_BASE", base)

    assert directives()["form-action"] == ["'self'", *beyond]
