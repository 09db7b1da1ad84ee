-- Credit by its sources: grants and what burned them, top-ups, recharges. Run once by migration
-- 0006: a change is a new file in a new migration.
--
-- Settling knows nothing of grants: what usage has charged is `funded - posted` of the account, and
-- the part that no grant has paid yet is burned later, always before the set of grants changes. So
-- when it is burned cannot be told from the outcome (billing/credit/burning.py is the model of it). Locks
-- are taken in one order: top-up, settings, account, grants; whoever touches grants holds the
-- account.

SELECT tenants_protect('billing_credit_grant');
SELECT tenants_protect('billing_grant_burn');
SELECT tenants_protect('billing_top_up');
SELECT tenants_protect('billing_settings');

ALTER TABLE billing_ledger_tx ADD CONSTRAINT billing_ledger_tx_reverses_its_tenants
    FOREIGN KEY (organization_id, reverses) REFERENCES billing_ledger_tx (organization_id, id);
ALTER TABLE billing_credit_grant ADD CONSTRAINT billing_grant_of_its_tx
    FOREIGN KEY (organization_id, ledger_tx_id) REFERENCES billing_ledger_tx (organization_id, id);
ALTER TABLE billing_grant_burn
    ADD CONSTRAINT billing_burn_of_its_grant FOREIGN KEY (organization_id, grant_id)
        REFERENCES billing_credit_grant (organization_id, id),
    ADD CONSTRAINT billing_burn_of_its_tx FOREIGN KEY (organization_id, ledger_tx_id)
        REFERENCES billing_ledger_tx (organization_id, id);
ALTER TABLE billing_top_up
    ADD CONSTRAINT billing_top_up_tenant FOREIGN KEY (organization_id)
        REFERENCES tenants_organization (id),
    ADD CONSTRAINT billing_top_up_whole_cents CHECK (amount_pico % 10000000000 = 0);
CREATE INDEX billing_credit_grant_left ON billing_credit_grant (organization_id)
    WHERE remaining_pico > 0;
-- What the tending job looks for.
CREATE INDEX billing_credit_grant_due ON billing_credit_grant (expires_at)
    WHERE remaining_pico > 0 AND expires_at IS NOT NULL;
CREATE INDEX billing_credit_grant_leaving ON billing_credit_grant (organization_id)
    WHERE leaving_pico > 0;
CREATE INDEX billing_credit_grant_waiting ON billing_credit_grant (effective_at)
    WHERE posted_at IS NULL;
CREATE INDEX billing_top_up_recent ON billing_top_up (organization_id, created_at DESC);

GRANT SELECT ON billing_credit_grant, billing_grant_burn, billing_top_up, billing_settings
    TO headrace_app, headrace_housekeeper, headrace_definer;
-- The app begins a top-up and says which payment is its; only the functions below complete one.
GRANT INSERT (id, organization_id, amount_pico, currency, idempotency_key),
    UPDATE (payment_reference) ON billing_top_up TO headrace_app, headrace_housekeeper;
GRANT INSERT (organization_id),
    UPDATE (low_balance_pico, recharge_is_enabled, recharge_threshold_pico,
        recharge_amount_pico, recharge_month_max_pico, group_lines_by)
    ON billing_settings TO headrace_app;
GRANT INSERT, UPDATE ON billing_settings TO headrace_housekeeper;
GRANT UPDATE (floor_pico) ON billing_account TO headrace_housekeeper;
GRANT INSERT, UPDATE ON billing_credit_grant, billing_top_up TO headrace_definer;
GRANT INSERT ON billing_grant_burn TO headrace_definer;
GRANT UPDATE (low_since_at, recharge_failures, recharge_not_before_at)
    ON billing_settings TO headrace_definer;
GRANT UPDATE (funded_pico, burned_pico, leaving_pico) ON billing_account TO headrace_definer;

CREATE FUNCTION billing_top_up_forward() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    IF OLD.payment_reference <> '' AND NEW.payment_reference <> OLD.payment_reference
        OR OLD.state IN ('succeeded', 'refunded') AND NEW.state IN ('pending', 'failed')
        OR OLD.state = 'refunded' AND NEW.state <> 'refunded'
        OR NEW.amount_pico <> OLD.amount_pico
    THEN
        RAISE EXCEPTION 'a top-up keeps its payment and its amount, and what succeeded stays so'
            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'billing_top_up_forward';
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER billing_top_up_forward BEFORE UPDATE ON billing_top_up
    FOR EACH ROW EXECUTE FUNCTION billing_top_up_forward();

