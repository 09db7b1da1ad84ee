-- Aliases, price books, prices agreed with single tenants, and the quote that knows them all. Run
-- once by migration 0003: a change is a new file in a new migration.

-- The list is the operator's, like the offers: everybody reads it, only the housekeeper writes it.
ALTER TABLE billing_price_book ENABLE ROW LEVEL SECURITY;
ALTER TABLE billing_price_book FORCE ROW LEVEL SECURITY;
CREATE POLICY catalog ON billing_price_book FOR SELECT USING (true);
-- What was agreed with a tenant, and what it calls its models, is its own.
SELECT tenants_protect('billing_alias');
SELECT tenants_protect('billing_tenant_price_book');
SELECT tenants_protect('billing_tenant_price');

-- Foreign keys that carry the tenant; a null project matches none and is the whole organization.
ALTER TABLE billing_alias
    ADD CONSTRAINT billing_alias_in_its_project FOREIGN KEY (organization_id, project_id)
        REFERENCES tenants_project (organization_id, id),
    -- A name that every client can send, path and quota line can carry, and nobody can misread.
    ADD CONSTRAINT billing_alias_name
        CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}$' AND name !~ '(//|\.\.|/$)');
ALTER TABLE billing_tenant_price ADD CONSTRAINT billing_tenant_price_in_its_book
    FOREIGN KEY (organization_id, book_id)
    REFERENCES billing_tenant_price_book (organization_id, id);

GRANT SELECT ON billing_alias, billing_price_book, billing_tenant_price_book, billing_tenant_price
    TO headrace_app, headrace_housekeeper, headrace_definer;
GRANT INSERT, UPDATE (offer_id), DELETE ON billing_alias TO headrace_app, headrace_housekeeper;
GRANT INSERT ON billing_price_book, billing_tenant_price_book, billing_tenant_price
    TO headrace_housekeeper;
GRANT UPDATE (valid) ON billing_tenant_price TO headrace_housekeeper;

-- A price is never changed. Its span may end earlier, but not in the past; one that has not come
-- into force yet may be withdrawn, which empties its span.
CREATE OR REPLACE FUNCTION billing_price_immutable() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    IF TG_OP = 'UPDATE'
        AND to_jsonb(NEW) - 'valid' = to_jsonb(OLD) - 'valid'
        AND (isempty(NEW.valid) AND lower(OLD.valid) > now()
             OR lower(NEW.valid) = lower(OLD.valid)
                AND upper(NEW.valid) >= now() AND NEW.valid <@ OLD.valid)
    THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'a price row is never changed, only closed'
        USING ERRCODE = 'restrict_violation';
END
$$;
CREATE TRIGGER billing_price_immutable BEFORE UPDATE OR DELETE ON billing_tenant_price
    FOR EACH ROW EXECUTE FUNCTION billing_price_immutable();

-- Every price that can be this tenant's: the list's and its own, which go first. To be inlined, so
-- without a search path of its own; called by the functions below and by settling.
CREATE FUNCTION billing_prices_of(organization uuid)
RETURNS TABLE (
    id uuid, offer_id uuid, tier text, token_class text, currency text, micros bigint,
    valid tstzrange, own boolean
)
LANGUAGE sql STABLE
AS $$
    SELECT p.id, p.offer_id, p.tier::text, p.token_class::text, p.currency::text,
           p.price_micros_per_mtok, p.valid, false
      FROM billing_price p
    UNION ALL
    SELECT p.id, p.offer_id, p.tier::text, p.token_class::text, p.currency::text,
           p.price_micros_per_mtok, p.valid, true
      FROM billing_tenant_price p WHERE p.organization_id = organization
$$;

-- What a name means and costs for a project now: its own alias first, then its organization's, then
-- the catalog. A retired offer answers without prices, so that its successor can be named; no row
-- for an unknown name, and none unless input and output have a price.
DROP FUNCTION billing_quote(uuid, text, text);
CREATE FUNCTION billing_quote(organization uuid, project uuid, wanted text, wanted_tier text)
RETURNS TABLE (
    offer_id uuid, public_id text, display_name text, owned_by text, context_tokens_max int,
    output_tokens_max int, created_at timestamptz, deprecated_at timestamptz,
    shutdown_at timestamptz, successor text, retired boolean, currency text,
    input_price_id uuid, cached_input_price_id uuid, output_price_id uuid,
    input_micros bigint, cached_input_micros bigint, output_micros bigint,
    cache_write_price_id uuid, cache_write_micros bigint
)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    price record;
BEGIN
    SELECT a.offer_id INTO offer_id FROM billing_alias a
     WHERE a.organization_id = organization AND a.name = wanted
       AND (a.project_id IS NULL OR a.project_id = project)
     ORDER BY a.project_id NULLS LAST LIMIT 1;
    SELECT o.id, o.public_id, o.display_name, o.owned_by, o.context_tokens_max,
           o.output_tokens_max, o.created_at, o.deprecated_at, o.shutdown_at, s.public_id
      INTO offer_id, public_id, display_name, owned_by, context_tokens_max,
           output_tokens_max, created_at, deprecated_at, shutdown_at, successor
      FROM billing_offer o LEFT JOIN billing_offer s ON s.id = o.successor_id
     WHERE o.id = coalesce(
        billing_quote.offer_id, (SELECT w.id FROM billing_offer w WHERE w.public_id = wanted));
    IF NOT FOUND THEN
        RETURN;
    END IF;
    retired := coalesce(shutdown_at <= now(), false);
    currency := tenants_currency(organization);
    FOR price IN
        SELECT p.token_class, p.id, p.price_micros_per_mtok AS micros, false AS own
          FROM billing_price p
         WHERE p.offer_id = billing_quote.offer_id AND p.tier = wanted_tier
           AND p.currency = billing_quote.currency AND p.valid @> now()
        UNION ALL
        SELECT p.token_class, p.id, p.price_micros_per_mtok, true
          FROM billing_tenant_price p
         WHERE p.organization_id = organization AND p.offer_id = billing_quote.offer_id
           AND p.tier = wanted_tier AND p.currency = billing_quote.currency AND p.valid @> now()
         ORDER BY own  -- the tenant's own come last and replace the list's
    LOOP
        CASE price.token_class
            WHEN 'input' THEN
                input_price_id := price.id; input_micros := price.micros;
            WHEN 'cached_input' THEN
                cached_input_price_id := price.id; cached_input_micros := price.micros;
            WHEN 'cache_write' THEN
                cache_write_price_id := price.id; cache_write_micros := price.micros;
            WHEN 'output' THEN
                output_price_id := price.id; output_micros := price.micros;
        END CASE;
    END LOOP;
    cached_input_price_id := coalesce(cached_input_price_id, input_price_id);
    cached_input_micros := coalesce(cached_input_micros, input_micros);
    cache_write_price_id := coalesce(cache_write_price_id, input_price_id);
    cache_write_micros := coalesce(cache_write_micros, input_micros);
    IF retired OR input_price_id IS NOT NULL AND output_price_id IS NOT NULL THEN
        RETURN NEXT;
    END IF;
END
$$;
ALTER FUNCTION billing_quote OWNER TO headrace_definer;
REVOKE ALL ON FUNCTION billing_quote FROM PUBLIC;
GRANT EXECUTE ON FUNCTION billing_quote TO headrace_app, headrace_housekeeper;

-- The unit prices that a hold may snapshot by these ids: all of one offer, tier and currency, in
-- force for this tenant a moment ago, and none of them standing in for a price that goes first. No
-- row when they are not (any more). A quote is remembered for a moment: so long its prices are
-- honoured after they have changed. On the way of every request, so the prices of the list, which
-- nearly all are sold at, are looked up by their keys alone.
CREATE FUNCTION billing_held_prices(
    organization uuid, tier text, input_price uuid, cached_input_price uuid, output_price uuid
)
RETURNS TABLE (currency text, input bigint, cached bigint, output bigint)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, public, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
    recent tstzrange := tstzrange(now() - interval '10 seconds', now(), '[]');
    offer uuid;
    follows boolean := cached_input_price = input_price;
BEGIN
    SELECT i.offer_id, i.currency, i.price_micros_per_mtok, c.price_micros_per_mtok,
           o.price_micros_per_mtok
      INTO offer, currency, input, cached, output
      FROM billing_price i, billing_price c, billing_price o
     WHERE i.id = input_price AND i.token_class = 'input' AND i.tier = billing_held_prices.tier
       AND i.valid && recent
       AND o.id = output_price AND o.token_class = 'output' AND o.valid && recent
       AND (o.offer_id, o.tier, o.currency) = (i.offer_id, i.tier, i.currency)
       AND c.id = cached_input_price AND c.valid && recent
       AND (c.offer_id, c.tier, c.currency) = (i.offer_id, i.tier, i.currency)
       AND (c.token_class = 'cached_input' OR follows);
    IF NOT FOUND OR EXISTS (SELECT FROM billing_tenant_price p
                             WHERE p.organization_id = organization AND p.offer_id = offer)
    THEN
        RETURN QUERY SELECT * FROM billing_held_own_prices(
            organization, tier, input_price, cached_input_price, output_price, recent);
        RETURN;
    END IF;
    -- The input price stands in only where cached input has none of its own.
    IF follows AND EXISTS (
        SELECT FROM billing_price p
         WHERE p.offer_id = offer AND p.tier = billing_held_prices.tier
           AND p.currency = billing_held_prices.currency AND p.token_class = 'cached_input'
           AND p.valid @> recent)
    THEN
        RETURN;
    END IF;
    RETURN NEXT;
END
$$;

-- The same for a tenant with prices of its own, which go before the list's.
CREATE FUNCTION billing_held_own_prices(
    organization uuid, tier text, input_price uuid, cached_input_price uuid, output_price uuid,
    recent tstzrange
)
RETURNS TABLE (currency text, input bigint, cached bigint, output bigint)
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp
AS $$
    SELECT input.currency, input.micros, cached.micros, output.micros
      FROM billing_prices_of(organization) input, billing_prices_of(organization) cached,
           billing_prices_of(organization) output
     WHERE input.id = input_price AND input.token_class = 'input'
       AND input.tier = billing_held_own_prices.tier AND input.valid && recent
       AND output.id = output_price AND output.token_class = 'output'
       AND (output.offer_id, output.tier, output.currency)
         = (input.offer_id, input.tier, input.currency) AND output.valid && recent
       AND cached.id = cached_input_price
       AND (cached.offer_id, cached.tier, cached.currency)
         = (input.offer_id, input.tier, input.currency) AND cached.valid && recent
       AND (cached.token_class = 'cached_input' OR cached.id = input.id)
       AND NOT EXISTS (
            SELECT FROM billing_prices_of(organization) before
             WHERE (before.offer_id, before.tier, before.currency)
                 = (input.offer_id, input.tier, input.currency)
               AND before.valid @> recent
               AND (before.own AND (before.token_class = 'input' AND NOT input.own
                                 OR before.token_class = 'output' AND NOT output.own
                                 OR before.token_class = 'cached_input' AND NOT cached.own)
                    OR before.token_class = 'cached_input' AND cached.id = input.id))
$$;
ALTER FUNCTION billing_held_prices OWNER TO headrace_definer;
ALTER FUNCTION billing_held_own_prices OWNER TO headrace_definer;
REVOKE ALL ON FUNCTION billing_prices_of, billing_held_prices, billing_held_own_prices FROM PUBLIC;
GRANT EXECUTE ON FUNCTION billing_prices_of TO headrace_housekeeper, headrace_definer;
