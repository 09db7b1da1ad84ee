-- A key's quotas hold for the line of its rotations: a policy names the first key of it, and the
-- requests of all count against one counter. Run once by migration 0012: a change is a new file in a
-- new migration.

-- Whether a policy counts a request of this project, key and end user, in its own organization.
-- Not IMMUTABLE: it looks a key up, and would not be inlined if it said otherwise.
CREATE OR REPLACE FUNCTION billing_quota_covers(
    policy billing_quota_policy, project uuid, key uuid, end_user text
) RETURNS boolean
LANGUAGE sql STABLE
RETURN CASE policy.scope
    WHEN 'organization' THEN true
    WHEN 'project' THEN policy.scope_id = project
    WHEN 'key' THEN policy.scope_id = key OR policy.scope_id = tenants_key_line(key)
    ELSE end_user <> '' AND policy.end_user IN ('', end_user) END;
