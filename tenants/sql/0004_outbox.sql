-- Row-level security, grants and functions of events, webhooks and mail. Run by migration 0004.

SELECT tenants_protect('tenants_outbox_event');
SELECT tenants_protect('tenants_webhook_endpoint');
SELECT tenants_protect('tenants_webhook_delivery');
SELECT tenants_protect('tenants_webhook_attempt');
SELECT tenants_protect('tenants_mail');

ALTER TABLE tenants_outbox_event
    ADD CONSTRAINT tenants_outbox_data_is_small CHECK (octet_length(data::text) <= 65536);
ALTER TABLE tenants_webhook_delivery
    ADD CONSTRAINT tenants_delivery_to_its_endpoint FOREIGN KEY (organization_id, endpoint_id)
        REFERENCES tenants_webhook_endpoint (organization_id, id) ON DELETE CASCADE,
    ADD CONSTRAINT tenants_delivery_of_its_event FOREIGN KEY (organization_id, event_id)
        REFERENCES tenants_outbox_event (organization_id, id) ON DELETE CASCADE;
ALTER TABLE tenants_webhook_attempt
    ADD CONSTRAINT tenants_attempt_at_its_delivery FOREIGN KEY (organization_id, delivery_id)
        REFERENCES tenants_webhook_delivery (organization_id, id) ON DELETE CASCADE;

-- `app` writes events and asks for deliveries; only the housekeeper's task tries and logs them.
GRANT SELECT, INSERT ON tenants_outbox_event TO headrace_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON tenants_webhook_endpoint TO headrace_app;
GRANT SELECT, INSERT, UPDATE (state, tries, next_at) ON tenants_webhook_delivery TO headrace_app;
GRANT SELECT ON tenants_webhook_attempt TO headrace_app;

GRANT SELECT, INSERT, UPDATE, DELETE ON tenants_outbox_event, tenants_webhook_endpoint,
    tenants_webhook_delivery, tenants_webhook_attempt, tenants_mail TO headrace_housekeeper;

GRANT INSERT ON tenants_outbox_event TO headrace_definer;
GRANT INSERT ON tenants_mail TO headrace_definer;

-- Record an event in the transaction of its cause. Runs with its caller's rights: the app can
-- speak for the tenant in scope only, functions that bypass the policies for any.
CREATE FUNCTION tenants_emit(organization uuid, kind text, data jsonb) RETURNS uuid
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    event uuid := uuidv7();
BEGIN
    INSERT INTO tenants_outbox_event (id, organization_id, kind, data)
    VALUES (event, organization, tenants_emit.kind, tenants_emit.data);
    RETURN event;
END
$$;
REVOKE ALL ON FUNCTION tenants_emit FROM PUBLIC;
GRANT EXECUTE ON FUNCTION tenants_emit TO headrace_app, headrace_housekeeper, headrace_definer;

-- Queue a mail, of a tenant or of none (sign-up); the app cannot read what is queued.
CREATE FUNCTION tenants_queue_mail(organization uuid, recipient text, kind text, sealed bytea)
RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    mail uuid := uuidv7();
BEGIN
    INSERT INTO tenants_mail (id, organization_id, to_address, kind, context_sealed, attempts)
    VALUES (mail, organization, recipient, tenants_queue_mail.kind, sealed, 0);
    RETURN mail;
END
$$;
ALTER FUNCTION tenants_queue_mail OWNER TO headrace_definer;
REVOKE ALL ON FUNCTION tenants_queue_mail FROM PUBLIC;
GRANT EXECUTE ON FUNCTION tenants_queue_mail TO headrace_app, headrace_housekeeper;
