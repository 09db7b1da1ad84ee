"""The demo's tenants, keys, credit and prices: what a fresh house has to show.

Goes through the facades like any administrator, as the housekeeper. Idempotent: money, prices and
keys are made once, and the keys' secrets live in `demo.json` only. Called by
`manage.py seed_demo` and the tests.
"""

import json
from uuid import UUID

from billing import facade as billing
from billing.contracts import PICO, ServiceTier
from headrace.standalone.data_folder import DataFolder, write_private
from inference.tokenizer.bundle import Bundle
from tenants import facade as tenants
from tenants.contracts import TenantError

HOUSEKEEPER = "housekeeper"
CURRENCY = "USD"
CREDIT_PICO = {"acme": 5 * PICO, "globex": 5 * PICO, "initech": 0}
DISPLAY_NAMES = {"acme": "Acme", "globex": "Globex", "initech": "Initech"}
INTERACTIVE_MICROS_PER_MTOK = {"input": 50_000, "cached_input": 5_000, "output": 250_000}
BATCH_DIVISOR = 2


def seed_demo(folder: DataFolder, bundle: Bundle, base_url: str) -> None:
    """Brings the demo's rows up to date and writes `demo.json`. Run by one process at a time."""
    seed_offer(bundle)
    known = _known_keys(folder)
    keys = {slug: _tenant_key(slug, known.get(slug)) for slug in CREDIT_PICO}
    document = {"base_url": base_url, "model": bundle.name, "keys": keys}
    write_private(folder.demo_file, json.dumps(document, indent=2) + "\n")


def seed_offer(bundle: Bundle) -> None:
    """Puts the bundle's model on sale under its name; the batch tier costs half."""
    billing.publish_offer(
        public_id=bundle.name,
        display_name=bundle.name,
        owned_by="headrace",
        context_tokens_max=bundle.context_tokens_max,
        output_tokens_max=bundle.context_tokens_max,
        using=HOUSEKEEPER,
    )
    for token_class, price in INTERACTIVE_MICROS_PER_MTOK.items():
        for tier, divisor in ((ServiceTier.INTERACTIVE, 1), (ServiceTier.BATCH, BATCH_DIVISOR)):
            billing.set_price(
                bundle.name, tier, token_class, price // divisor, CURRENCY, using=HOUSEKEEPER
            )


def _tenant_key(slug: str, known_secret: str | None) -> str:
    """The tenant's key, with the tenant made and credited if it is new."""
    organization = tenants.organization_by_slug(slug)
    if organization is None:
        organization = tenants.create_organization(slug, DISPLAY_NAMES[slug], CURRENCY)
    organization_id = organization.organization_id
    billing.open_account(organization_id, CURRENCY, using=HOUSEKEEPER)
    billing.keep_out_of_stripe(organization_id, using=HOUSEKEEPER)
    if CREDIT_PICO[slug]:
        billing.grant_credit(
            organization_id, CREDIT_PICO[slug], f"demo-credit-{slug}", using=HOUSEKEEPER
        )
    if known_secret is not None and _is_valid(known_secret, organization_id):
        return known_secret
    project_id = tenants.create_project(organization_id, "demo", using=HOUSEKEEPER)
    return tenants.issue_key(organization_id, project_id, "demo", using=HOUSEKEEPER).secret


def _is_valid(secret: str, organization_id: UUID) -> bool:
    try:
        return tenants.authenticate(secret).organization_id == organization_id
    except TenantError:
        return False


def _known_keys(folder: DataFolder) -> dict[str, str]:
    try:
        keys = json.loads(folder.demo_file.read_text())["keys"]
    except (FileNotFoundError, ValueError, KeyError):
        return {}
    return keys if isinstance(keys, dict) else {}
