"""A POST that moves money needs a key, and under one key it happens once."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connections
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.test import APIRequestFactory

from headrace.errors import ApiError
from headrace.management_api.base import ActingView
from headrace.management_api.idempotent import idempotency_key, idempotent
from tenants.contracts import Actor, Permission
from tenants.facade import operator_of
from tests.billing.cast import at_once
from tests.tenants.cast import Tenant, make_tenant


@pytest.fixture
def acme(django_database: object) -> Tenant:
    """Who pays."""
    return make_tenant("acme")


class Till:
    """Counts what its view was made to do."""

    def __init__(self, tenant: Tenant, status: int = 201) -> None:
        self.paid: list[str] = []
        self.status = status
        self.gate: Callable[[], None] = lambda: None
        till = self

        class View(ActingView):
            authentication_classes = []
            permission_classes = []
            permissions = {"POST": Permission.BILLING_WRITE}

            def find_actor(self, request: Request) -> Actor:
                return operator_of(tenant.organization_id)

            @idempotent
            def post(self, request: Request) -> Response:
                till.gate()
                till.paid.append(idempotency_key(request))
                return Response({"number": len(till.paid)}, status=till.status)

        self._view = View.as_view()

    def pay(self, key: str | None, amount: str = "5") -> Any:
        """One POST."""
        headers = {} if key is None else {"idempotency-key": key}
        request = APIRequestFactory().post(
            "/pay", {"amount": amount}, format="json", headers=headers
        )
        return self._view(request)


def test_the_same_top_up_twice_is_one(acme: Tenant) -> None:
    till = Till(acme)
    first, second = till.pay("k"), till.pay("k")

    assert till.paid == ["k"]
    assert (
        (first.status_code, first.data) == (second.status_code, second.data) == (201, {"number": 1})
    )
    assert second.headers["idempotent-replayed"] == "true"


def test_without_a_key_nothing_is_paid(acme: Tenant) -> None:
    till = Till(acme)

    assert till.pay(None).status_code == 400
    assert till.pay("").status_code == 400
    assert till.paid == []


def test_another_amount_under_the_key_is_refused(acme: Tenant) -> None:
    till = Till(acme)
    till.pay("k")

    assert till.pay("k", "6").status_code == 422
    assert till.paid == ["k"]


def test_a_refused_payment_may_be_tried_again(acme: Tenant) -> None:
    till = Till(acme, status=402)
    till.pay("k")
    till.status = 201

    assert till.pay("k").status_code == 201
    assert len(till.paid) == 2


def test_fifty_at_once_pay_once(acme: Tenant) -> None:
    till = Till(acme)
    refused = threading.Semaphore(0)

    # The one that pays waits for all the others' answers.
    def wait_for_them() -> None:
        for _ in range(49):
            assert refused.acquire(timeout=30)

    till.gate = wait_for_them

    def pay() -> int:
        status = int(till.pay("k").status_code)
        if status == 409:
            refused.release()
        return status

    statuses = at_once([pay] * 50)

    assert sorted(statuses) == [201] + [409] * 49
    assert till.paid == ["k"]
    connections.close_all()


def test_an_unexpected_failure_frees_the_key(acme: Tenant) -> None:
    till = Till(acme)

    def fail() -> None:
        raise ApiError(500, "broken")

    till.gate = fail
    assert till.pay("k").status_code == 500
    till.gate = lambda: None

    assert till.pay("k").status_code == 201
