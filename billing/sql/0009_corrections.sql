-- Repricing: corrections of past charges, posted beside the events and never into them. Run once by
-- migration 0009: a change is a new file in a new migration.

SELECT tenants_protect('billing_correction');
ALTER TABLE billing_correction ADD CONSTRAINT billing_correction_of_its_tx
    FOREIGN KEY (organization_id, ledger_tx_id) REFERENCES billing_ledger_tx (organization_id, id);
CREATE INDEX billing_correction_made ON billing_correction (organization_id, created_at);
GRANT SELECT ON billing_correction TO headrace_app, headrace_housekeeper, headrace_definer;
GRANT INSERT ON billing_correction TO headrace_definer;

CREATE TYPE billing_repriced_event AS (
    occurred_at timestamptz, request_id uuid, ledger_tx_id uuid, is_corrected boolean,
    old_pico numeric, paid_pico numeric, new_pico numeric, covered_pico numeric
);

-- What a book makes of the tenant's next events behind a position, the oldest first: for each
-- whether that book has corrected it already, what it has come to and been paid so far, what it
-- comes to at the prices in force when the book was new, and the most that its hold would have
-- covered at them. Those are all of the list's, whichever version they came in, or all of the
-- tenant's own. Classes without one keep the event's price, and the list never touches a class that
-- was sold at a price of the tenant's own. To be inlined, so without a search path of its own. Each
-- event is looked up by index: joins over all of them would make the work quadratic.
CREATE FUNCTION billing_repriced(
    organization uuid, book uuid, model text,
    since timestamptz, after uuid, until timestamptz, events_max int
)
RETURNS SETOF billing_repriced_event
LANGUAGE sql STABLE
AS $$
    WITH part AS MATERIALIZED (
        SELECT e.* FROM billing_usage_event e
         WHERE e.organization_id = organization AND e.model_served = model
           AND e.occurred_at >= since AND e.occurred_at < until
           AND (e.occurred_at, e.request_id) > (since, after)
         ORDER BY e.occurred_at, e.request_id LIMIT events_max
    ), sold AS MATERIALIZED (
        SELECT p.tier, p.token_class, p.currency, p.price_micros_per_mtok AS micros, false AS own
          FROM billing_price p JOIN billing_offer o ON o.id = p.offer_id
         WHERE o.public_id = model
           AND p.valid @> (SELECT b.effective_at FROM billing_price_book b WHERE b.id = book)
        UNION ALL
        SELECT p.tier, p.token_class, p.currency, p.price_micros_per_mtok, true
          FROM billing_tenant_price p JOIN billing_offer o ON o.id = p.offer_id
         WHERE p.organization_id = organization AND o.public_id = model
           AND p.valid @> (SELECT b.effective_at FROM billing_tenant_price_book b
                            WHERE b.id = book AND b.organization_id = organization)
    ), agreed AS MATERIALIZED (
        SELECT p.id FROM billing_tenant_price p WHERE p.organization_id = organization
    )
    SELECT e.occurred_at, e.request_id, e.ledger_tx_id, before.is_corrected,
           e.cost_pico + before.moved, e.charge_pico + before.charged,
           e.uncached_input_tokens * unit.input + e.cached_input_tokens * unit.cached
               + e.output_tokens * unit.output,
           h.prompt_tokens * greatest(unit.input, unit.cached) + h.output_tokens_max * unit.output
      FROM part e
     CROSS JOIN LATERAL (
        SELECT * FROM billing_hold h
         WHERE h.id = e.request_id AND h.organization_id = organization LIMIT 1) AS h
     CROSS JOIN LATERAL (
        SELECT coalesce(sum(c.new_pico - c.old_pico), 0) AS moved,
               coalesce(sum(c.charged_pico), 0) AS charged,
               coalesce(bool_or(c.book_id = book), false) AS is_corrected
          FROM billing_correction c
         WHERE c.request_id = e.request_id
           -- Never by an index: the one by time would read all of the tenant's for each event.
           AND c.organization_id IS NOT DISTINCT FROM organization) AS before
     CROSS JOIN LATERAL (
        SELECT max(s.micros) FILTER (WHERE s.token_class = 'input'
                   AND (s.own OR e.input_price_id NOT IN (SELECT id FROM agreed))) AS input,
               max(s.micros) FILTER (WHERE s.token_class = 'cached_input'
                   AND (s.own OR e.cached_input_price_id NOT IN (SELECT id FROM agreed))) AS cached,
               max(s.micros) FILTER (WHERE s.token_class = 'output'
                   AND (s.own OR e.output_price_id NOT IN (SELECT id FROM agreed))) AS output
          FROM sold s WHERE (s.tier, s.currency) = (e.tier, e.currency)) AS priced
     CROSS JOIN LATERAL (
        SELECT coalesce(priced.input, e.input_micros_per_mtok)::numeric AS input,
               coalesce(priced.cached,
                        -- Where cached input had no price of its own, it follows that of input.
                        CASE WHEN e.cached_input_price_id = e.input_price_id THEN priced.input END,
                        e.cached_input_micros_per_mtok)::numeric AS cached,
               coalesce(priced.output, e.output_micros_per_mtok)::numeric AS output) AS unit
     ORDER BY e.occurred_at, e.request_id
