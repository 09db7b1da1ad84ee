-- The inbox of Stripe's messages, and who may believe them. Run once by migration 0013: a change is
-- a new file in a new migration.
--
-- The web's role puts messages in and does nothing else with them: neither id, time nor outcome is
-- its to say. The housekeeper verifies and applies them; nobody else moves money by an event.

ALTER TABLE billing_stripe_message
    ADD CONSTRAINT billing_stripe_message_body CHECK (octet_length(body) <= 1048576);
-- What somebody must look at, to be counted for the metrics.
CREATE INDEX billing_stripe_message_doubtful ON billing_stripe_message (outcome)
    WHERE outcome IN ('rejected', 'invalid', 'failed');

GRANT INSERT (body, signature) ON billing_stripe_message TO headrace_app;
GRANT SELECT, DELETE, UPDATE (body, tries, next_try_at, outcome, ended_at)
    ON billing_stripe_message TO headrace_housekeeper;

REVOKE EXECUTE ON FUNCTION billing_stripe_apply FROM headrace_app;

-- Credit is posted in the account's currency, so what is paid must be of it: the web's role writes
-- a top-up's currency, and a Stripe page charges in that.
ALTER TABLE billing_account ADD CONSTRAINT billing_account_of_its_currency
    UNIQUE (organization_id, currency);
ALTER TABLE billing_top_up ADD CONSTRAINT billing_top_up_in_its_accounts_currency
    FOREIGN KEY (organization_id, currency) REFERENCES billing_account (organization_id, currency);
