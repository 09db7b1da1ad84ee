"""What a test can do to the fake that nobody can do to Stripe: `/_fake/...`, JSON in and out.

Moves the clock, mistreats deliveries, loses answers, plays the customer. Called by `app`.
"""

import contextlib
from dataclasses import dataclass, field
from typing import Any

from billing.stripe_sync.fake.faults import Fault, invalid
from billing.stripe_sync.fake.resources.checkout import complete, expire_overdue
from billing.stripe_sync.fake.resources.payments import fail_intent, succeed_intent
from billing.stripe_sync.fake.store import Json, Store
from billing.stripe_sync.fake.webhooks import MODES, TAMPERINGS, Deliverer

DRAIN_S = 30


@dataclass
class Trouble:
    """One call that will go wrong: answered `status` undone, or done and its answer lost.

    In place of a lost answer comes `status`, as of a proxy between, or nothing at all. The delay is
    before whatever is answered, and after what is done.
    """

    method: str
    path: str
    status: int = 0
    lost: bool = False
    delay_ms: int = 0
    count: int = 1


@dataclass
class Controls:
    """The troubles planned, and the hand on the deliveries."""

    store: Store
    deliverer: Deliverer
    troubles: list[Trouble] = field(default_factory=list)

    def trouble_for(self, method: str, path: str) -> Trouble | None:
        """Takes the next trouble that is meant for this call."""
        for trouble in self.troubles:
            if trouble.method == method and path.startswith(trouble.path):
                trouble.count -= 1
                if trouble.count <= 0:
                    self.troubles.remove(trouble)
                return trouble
        return None

    async def act(self, method: str, path: str, body: dict[str, Any]) -> Json:
        """One control; raises Fault for an unknown one."""
        match method, path.strip("/").split("/")[1:]:
            case "POST", ["reset"]:
                return self._reset()
            case "POST", ["clock"]:
                self.store.clock_offset_s += int(body.get("advance_s", 0))
                expire_overdue(self.store)
                return {"now": self.store.now()}
            case "POST", ["troubles"]:
                self.troubles.append(Trouble(**body))
                return {}
            case "POST", ["webhooks"]:
                return self._set_modes(body)
            case "POST", ["webhooks", "release"]:
                self.deliverer.release()
                return {}
            case "POST", ["webhooks", "drain"]:
                self.deliverer.release()
                return {"idle": await self.deliverer.idle(int(body.get("timeout_s", DRAIN_S)))}
            case "GET", ["deliveries"]:
                return {"data": list(self.store.all("delivery"))}
            case "POST", ["events", event_id, "send"]:
                self.deliverer.send_again(self.store.get("event", event_id))
                return {}
            case "POST", ["checkout", session_id, "complete"]:
                card = body.get("payment_method", "pm_card_visa")
                return complete(self.store, session_id, card)
            case "POST", ["payment_intents", intent_id, "authenticate"]:
                return self._authenticate(intent_id, success=bool(body.get("success", True)))
        raise invalid(f"Unknown control: {method} {path}")

    def _reset(self) -> Json:
        """Forgets every control, and deliveries; what the account holds stays."""
        self.deliverer.close()
        self.troubles.clear()
        self.store.clock_offset_s = 0
        self.store.kinds.pop("delivery", None)
        return self._set_modes({key: value for key, value in MODES.items() if key != "secrets"})

    def _set_modes(self, body: dict[str, Any]) -> Json:
        """Changes the modes of the endpoint named, or of all."""
        wanted = body.pop("endpoint", None)
        unknown = set(body) - set(MODES)
        if unknown or body.get("tamper", "") not in TAMPERINGS:
            raise invalid(f"Unknown mode: {sorted(unknown) or body['tamper']}")
        for endpoint in self.store.all("webhook_endpoint"):
            if wanted in (None, endpoint["id"]):
                self.store.get("endpoint_modes", endpoint["id"]).update(body)
        return {}

    def _authenticate(self, intent_id: str, *, success: bool) -> Json:
        """What the customer does when the bank asks."""
        intent = self.store.get("payment_intent", intent_id)
        if intent["status"] != "requires_action":
            raise invalid(f"This PaymentIntent is {intent['status']}.")
        method = self.store.get("payment_method", intent["payment_method"])
        if success:
            succeed_intent(self.store, intent, method)
            return intent
        with contextlib.suppress(Fault):
            fail_intent(self.store, intent, method, "authentication_required")
        return intent
