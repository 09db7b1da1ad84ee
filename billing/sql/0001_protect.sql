-- Row-level security, grants, composite foreign keys, constraints and triggers of `billing`.
-- Run once by migration 0001: a change is a new file in a new migration.

-- The catalog is the operator's: everybody reads it, only the housekeeper writes it.
ALTER TABLE billing_offer ENABLE ROW LEVEL SECURITY;
ALTER TABLE billing_offer FORCE ROW LEVEL SECURITY;
CREATE POLICY catalog ON billing_offer FOR SELECT USING (true);
ALTER TABLE billing_price ENABLE ROW LEVEL SECURITY;
ALTER TABLE billing_price FORCE ROW LEVEL SECURITY;
CREATE POLICY catalog ON billing_price FOR SELECT USING (true);

SELECT tenants_protect('billing_account');
SELECT tenants_protect('billing_ledger_account');
SELECT tenants_protect('billing_ledger_tx');
SELECT tenants_protect('billing_ledger_leg');
SELECT tenants_protect('billing_quota_policy');
SELECT tenants_protect('billing_quota_counter');
SELECT tenants_protect('billing_hold');

-- Foreign keys that carry the tenant.
ALTER TABLE billing_account ADD CONSTRAINT billing_account_in_its_tenant
    FOREIGN KEY (organization_id, ledger_account_id)
    REFERENCES billing_ledger_account (organization_id, id);
ALTER TABLE billing_ledger_leg
    ADD CONSTRAINT billing_leg_in_its_tx FOREIGN KEY (organization_id, transaction_id)
        REFERENCES billing_ledger_tx (organization_id, id),
    ADD CONSTRAINT billing_leg_in_its_account FOREIGN KEY (organization_id, account_id)
        REFERENCES billing_ledger_account (organization_id, id);
ALTER TABLE billing_quota_counter ADD CONSTRAINT billing_counter_in_its_policy
    FOREIGN KEY (organization_id, policy_id)
    REFERENCES billing_quota_policy (organization_id, id);
ALTER TABLE billing_hold
    ADD CONSTRAINT billing_hold_of_its_key FOREIGN KEY (organization_id, project_id, key_id)
        REFERENCES tenants_api_key (organization_id, project_id, id),
    ADD CONSTRAINT billing_hold_counts CHECK (prompt_tokens >= 0 AND output_tokens_max >= 0),
    -- The estimate of billing/pricing.py, asserted from the other side.
    ADD CONSTRAINT billing_hold_amount CHECK (
        amount_pico = prompt_tokens::numeric
                * greatest(input_micros_per_mtok, cached_input_micros_per_mtok)
            + output_tokens_max::numeric * output_micros_per_mtok),
    ADD CONSTRAINT billing_hold_charge CHECK (charge_pico BETWEEN 0 AND amount_pico),
    ADD CONSTRAINT billing_hold_closed CHECK ((state = 'open') = (closed_at IS NULL));
-- Sweeper and reconcile look at open holds only. renewed_at stays out: renewals stay cheap.
CREATE INDEX billing_hold_open ON billing_hold (account_id) WHERE state = 'open';
ALTER TABLE billing_hold SET (fillfactor = 70);
ALTER TABLE billing_account SET (fillfactor = 30);
ALTER TABLE billing_quota_counter SET (fillfactor = 30);

-- Usage events: append-only, one partition a month, the default one only for the unforeseen.
CREATE TABLE billing_usage_event (
    occurred_at timestamptz NOT NULL,
    request_id uuid NOT NULL,
    organization_id uuid NOT NULL,
    project_id uuid NOT NULL,
    key_id uuid NOT NULL,
    ledger_tx_id uuid NOT NULL,
    held_at timestamptz NOT NULL,
    tier varchar(16) NOT NULL,
    currency varchar(3) NOT NULL,
    model_asked varchar(128) NOT NULL,
    model_served varchar(128) NOT NULL,
    uncached_input_tokens bigint NOT NULL CHECK (uncached_input_tokens >= 0),
    cached_input_tokens bigint NOT NULL CHECK (cached_input_tokens >= 0),
    output_tokens bigint NOT NULL CHECK (output_tokens >= 0),
    input_price_id uuid NOT NULL,
    cached_input_price_id uuid NOT NULL,
    output_price_id uuid NOT NULL,
    input_micros_per_mtok bigint NOT NULL,
    cached_input_micros_per_mtok bigint NOT NULL,
    output_micros_per_mtok bigint NOT NULL,
    cost_pico numeric(38, 0) NOT NULL,
    charge_pico numeric(38, 0) NOT NULL,
    finish_reason varchar(32) NOT NULL,
    source varchar(16) NOT NULL CHECK (source IN ('measured', 'estimated')),
    queue_ms bigint NOT NULL,
    prefill_ms bigint NOT NULL,
    decode_ms bigint NOT NULL,
    PRIMARY KEY (occurred_at, request_id),
    CONSTRAINT billing_usage_event_cost CHECK (
        cost_pico = uncached_input_tokens::numeric * input_micros_per_mtok
            + cached_input_tokens::numeric * cached_input_micros_per_mtok
            + output_tokens::numeric * output_micros_per_mtok),
    CONSTRAINT billing_usage_event_charge CHECK (charge_pico BETWEEN 0 AND cost_pico)
) PARTITION BY RANGE (occurred_at);
SELECT tenants_protect('billing_usage_event');
CREATE INDEX billing_usage_event_time ON billing_usage_event USING brin (occurred_at);
CREATE INDEX billing_usage_event_tenant
    ON billing_usage_event (organization_id, occurred_at DESC);
