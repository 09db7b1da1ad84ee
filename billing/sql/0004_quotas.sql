-- Quotas of several scopes, metrics and periods: what they are, whom they cover, and how they are
-- set. Run once by migration 0004: a change is a new file in a new migration. Holding and settling
-- against them is in 0004_take_holds.sql and 0004_close_holds.sql.
--
-- A counter is a function of the tenant's holds: `held` is what the open ones of its window reserve,
-- `used` what the posted ones used. A hold belongs to the window it was taken in, whenever it is
-- settled. Which policies there are is versioned by the account row, the lock that every hold and
-- settle takes last: one that finds another version than it began with is run again, so a policy
-- set in the middle of traffic counts every request exactly once.

SELECT tenants_protect('billing_quota_policy');
SELECT tenants_protect('billing_quota_counter');

ALTER TABLE billing_quota_policy
    ADD CONSTRAINT billing_quota_policy_scope CHECK (
        (scope IN ('project', 'key')) = (scope_id IS NOT NULL)
        AND (scope = 'end_user' OR end_user = ''));
-- What a hold looks for.
CREATE INDEX billing_quota_policy_in_force ON billing_quota_policy (organization_id)
    WHERE lifted_at IS NULL;
ALTER TABLE billing_quota_counter
    ADD CONSTRAINT billing_counter_in_its_policy FOREIGN KEY (organization_id, policy_id)
        REFERENCES billing_quota_policy (organization_id, id);
ALTER TABLE billing_quota_counter SET (fillfactor = 30);
-- Whom a window has told of; its own column alone, so that counting stays a HOT update.
CREATE INDEX billing_quota_counter_announced
    ON billing_quota_counter (policy_id, window_start, announced_percent)
    WHERE announced_percent > 0;

ALTER TABLE billing_usage_event
    ADD COLUMN end_user varchar(128) NOT NULL DEFAULT '',
    ADD COLUMN tags jsonb NOT NULL DEFAULT '{}';

GRANT SELECT ON billing_quota_policy, billing_quota_counter
    TO headrace_app, headrace_housekeeper, headrace_definer;
GRANT INSERT, UPDATE ON billing_quota_policy, billing_quota_counter TO headrace_definer;
GRANT UPDATE (quota_version) ON billing_account TO headrace_definer;

-- The end of a window: the next local midnight, or the next month's first, whatever the clocks do
-- in between. Its start is date_trunc(period, instant, zone).
CREATE FUNCTION billing_window_end(start timestamptz, period text, zone text) RETURNS timestamptz
LANGUAGE sql STABLE
RETURN (date_trunc(period, start AT TIME ZONE zone) + ('1 ' || period)::interval)
    AT TIME ZONE zone;

-- Whether a policy counts a request of this project, key and end user, in its own organization.
CREATE FUNCTION billing_quota_covers(
    policy billing_quota_policy, project uuid, key uuid, end_user text
) RETURNS boolean
LANGUAGE sql IMMUTABLE
RETURN CASE policy.scope
    WHEN 'organization' THEN true
    WHEN 'project' THEN policy.scope_id = project
    WHEN 'key' THEN policy.scope_id = key
    ELSE end_user <> '' AND policy.end_user IN ('', end_user) END;

-- Of whom it counts: each end user has a counter of their own.
CREATE FUNCTION billing_quota_subject(policy billing_quota_policy, end_user text) RETURNS text
LANGUAGE sql IMMUTABLE
RETURN CASE policy.scope WHEN 'end_user' THEN end_user ELSE '' END;

-- What a request may use at the most, in the policy's metric.
CREATE FUNCTION billing_quota_reserved(
    policy billing_quota_policy, prompt_tokens bigint, output_tokens_max bigint, amount numeric
) RETURNS numeric
LANGUAGE sql IMMUTABLE
RETURN CASE policy.metric
    WHEN 'requests' THEN 1
    WHEN 'tokens' THEN prompt_tokens + output_tokens_max
    WHEN 'input_tokens' THEN prompt_tokens
    WHEN 'output_tokens' THEN output_tokens_max
    ELSE amount END;

