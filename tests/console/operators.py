"""The operator at the door of tests: somebody of the staff, with or without a second factor."""

from uuid import UUID, uuid4

from django.contrib.auth import get_user_model

from tests.headrace.door import Door


def new_staff(*, has_factor: bool = True) -> UUID:
    """A person of the staff; the web's own role makes nobody staff."""
    from allauth.mfa.totp.internal.auth import TOTP, generate_totp_secret

    address = f"operator.{uuid4().hex[:12]}@example.com"
    people = get_user_model()._default_manager
    people.db_manager("housekeeper").create_user(email=address, is_staff=True)
    user = people.get(email=address)
    if has_factor:
        TOTP.activate(user, generate_totp_secret())
    user_id: UUID = user.pk
    return user_id


def operator(seconds_ago: float = 0) -> Door:
    """One who signed in so many seconds ago."""
    return Door().sign_in(new_staff(), seconds_ago)