-- Take an organization's account for the rest of the transaction.
CREATE FUNCTION billing_lock_account(organization uuid) RETURNS billing_account
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    account billing_account;
BEGIN
    SELECT * INTO account FROM billing_account a WHERE a.organization_id = organization
       FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the organization has no account'
            USING ERRCODE = 'foreign_key_violation', CONSTRAINT = 'billing_grant_account';
    END IF;
    RETURN account;
END
$$;

-- One balanced transaction other than usage, and the account after it. `legs` is {kind: amount}.
CREATE FUNCTION billing_post(
    organization uuid, idempotency text, tx_kind text, legs jsonb, reversed uuid DEFAULT NULL
) RETURNS uuid
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    tx uuid := uuidv7();
    credit numeric := coalesce((legs ->> 'credit')::numeric, 0);
    wanted int;
    written int;
BEGIN
    INSERT INTO billing_ledger_tx (id, organization_id, idempotency_key, kind, reverses)
    VALUES (tx, organization, idempotency, tx_kind, reversed);
    SELECT count(*) INTO wanted FROM jsonb_each_text(legs) AS leg (kind, amount)
     WHERE leg.amount::numeric <> 0;
    INSERT INTO billing_ledger_leg (id, organization_id, transaction_id, account_id, amount_pico)
    SELECT uuidv7(), organization, tx, a.id, leg.amount::numeric
      FROM jsonb_each_text(legs) AS leg (kind, amount)
      JOIN billing_ledger_account a ON a.organization_id = organization AND a.kind = leg.kind
     WHERE leg.amount::numeric <> 0;
    GET DIAGNOSTICS written = ROW_COUNT;
    IF (written = wanted) IS NOT TRUE THEN
        RAISE EXCEPTION 'a leg names no ledger account of the organization'
            USING ERRCODE = 'data_exception';
    END IF;
    UPDATE billing_account
       SET posted_pico = posted_pico + credit, funded_pico = funded_pico + credit
     WHERE organization_id = organization;
    RETURN tx;
END
$$;

-- Say in the account what leaves: all that its grants say. The caller holds the account.
CREATE FUNCTION billing_sum_leaving(organization uuid) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, public, pg_temp
AS $$
    UPDATE billing_account a SET leaving_pico = now_leaving.amount
      FROM (SELECT coalesce(sum(g.leaving_pico), 0) AS amount FROM billing_credit_grant g
             WHERE g.organization_id = organization AND g.leaving_pico > 0) now_leaving
     WHERE a.organization_id = organization AND a.leaving_pico <> now_leaving.amount
$$;

-- Let grants pay what usage has charged and nothing has paid yet. The caller holds the account.
CREATE FUNCTION billing_burn_grants(organization uuid) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    owed numeric;
    part numeric;
    burned numeric := 0;
    given record;
BEGIN
    SELECT a.funded_pico - a.posted_pico - a.burned_pico INTO owed
      FROM billing_account a WHERE a.organization_id = organization;
    FOR given IN
        SELECT g.id, g.remaining_pico FROM billing_credit_grant g
         WHERE owed > 0 AND g.organization_id = organization AND g.remaining_pico > 0
           AND g.posted_at IS NOT NULL
         ORDER BY g.category = 'paid', g.priority, g.expires_at NULLS LAST, g.created_at, g.id
    LOOP
        part := least(owed, given.remaining_pico);
        UPDATE billing_credit_grant
           SET remaining_pico = remaining_pico - part,
               leaving_pico = least(leaving_pico, remaining_pico - part)
         WHERE id = given.id;
        INSERT INTO billing_grant_burn (id, organization_id, grant_id, kind, amount_pico)
        VALUES (uuidv7(), organization, given.id, 'usage', part);
        owed := owed - part;
        burned := burned + part;
        EXIT WHEN owed = 0;
    END LOOP;
    IF burned > 0 THEN
        UPDATE billing_account SET burned_pico = burned_pico + burned
         WHERE organization_id = organization;
        PERFORM billing_sum_leaving(organization);
    END IF;
END
$$;

-- Make a grant part of the balance, and let it pay what is owed.
CREATE FUNCTION billing_activate_grant(given billing_credit_grant) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    is_paid boolean := given.category = 'paid';
    tx uuid;
BEGIN
    tx := billing_post(
        given.organization_id, given.source, CASE WHEN is_paid THEN 'top_up' ELSE 'grant' END,
        jsonb_build_object('credit', given.amount_pico,
                           CASE WHEN is_paid THEN 'cash' ELSE 'promo' END, -given.amount_pico));
    UPDATE billing_credit_grant SET posted_at = now(), ledger_tx_id = tx WHERE id = given.id;
    PERFORM billing_burn_grants(given.organization_id);
