"""Who there is: users, organizations, projects, members, invitations, service accounts.

Used inside `tenants` only.
"""

from typing import Any

from django.contrib.auth.base_user import AbstractBaseUser, BaseUserManager
from django.contrib.auth.models import PermissionsMixin
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models.functions import Now
from uuid_utils.compat import uuid7

from tenants.contracts import OrganizationStatus, Role
from tenants.scope import TenantModel

NAME_CHARS_MAX = 120
COST_TAG_CHARS_MAX = 64
TIME_ZONE_CHARS_MAX = 64


class UserManager(BaseUserManager["User"]):
    """Creates users who log in by e-mail address."""

    def create_user(self, email: str, password: str | None = None, **fields: Any) -> "User":
        """A user; addresses are compared without case. Raises ValueError for an empty address."""
        if not email:
            raise ValueError("a user needs an e-mail address")
        user = self.model(email=email.lower(), **fields)
        user.set_password(password)
        user.save(using=self._db)
        return user

    def create_superuser(self, email: str, password: str | None = None, **fields: Any) -> "User":
        """An operator who may do everything in the operator's console."""
        return self.create_user(email, password, is_staff=True, is_superuser=True, **fields)


class User(AbstractBaseUser, PermissionsMixin):
    """A person. Belongs to no tenant by itself: memberships say where they may act."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    email = models.EmailField(unique=True)
    display_name = models.CharField(max_length=120, blank=True)
    is_active = models.BooleanField(default=True)
    is_staff = models.BooleanField(default=False)
    created_at = models.DateTimeField(db_default=Now())

    objects = UserManager()

    USERNAME_FIELD = "email"

    def __str__(self) -> str:
        return self.email


class OrganizationRow(TenantModel):
    """A tenant: owns projects, keys, a currency, its settings and its minute limits."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    slug = models.SlugField(max_length=63, unique=True)
    display_name = models.CharField(max_length=120)
    currency = models.CharField(max_length=3, default="USD")
    requests_per_minute_max = models.PositiveIntegerField()
    tokens_per_minute_max = models.PositiveIntegerField()
    concurrent_requests_max = models.PositiveIntegerField()
    input_tokens_per_minute_max = models.PositiveIntegerField(null=True)
    output_tokens_per_minute_max = models.PositiveIntegerField(null=True)
    status = models.CharField(max_length=16, default=OrganizationStatus.ACTIVE.value)
    time_zone = models.CharField(max_length=TIME_ZONE_CHARS_MAX, default="UTC")
    cost_tags = ArrayField(models.CharField(max_length=COST_TAG_CHARS_MAX), default=list)
    cache_per_project = models.BooleanField(default=False)
    second_factor_required = models.BooleanField(db_default=False)
    prompts_kept_days = models.PositiveSmallIntegerField(null=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta(TenantModel.Meta):
        db_table = "tenants_organization"
        constraints = [
            models.CheckConstraint(
                name="tenants_currency_is_iso", condition=models.Q(currency__regex=r"^[A-Z]{3}$")
            ),
            models.CheckConstraint(
                name="tenants_organization_status",
                condition=models.Q(status__in=[status.value for status in OrganizationStatus]),
            ),
        ]

    def __str__(self) -> str:
        return self.slug


class Project(TenantModel):
    """A part of an organization with keys of its own. An archived one admits no request."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    organization = models.ForeignKey(
        OrganizationRow, on_delete=models.PROTECT, related_name="projects"
    )
    name = models.CharField(max_length=NAME_CHARS_MAX)
    limits = models.JSONField(default=dict)
    created_at = models.DateTimeField(db_default=Now())
    archived_at = models.DateTimeField(null=True)

    class Meta(TenantModel.Meta):
        db_table = "tenants_project"
        constraints = [
            # What composite foreign keys of other tables point at.
            models.UniqueConstraint(
                fields=["organization", "id"], name="tenants_project_with_tenant"
            ),
        ]

    def __str__(self) -> str:
        return self.name


class Membership(TenantModel):
    """A user's place in an organization."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    organization = models.ForeignKey(
        OrganizationRow, on_delete=models.PROTECT, related_name="memberships"
    )
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=16, choices=[(role.value, role.value) for role in Role])
    created_at = models.DateTimeField(db_default=Now())

    class Meta(TenantModel.Meta):
        db_table = "tenants_membership"
        constraints = [
            models.UniqueConstraint(fields=["organization", "user"], name="tenants_one_membership"),
            models.CheckConstraint(
                name="tenants_membership_role",
                condition=models.Q(role__in=[role.value for role in Role]),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.user_id} is {self.role}"


class InvitationRow(TenantModel):
    """An invitation to join; found by the hash of its token, and used once."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    organization = models.ForeignKey(OrganizationRow, on_delete=models.PROTECT, related_name="+")
    token_hash = models.BinaryField(max_length=32, unique=True)
    # Null once the invitation is used or withdrawn: addresses of members live in tenants_user.
    email = models.EmailField(null=True)  # noqa: DJ001
    role = models.CharField(max_length=16)
    # A user, or the line of an admin key; null for the operator.
    invited_by = models.UUIDField(null=True)
    created_at = models.DateTimeField(db_default=Now())
    expires_at = models.DateTimeField()
    accepted_at = models.DateTimeField(null=True)
    accepted_by = models.UUIDField(null=True)
    revoked_at = models.DateTimeField(null=True)

    class Meta(TenantModel.Meta):
        db_table = "tenants_invitation"
        constraints = [
            models.UniqueConstraint(
                fields=["organization", "email"],
                condition=models.Q(accepted_at=None, revoked_at=None),
                name="tenants_one_open_invitation",
            ),
            models.CheckConstraint(
                name="tenants_invitation_role",
                condition=models.Q(role__in=[role.value for role in Role]),
            ),
        ]

    def __str__(self) -> str:
        return f"invitation {self.id}"


class ServiceAccountRow(TenantModel):
    """A program's account in a project."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    organization = models.ForeignKey(OrganizationRow, on_delete=models.PROTECT, related_name="+")
    # The composite foreign key of sql/0002_people.sql is this one's constraint.
    project = models.ForeignKey(
        Project, on_delete=models.PROTECT, related_name="+", db_constraint=False
    )
    name = models.CharField(max_length=NAME_CHARS_MAX)
    created_at = models.DateTimeField(db_default=Now())
    disabled_at = models.DateTimeField(null=True)

    class Meta(TenantModel.Meta):
        db_table = "tenants_service_account"
        constraints = [
            models.UniqueConstraint(
                fields=["organization", "project", "id"],
                name="tenants_service_account_with_tenant",
            ),
        ]

    def __str__(self) -> str:
        return self.name
