-- Roles, invitations, service accounts; keys with grace, kinds and limits. Run once by migration
-- 0002: a change is a new file in a new migration.

SELECT tenants_protect('tenants_invitation');
SELECT tenants_protect('tenants_service_account');

ALTER TABLE tenants_service_account
    ADD CONSTRAINT tenants_service_account_in_its_project
    FOREIGN KEY (organization_id, project_id) REFERENCES tenants_project (organization_id, id);
ALTER TABLE tenants_api_key
    ADD CONSTRAINT tenants_key_of_its_service_account
    FOREIGN KEY (organization_id, project_id, service_account_id)
    REFERENCES tenants_service_account (organization_id, project_id, id);

-- Status, slug, currency and minute limits of an organization are the operator's.
GRANT UPDATE (display_name, time_zone, cost_tags, cache_per_project, prompts_kept_days)
    ON tenants_organization TO headrace_app;
GRANT UPDATE (limits) ON tenants_project TO headrace_app;
GRANT UPDATE (scopes, allowed_models, cidrs, limits, end_user_limits, revoke_at, replaced_by)
    ON tenants_api_key TO headrace_app;
GRANT SELECT, INSERT, UPDATE (email, revoked_at) ON tenants_invitation TO headrace_app;
GRANT SELECT, INSERT, UPDATE (name, disabled_at) ON tenants_service_account TO headrace_app;
-- Members join by invitation, or by the operator's hand.
REVOKE INSERT ON tenants_membership FROM headrace_app;

GRANT SELECT, INSERT, UPDATE ON tenants_invitation, tenants_service_account
    TO headrace_housekeeper;
GRANT DELETE ON tenants_invitation TO headrace_housekeeper;
GRANT SELECT ON tenants_service_account TO headrace_definer;
GRANT SELECT, INSERT ON tenants_membership TO headrace_definer;
GRANT SELECT, UPDATE (email, accepted_at, accepted_by) ON tenants_invitation TO headrace_definer;
GRANT SELECT (id, email, display_name, is_active) ON tenants_user TO headrace_definer;

-- Whoever takes the last owner away waits for the others who try, and then sees what they did.
CREATE FUNCTION tenants_keep_an_owner() RETURNS trigger
LANGUAGE plpgsql
AS $$
DECLARE
    status text;
BEGIN
    SELECT o.status INTO status FROM tenants_organization o
     WHERE o.id = OLD.organization_id FOR NO KEY UPDATE;
    IF status <> 'closed' AND NOT EXISTS (
        SELECT FROM tenants_membership m
         WHERE m.organization_id = OLD.organization_id AND m.role = 'owner' AND m.id <> OLD.id)
    THEN
        RAISE EXCEPTION 'an organization keeps an owner'
            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'tenants_last_owner';
    END IF;
    RETURN coalesce(NEW, OLD);
END
$$;
CREATE TRIGGER tenants_owner_demoted BEFORE UPDATE ON tenants_membership
    FOR EACH ROW WHEN (OLD.role = 'owner' AND NEW.role <> 'owner')
    EXECUTE FUNCTION tenants_keep_an_owner();
CREATE TRIGGER tenants_owner_removed BEFORE DELETE ON tenants_membership
    FOR EACH ROW WHEN (OLD.role = 'owner')
    EXECUTE FUNCTION tenants_keep_an_owner();

-- The end of a grace is a promise to both sides: it is neither put off nor brought forward. A key
-- that must stop sooner is revoked.
CREATE FUNCTION tenants_grace_is_promised() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    RAISE EXCEPTION 'the end of a grace does not move' USING ERRCODE = 'restrict_violation';
END
$$;
CREATE TRIGGER tenants_grace_is_promised BEFORE UPDATE ON tenants_api_key
    FOR EACH ROW WHEN (OLD.revoke_at IS NOT NULL
                       AND (NEW.revoke_at IS DISTINCT FROM OLD.revoke_at
                            OR NEW.replaced_by IS DISTINCT FROM OLD.replaced_by))
    EXECUTE FUNCTION tenants_grace_is_promised();

-- Whether a key works at this instant, its organization and project aside.
-- VOLATILE, as the clock is: declared less, it would not be inlined.
CREATE FUNCTION tenants_key_lives(
    revoked_at timestamptz, expires_at timestamptz, revoke_at timestamptz, disabled_at timestamptz
) RETURNS boolean
LANGUAGE sql VOLATILE
RETURN revoked_at IS NULL AND disabled_at IS NULL
    AND (expires_at IS NULL OR expires_at > clock_timestamp())
    AND (revoke_at IS NULL OR revoke_at > clock_timestamp());

