-- Another clock than now, for history that is made up: a house that is shown has a month behind it.
-- Run once by migration 0017: a change is a new file in a new migration.
--
-- The functions that move money know only now(), and stay so. A session of the housekeeper may say
-- in the variable `headrace.clock` what time it is, and the triggers here write that into the rows
-- instead. Everybody may set the variable; whoever logged in as anybody else is not heard, within
-- SECURITY DEFINER functions too: those change the current user, never the session's. What a hold
-- is sold at, whether its key is valid and what quotas are in force is as of now() all the same.

-- What is said is the time now, and a line for each request that has a time of its own: a list has
-- one now, and its requests have not all come in one instant. Not JSON, which would be read whole
-- for each of them.
CREATE FUNCTION billing_said_clock(of_request text) RETURNS timestamptz
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    said text := current_setting('headrace.clock');
    line int := strpos(said, E'\n' || of_request || ' ');
BEGIN
    IF line > 0 THEN
        said := substr(said, line + length(of_request) + 2, 40);
    END IF;
    RETURN split_part(said, E'\n', 1)::timestamptz;
END
$$;

CREATE FUNCTION billing_by_said_clock() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp
AS $$
BEGIN
    CASE TG_TABLE_NAME || ' ' || TG_OP
        WHEN 'billing_hold INSERT' THEN
            NEW.created_at := billing_said_clock(NEW.id::text);
            NEW.renewed_at := NEW.created_at;
        WHEN 'billing_hold UPDATE' THEN
            NEW.closed_at := billing_said_clock(NEW.id::text);
        WHEN 'billing_ledger_tx INSERT' THEN
            NEW.created_at := billing_said_clock(
                substr(NEW.idempotency_key, length('usage:') + 1));
        WHEN 'billing_credit_grant INSERT' THEN
            NEW.created_at := billing_said_clock('now');
            NEW.effective_at := NEW.created_at;
        WHEN 'billing_credit_grant UPDATE' THEN
            NEW.posted_at := billing_said_clock('now');
        WHEN 'billing_top_up UPDATE' THEN
            -- Whoever paid then began to then: the app begins a top-up, and is not heard.
            NEW.completed_at := billing_said_clock('now');
            NEW.created_at := NEW.completed_at;
        ELSE
            NEW.created_at := billing_said_clock('now');
    END CASE;
    RETURN NEW;
END
$$;
ALTER FUNCTION billing_said_clock OWNER TO headrace_definer;
REVOKE ALL ON FUNCTION billing_said_clock, billing_by_said_clock FROM PUBLIC;
GRANT EXECUTE ON FUNCTION billing_said_clock TO headrace_housekeeper;

DO $$
DECLARE
    clocked record;
BEGIN
    FOR clocked IN
        SELECT * FROM (VALUES
            ('billing_hold', 'INSERT'), ('billing_hold', 'UPDATE OF closed_at'),
            ('billing_ledger_tx', 'INSERT'),
            ('billing_credit_grant', 'INSERT'), ('billing_credit_grant', 'UPDATE OF posted_at'),
            ('billing_grant_burn', 'INSERT'),
            ('billing_top_up', 'UPDATE OF completed_at'),
            ('billing_invoice', 'INSERT')
        ) AS t (relation, event)
    LOOP
        EXECUTE format(
            'CREATE TRIGGER %I BEFORE %s ON %I FOR EACH ROW'
            ' WHEN (session_user = ''headrace_housekeeper'''
            '       AND current_setting(''headrace.clock'', true) <> '''')'
            ' EXECUTE FUNCTION billing_by_said_clock()',
            'billing_said_clock_on_' || lower(split_part(clocked.event, ' ', 1)),
            clocked.event, clocked.relation);
    END LOOP;
END
$$;

-- As before, and also of the months since a time that is past: events of a month without a partition
-- would fall into the default one.
DROP FUNCTION billing_ensure_partitions(int);
CREATE FUNCTION billing_ensure_partitions(months_ahead int, since timestamptz DEFAULT now())
RETURNS int
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp SET timezone = 'UTC'
AS $$
DECLARE
    month timestamptz;
    partition text;
    made int := 0;
BEGIN
    ASSERT months_ahead BETWEEN 0 AND 24, 'months_ahead must be 0 to 24';
    ASSERT since BETWEEN now() - interval '24 months' AND now(), 'since must be recent';
    -- One at a time, by a lock that takes more than the app's right to read; reads and writes of
    -- events do not meet it.
    LOCK TABLE ONLY billing_usage_event IN SHARE UPDATE EXCLUSIVE MODE;
    FOR month IN
        SELECT generate_series(date_trunc('month', since),
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
