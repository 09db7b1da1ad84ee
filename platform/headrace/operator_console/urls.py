"""The pages of the operator console, under `/operator/`. Mounted by `headrace.urls`."""

from django.urls import URLPattern

app_name = "operator"
urlpatterns: list[URLPattern] = []
