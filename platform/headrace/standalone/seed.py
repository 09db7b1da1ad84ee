"""The demo's tenants, people, keys, credit, prices and history: what a fresh house has to show.

Goes through the facades like any administrator, as the housekeeper. Idempotent: money, prices and
keys are made once, and the secrets of keys and people live in `demo.json` only. Called by
`manage.py seed_demo` and the tests.
"""

import json
from uuid import UUID

from billing import facade as billing
from billing.contracts import PICO, ServiceTier
from headrace.standalone.data_folder import DataFolder, write_private
from headrace.standalone.demo_history import write_history
from headrace.standalone.seed_people import seed_members, seed_people
from inference.tokenizer.bundle import Bundle
from tenants import facade as tenants
from tenants.contracts import TenantError

HOUSEKEEPER = "housekeeper"
CURRENCY = "USD"
SHOWN = "acme"
"""The tenant with people, and with a history if wanted."""
CREDIT_KEY = "demo-credit-"
CREDIT_PICO = {"acme": 5 * PICO, "globex": 5 * PICO, "initech": 0}
DISPLAY_NAMES = {"acme": "Acme", "globex": "Globex", "initech": "Initech"}
INTERACTIVE_MICROS_PER_MTOK = {"input": 50_000, "cached_input": 5_000, "output": 250_000}
BATCH_DIVISOR = 2


def seed_demo(
    folder: DataFolder, bundle: Bundle, base_url: str, *, with_history: bool = False
) -> None:
    """Brings the demo's rows up to date and writes `demo.json`. Run by one process at a time.

    `with_history` gives acme a month to look back on, where it is new.
    """
    seed_offer(bundle)
    known = _known(folder, "keys")
    people = seed_people(_known(folder, "passwords"))
    keys = {}
    for slug in CREDIT_PICO:
        organization_id = _organization(slug)
        if slug == SHOWN:
            seed_members(organization_id, people.owner_id)
            if with_history and not _is_credited(organization_id):
                write_history(organization_id, people.owner_id, bundle.name)
        keys[slug] = _credited_key(slug, organization_id, known.get(slug))
    document = {
        "base_url": base_url,
        "model": bundle.name,
        "keys": keys,
        "passwords": {login.email: login.password for login in (people.owner, people.operator)},
    }
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


def _organization(slug: str) -> UUID:
    """The tenant, made if it is new, with an account that is shown and not sold to."""
    organization = tenants.organization_by_slug(slug)
    if organization is None:
        organization = tenants.create_organization(slug, DISPLAY_NAMES[slug], CURRENCY)
    billing.open_account(organization.organization_id, CURRENCY, using=HOUSEKEEPER)
    billing.keep_out_of_stripe(organization.organization_id, using=HOUSEKEEPER)
    return organization.organization_id


def _is_credited(organization_id: UUID) -> bool:
    """Whether it has what every house gives it, after its history: there is no adding to that."""
    grants = billing.credit_grants(organization_id, ascending=True)
    return any(grant.source == f"grant:{CREDIT_KEY}{SHOWN}" for grant in grants)


def _credited_key(slug: str, organization_id: UUID, known_secret: str | None) -> str:
    """The tenant's key, with the tenant credited if it was not."""
    if CREDIT_PICO[slug]:
        billing.grant_credit(
            organization_id, CREDIT_PICO[slug], f"{CREDIT_KEY}{slug}", using=HOUSEKEEPER
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


def _known(folder: DataFolder, what: str) -> dict[str, str]:
    """The secrets that `demo.json` has of keys, by slug, or of people, by address."""
    try:
        known = json.loads(folder.demo_file.read_text())[what]
    except (FileNotFoundError, ValueError, KeyError):
        return {}
    return known if isinstance(known, dict) else {}
