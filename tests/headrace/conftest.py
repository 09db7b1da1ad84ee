"""What tests of sign-in share."""

from collections.abc import Iterator

import pytest
from django.test import override_settings


@pytest.fixture
def quick_hashes() -> Iterator[None]:
    """Passwords are hashed in no time, for tests that sign a crowd up and are not about hashing."""
    with override_settings(PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"]):
        yield
