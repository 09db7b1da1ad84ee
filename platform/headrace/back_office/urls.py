"""The back office's routes: the tables, and sign-in as the web has it."""

from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView

from headrace.console_kit.branding import accent
from headrace.static_files import static_file
from headrace.urls import handler400, handler404, handler500

__all__ = ["handler400", "handler404", "handler500", "urlpatterns"]

_named_by_pages_of_sign_in = [
    path("accent.css", accent, name="accent"),
    path("", RedirectView.as_view(pattern_name="admin:index"), name="home"),
]

urlpatterns = [
    path("accounts/", include("allauth.urls")),
    path("static/<path:path>", static_file, name="static"),
    path("console/", include((_named_by_pages_of_sign_in, "console"))),
    path("", admin.site.urls),
]
