-- Forgetting end users by name, and what the housekeeper may prune. Run once by migration 0011: a
-- change is a new file in a new migration.
--
-- A name becomes `(forgotten)` wherever it stands, the same for everybody, so nothing tells any more
-- whose a request was, and a second run changes nothing. Sums stay: counters and rollups of the
-- forgotten are added up. Events keep all else they say, and nobody but this function may touch them.

GRANT UPDATE (end_user, tags) ON billing_usage_event TO headrace_definer;
GRANT DELETE ON billing_usage_tag_hour, billing_quota_counter TO headrace_definer;
GRANT DELETE ON billing_quota_counter, billing_stripe_event, billing_stripe_export
    TO headrace_housekeeper;

-- Whether a value is to be forgotten: that name, or with null any.
CREATE FUNCTION billing_is_forgotten(value text, name text) RETURNS boolean
LANGUAGE sql IMMUTABLE
RETURN value <> '' AND value <> '(forgotten)' AND (name IS NULL OR value = name);

-- Tags without what is to be forgotten; null for `among` is every tag.
CREATE FUNCTION billing_forgetful_tags(tags jsonb, name text, among text[]) RETURNS jsonb
LANGUAGE sql IMMUTABLE
RETURN (SELECT coalesce(jsonb_object_agg(t.key,
               CASE WHEN (among IS NULL OR t.key = ANY (among))
                     AND billing_is_forgotten(t.value #>> '{}', name)
                    THEN to_jsonb('(forgotten)'::text) ELSE t.value END), '{}')
          FROM jsonb_each(tags) t);

-- Whether a request has something to be forgotten; `pairs` are the tags that would have, each as an
-- object. To be inlined: it is asked of each of a tenant's requests.
CREATE FUNCTION billing_is_named(end_user text, tags jsonb, name text, pairs jsonb[])
RETURNS boolean
LANGUAGE sql IMMUTABLE
RETURN billing_is_forgotten(end_user, name) OR tags @> ANY (pairs)
    OR name IS NULL AND tags <> '{}' AND tags <> billing_forgetful_tags(tags, NULL, NULL);

-- Forget in usage events since a moment, and in their holds; whose requests they were.
CREATE FUNCTION billing_forget_events(
    organization uuid, name text, among text[], pairs jsonb[], since timestamptz
) RETURNS uuid[]
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan SET enable_seqscan = off
AS $$
DECLARE
    named uuid[];
BEGIN
    WITH renamed AS (
        UPDATE billing_usage_event e
           SET end_user = CASE WHEN billing_is_forgotten(e.end_user, name)
                               THEN '(forgotten)' ELSE e.end_user END,
               tags = billing_forgetful_tags(e.tags, name, among)
         WHERE e.organization_id = organization AND e.occurred_at >= since
           AND billing_is_named(e.end_user, e.tags, name, pairs)
        RETURNING e.request_id)
    SELECT coalesce(array_agg(r.request_id), '{}') INTO named FROM renamed r;
    -- By a list: joined to what was renamed, each hold would be sought among all of that.
    UPDATE billing_hold h
       SET end_user = CASE WHEN billing_is_forgotten(h.end_user, name)
                           THEN '(forgotten)' ELSE h.end_user END,
           tags = billing_forgetful_tags(h.tags, name, among)
     WHERE h.id = ANY (named) AND h.organization_id = organization;
    RETURN named;
END
$$;

-- Forget one end user of an organization, and the name as a value of the tags `among`; with null for
-- both, everybody and every tag's values, and then its quotas go out of force and tell nobody.
-- Answers whose requests they were. Voided holds are left to the next function.
--
-- Long looks come before the tenant's locks: those are holds, counters, the account, as everywhere.
-- Its version makes a hold that is being taken begin again, so that none is counted under one name
-- and stored under the other. A settle of the moment may have begun before, but not an hour ago.
CREATE FUNCTION billing_forget_end_users(organization uuid, name text, among text[])
RETURNS uuid[]
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
    pairs jsonb[] := ARRAY(SELECT jsonb_build_object(t, name) FROM unnest(among) t
                            WHERE name IS NOT NULL);
    account uuid := (SELECT a.ledger_account_id FROM billing_account a
                      WHERE a.organization_id = organization);
    named uuid[] := billing_forget_events(organization, name, among, pairs, '-infinity');
    under_way uuid[];
BEGIN
    PERFORM billing_forget_rollups(organization, name, among);
    PERFORM FROM billing_hold h
      WHERE h.account_id = account AND h.state = 'open'
        AND billing_is_named(h.end_user, h.tags, name, pairs)
      ORDER BY h.id FOR NO KEY UPDATE;
    PERFORM FROM billing_quota_counter c
      WHERE c.organization_id = organization AND billing_is_forgotten(c.subject, name)
      ORDER BY c.policy_id, c.subject, c.window_start FOR UPDATE;
    UPDATE billing_account SET quota_version = quota_version + 1
     WHERE ledger_account_id = account;
    WITH renamed AS (
        UPDATE billing_hold h
           SET end_user = CASE WHEN billing_is_forgotten(h.end_user, name)
                               THEN '(forgotten)' ELSE h.end_user END,
               tags = billing_forgetful_tags(h.tags, name, among)
         WHERE h.account_id = account AND h.state = 'open'
           AND billing_is_named(h.end_user, h.tags, name, pairs)
        RETURNING h.id)
    SELECT coalesce(array_agg(r.id), '{}') INTO under_way FROM renamed r;
    PERFORM billing_forget_quotas(organization, name);
    RETURN named || under_way
        || billing_forget_events(organization, name, among, pairs, now() - interval '1 hour');
END
$$;

-- The same for voided holds, most of which have no event: nothing counts them, and nothing finds
-- them but a look at all holds, so without the locks. Answers how many there were.
CREATE FUNCTION billing_forget_voided_holds(organization uuid, name text, among text[])
RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
    pairs jsonb[] := ARRAY(SELECT jsonb_build_object(t, name) FROM unnest(among) t
                            WHERE name IS NOT NULL);
    renamed bigint;
BEGIN
    UPDATE billing_hold h
       SET end_user = CASE WHEN billing_is_forgotten(h.end_user, name)
                           THEN '(forgotten)' ELSE h.end_user END,
           tags = billing_forgetful_tags(h.tags, name, among)
     WHERE h.organization_id = organization AND h.state = 'voided'
       AND billing_is_named(h.end_user, h.tags, name, pairs);
    GET DIAGNOSTICS renamed = ROW_COUNT;
    RETURN renamed;
END
$$;

-- Rollups of the forgotten become one. A roll-up that has read an event writes down its name: let
-- those finish, and none begin before this transaction ends.
CREATE FUNCTION billing_forget_rollups(organization uuid, name text, among text[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp
AS $$
BEGIN
    LOCK TABLE billing_usage_tag_hour IN SHARE ROW EXCLUSIVE MODE;
    WITH gone AS (
        DELETE FROM billing_usage_tag_hour k
         WHERE k.organization_id = organization
           AND (among IS NULL OR k.tag_name = ANY (among))
           AND billing_is_forgotten(k.tag_value, name)
        RETURNING k.*)
    INSERT INTO billing_usage_tag_hour AS h (
        organization_id, tag_name, hour, tag_value, project_id, key_id, model_served, tier,
        currency, is_embedding, requests, errors, uncached_input_tokens, cached_input_tokens,
        output_tokens, cost_pico, charge_pico)
    SELECT g.organization_id, g.tag_name, g.hour, '(forgotten)', g.project_id, g.key_id,
           g.model_served, g.tier, g.currency, g.is_embedding, sum(g.requests), sum(g.errors),
           sum(g.uncached_input_tokens), sum(g.cached_input_tokens), sum(g.output_tokens),
           sum(g.cost_pico), sum(g.charge_pico)
      FROM gone g GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
    ON CONFLICT (organization_id, tag_name, hour, tag_value, project_id, key_id, model_served,
                 tier, currency, is_embedding)
    DO UPDATE SET requests = h.requests + excluded.requests,
                  errors = h.errors + excluded.errors,
                  uncached_input_tokens = h.uncached_input_tokens + excluded.uncached_input_tokens,
                  cached_input_tokens = h.cached_input_tokens + excluded.cached_input_tokens,
                  output_tokens = h.output_tokens + excluded.output_tokens,
                  cost_pico = h.cost_pico + excluded.cost_pico,
                  charge_pico = h.charge_pico + excluded.charge_pico;
END
$$;

-- Counters of the forgotten become one, which announces nothing; quotas of theirs alone are lifted.
-- The caller has the locks.
CREATE FUNCTION billing_forget_quotas(organization uuid, name text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    forgotten constant text := '(forgotten)';
BEGIN
    WITH gone AS (
        DELETE FROM billing_quota_counter c
         WHERE c.organization_id = organization AND billing_is_forgotten(c.subject, name)
        RETURNING c.*)
    INSERT INTO billing_quota_counter AS c (
        policy_id, subject, window_start, organization_id, used_amount, held_amount,
        announced_percent, announced_limit)
    SELECT g.policy_id, forgotten, g.window_start, g.organization_id, sum(g.used_amount),
           sum(g.held_amount), 100, p.limit_amount
      FROM gone g JOIN billing_quota_policy p ON p.id = g.policy_id
     GROUP BY 1, 2, 3, 4, p.limit_amount
    ON CONFLICT (policy_id, subject, window_start)
    DO UPDATE SET used_amount = c.used_amount + excluded.used_amount,
                  held_amount = c.held_amount + excluded.held_amount;
    UPDATE billing_quota_policy p
       SET end_user = CASE WHEN billing_is_forgotten(p.end_user, name)
                           THEN forgotten ELSE p.end_user END,
           lifted_at = CASE WHEN name IS NULL OR billing_is_forgotten(p.end_user, name)
                            THEN coalesce(p.lifted_at, now()) ELSE p.lifted_at END,
           recipients = CASE WHEN name IS NULL THEN '{}'
                             ELSE array_remove(p.recipients, name::varchar) END,
           subject_prefix = CASE WHEN name IS NULL THEN '' ELSE p.subject_prefix END
     WHERE p.organization_id = organization
       AND (name IS NULL OR billing_is_forgotten(p.end_user, name) OR name = ANY (p.recipients));
END
$$;

ALTER FUNCTION billing_forget_end_users OWNER TO headrace_definer;
ALTER FUNCTION billing_forget_voided_holds OWNER TO headrace_definer;
ALTER FUNCTION billing_forget_events OWNER TO headrace_definer;
ALTER FUNCTION billing_forget_rollups OWNER TO headrace_definer;
ALTER FUNCTION billing_forget_quotas OWNER TO headrace_definer;
REVOKE ALL ON FUNCTION
    billing_forget_end_users, billing_forget_voided_holds, billing_forget_events,
    billing_forget_rollups, billing_forget_quotas
    FROM PUBLIC;
GRANT EXECUTE ON FUNCTION billing_forget_end_users, billing_forget_voided_holds
    TO headrace_housekeeper;