-- What it did use.
CREATE FUNCTION billing_quota_used(
    policy billing_quota_policy, uncached bigint, cached bigint, output bigint, charge numeric
) RETURNS numeric
LANGUAGE sql IMMUTABLE
RETURN CASE policy.metric
    WHEN 'requests' THEN 1
    WHEN 'tokens' THEN uncached + output + CASE WHEN policy.counts_cached THEN cached ELSE 0 END
    WHEN 'input_tokens' THEN uncached + CASE WHEN policy.counts_cached THEN cached ELSE 0 END
    WHEN 'output_tokens' THEN output
    ELSE charge END;

-- Whether a named end user's own policy stands in for the one for every end user, which goes on
-- counting and enforces nothing.
CREATE FUNCTION billing_quota_overridden(policy billing_quota_policy, subject text)
RETURNS boolean
LANGUAGE sql STABLE
RETURN policy.scope = 'end_user' AND policy.end_user = '' AND EXISTS (
    SELECT FROM billing_quota_policy own
     WHERE own.organization_id = policy.organization_id AND own.lifted_at IS NULL
       AND own.scope = 'end_user' AND own.end_user = subject
       AND (own.metric, own.period, own.is_hard)
         = (policy.metric, policy.period, policy.is_hard));

-- A policy as its tenant is told of it, in an event or a refusal; amounts are strings.
CREATE FUNCTION billing_quota_told(
    policy billing_quota_policy, subject text, window_start timestamptz, used numeric
) RETURNS jsonb
LANGUAGE sql STABLE
RETURN jsonb_build_object(
    'policy_id', policy.id, 'scope', policy.scope, 'scope_id', policy.scope_id,
    'end_user', subject, 'metric', policy.metric, 'period', policy.period,
    'hard', policy.is_hard, 'limit', policy.limit_amount::text, 'used', used::text,
    'window_start', window_start, 'time_zone', policy.time_zone,
    'resets_at', billing_window_end(window_start, policy.period, policy.time_zone));

-- Put a policy in force, in place of the one for the same thing; with an id, in place of that one,
-- or null where it does not stand. Counts the window that runs, and any that another clock has begun:
-- what its requests have used, and what those under way hold, each in the window it was taken in.
CREATE FUNCTION billing_put_quota(wanted billing_quota_policy) RETURNS uuid
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    standing billing_quota_policy;
    account uuid;
    zone text := (SELECT o.time_zone FROM tenants_organization o
                   WHERE o.id = wanted.organization_id);
    -- The window that runs; just after it began also the one before, whose last holds may still be
    -- on their way. Where the clocks fall back to midnight it starts at the second one, so that its
    -- first requests are older than it.
    start timestamptz := date_trunc(wanted.period, now() - interval '1 minute', zone);
BEGIN
    UPDATE billing_account SET quota_version = quota_version + 1
     WHERE organization_id = wanted.organization_id RETURNING ledger_account_id INTO account;
    SELECT * INTO standing FROM billing_quota_policy p
     WHERE p.organization_id = wanted.organization_id AND p.lifted_at IS NULL
       AND (p.scope, p.end_user, p.metric, p.period, p.is_hard)
         = (wanted.scope, wanted.end_user, wanted.metric, wanted.period, wanted.is_hard)
       AND p.scope_id IS NOT DISTINCT FROM wanted.scope_id
       -- Soft ones of several amounts stand side by side: one that changes says which it is.
       AND (p.is_hard OR p.id = wanted.id
            OR wanted.id IS NULL AND p.limit_amount = wanted.limit_amount);
    IF wanted.id IS NOT NULL AND standing.id IS DISTINCT FROM wanted.id THEN
        RETURN NULL;
    END IF;
    IF (standing.time_zone, standing.counts_cached) = (zone, wanted.counts_cached) THEN
        UPDATE billing_quota_policy p
           SET limit_amount = wanted.limit_amount, recipients = wanted.recipients,
               subject_prefix = wanted.subject_prefix, set_at = now(),
               set_by_kind = wanted.set_by_kind, set_by_id = wanted.set_by_id
         WHERE p.id = standing.id;
        RETURN standing.id;
    END IF;
    UPDATE billing_quota_policy p SET lifted_at = now() WHERE p.id = standing.id;
    wanted.id := uuidv7();
    wanted.time_zone := zone;
    wanted.set_at := now();
    wanted.lifted_at := NULL;
    INSERT INTO billing_quota_policy SELECT wanted.*;
    INSERT INTO billing_quota_counter
        (policy_id, subject, window_start, organization_id, used_amount, held_amount)
    SELECT wanted.id, counted.subject, counted.window_start, wanted.organization_id,
           sum(counted.used), sum(counted.held)
      FROM (SELECT billing_quota_subject(wanted, e.end_user) AS subject,
                   date_trunc(wanted.period, e.held_at, zone) AS window_start, 0 AS held,
                   billing_quota_used(wanted, e.uncached_input_tokens, e.cached_input_tokens,
                                      e.output_tokens, e.charge_pico) AS used
              FROM billing_usage_event e
             WHERE e.organization_id = wanted.organization_id AND e.finish_reason <> 'lost'
               AND e.occurred_at >= least(start, now()) - interval '3 hours'
               AND billing_quota_covers(wanted, e.project_id, e.key_id, e.end_user)
            UNION ALL
            SELECT billing_quota_subject(wanted, h.end_user),
                   date_trunc(wanted.period, h.created_at, zone),
                   billing_quota_reserved(wanted, h.prompt_tokens, h.output_tokens_max,
                                          h.amount_pico), 0
              FROM billing_hold h
             WHERE h.account_id = account AND h.state = 'open'
               AND billing_quota_covers(wanted, h.project_id, h.key_id, h.end_user)
           ) AS counted
     WHERE counted.window_start >= start
     GROUP BY counted.subject, counted.window_start;
    RETURN wanted.id;
