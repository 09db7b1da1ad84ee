"""Money as a machine: whatever is held, settled, granted, paid, refunded and expired, in any order,
the books say what the model says.
"""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import count
from uuid import UUID

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from billing.contracts import (
    PICO,
    CreditLimitTooLow,
    GrantCategory,
    HoldRequest,
    RefundTooLarge,
    UsageCounts,
)
from billing.credit.burning import NEVER, Grant, burn
from billing.facade import (
    begin_topup,
    complete_topup,
    credit_grants,
    grant_credit,
    hold,
    reconcile,
    refund_topup,
    set_credit_limit,
    settle,
    tend_credit_of,
    void,
)
from tenants.facade import operator_of
from tests.billing.cast import make_tenant, used
from tests.billing.till import open_till

pytestmark = pytest.mark.usefixtures("django_database")
CENT = PICO // 100
DAY = timedelta(days=1)
amounts = st.integers(1, 300)


@dataclass
class Purse:
    """The model: grants, what of usage nothing has paid, open holds, and how far below zero."""

    grants: list[Grant] = field(default_factory=list)
    owed: int = 0
    holds: dict[UUID, int] = field(default_factory=dict)
    limit: int = 0
    leaving: dict[int, int] = field(default_factory=dict)

    @property
    def balance(self) -> int:
        """What is left of grants, less what is owed."""
        return sum(grant.remaining_pico for grant in self.grants) - self.owed

    @property
    def held(self) -> int:
        """What open holds reserve."""
        return sum(self.holds.values())

    def burn(self) -> None:
        """Let grants pay."""
        burned = burn(self.grants, self.owed)
        self.grants, self.owed = list(burned.grants), burned.owed_pico
        for one in self.grants:
            if one.age in self.leaving:
                self.leaving[one.age] = min(self.leaving[one.age], one.remaining_pico)

    def leave(self) -> None:
        """Take what has gone back or has ended, as far as nothing reserves it."""
        ends = {one.age: one.expires_at or NEVER for one in self.grants}
        for age in sorted(self.leaving, key=lambda age: (ends[age], age)):
            part = min(self.leaving[age], max(self.balance - self.held, 0))
            self.take(age, part)
            self.leaving[age] -= part

    def add(self, grant: Grant) -> None:
        """A new grant pays for what is used after it, and for debts."""
        self.burn()
        self.grants.append(grant)
        self.burn()

    def take(self, age: int, amount: int) -> None:
        """Take from one grant."""
        self.grants = [
            replace(one, remaining_pico=one.remaining_pico - amount) if one.age == age else one
            for one in self.grants
        ]