END
$$;

-- Take credit out of a grant for another reason than usage: `kind` is expired or refunded.
CREATE FUNCTION billing_take_from_grant(given uuid, reason text, amount numeric, tx uuid)
RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp
AS $$
BEGIN
    UPDATE billing_credit_grant SET remaining_pico = remaining_pico - amount WHERE id = given;
    INSERT INTO billing_grant_burn (id, organization_id, grant_id, kind, amount_pico, ledger_tx_id)
    SELECT uuidv7(), g.organization_id, g.id, reason, amount, tx
      FROM billing_credit_grant g WHERE g.id = given;
END
$$;

-- What no open hold reserves, and is here to stay.
CREATE FUNCTION billing_free_credit(organization uuid) RETURNS numeric
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp
AS $$
    SELECT greatest(0, a.posted_pico - a.held_pico - a.leaving_pico
                       - greatest(a.floor_pico, 0))
      FROM billing_account a WHERE a.organization_id = organization
$$;

-- Take what leaves, as far as no open hold reserves it. What had gone back to whom it came from was
-- written off until now, as if it were spent. The caller holds the account.
CREATE FUNCTION billing_take_leaving(organization uuid) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    given billing_credit_grant;
    unreserved numeric;
    part numeric;
    is_paid boolean;
    tx uuid;
BEGIN
    SELECT a.posted_pico - a.held_pico - greatest(a.floor_pico, 0) INTO unreserved
      FROM billing_account a WHERE a.organization_id = organization;
    FOR given IN
        SELECT * FROM billing_credit_grant g
         WHERE g.organization_id = organization AND g.leaving_pico > 0
         ORDER BY g.expires_at NULLS LAST, g.id
    LOOP
        part := least(given.leaving_pico, unreserved);
        EXIT WHEN part <= 0;
        is_paid := given.source LIKE 'top\_up:%';
        tx := billing_post(
            organization,
            CASE WHEN is_paid THEN 'returned:' ELSE 'expiry:' END || given.id || ':'
                || given.remaining_pico,
            CASE WHEN is_paid THEN 'refund' ELSE 'expiry' END,
            jsonb_build_object('credit', -part,
                               CASE WHEN is_paid THEN 'write_off' ELSE 'expired' END, part),
            given.ledger_tx_id);
        UPDATE billing_credit_grant SET leaving_pico = leaving_pico - part WHERE id = given.id;
        PERFORM billing_take_from_grant(
            given.id, CASE WHEN is_paid THEN 'refunded' ELSE 'expired' END, part, tx);
        unreserved := unreserved - part;
    END LOOP;
    PERFORM billing_sum_leaving(organization);
END
$$;

-- Bring an organization's grants up to `moment`: burn what usage has charged, take up what comes
-- into force, end what has expired. What open holds reserve of an expired grant leaves when they
-- are closed, and is reserved by no other hold until then.
CREATE FUNCTION billing_tend_credit(organization uuid, moment timestamptz) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    given billing_credit_grant;
BEGIN
    PERFORM billing_lock_account(organization);
    PERFORM billing_burn_grants(organization);
    FOR given IN
        SELECT * FROM billing_credit_grant g
         WHERE g.organization_id = organization AND g.posted_at IS NULL
           AND g.effective_at <= moment
         ORDER BY g.effective_at, g.id
    LOOP
        PERFORM billing_activate_grant(given);
    END LOOP;
    UPDATE billing_credit_grant g SET leaving_pico = remaining_pico
     WHERE g.organization_id = organization AND g.posted_at IS NOT NULL
       AND g.remaining_pico > 0 AND g.expires_at <= moment;
    PERFORM billing_take_leaving(organization);
END
$$;

-- The same as of now, for a tenant who reads its grants; where there is nothing to do it takes no
-- lock, so that reading often keeps no request waiting.
CREATE FUNCTION billing_tend_credit(organization uuid) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
BEGIN
    IF EXISTS (SELECT FROM billing_account a
                WHERE a.organization_id = organization
                  AND a.funded_pico - a.posted_pico > a.burned_pico)
        OR EXISTS (SELECT FROM billing_credit_grant g
                    WHERE g.organization_id = organization
                      AND (g.posted_at IS NULL AND g.effective_at <= now()
                           OR g.leaving_pico > 0
                           OR g.remaining_pico > 0 AND g.expires_at <= now()))
    THEN
        PERFORM billing_tend_credit(organization, now());
    END IF;
END
$$;

