"""The hosted pages: what a customer's browser sees of Checkout. Called by `app`.

No script and nothing from elsewhere: a form, and a redirect to where the merchant said.
"""

from html import escape

from billing.stripe_sync.fake.resources.cards import CARDS
from billing.stripe_sync.fake.resources.checkout import lines_of
from billing.stripe_sync.fake.store import Json, Store

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 26rem; margin: 4rem auto; color: #1a1f36 }
h1 { font-size: 2.2rem; margin: 0 } .quiet { color: #697386 } .failed { color: #b3093c }
fieldset { border: 1px solid #d5dbe1; border-radius: 6px; margin: 1.5rem 0 }
label { display: block; padding: .2rem 0 }
button { width: 100%; padding: .7rem; border: 0; border-radius: 6px; background: #1a1f36;
  color: #fff; font: inherit; cursor: pointer }
"""
SHOWN_CARDS = {
    "pm_card_visa": "pays",
    "pm_card_mastercard": "pays",
    "pm_card_chargeDeclined": "is declined",
    "pm_card_chargeDeclinedInsufficientFunds": "has insufficient funds",
    "pm_card_chargeCustomerFail": "is accepted, and declined when charged",
    "pm_card_authenticationRequired": "asks for authentication on every payment",
}


def money(amount: int, currency: str) -> str:
    """Cents for people."""
    return f"{amount // 100}.{amount % 100:02d} {currency.upper()}"


def checkout_page(store: Store, session: Json, failure: str = "") -> str:
    """The page of an open session; of another, what became of it."""
    if session["status"] != "open":
        return _page("Checkout", f"<p>This checkout is {escape(session['status'])}.</p>")
    if session["mode"] == "payment":
        total = money(session["amount_total"], session["currency"])
        title, action = escape(total), f"Pay {escape(total)}"
    else:
        title, action = "Save a card", "Save card"
    lines = "".join(
        f"<p class=quiet>{escape(line['description'])} &times; {line['quantity']}</p>"
        for line in lines_of(store, session["id"])
    )
    cards = "".join(
        f"<label><input type=radio name=payment_method value={name}"
        f"{' checked' if at == 0 else ''}> {CARDS[name][0].title()} &hellip;{CARDS[name][1]}"
        f" <span class=quiet>{escape(what)}</span></label>"
        for at, (name, what) in enumerate(SHOWN_CARDS.items())
    )
    refused = f"<p class=failed role=alert>{escape(failure)}</p>" if failure else ""
    cancel = session["cancel_url"]
    back = f'<p><a href="{escape(cancel, quote=True)}">Cancel</a></p>' if cancel else ""
    return _page(
        "Checkout",
        f"<p class=quiet>Test payment: no money moves</p><h1>{title}</h1>{lines}{refused}"
        f"<form method=post><fieldset><legend>Test card</legend>{cards}</fieldset>"
        f"<button>{action}</button></form>{back}",
    )


def success_url(session: Json) -> str:
    """Where the browser goes once a session is complete."""
    url: str = session["success_url"]
    return url.replace("{CHECKOUT_SESSION_ID}", session["id"])


def _page(title: str, body: str) -> str:
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title>"
        "<meta name=viewport content='width=device-width'>"
        f"<style>{STYLE}</style><main>{body}</main></html>"
    )