class Money(RuleBasedStateMachine):
    """One tenant. Tokens cost a pico-unit each, top-ups are of whole units."""

    open_holds = Bundle("open_holds")
    paid = Bundle("paid")

    def __init__(self) -> None:
        super().__init__()
        self.tenant = make_tenant(credit_pico=0)
        self.id = self.tenant.organization_id
        self.purse = Purse()
        self.now = datetime.now(UTC)
        self.serial = count()

    @rule(amount=amounts, category=st.sampled_from(GrantCategory), priority=st.integers(0, 2))
    def grant(self, amount: int, category: GrantCategory, priority: int) -> None:
        """Credit without an end."""
        age = next(self.serial)
        grant_credit(self.id, amount, f"{age}", category=category, priority=priority)
        self.purse.add(Grant(age, category, priority, amount))

    @rule(amount=amounts, days=st.integers(1, 3))
    def grant_that_ends(self, amount: int, days: int) -> None:
        """Credit with an end."""
        age, ends = next(self.serial), self.now + days * DAY
        grant_credit(self.id, amount, f"{age}", expires_at=ends)
        self.purse.add(Grant(age, GrantCategory.PROMOTIONAL, 0, amount, ends))

    @rule(days=st.integers(1, 2))
    def time_passes(self, days: int) -> None:
        """What has ended by then goes, but for what is reserved."""
        self.now += days * DAY
        tend_credit_of(self.id, self.now)
        self.purse.burn()
        for one in self.purse.grants:
            if one.expires_at is not None and one.expires_at <= self.now:
                self.purse.leaving[one.age] = one.remaining_pico
        self.purse.leave()

    @rule(limit=st.integers(0, 200))
    def credit_limit(self, limit: int) -> None:
        """On account, as far as it is not used already."""
        try:
            set_credit_limit(self.id, limit)
        except CreditLimitTooLow:
            assert self.purse.balance - self.purse.held < -limit
        else:
            self.purse.limit = limit

    @rule(target=open_holds, prompt=st.integers(0, 100), output=st.integers(0, 100))
    def take(self, prompt: int, output: int) -> HoldRequest:
        """A hold stands where the balance and the limit cover it."""
        request = self.tenant.request(prompt, output)
        [outcome] = hold([request])
        left = self.purse.balance - self.purse.held - sum(self.purse.leaving.values())
        covered = left - prompt - output >= -self.purse.limit
        assert (outcome.refusal is None) == covered
        if covered:
            self.purse.holds[request.request_id] = prompt + output
        return request

    @rule(request=consumes(open_holds), prompt=st.integers(0, 150), output=st.integers(0, 150))
    def finish(self, request: HoldRequest, prompt: int, output: int) -> None:
        """A settle charges the cost, as far as the hold goes, and nothing the second time."""
        amount = self.purse.holds.pop(request.request_id, None)
        charge = min(prompt + output, amount or 0)
        told = [settle([used(request, UsageCounts(prompt, 0, output))]) for _ in range(2)]
        assert [one.posted for [one] in told] == [amount is not None, False]
        assert {one.charge_pico for [one] in told} == {charge}
        self.purse.owed += charge

    @rule(request=consumes(open_holds))
    def abandon(self, request: HoldRequest) -> None:
        """A void charges nothing."""
        void([request.request_id])
        self.purse.holds.pop(request.request_id, None)

    @rule(target=paid, units=st.integers(1, 3))
    def top_up(self, units: int) -> tuple[str, int, int]:
        """A payment, told twice."""
        age = next(self.serial)
        with open_till() as till:
            begin_topup(operator_of(self.id), units * PICO, f"{age}")
            reference = f"pay_{till.begun[0].hex}"
        assert [complete_topup(reference, units * PICO) for _ in range(2)] == [True, False]
        self.purse.add(Grant(age, GrantCategory.PAID, 0, units * PICO))
        return reference, age, units * PICO

    @rule(payment=consumes(paid), amount=st.integers(1, 4 * 10**12), is_done=st.booleans())
    def refund(self, payment: tuple[str, int, int], amount: int, is_done: bool) -> None:
        """What is left of a top-up and not reserved goes back; more is refused, or leaves later."""
        reference, age, paid_pico = payment
        self.purse.burn()
        [left] = [one.remaining_pico for one in self.purse.grants if one.age == age]
        free = max(self.purse.balance - self.purse.held - sum(self.purse.leaving.values()), 0)
        most = paid_pico if is_done else min(paid_pico, left, free)
        try:
            refund_topup(reference, amount, f"refund {age}", is_done=is_done)
        except RefundTooLarge:
            assert amount > most
        else:
            assert amount <= most
            taken = min(amount, left, free)
            self.purse.take(age, taken)
            self.purse.leaving[age] = min(amount, left) - taken

    @rule()
    def read(self) -> None:
        """Grants are as of now whenever somebody looks."""
        self.purse.burn()
        self.purse.leave()
        assert sorted(one.remaining_pico for one in credit_grants(self.id)) == sorted(
            one.remaining_pico for one in self.purse.grants
        )

    @invariant()
    def balance_agrees(self) -> None:
        """At every moment, without anybody having looked at the grants."""
        found = self.tenant.balance()
        assert (found.posted_pico, found.held_pico) == (self.purse.balance, self.purse.held)

    def teardown(self) -> None:
        """The books agree with themselves, too."""
        self.read()
        assert [line for line in reconcile() if str(self.id) in line] == []


@pytest.mark.usefixtures("django_database")
def test_money_does_what_the_model_does() -> None:
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(
        Money,
        settings=settings(
            max_examples=12,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