END
$$;

-- Set a tenant's quota, or change the one that `standing` names, as somebody of the tenant in scope.
CREATE FUNCTION billing_set_quota(
    organization uuid, standing uuid, scope text, scope_id uuid, end_user text, metric text,
    period text, limit_amount numeric, is_hard boolean, counts_cached boolean, recipients text[],
    subject_prefix text, set_by_kind text, set_by_id uuid, policies_max int
) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    wanted billing_quota_policy;
    policy uuid;
BEGIN
    -- Not asserted: whoever calls this may switch assertions off.
    IF organization IS DISTINCT FROM tenants_current() THEN
        RAISE EXCEPTION 'a quota is set inside its tenant''s scope'
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    IF scope = 'project' AND NOT EXISTS (
            SELECT FROM tenants_project p
             WHERE p.id = scope_id AND p.organization_id = organization)
        OR scope = 'key' AND NOT EXISTS (
            SELECT FROM tenants_api_key k
             WHERE k.id = scope_id AND k.organization_id = organization)
    THEN
        RAISE EXCEPTION 'the organization has no such %', scope
            USING ERRCODE = 'foreign_key_violation', CONSTRAINT = 'billing_quota_policy_of';
    END IF;
    wanted.id := standing;
    wanted.organization_id := organization;
    wanted.scope := scope;
    wanted.scope_id := scope_id;
    wanted.end_user := end_user;
    wanted.metric := metric;
    wanted.period := period;
    wanted.limit_amount := limit_amount;
    wanted.is_hard := is_hard;
    wanted.counts_cached := counts_cached;
    wanted.recipients := recipients;
    wanted.subject_prefix := subject_prefix;
    wanted.set_by_kind := set_by_kind;
    wanted.set_by_id := set_by_id;
    policy := billing_put_quota(wanted);
    IF policies_max < (SELECT count(*) FROM billing_quota_policy p
                        WHERE p.organization_id = organization AND p.lifted_at IS NULL)
    THEN
        RAISE EXCEPTION 'the organization has % quotas already', policies_max
            USING ERRCODE = 'check_violation', CONSTRAINT = 'billing_quota_policies_max';
    END IF;
    RETURN policy;
END
$$;

-- Take a policy out of force, for good; false when it was not in force.
CREATE FUNCTION billing_lift_quota(organization uuid, policy uuid) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
BEGIN
    IF organization IS DISTINCT FROM tenants_current() THEN
        RAISE EXCEPTION 'a quota is lifted inside its tenant''s scope'
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    UPDATE billing_account SET quota_version = quota_version + 1
     WHERE organization_id = organization;
    UPDATE billing_quota_policy p SET lifted_at = now()
     WHERE p.organization_id = organization AND p.id = policy AND p.lifted_at IS NULL;
    RETURN FOUND;
END
$$;