CREATE INDEX billing_usage_event_key ON billing_usage_event (key_id, occurred_at DESC);
-- No grant ever names a partition: through it the parent's policy would not apply.
CREATE TABLE billing_usage_event_default PARTITION OF billing_usage_event DEFAULT;
ALTER TABLE billing_usage_event_default ENABLE ROW LEVEL SECURITY;
ALTER TABLE billing_usage_event_default FORCE ROW LEVEL SECURITY;

-- Nobody gets UPDATE or DELETE on ledger and events; the app writes none of these by itself.
GRANT SELECT ON billing_offer, billing_price, billing_account, billing_ledger_account,
    billing_ledger_tx, billing_ledger_leg, billing_quota_policy, billing_quota_counter,
    billing_hold, billing_usage_event TO headrace_app, headrace_housekeeper, headrace_definer;
GRANT INSERT, UPDATE ON billing_offer TO headrace_housekeeper;
GRANT INSERT, UPDATE (valid) ON billing_price TO headrace_housekeeper;
GRANT INSERT ON billing_account, billing_ledger_account TO headrace_housekeeper;
GRANT INSERT, UPDATE (daily_tokens_max) ON billing_quota_policy TO headrace_housekeeper;
GRANT INSERT ON billing_ledger_tx, billing_ledger_leg, billing_usage_event TO headrace_definer;
GRANT INSERT, UPDATE ON billing_quota_counter TO headrace_definer;
GRANT INSERT, UPDATE, DELETE ON billing_hold TO headrace_definer;
GRANT UPDATE (posted_pico, held_pico) ON billing_account TO headrace_definer;

-- At commit the scope may be gone and the policies would show this trigger nothing, so it runs as
-- a role that bypasses them.
CREATE FUNCTION billing_ledger_balanced() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    tx uuid;
BEGIN
    tx := CASE WHEN TG_OP = 'DELETE' THEN OLD.transaction_id ELSE NEW.transaction_id END;
    IF EXISTS (
        SELECT FROM billing_ledger_leg l JOIN billing_ledger_account a ON a.id = l.account_id
         WHERE l.transaction_id = tx
         GROUP BY a.currency HAVING sum(l.amount_pico) <> 0)
    THEN
        RAISE EXCEPTION 'the legs of ledger transaction % do not sum to zero', tx
            USING ERRCODE = 'check_violation', CONSTRAINT = 'billing_ledger_balanced';
    END IF;
    RETURN NULL;
END
$$;
ALTER FUNCTION billing_ledger_balanced OWNER TO headrace_definer;
REVOKE ALL ON FUNCTION billing_ledger_balanced FROM PUBLIC;
CREATE CONSTRAINT TRIGGER billing_ledger_balanced
    AFTER INSERT OR UPDATE OR DELETE ON billing_ledger_leg
    DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION billing_ledger_balanced();

CREATE FUNCTION billing_price_immutable() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND upper_inf(OLD.valid) AND lower(NEW.valid) = lower(OLD.valid)
        AND upper(NEW.valid) >= now()
        AND (NEW.id, NEW.offer_id, NEW.tier, NEW.token_class, NEW.currency,
             NEW.price_micros_per_mtok)
          = (OLD.id, OLD.offer_id, OLD.tier, OLD.token_class, OLD.currency,
             OLD.price_micros_per_mtok)
    THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'a price row is never changed, only closed'
        USING ERRCODE = 'restrict_violation';
END
$$;
CREATE TRIGGER billing_price_immutable BEFORE UPDATE OR DELETE ON billing_price
    FOR EACH ROW EXECUTE FUNCTION billing_price_immutable();

-- Make the partitions of this month and the next ones. Owned by the tables' owner: creating a
-- partition takes that. A month whose rows already lie in the default partition is skipped with a
-- warning, and `reconcile` reports it.
CREATE FUNCTION billing_ensure_partitions(months_ahead int) RETURNS int
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp SET timezone = 'UTC'
AS $$
DECLARE
    month timestamptz;
    partition text;
    made int := 0;
BEGIN
    ASSERT months_ahead BETWEEN 0 AND 24, 'months_ahead must be 0 to 24';
    -- One at a time, by a lock that takes more than the app's right to read; reads and writes of
    -- events do not meet it.
    LOCK TABLE ONLY billing_usage_event IN SHARE UPDATE EXCLUSIVE MODE;
    FOR month IN
        SELECT generate_series(date_trunc('month', now()),
                               date_trunc('month', now()) + make_interval(months => months_ahead),
                               interval '1 month')
    LOOP
        partition := 'billing_usage_event_' || to_char(month, 'YYYY_MM');
        CONTINUE WHEN to_regclass(partition) IS NOT NULL;
        BEGIN
            EXECUTE format('CREATE TABLE public.%I PARTITION OF public.billing_usage_event'
                           ' FOR VALUES FROM (%L) TO (%L)',
                           partition, month, month + interval '1 month');
            EXECUTE format('ALTER TABLE public.%I ENABLE ROW LEVEL SECURITY', partition);
            EXECUTE format('ALTER TABLE public.%I FORCE ROW LEVEL SECURITY', partition);
            made := made + 1;
        EXCEPTION WHEN check_violation THEN
            RAISE WARNING 'the default partition holds usage events of %', partition;
        END;
    END LOOP;
    RETURN made;
END
$$;
REVOKE ALL ON FUNCTION billing_ensure_partitions FROM PUBLIC;
GRANT EXECUTE ON FUNCTION billing_ensure_partitions TO headrace_housekeeper;
SELECT billing_ensure_partitions(3);
