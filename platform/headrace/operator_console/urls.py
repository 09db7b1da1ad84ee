"""The pages of the operator console, under `/operator/`, for staff. Mounted by `headrace.urls`."""

from django.urls import URLPattern, path

from headrace.operator_console.catalog.listing import ModelsPage
from headrace.operator_console.catalog.pricing import PricesPage
from headrace.operator_console.fleet.page import FleetPage
from headrace.operator_console.money import MoneyPage
from headrace.operator_console.orders.page import OrderPage
from headrace.operator_console.system import SystemPage
from headrace.operator_console.tenancy.listing import TenantsPage
from headrace.operator_console.tenancy.receipt import ReceiptPage
from headrace.operator_console.tenancy.single import TenantPage

app_name = "operator"
urlpatterns: list[URLPattern] = [
    path("", FleetPage.as_view(), name="fleet"),
    path("models", ModelsPage.as_view(), name="models"),
    path("models/prices", PricesPage.as_view(), name="prices"),
    path("tenants", TenantsPage.as_view(), name="tenants"),
    path("tenants/<uuid:organization_id>", TenantPage.as_view(), name="tenant"),
    path(
        "tenants/<uuid:organization_id>/requests/<str:request_id>",
        ReceiptPage.as_view(),
        name="receipt",
    ),
    path("money", MoneyPage.as_view(), name="money"),
    path("system", SystemPage.as_view(), name="system"),
    path("orders/<uuid:order_id>", OrderPage.as_view(), name="order"),
]
