"""Invoices and their items: draft, open, paid or void. Handlers of `app`."""

import copy

from billing.stripe_sync.fake.faults import invalid
from billing.stripe_sync.fake.parameters import Parameters
from billing.stripe_sync.fake.resources.customers import customer_of
from billing.stripe_sync.fake.resources.payments import confirm_intent, new_intent
from billing.stripe_sync.fake.routes import Route, listing, retrieve
from billing.stripe_sync.fake.store import Json, Store, all_of

DAY_S = 24 * 3600


BLANK_INVOICE: Json = {
    "object": "invoice",
    "account_country": "US",
    "account_name": "Headrace",
    "account_tax_ids": None,
    "amount_due": 0,
    "amount_overpaid": 0,
    "amount_paid": 0,
    "amount_remaining": 0,
    "amount_shipping": 0,
    "application": None,
    "attempt_count": 0,
    "attempted": False,
    "automatic_tax": {
        "disabled_reason": None,
        "enabled": False,
        "liability": None,
        "provider": None,
        "status": None,
    },
    "automatically_finalizes_at": None,
    "billing_reason": "manual",
    "custom_fields": None,
    "customer_account": None,
    "customer_shipping": None,
    "customer_tax_ids": [],
    "default_source": None,
    "default_tax_rates": [],
    "discounts": [],
    "effective_at": None,
    "ending_balance": None,
    "from_invoice": None,
    "hosted_invoice_url": None,
    "invoice_pdf": None,
    "issuer": {"type": "self"},
    "last_finalization_error": None,
    "latest_revision": None,
    "livemode": False,
    "next_payment_attempt": None,
    "number": None,
    "on_behalf_of": None,
    "parent": None,
    "payment_settings": {
        "default_mandate": None,
        "payment_method_options": None,
        "payment_method_types": None,
    },
    "post_payment_credit_notes_amount": 0,
    "pre_payment_credit_notes_amount": 0,
    "receipt_number": None,
    "rendering": None,
    "shipping_cost": None,
    "shipping_details": None,
    "starting_balance": 0,
    "statement_descriptor": None,
    "status": "draft",
    "status_transitions": {
        "finalized_at": None,
        "marked_uncollectible_at": None,
        "paid_at": None,
        "voided_at": None,
    },
    "subtotal": 0,
    "subtotal_excluding_tax": 0,
    "test_clock": None,
    "total": 0,
    "total_discount_amounts": [],
    "total_excluding_tax": 0,
    "total_pretax_credit_amounts": [],
    "total_taxes": [],
    "webhooks_delivered_at": None,
}
"""What a draft says whatever was asked."""


def create_invoice(store: Store, parameters: Parameters) -> Json:
    """POST /v1/invoices"""
    customer = customer_of(store, parameters)
    if customer is None:
        raise invalid("Missing required param: customer.", "customer", "parameter_missing")
    method = parameters.choice(
        "collection_method", ("charge_automatically", "send_invoice"), "charge_automatically"
    )
    days = parameters.integer("days_until_due")
    if method == "send_invoice" and days is None:
        raise invalid(
            "You must pass `days_until_due` or `due_date` with send_invoice.", "days_until_due"
        )
    pending = parameters.choice("pending_invoice_items_behavior", ("include", "exclude"), "exclude")
    now = store.now()
    invoice_id = store.new_id("in")
    invoice = store.add(
        "invoice",
        copy.deepcopy(BLANK_INVOICE)
        | {
            "id": invoice_id,
            "auto_advance": parameters.flag("auto_advance"),
            "collection_method": method,
            "created": now,
            "currency": (parameters.text("currency") or "usd").lower(),
            "customer": customer["id"],
            "customer_address": customer["address"],
            "customer_email": customer["email"],
            "customer_name": customer["name"],
            "customer_phone": customer["phone"],
            "customer_tax_exempt": customer["tax_exempt"],
            "default_payment_method": parameters.text("default_payment_method"),
            "description": parameters.text("description"),
            "due_date": None if days is None else now + days * DAY_S,
            "footer": parameters.text("footer"),
            "lines": all_of([], f"/v1/invoices/{invoice_id}/lines"),
            "metadata": parameters.metadata(),
            "period_end": now,
            "period_start": now,
        },
    )
    if pending == "include":
        for item in reversed(list(store.all("invoiceitem"))):
            if item["customer"] == customer["id"] and item["invoice"] is None:
                _take_in(store, invoice, item)
    store.emit("invoice.created", invoice)
    return invoice


