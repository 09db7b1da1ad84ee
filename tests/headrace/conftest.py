"""What tests of sign-in share."""

from collections.abc import Iterator

import pytest
from django.test import override_settings


@pytest.fixture
def crowd() -> Iterator[None]:
    """Many people may come from this one address, and their passwords are hashed in no time.

    What is counted by account stays as it is.
    """
    with override_settings(
        PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
        ACCOUNT_RATE_LIMITS={
            "signup": "10000/m/ip",
            "login": "10000/m/ip",
            "login_failed": "10000/m/ip,5/300s/key",
            "reset_password": "10000/m/ip,5/m/key",
            "reset_password_from_key": "10000/m/ip",
        },
    ):
        yield