-- Organizations whose grants come into force or end by `moment`, or leave: who waits longest first.
CREATE FUNCTION billing_credit_due(moment timestamptz, organizations_max int) RETURNS SETOF uuid
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
    SELECT organization_id FROM (
        SELECT g.organization_id, g.expires_at AS due_at FROM billing_credit_grant g
         WHERE g.remaining_pico > 0 AND g.expires_at <= moment
        UNION ALL
        SELECT g.organization_id, coalesce(g.expires_at, g.posted_at) FROM billing_credit_grant g
         WHERE g.leaving_pico > 0
        UNION ALL
        SELECT g.organization_id, g.effective_at FROM billing_credit_grant g
         WHERE g.posted_at IS NULL AND g.effective_at <= moment) due
     GROUP BY organization_id ORDER BY min(due_at), organization_id
     LIMIT organizations_max
$$;

-- Money in by the operator, once per key. False when the key was used before for the same; for
-- anything else it is an error. The organization's account must be open.
DROP FUNCTION billing_grant_credit(uuid, numeric, text);
CREATE FUNCTION billing_grant_credit(
    organization uuid, amount numeric, idempotency text, category text DEFAULT 'promotional',
    priority int DEFAULT 0, effective_at timestamptz DEFAULT NULL,
    expires_at timestamptz DEFAULT NULL, operator uuid DEFAULT NULL
) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
    given billing_credit_grant;
    before billing_credit_grant;
BEGIN
    IF (amount > 0) IS NOT TRUE THEN
        RAISE EXCEPTION 'a grant must be positive' USING ERRCODE = 'check_violation';
    END IF;
    PERFORM billing_lock_account(organization);
    SELECT * INTO before FROM billing_credit_grant g
     WHERE g.organization_id = organization AND g.source = 'grant:' || idempotency;
    IF FOUND THEN
        IF (before.amount_pico, before.category, before.priority)
            <> (amount, category, priority)
            OR before.expires_at IS DISTINCT FROM expires_at
        THEN
            RAISE EXCEPTION 'the key was used for another grant'
                USING ERRCODE = 'unique_violation', CONSTRAINT = 'billing_grant_once';
        END IF;
        RETURN false;
    END IF;
    PERFORM billing_burn_grants(organization);
    INSERT INTO billing_credit_grant (
        id, organization_id, source, category, priority, amount_pico, remaining_pico,
        effective_at, expires_at)
    VALUES (uuidv7(), organization, 'grant:' || idempotency, category, priority, amount, amount,
            coalesce(effective_at, now()), expires_at)
    RETURNING * INTO given;
    IF given.effective_at <= now() THEN
        PERFORM billing_activate_grant(given);
    END IF;
    PERFORM tenants_audit(
        organization, 'operator', operator, '', NULL, 'credit.granted', 'grant', given.id::text,
        jsonb_build_object('amount_pico', amount::text, 'category', category,
                           'source', given.source));
    RETURN true;
END
$$;

ALTER FUNCTION billing_lock_account OWNER TO headrace_definer;
ALTER FUNCTION billing_post OWNER TO headrace_definer;
ALTER FUNCTION billing_sum_leaving OWNER TO headrace_definer;
ALTER FUNCTION billing_take_leaving OWNER TO headrace_definer;
ALTER FUNCTION billing_burn_grants OWNER TO headrace_definer;
ALTER FUNCTION billing_activate_grant OWNER TO headrace_definer;
ALTER FUNCTION billing_take_from_grant OWNER TO headrace_definer;
ALTER FUNCTION billing_free_credit OWNER TO headrace_definer;
ALTER FUNCTION billing_tend_credit(uuid, timestamptz) OWNER TO headrace_definer;
ALTER FUNCTION billing_tend_credit(uuid) OWNER TO headrace_definer;
ALTER FUNCTION billing_credit_due OWNER TO headrace_definer;
ALTER FUNCTION billing_grant_credit OWNER TO headrace_definer;
REVOKE ALL ON FUNCTION
    billing_lock_account, billing_post, billing_sum_leaving, billing_take_leaving,
    billing_burn_grants, billing_activate_grant,
    billing_take_from_grant, billing_free_credit, billing_tend_credit(uuid, timestamptz),
    billing_tend_credit(uuid), billing_credit_due, billing_grant_credit
    FROM PUBLIC;
GRANT EXECUTE ON FUNCTION
    billing_tend_credit(uuid)
    TO headrace_app, headrace_housekeeper;
GRANT EXECUTE ON FUNCTION
    billing_tend_credit(uuid, timestamptz), billing_credit_due, billing_grant_credit
    TO headrace_housekeeper;
