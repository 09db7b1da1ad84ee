"""The tenant scope: whose rows a transaction may see, and managers that refuse to work without one.

The wall is PostgreSQL's row-level security; the managers make a forgotten scope loud instead of
empty. A scope is one transaction and must never be held across a stream. Called by every module
that touches tenant tables through the ORM.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import ClassVar, Self, TypeVar
from uuid import UUID

from django.db import connections, models, transaction

from tenants.contracts import ScopeMissing

APP_ALIAS = "default"
"""The alias of the role that row-level security binds; only it needs a scope for the ORM."""

_Model = TypeVar("_Model", bound=models.Model)


@dataclass(frozen=True, slots=True)
class _Scope:
    organization_id: UUID
    alias: str


_scope: ContextVar[_Scope | None] = ContextVar("tenant_scope", default=None)


@contextmanager
def tenant_scope(
    organization_id: UUID, using: str = APP_ALIAS, *, one_moment: bool = False
) -> Iterator[None]:
    """Open a transaction that sees the rows of one organization and of nobody else.

    With `one_moment` all its queries see the database as the first one found it.

    Entering the same organization's scope again joins it. Raises ScopeMissing when another
    organization's scope is open, RuntimeError inside any other transaction: the setting is local
    to the transaction, so the scope must be the outermost one.
    """
    outer = _scope.get()
    if outer is not None and outer.alias == using and connections[using].in_atomic_block:
        if outer.organization_id != organization_id:
            raise ScopeMissing("the scope of another organization is open")
        yield
        return
    with transaction.atomic(using=using, durable=True):
        with connections[using].cursor() as cursor:
            if one_moment:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            cursor.execute(
                "SELECT set_config('headrace.organization_id', %s, true)", [str(organization_id)]
            )
        token = _scope.set(_Scope(organization_id, using))
        try:
            yield
        finally:
            _scope.reset(token)


def require_scope(alias: str) -> None:
    """Raise ScopeMissing unless the alias needs no scope or this thread's connection is in one."""
    if alias != APP_ALIAS:
        return
    scope = _scope.get()
    # A context copied into another thread carries the variable, but not the transaction.
    if scope is None or scope.alias != alias or not connections[alias].in_atomic_block:
        raise ScopeMissing("tenant data was asked for outside tenant_scope")


class TenantQuerySet(models.QuerySet[_Model]):
    """A queryset that can be built anywhere and run only inside a scope."""

    @property
    def db(self) -> str:
        """The alias the query is about to run on: Django asks for it at each execution."""
        alias = super().db
        require_scope(alias)
        return alias


class TenantManager(models.Manager[_Model]):
    """The manager of every model with an `organization_id`."""

    def get_queryset(self) -> TenantQuerySet[_Model]:
        """Lazy: the scope is demanded when the query runs."""
        return TenantQuerySet(self.model, using=self._db)


class TenantModel(models.Model):
    """Base of tenant tables: related look-ups and refreshes go through the strict manager too."""

    # Declared once: the plugin then types every subclass's manager.
    objects: ClassVar["TenantManager[Self]"] = TenantManager()

    class Meta:
        abstract = True
        base_manager_name = "objects"