$$;

-- Correct a tenant's next events behind a position by a book, once for each event and book: how
-- many were looked at and how many corrected, what that moved, and the position it came to. Each
-- correction is a ledger transaction that points at the event's. What a dearer price asks beyond
-- the hold or the balance is written off: no correction takes a balance past its floor, and none
-- waits for one to be filled. Repricings of one tenant wait for each other before they look; its
-- account is locked only to post, so that the balance looked at is the one charged.
CREATE FUNCTION billing_correct_events(
    organization uuid, book uuid, model text, since timestamptz, after uuid, until timestamptz,
    events_max int, reason text, author text
)
RETURNS TABLE (
    looked int, corrected int, charged numeric, given_back numeric, written_off numeric,
    last_at timestamptz, last_id uuid
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    account billing_account;
    free numeric;
    events billing_repriced_event[];
    event billing_repriced_event;
    tx uuid;
    paid numeric;
    lost numeric;
BEGIN
    corrected := 0; charged := 0; given_back := 0; written_off := 0;
    PERFORM pg_advisory_xact_lock(hashtextextended('billing_correct_events:' || organization, 0));
    SELECT coalesce(array_agg(r ORDER BY r.occurred_at, r.request_id), '{}') INTO events
      FROM billing_repriced(organization, book, model, since, after, until, events_max) r;
    looked := cardinality(events);
    last_at := events[looked].occurred_at;
    last_id := events[looked].request_id;
    SELECT coalesce(array_agg(r ORDER BY r.occurred_at, r.request_id), '{}') INTO events
      FROM unnest(events) r WHERE NOT r.is_corrected AND r.new_pico <> r.old_pico;
    IF cardinality(events) = 0 THEN
        RETURN NEXT;
        RETURN;
    END IF;
    SELECT * INTO STRICT account FROM billing_account a WHERE a.organization_id = organization
       FOR NO KEY UPDATE;
    free := account.posted_pico - account.held_pico - account.leaving_pico - account.floor_pico;
    FOREACH event IN ARRAY events
    LOOP
        paid := least(event.new_pico, event.covered_pico) - event.paid_pico;
        paid := least(paid, greatest(free, 0));
        lost := event.new_pico - event.old_pico - paid;
        tx := uuidv7();
        INSERT INTO billing_ledger_tx (id, organization_id, idempotency_key, kind, reverses)
        VALUES (tx, organization, 'correction:' || book || ':' || event.request_id, 'correction',
                event.ledger_tx_id);
        INSERT INTO billing_ledger_leg
            (id, organization_id, transaction_id, account_id, amount_pico)
        SELECT uuidv7(), organization, tx, a.id, leg.amount
          FROM (VALUES ('credit', -paid), ('revenue', event.new_pico - event.old_pico),
                       ('write_off', -lost)) AS leg (kind, amount)
          JOIN billing_ledger_account a
            ON a.organization_id = organization AND a.kind = leg.kind
         WHERE leg.amount <> 0;
        INSERT INTO billing_correction (
            id, organization_id, occurred_at, request_id, book_id, old_pico, new_pico,
            charged_pico, written_off_pico, ledger_tx_id, reason, created_by)
        VALUES (uuidv7(), organization, event.occurred_at, event.request_id, book,
                event.old_pico, event.new_pico, paid, lost, tx, reason, author);
        free := free - paid;
        corrected := corrected + 1;
        charged := charged + greatest(paid, 0);
        given_back := given_back + greatest(-paid, 0);
        written_off := written_off + lost;
    END LOOP;
    UPDATE billing_account SET posted_pico = posted_pico - charged + given_back
     WHERE organization_id = organization;
    PERFORM tenants_audit(
        organization, 'operator', NULL, '', NULL, 'usage.repriced', 'price_book', book::text,
        jsonb_build_object('model', model, 'events', corrected, 'reason', reason,
                           'author', author, 'charged_pico', charged::text,
                           'given_back_pico', given_back::text,
                           'written_off_pico', written_off::text));
    RETURN NEXT;
END
$$;

ALTER FUNCTION billing_repriced OWNER TO headrace_definer;
ALTER FUNCTION billing_correct_events OWNER TO headrace_definer;
REVOKE ALL ON FUNCTION billing_repriced, billing_correct_events FROM PUBLIC;
GRANT EXECUTE ON FUNCTION billing_repriced, billing_correct_events TO headrace_housekeeper;