-- An organization that moves gets the days and months of its new place, counted anew.
CREATE FUNCTION billing_follow_time_zone() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    policy billing_quota_policy;
BEGIN
    FOR policy IN
        SELECT * FROM billing_quota_policy p
         WHERE p.organization_id = NEW.id AND p.lifted_at IS NULL ORDER BY p.id
    LOOP
        PERFORM billing_put_quota(policy);
    END LOOP;
    RETURN NULL;
END
$$;
CREATE TRIGGER billing_follow_time_zone AFTER UPDATE OF time_zone ON tenants_organization
    FOR EACH ROW WHEN (OLD.time_zone IS DISTINCT FROM NEW.time_zone)
    EXECUTE FUNCTION billing_follow_time_zone();

-- A counter's used amount has reached a new share of its limit: tell the tenant, once per window
-- and threshold. The caller holds the counter's lock. Of a policy for each end user, a name that the
-- client chooses, the first one is mailed of, and a hundred are told of.
CREATE FUNCTION billing_announce_thresholds(policy_id uuid, subject text, window_start timestamptz)
RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
    policy billing_quota_policy;
    counter billing_quota_counter;
    before int;
    reached int;
    threshold int;
    told_max constant int := 100;
    told int := 0;
BEGIN
    SELECT * INTO policy FROM billing_quota_policy p WHERE p.id = policy_id;
    SELECT * INTO counter FROM billing_quota_counter c
     WHERE (c.policy_id, c.subject, c.window_start) = (policy_id, subject, window_start);
    -- A changed limit has thresholds of its own.
    before := CASE WHEN counter.announced_limit = policy.limit_amount
                   THEN counter.announced_percent ELSE 0 END;
    reached := (SELECT coalesce(max(percent), 0) FROM unnest(ARRAY[50, 80, 100]) AS t (percent)
                 WHERE counter.used_amount * 100 >= policy.limit_amount * percent);
    IF reached <= before OR policy.limit_amount = 0
        OR billing_quota_overridden(policy, subject)
    THEN
        RETURN;
    END IF;
    UPDATE billing_quota_counter c
       SET announced_percent = reached, announced_limit = policy.limit_amount
     WHERE (c.policy_id, c.subject, c.window_start) = (policy_id, subject, window_start);
    FOREACH threshold IN ARRAY ARRAY[50, 80, 100] LOOP
        CONTINUE WHEN threshold <= before OR threshold > reached;
        IF policy.scope = 'end_user' AND policy.end_user = '' THEN
            SELECT count(*) INTO told FROM (
                SELECT FROM billing_quota_counter c
                 WHERE c.policy_id = policy_id AND c.window_start = window_start
                   AND c.announced_percent >= threshold AND c.announced_percent > 0
                   AND c.announced_limit = policy.limit_amount
                   AND c.subject NOT IN (subject, '(forgotten)')
                 LIMIT told_max) AS t;
            CONTINUE WHEN told = told_max;
            -- Somebody else is the first right now; to wait would be to deadlock.
            IF told = 0 AND NOT pg_try_advisory_xact_lock(hashtextextended(
                    'budget ' || policy_id || ' ' || window_start || ' ' || threshold, 0))
            THEN
                told := 1;
            END IF;
        END IF;
        PERFORM tenants_emit(
            policy.organization_id, 'budget.threshold_reached',
            billing_quota_told(policy, subject, window_start, counter.used_amount)
            || jsonb_build_object(
                'threshold_percent', threshold, 'mailed', told = 0,
                'recipients', policy.recipients,
                'subject_prefix', policy.subject_prefix));
    END LOOP;
END
$$;

ALTER FUNCTION billing_put_quota OWNER TO headrace_definer;
ALTER FUNCTION billing_set_quota OWNER TO headrace_definer;
ALTER FUNCTION billing_lift_quota OWNER TO headrace_definer;
ALTER FUNCTION billing_follow_time_zone OWNER TO headrace_definer;
ALTER FUNCTION billing_announce_thresholds OWNER TO headrace_definer;
REVOKE ALL ON FUNCTION
    billing_put_quota, billing_set_quota, billing_lift_quota, billing_follow_time_zone,
    billing_announce_thresholds
    FROM PUBLIC;
GRANT EXECUTE ON FUNCTION billing_set_quota, billing_lift_quota
    TO headrace_app, headrace_housekeeper;
