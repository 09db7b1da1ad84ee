-- News of payments come of the books alone: the web's role, which tells other things itself, may not
-- say that somebody has paid. Run once by migration 0014: a change is a new file in a new migration.

CREATE FUNCTION billing_news_of_payments() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    RAISE EXCEPTION 'permission denied: the books tell of payments'
        USING ERRCODE = 'insufficient_privilege';
END
$$;
-- Inside the functions that move money, the user is who owns them.
CREATE TRIGGER billing_news_of_payments BEFORE INSERT ON tenants_outbox_event
    FOR EACH ROW WHEN (current_user = 'headrace_app' AND NEW.kind ~ '^(topup|recharge|invoice)\.')
    EXECUTE FUNCTION billing_news_of_payments();
