"""`/console/<slug>/projects`: the projects, each with its limits, its renaming and its end.

Called by the console's routes.
"""

from http import HTTPStatus
from typing import Any
from uuid import UUID

from django import forms
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

import tenants.facade
from headrace.console_kit import formats
from headrace.console_kit.forms import (
    ConfirmForm,
    KitForm,
    limit_fields,
    limits_asked,
    limits_shown,
    wear_classes,
)
from headrace.console_kit.pages import PageView
from headrace.console_kit.tables import Column, Row, Table
from headrace.console_kit.templatetags.kit import badge
from headrace.tenant_console.keys.states import limits_text
from tenants.contracts import InvalidValue, Permission, ProjectInfo, TenantConflict

NAME_CHARS_MAX = 120
PROJECTS_SHOWN_MAX = 50


class ProjectForm(KitForm):
    """A name, and limits for who may set them."""

    name = forms.CharField(label="Name", max_length=NAME_CHARS_MAX)

    def __init__(self, *args: Any, with_limits: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields |= limit_fields() if with_limits else {}
        for field in self.fields.values():
            wear_classes(field)

    @property
    def limits(self) -> list[forms.BoundField]:
        """Of the project as a whole."""
        return [self[name] for name in limit_fields() if name in self.fields]


class ProjectsPage(PageView):
    """All projects."""

    page = "settings"
    title = "Projects"
    needs = Permission.PROJECTS_READ
    writes = Permission.PROJECTS_WRITE
    template = "tenant_console/projects/page.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        """`?archived=1` shows the archived ones too; `?after=`."""
        return self._page(self._bound())

    def do_create(self, slug: str) -> HttpResponseBase:
        """A new project."""
        form = self._bound(self.request.POST)
        if form.is_valid():
            try:
                made = tenants.facade.open_project(self.actor, form.cleaned_data["name"])
                return self.said(f"{made.name} is there", self.url("project", made.project_id))
            except InvalidValue as error:
                form.refuse(error)
            except TenantConflict as error:
                form.add_error(None, f"This cannot be done: {error}.")
        return self._page(form, HTTPStatus.UNPROCESSABLE_ENTITY)

    def _bound(self, data: object = None) -> ProjectForm:
        return ProjectForm(data, with_limits=False)

    def _page(self, form: ProjectForm, status: int = HTTPStatus.OK) -> HttpResponse:
        archived = "1" if "archived" in self.request.GET else None
        projects = tenants.facade.list_projects(
            self.actor,
            with_archived=archived is not None,
            rows_max=PROJECTS_SHOWN_MAX + 1,
            after=self.asked_id("after"),
        )
        shown = projects[:PROJECTS_SHOWN_MAX]
        next_href = ""
        if len(projects) > PROJECTS_SHOWN_MAX:
            next_href = self.url("projects", archived=archived, after=shown[-1].project_id)
        columns = [
            Column("Name"),
            Column("Limits of its own", hides=True),
            Column("Since", hides=True),
            Column("State"),
        ]
        rows = [self._row(one) for one in shown]
        return self.show(
            status=status,
            form=form,
            table=Table("Projects", columns, rows, next_href=next_href),
            archived_href=self.url("projects", archived=None if archived else "1"),
            with_archived=archived is not None,
            may_write=self.may(Permission.PROJECTS_WRITE),
            back=self.url("settings"),
        )

    def _row(self, project: ProjectInfo) -> Row:
        is_archived = project.archived_at is not None
        return Row(
            [
                project.name,
                limits_text(project.limits),
                formats.moment(project.created_at, self.zone),
                badge("archived") if is_archived else badge("active", "green"),
            ],
            self.url("project", project.project_id),
            is_muted=is_archived,
        )


class ProjectPage(PageView):
    """One project, and its end."""

    page = "settings"
    title = "Project"
    needs = Permission.PROJECTS_READ
    writes = Permission.PROJECTS_WRITE
    template = "tenant_console/projects/project.html"

    def get(self, request: HttpRequest, slug: str, project_id: UUID) -> HttpResponse:
        """What it is."""
        project = tenants.facade.read_project(self.actor, project_id)
        return self._page(project, ConfirmForm(name=project.name))

    def do_archive(self, slug: str, project_id: UUID) -> HttpResponseBase:
        """Ends it, where its name was typed."""
        project = tenants.facade.read_project(self.actor, project_id)
        form = ConfirmForm(self.request.POST, name=project.name)
        if not form.is_valid():
            return self._page(project, form, HTTPStatus.UNPROCESSABLE_ENTITY)
        tenants.facade.close_project(self.actor, project_id)
        return self.said(f"{project.name} is archived", self.url("projects"))

    def _page(
        self, project: ProjectInfo, form: ConfirmForm, status: int = HTTPStatus.OK
    ) -> HttpResponse:
        may_write = self.may(Permission.PROJECTS_WRITE) and project.archived_at is None
        usage_href = self.url("usage", project=project.project_id)
        keys_href = self.url("keys", project=project.project_id)
        return self.show(
            status=status,
            title=project.name,
            one=project,
            limits=limits_text(project.limits),
            form=form,
            may_write=may_write,
            edit_href=self.url("project-edit", project.project_id),
            usage_href=usage_href if self.may(Permission.USAGE_READ) else "",
            keys_href=keys_href if self.may(Permission.KEYS_READ) else "",
            back=self.url("projects"),
        )


class ProjectEditPage(PageView):
    """Its name and its limits."""

    page = "settings"
    title = "Edit project"
    needs = writes = Permission.PROJECTS_WRITE
    is_sensitive = True
    template = "tenant_console/projects/edit.html"

    def get(self, request: HttpRequest, slug: str, project_id: UUID) -> HttpResponse:
        """The form; who must prove who they are does so before they fill it in."""
        project = tenants.facade.read_project(self.actor, project_id)
        if not self.signed_in_lately():
            return self.prove_again()
        return self._form(project, self._bound(project))

    def do_save(self, slug: str, project_id: UUID) -> HttpResponseBase:
        """Changes what the form changed, from the next request on."""
        project = tenants.facade.read_project(self.actor, project_id)
        form = self._bound(project, self.request.POST)
        if form.is_valid():
            changed = form.changed
            limits = limits_asked(form.cleaned_data) if set(changed) - {"name"} else None
            try:
                tenants.facade.update_project(
                    self.actor, project_id, name=changed.get("name"), limits=limits
                )
                return self.said("The project is saved", self.url("project", project_id))
            except InvalidValue as error:
                form.refuse(error)
            except TenantConflict as error:
                form.add_error(None, f"This cannot be done: {error}.")
        return self._form(project, form, HTTPStatus.UNPROCESSABLE_ENTITY)

    def _bound(self, project: ProjectInfo, data: object = None) -> ProjectForm:
        initial = {"name": project.name, **limits_shown(project.limits)}
        with_limits = self.may(Permission.LIMITS_WRITE)
        return ProjectForm(data, with_limits=with_limits, initial=initial)

    def _form(
        self, project: ProjectInfo, form: ProjectForm, status: int = HTTPStatus.OK
    ) -> HttpResponse:
        back = self.url("project", project.project_id)
        return self.show(status=status, title=f"Edit {project.name}", form=form, back=back)
