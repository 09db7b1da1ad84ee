"""Everything that tenants raise on purpose."""


class TenantError(Exception):
    """Base of everything this package raises on purpose."""


class PermissionDenied(TenantError):
    """The actor may not do this here."""


class SecondFactorMissing(TenantError):
    """The organization demands a second factor, and this person has none; or would demand it of
    others without having one.
    """


class TenantObjectNotFound(TenantError):
    """No such row in this organization: unknown, another tenant's or gone, and not told apart."""


class OrganizationNotFound(TenantObjectNotFound):
    """Unknown or closed, or the user is not a member of it."""


class InvitationNotFound(TenantObjectNotFound):
    """Unknown, used, withdrawn or expired."""


class TenantConflict(TenantError):
    """The state of things forbids it; the text says what is in the way."""


class LimitReached(TenantConflict):
    """There are as many as there may be; `limit` names it, for metrics."""

    def __init__(self, limit: str, message: str) -> None:
        super().__init__(message)
        self.limit = limit


class LastOwner(TenantConflict):
    """An organization keeps at least one owner."""


class AlreadyRotated(TenantConflict):
    """The key has a successor already: rotate that one."""


class InvalidValue(TenantError):
    """A setting that cannot be; `param` names it."""

    def __init__(self, param: str, message: str) -> None:
        super().__init__(message)
        self.param = param


class OrganizationSuspended(TenantError):
    """A valid key of an organization that may not infer."""


class InvitationForAnother(TenantError):
    """The invitation was sent to another address than the user's."""


class KeyMalformed(TenantError):
    """Not shaped like one of our keys (length, alphabet or checksum): no look-up was made."""


class KeyRejected(TenantError):
    """Unknown, revoked or expired: one error and one text for all three."""


class ProjectArchived(TenantError):
    """A valid key of a project that takes no requests any more."""


class ScopeMissing(TenantError):
    """Tenant data was asked for outside `tenant_scope`."""


class SealBroken(TenantError):
    """A sealed value does not open: it was altered, or SECRET_KEY is another."""