def create_item(store: Store, parameters: Parameters) -> Json:
    """POST /v1/invoiceitems: of a draft, or pending until the customer's next invoice."""
    customer = customer_of(store, parameters)
    invoice_id = parameters.text("invoice")
    invoice = None if invoice_id is None else _in_status(store, invoice_id, "draft")
    if customer is None:
        raise invalid("Missing required param: customer.", "customer", "parameter_missing")
    quantity = parameters.integer("quantity") or 1
    amount, unit = parameters.integer("amount"), parameters.text("unit_amount_decimal")
    if (amount is None) == (unit is None):
        raise invalid("Exactly one of amount and unit_amount_decimal must be given.", "amount")
    if unit is not None and not unit.isdecimal():
        raise invalid(
            "Fractions of cents are not supported by this stand-in.", "unit_amount_decimal"
        )
    total = int(unit) * quantity if unit is not None else amount
    period = parameters.within("period")
    now = store.now()
    item = store.add(
        "invoiceitem",
        {
            "id": store.new_id("ii"),
            "object": "invoiceitem",
            "amount": total,
            "currency": (parameters.text("currency") or "usd").lower(),
            "customer": customer["id"],
            "customer_account": None,
            "date": now,
            "description": parameters.text("description"),
            "discountable": True,
            "discounts": [],
            "invoice": None,
            "livemode": False,
            "metadata": parameters.metadata(),
            "net_amount": total,
            "parent": None,
            "period": {
                "end": period.integer("end") or now,
                "start": period.integer("start") or now,
            },
            "pricing": None,
            "proration": False,
            "quantity": quantity,
            "quantity_decimal": str(quantity),
            "tax_rates": [],
            "test_clock": None,
        },
    )
    period.finish()
    if invoice is not None:
        _take_in(store, invoice, item)
    store.emit("invoiceitem.created", item)
    return item


def _take_in(store: Store, invoice: Json, item: Json) -> None:
    item["invoice"] = invoice["id"]
    invoice["lines"]["data"].append(
        {
            "id": store.new_id("il"),
            "object": "line_item",
            "amount": item["amount"],
            "currency": item["currency"],
            "description": item["description"],
            "discount_amounts": [],
            "discountable": True,
            "discounts": [],
            "invoice": invoice["id"],
            "livemode": False,
            "metadata": dict(item["metadata"]),
            "parent": {
                "invoice_item_details": {
                    "invoice_item": item["id"],
                    "proration": False,
                    "proration_details": None,
                    "subscription": None,
                },
                "subscription_item_details": None,
                "type": "invoice_item_details",
            },
            "period": dict(item["period"]),
            "pretax_credit_amounts": [],
            "pricing": None,
            "quantity": item["quantity"],
            "quantity_decimal": item["quantity_decimal"],
            "subtotal": item["amount"],
            "taxes": [],
        }
    )
    total = sum(line["amount"] for line in invoice["lines"]["data"])
    invoice.update(
        subtotal=total,
        subtotal_excluding_tax=total,
        total=total,
        total_excluding_tax=total,
        amount_due=max(0, total),
        amount_remaining=max(0, total),
    )


def _in_status(store: Store, invoice_id: str, *allowed: str) -> Json:
    invoice = store.get("invoice", invoice_id)
    if invoice["status"] not in allowed:
        raise invalid(
            f"This invoice is {invoice['status']}: only {' or '.join(allowed)} invoices"
            " can be changed like this.",
            code="invoice_not_editable",
        )
    return invoice


