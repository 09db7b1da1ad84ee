"""How every table is shown: its rows and their fields, to be read and never to be changed.

What is secret is neither selected nor filtered by, nor is what a package says is nobody's to read.
Packages name columns (`admin.site.register(Model, list_display=...)`) and can loosen nothing here.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.conf import settings
from django.contrib.admin import ModelAdmin, ShowFacets
from django.core.paginator import Paginator
from django.db.models import (
    BinaryField,
    CharField,
    Field,
    ForeignKey,
    IntegerField,
    Model,
    Q,
    QuerySet,
)
from django.db.models.constants import LOOKUP_SEP
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern
from django.utils.functional import cached_property

ALIAS = "housekeeper"
"""The role that sees all tenants; here in transactions that write nothing."""
SECRET = re.compile(r"secret|password|sealed|signature|hash(?!_scheme)|token(?!s|_class|_expires)")
"""Of a field's name. The numbers that fence leases are called tokens too: nobody misses them."""
KEY_DIGITS_MAX = 19
"""Of a number that is searched for; no larger one is a key."""
PAGES = ("_changelist", "_change")
"""What the names of a table's addresses end in; adding, deleting and history have none."""

if TYPE_CHECKING:
    TableAdmin = ModelAdmin[Any]  # whatever is registered
    RowPaginator = Paginator[Any]
else:
    TableAdmin, RowPaginator = ModelAdmin, Paginator


class BoundedPaginator(RowPaginator):
    """Counts no further than BACK_OFFICE_ROWS_MAX: the largest table opens as the smallest."""

    @cached_property
    def count(self) -> int:
        """Of the rows that can be leafed through."""
        rows = self.object_list
        assert isinstance(rows, QuerySet)
        return rows.order_by()[: settings.BACK_OFFICE_ROWS_MAX].count()


class ReadOnlyTable(TableAdmin):
    """One table; in the order of its key, for nothing else is sure to have an index."""

    ordering = ("-pk",)
    sortable_by = ()
    actions = None
    paginator = BoundedPaginator
    show_full_result_count = False
    show_facets = ShowFacets.NEVER
    list_max_show_all = 0
    view_on_site = False
    search_help_text = "A row's own id, or an organization's id or slug."

    def get_urls(self) -> list[URLPattern]:
        """The list, and one row."""
        return [one for one in super().get_urls() if (one.name or "").endswith(PAGES)]

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Whoever got through the site's door."""
        return True

    def has_module_permission(self, request: HttpRequest) -> bool:
        """The same."""
        return True

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Nobody."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Nobody."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Nobody."""
        return False

    def get_fields(self, request: HttpRequest, obj: Model | None = None) -> tuple[str, ...]:
        """In the order of the model."""
        hidden = self.hidden_fields()
        return tuple(one.name for one in self._columns() if one.name not in hidden)

    def get_readonly_fields(
        self, request: HttpRequest, obj: Model | None = None
    ) -> tuple[str, ...]:
        """All of them."""
        return self.get_fields(request, obj)

    def hidden_fields(self) -> frozenset[str]:
        """Secrets, and what the package excludes."""
        secrets = {
            one.name
            for one in self._columns()
            if isinstance(one, BinaryField) or SECRET.search(one.name)
        }
        return frozenset(self.exclude or ()) | secrets

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Of all tenants; what is hidden stays in the database, that of joined rows too."""
        joined = [one for one in self._columns() if isinstance(one, ForeignKey)]
        beyond = [
            f"{one.name}{LOOKUP_SEP}{name}"
            for one in joined
            for name in self._table_of(one.path_infos[-1].to_opts.model).hidden_fields()
        ]
        # Joined, because a tenant's row that is looked up later is looked up as the web would.
        rows = super().get_queryset(request).using(ALIAS)
        return rows.select_related(*(one.name for one in joined)).defer(
            *self.hidden_fields(), *beyond
        )

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        """By its filters only: another could ask for a hidden field, letter by letter."""
        return lookup.split(LOOKUP_SEP, maxsplit=1)[0] in self.list_filter

    def get_search_fields(self, request: HttpRequest) -> tuple[str, ...]:
        """Each table has a field to type into."""
        return (*self.search_fields, "pk")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """By the row's own key, its organization's id or slug, or a part of a named field."""
        term = search_term.strip()
        return (queryset.filter(self._matching(term)) if term else queryset), False

    def _matching(self, term: str) -> Q:
        key = self.opts.pk
        if isinstance(key, ForeignKey):
            key = key.target_field
        has_organization = any(one.name == "organization" for one in self._columns())
        found = Q(pk__in=[])
        if (given := _id_in(term)) is not None:
            if not isinstance(key, CharField | IntegerField):
                found |= Q(pk=given)
            if has_organization:
                found |= Q(organization_id=given)
            return found
        is_number = term.isdecimal() and len(term) <= KEY_DIGITS_MAX
        if isinstance(key, CharField) or (isinstance(key, IntegerField) and is_number):
            found |= Q(pk=term)
        if has_organization:
            found |= Q(organization__slug=term)
        for name in self.search_fields:
            found |= Q((f"{name}__icontains", term))
        return found

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *form: Any, **of_form: Any
    ) -> HttpResponse:
        """The row, without the form that the library would put around it."""
        return TemplateResponse(request, "admin/row.html", {**context, "opts": self.opts})

    def _table_of(self, model: type[Model]) -> "ReadOnlyTable":
        """Raises NotRegistered for a model that no package shows: its row could not be joined."""
        table = self.admin_site.get_model_admin(model)
        assert isinstance(table, ReadOnlyTable)
        return table

    def _columns(self) -> Sequence["Field[Any, Any]"]:
        return self.opts.concrete_fields


def _id_in(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
