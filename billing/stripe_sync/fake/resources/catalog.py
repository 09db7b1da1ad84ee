"""Products and prices, for Checkout and metered billing. Handlers of `app`."""

from billing.stripe_sync.fake.faults import invalid
from billing.stripe_sync.fake.parameters import Parameters
from billing.stripe_sync.fake.routes import Route, listing, retrieve
from billing.stripe_sync.fake.store import Json, Store

INTERVALS = ("day", "week", "month", "year")


def new_product(store: Store, parameters: Parameters) -> Json:
    """A product from its own parameters or from Checkout's `product_data`."""
    product = store.add(
        "product",
        {
            "id": parameters.text("id") or store.new_id("prod"),
            "object": "product",
            "active": parameters.flag("active", default=True),
            "created": store.now(),
            "default_price": None,
            "description": parameters.text("description"),
            "images": parameters.words("images"),
            "livemode": False,
            "marketing_features": [],
            "metadata": parameters.metadata(),
            "name": parameters.needed("name"),
            "package_dimensions": None,
            "shippable": None,
            "statement_descriptor": parameters.text("statement_descriptor"),
            "tax_code": parameters.text("tax_code"),
            "type": parameters.choice("type", ("service", "good"), "service"),
            "unit_label": parameters.text("unit_label"),
            "updated": store.now(),
            "url": parameters.text("url"),
        },
    )
    parameters.finish()
    store.emit("product.created", product)
    return product


def new_price(store: Store, parameters: Parameters) -> Json:
    """A price from its own parameters or from Checkout's `price_data`."""
    amount, exact = parameters.integer("unit_amount"), parameters.text("unit_amount_decimal")
    if (amount is None) == (exact is None):
        raise invalid(
            "Exactly one of unit_amount and unit_amount_decimal must be given.",
            parameters.name("unit_amount"),
        )
    product_id = parameters.text("product")
    if product_id is not None:
        product = store.get("product", product_id, parameters.name("product"))
    else:
        product = new_product(store, parameters.within("product_data"))
    price = store.add(
        "price",
        {
            "id": store.new_id("price"),
            "object": "price",
            "active": parameters.flag("active", default=True),
            "billing_scheme": parameters.choice("billing_scheme", ("per_unit",), "per_unit"),
            "created": store.now(),
            "currency": parameters.needed("currency").lower(),
            "custom_unit_amount": None,
            "livemode": False,
            "lookup_key": parameters.text("lookup_key"),
            "metadata": parameters.metadata(),
            "nickname": parameters.text("nickname"),
            "product": product["id"],
            "recurring": _recurring(store, parameters),
            "tax_behavior": parameters.choice(
                "tax_behavior", ("unspecified", "inclusive", "exclusive"), "unspecified"
            ),
            "tiers_mode": None,
            "transform_quantity": None,
            "type": "one_time",
            "unit_amount": amount,
            "unit_amount_decimal": exact or str(amount),
        },
    )
    price["type"] = "recurring" if price["recurring"] else "one_time"
    parameters.finish()
    store.emit("price.created", price)
    return price


def _recurring(store: Store, parameters: Parameters) -> Json | None:
    if not parameters.given("recurring"):
        return None
    recurring = parameters.within("recurring")
    meter = recurring.text("meter")
    if meter is not None:
        store.get("billing.meter", meter, "recurring[meter]")
    made = {
        "interval": recurring.choice("interval", INTERVALS, "month"),
        "interval_count": recurring.integer("interval_count") or 1,
        "meter": meter,
        "trial_period_days": None,
        "usage_type": recurring.choice("usage_type", ("licensed", "metered"), "licensed"),
    }
    recurring.finish()
    return made


ROUTES = (
    Route("POST", "/v1/products", new_product),
    Route("GET", "/v1/products", listing("product", "/v1/products", "active")),
    Route("GET", "/v1/products/{}", retrieve("product")),
    Route("POST", "/v1/prices", new_price),
    Route("GET", "/v1/prices", listing("price", "/v1/prices", "product", "active", "lookup_key")),
    Route("GET", "/v1/prices/{}", retrieve("price")),
)