def finalize(store: Store, parameters: Parameters, invoice_id: str) -> Json:
    """POST /v1/invoices/{id}/finalize"""
    invoice = _in_status(store, invoice_id, "draft")
    parameters.ignore("auto_advance")
    _finalize(store, invoice)
    return invoice


def _finalize(store: Store, invoice: Json) -> None:
    customer = store.get("customer", invoice["customer"])
    sequence = customer["next_invoice_sequence"]
    customer["next_invoice_sequence"] = sequence + 1
    invoice.update(
        status="open",
        number=f"{customer['invoice_prefix']}-{sequence:04d}",
        effective_at=store.now(),
        ending_balance=0,
    )
    invoice["status_transitions"]["finalized_at"] = store.now()
    store.emit("invoice.finalized", invoice)
    if invoice["amount_due"] == 0:
        _paid(store, invoice)


def pay(store: Store, parameters: Parameters, invoice_id: str) -> Json:
    """POST /v1/invoices/{id}/pay: by the card named, the customer's default one, or elsewhere."""
    invoice = _in_status(store, invoice_id, "draft", "open")
    elsewhere = parameters.flag("paid_out_of_band")
    method_id = parameters.text("payment_method")
    parameters.finish()
    if invoice["status"] == "draft":
        _finalize(store, invoice)
    if invoice["status"] == "paid":
        return invoice
    if not elsewhere:
        customer = store.get("customer", invoice["customer"])
        method_id = (
            method_id
            or invoice["default_payment_method"]
            or customer["invoice_settings"]["default_payment_method"]
        )
        if method_id is None:
            raise invalid("There is no default payment method set on this Customer or Invoice.")
        store.get("payment_method", method_id, "payment_method")
        invoice.update(attempted=True, attempt_count=invoice["attempt_count"] + 1)
        intent = new_intent(
            store,
            invoice["amount_due"],
            invoice["currency"],
            customer["id"],
            payment_method=method_id,
            status="requires_confirmation",
            description=f"Invoice {invoice['number']}",
        )
        confirm_intent(store, intent, off_session=True)
    _paid(store, invoice)
    return invoice


def _paid(store: Store, invoice: Json) -> None:
    invoice.update(
        status="paid", amount_paid=invoice["amount_due"], amount_remaining=0, attempted=True
    )
    invoice["status_transitions"]["paid_at"] = store.now()
    store.emit("invoice.paid", invoice)


def void(store: Store, parameters: Parameters, invoice_id: str) -> Json:
    """POST /v1/invoices/{id}/void"""
    invoice = _in_status(store, invoice_id, "open", "uncollectible")
    invoice["status"] = "void"
    invoice["amount_remaining"] = 0
    invoice["status_transitions"]["voided_at"] = store.now()
    store.emit("invoice.voided", invoice)
    return invoice


def delete_draft(store: Store, parameters: Parameters, invoice_id: str) -> Json:
    """DELETE /v1/invoices/{id}"""
    invoice = _in_status(store, invoice_id, "draft")
    del store.kinds["invoice"][invoice_id]
    store.emit("invoice.deleted", invoice)
    return {"id": invoice_id, "object": "invoice", "deleted": True}


ROUTES = (
    Route("POST", "/v1/invoices", create_invoice),
    Route("GET", "/v1/invoices", listing("invoice", "/v1/invoices", "customer", "status")),
    Route("GET", "/v1/invoices/{}", retrieve("invoice")),
    Route("DELETE", "/v1/invoices/{}", delete_draft),
    Route("POST", "/v1/invoices/{}/finalize", finalize),
    Route("POST", "/v1/invoices/{}/pay", pay),
    Route("POST", "/v1/invoices/{}/void", void),
    Route("POST", "/v1/invoiceitems", create_item),
    Route(
        "GET", "/v1/invoiceitems", listing("invoiceitem", "/v1/invoiceitems", "customer", "invoice")
    ),
    Route("GET", "/v1/invoiceitems/{}", retrieve("invoiceitem")),
)
