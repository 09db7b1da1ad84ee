-- Lists of requests read a tenant's or a key's events in order of time and id: straight off an index
-- of just that order, whatever is known of the tables. By time alone, PostgreSQL walked all tenants'
-- events by their primary key, or sorted a tenant's. Run once by migration 0015: a change is a new
-- file in a new migration.

CREATE INDEX billing_usage_event_of_tenant
    ON billing_usage_event (organization_id, occurred_at DESC, request_id DESC);
CREATE INDEX billing_usage_event_of_key
    ON billing_usage_event (key_id, occurred_at DESC, request_id DESC);
DROP INDEX billing_usage_event_tenant;
DROP INDEX billing_usage_event_key;