-- Before a tenant is known: who speaks with the secret of this hash? No row for an unknown,
-- revoked or expired key. Notes the use, at most every 5 minutes.
DROP FUNCTION tenants_authenticate;
CREATE FUNCTION tenants_authenticate(hash bytea, scheme text)
RETURNS TABLE (
    secret_hash bytea, archived boolean, status text,
    key_id uuid, project_id uuid, organization_id uuid, organization_slug text, currency text,
    requests_per_minute_max int, tokens_per_minute_max int, concurrent_requests_max int,
    ends_at timestamptz, kind text, scopes text[], permissions text[], models text[],
    cidrs text[], project_limits jsonb, key_limits jsonb, end_user_limits jsonb, cost_tags text[],
    time_zone text, cache_per_project boolean, prompts_kept_days smallint,
    input_tokens_per_minute_max int, output_tokens_per_minute_max int
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    used_before timestamptz;
BEGIN
    SELECT k.secret_hash, p.archived_at IS NOT NULL, o.status, k.id, k.project_id, o.id,
           o.slug, o.currency, o.requests_per_minute_max, o.tokens_per_minute_max,
           o.concurrent_requests_max, least(k.expires_at, k.revoke_at), k.kind, k.scopes,
           k.permissions, k.allowed_models, k.cidrs, p.limits, k.limits, k.end_user_limits,
           o.cost_tags, o.time_zone, o.cache_per_project, o.prompts_kept_days,
           o.input_tokens_per_minute_max, o.output_tokens_per_minute_max, k.last_used_at
      INTO secret_hash, archived, status, key_id, project_id, organization_id,
           organization_slug, currency, requests_per_minute_max, tokens_per_minute_max,
           concurrent_requests_max, ends_at, kind, scopes,
           permissions, models, cidrs, project_limits, key_limits, end_user_limits,
           cost_tags, time_zone, cache_per_project, prompts_kept_days,
           input_tokens_per_minute_max, output_tokens_per_minute_max, used_before
      FROM tenants_api_key k
      JOIN tenants_organization o ON o.id = k.organization_id
      LEFT JOIN tenants_project p ON p.id = k.project_id
      LEFT JOIN tenants_service_account s ON s.id = k.service_account_id
     WHERE k.secret_hash = hash AND k.hash_scheme = scheme
       AND tenants_key_lives(k.revoked_at, k.expires_at, k.revoke_at, s.disabled_at);
    IF NOT FOUND THEN
        RETURN;
    END IF;
    IF used_before IS NULL OR used_before < now() - interval '5 minutes' THEN
        -- Coarse on purpose, and never worth waiting for another caller's lock.
        UPDATE tenants_api_key SET last_used_at = now()
         WHERE id = (SELECT id FROM tenants_api_key WHERE id = key_id
                        FOR NO KEY UPDATE SKIP LOCKED);
    END IF;
    RETURN NEXT;
END
$$;

-- For open streams of several tenants at once: which of these keys may not go on? Unknown ones too.
CREATE OR REPLACE FUNCTION tenants_revoked_among(key_ids uuid[]) RETURNS SETOF uuid
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
    SELECT asked.id FROM unnest(key_ids) AS asked (id)
     WHERE NOT EXISTS (
        SELECT FROM tenants_api_key k
          JOIN tenants_organization o ON o.id = k.organization_id
          LEFT JOIN tenants_project p ON p.id = k.project_id
          LEFT JOIN tenants_service_account s ON s.id = k.service_account_id
         WHERE k.id = asked.id
           AND tenants_key_lives(k.revoked_at, k.expires_at, k.revoke_at, s.disabled_at)
           AND p.archived_at IS NULL AND o.status = 'active')
$$;

-- For the hold: why this key may not spend in this project of this organization; empty if it may.
CREATE OR REPLACE FUNCTION tenants_key_refusal(organization uuid, project uuid, key uuid)
RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
    SELECT coalesce((
        SELECT CASE
                 WHEN NOT tenants_key_lives(k.revoked_at, k.expires_at, k.revoke_at, s.disabled_at)
                     THEN 'key_revoked'
                 WHEN o.status <> 'active' THEN 'organization_suspended'
                 WHEN p.archived_at IS NOT NULL THEN 'project_archived'
                 ELSE ''
               END
          FROM tenants_api_key k
          JOIN tenants_organization o ON o.id = k.organization_id
          JOIN tenants_project p ON p.id = k.project_id
          LEFT JOIN tenants_service_account s ON s.id = k.service_account_id
         WHERE k.id = key AND k.project_id = project AND k.organization_id = organization
    ), 'key_revoked')
$$;

-- The members of the organization whose scope is open, with what a person is called. `wanted` and
-- `address` look for one of them.
CREATE FUNCTION tenants_members(
    after uuid, ascending boolean, rows_max int, wanted uuid, address text
)
RETURNS TABLE (user_id uuid, email text, display_name text, role text, added_at timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
    SELECT u.id, u.email::text, u.display_name::text, m.role::text, m.created_at
      FROM tenants_membership m JOIN tenants_user u ON u.id = m.user_id
     WHERE m.organization_id = tenants_current()
       AND (wanted IS NULL OR u.id = wanted)
       AND (address IS NULL OR lower(u.email) = lower(address))
       AND (after IS NULL OR CASE WHEN ascending THEN u.id > after ELSE u.id < after END)
     ORDER BY CASE WHEN ascending THEN u.id END, CASE WHEN NOT ascending THEN u.id END DESC
     LIMIT rows_max
$$;

-- Organization switch: where a person who has signed in belongs.
CREATE FUNCTION tenants_memberships_of(person uuid)
RETURNS TABLE (
    id uuid, slug text, display_name text, currency text, role text, status text
)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
    SELECT o.id, o.slug::text, o.display_name::text, o.currency::text, m.role::text, o.status::text
      FROM tenants_membership m JOIN tenants_organization o ON o.id = m.organization_id
     WHERE m.user_id = person AND o.status <> 'closed'
     ORDER BY o.slug
$$;

-- Before a tenant is known: what an open invitation offers. No row for any other.
CREATE FUNCTION tenants_invitation_offer(hash bytea)
RETURNS TABLE (organization_id uuid, display_name text, role text, expires_at timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
    SELECT o.id, o.display_name::text, i.role::text, i.expires_at
      FROM tenants_invitation i JOIN tenants_organization o ON o.id = i.organization_id
     WHERE i.token_hash = hash AND i.accepted_at IS NULL AND i.revoked_at IS NULL
       AND i.expires_at > clock_timestamp() AND o.status <> 'closed'
$$;

-- Before a tenant is known: use an invitation up and join. No row for one that is not open; of many
-- who come at once with the same token the first joins, the others find it used.
CREATE FUNCTION tenants_accept_invitation(
    hash bytea, person uuid, person_ip text, request_id uuid
)
RETURNS TABLE (accepted boolean, organization_id uuid)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    invitation record;
BEGIN
    SELECT i.id, i.organization_id, i.email, i.role INTO invitation
      FROM tenants_invitation i
     WHERE i.token_hash = hash AND i.accepted_at IS NULL AND i.revoked_at IS NULL
       AND i.expires_at > clock_timestamp()
       AND EXISTS (SELECT FROM tenants_organization o
                    WHERE o.id = i.organization_id AND o.status <> 'closed')
       FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    organization_id := invitation.organization_id;
    accepted := EXISTS (
        SELECT FROM tenants_user u
         WHERE u.id = person AND u.is_active AND lower(u.email) = lower(invitation.email));
    IF accepted THEN
        UPDATE tenants_invitation
           SET accepted_at = clock_timestamp(), accepted_by = person, email = NULL
         WHERE id = invitation.id;
        -- Who is a member already keeps the role they have.
        INSERT INTO tenants_membership (id, organization_id, user_id, role)
        VALUES (uuidv7(), invitation.organization_id, person, invitation.role)
        ON CONFLICT (organization_id, user_id) DO NOTHING;
        PERFORM tenants_audit(
            invitation.organization_id, 'user', person, person_ip, request_id,
            'invitation.accepted', 'invitation', invitation.id::text,
            jsonb_build_object('role', invitation.role));
    END IF;
    RETURN NEXT;
END
$$;

ALTER FUNCTION tenants_authenticate OWNER TO headrace_definer;
ALTER FUNCTION tenants_members OWNER TO headrace_definer;
ALTER FUNCTION tenants_memberships_of OWNER TO headrace_definer;
ALTER FUNCTION tenants_invitation_offer OWNER TO headrace_definer;
ALTER FUNCTION tenants_accept_invitation OWNER TO headrace_definer;
REVOKE ALL ON FUNCTION tenants_authenticate, tenants_members, tenants_memberships_of,
    tenants_invitation_offer, tenants_accept_invitation FROM PUBLIC;
GRANT EXECUTE ON FUNCTION tenants_authenticate, tenants_members, tenants_memberships_of,
    tenants_invitation_offer, tenants_accept_invitation TO headrace_app, headrace_housekeeper;
