-- Invoices, statements and credit notes: written once, summed by the database, numbered without
-- gaps. Run once by migration 0007: a change is a new file in a new migration.
--
-- The housekeeper composes a document (billing/invoices/closing.py) and the functions here post its
-- money; they take the account first, which makes the documents of an organization queue.

SELECT tenants_protect('billing_invoice');
SELECT tenants_protect('billing_invoice_line');
SELECT tenants_protect('billing_invoice_payment');
SELECT tenants_protect('billing_invoice_recipient');
SELECT tenants_protect('billing_profile');

ALTER TABLE billing_invoice
    ADD CONSTRAINT billing_invoice_of_its_tx FOREIGN KEY (organization_id, ledger_tx_id)
        REFERENCES billing_ledger_tx (organization_id, id),
    ADD CONSTRAINT billing_invoice_corrects_its_tenants FOREIGN KEY (organization_id, corrects)
        REFERENCES billing_invoice (organization_id, id),
    ADD CONSTRAINT billing_invoice_whole_cents
        CHECK (net_pico % 10000000000 = 0 AND tax_pico % 10000000000 = 0),
    -- What is owed is posted, and only that.
    ADD CONSTRAINT billing_invoice_posted CHECK ((kind = 'statement') = (ledger_tx_id IS NULL));
ALTER TABLE billing_invoice_line
    ADD CONSTRAINT billing_line_of_its_invoice FOREIGN KEY (organization_id, invoice_id)
        REFERENCES billing_invoice (organization_id, id),
    ADD CONSTRAINT billing_line_rounded_once CHECK (
        kind IN ('top_up', 'grant', 'expired', 'refund')
        OR rounded_pico % 10000000000 = 0 AND abs(rounded_pico - exact_pico) * 2 <= 10000000000);
ALTER TABLE billing_invoice_payment
    ADD CONSTRAINT billing_payment_of_its_invoice FOREIGN KEY (organization_id, invoice_id)
        REFERENCES billing_invoice (organization_id, id),
    ADD CONSTRAINT billing_payment_of_its_tx FOREIGN KEY (organization_id, ledger_tx_id)
        REFERENCES billing_ledger_tx (organization_id, id);
ALTER TABLE billing_invoice_recipient ADD CONSTRAINT billing_recipient_of_its_invoice
    FOREIGN KEY (organization_id, invoice_id) REFERENCES billing_invoice (organization_id, id);

GRANT SELECT ON billing_invoice, billing_invoice_line, billing_invoice_payment,
    billing_invoice_recipient, billing_profile
    TO headrace_app, headrace_housekeeper, headrace_definer;
GRANT INSERT ON billing_invoice, billing_invoice_line TO headrace_housekeeper;
GRANT INSERT, DELETE ON billing_invoice_recipient TO headrace_housekeeper;
GRANT INSERT ON billing_invoice_payment TO headrace_definer;
GRANT INSERT, UPDATE ON billing_profile TO headrace_app;
GRANT INSERT, UPDATE, DELETE ON billing_profile TO headrace_housekeeper;

CREATE FUNCTION billing_invoice_is_history() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    RAISE EXCEPTION 'an issued document is never changed'
        USING ERRCODE = 'restrict_violation', CONSTRAINT = 'billing_invoice_is_history';
END
$$;
CREATE TRIGGER billing_invoice_is_history BEFORE UPDATE OR DELETE ON billing_invoice
    FOR EACH ROW EXECUTE FUNCTION billing_invoice_is_history();
CREATE TRIGGER billing_invoice_is_history BEFORE UPDATE OR DELETE ON billing_invoice_line
    FOR EACH ROW EXECUTE FUNCTION billing_invoice_is_history();
CREATE TRIGGER billing_invoice_is_history BEFORE UPDATE OR DELETE ON billing_invoice_payment
    FOR EACH ROW EXECUTE FUNCTION billing_invoice_is_history();

-- At commit: a document is the sum of its lines, and its organization's numbers have no gap. Runs as
-- a role that bypasses the policies, for the scope may be gone by then.
CREATE FUNCTION billing_invoice_adds_up() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    document billing_invoice;
    exact numeric;
    rounded numeric;
BEGIN
    SELECT * INTO document FROM billing_invoice i
     WHERE i.id = (to_jsonb(NEW) ->> TG_ARGV[0])::uuid;
    SELECT coalesce(sum(l.exact_pico), 0), coalesce(sum(l.rounded_pico), 0) INTO exact, rounded
      FROM billing_invoice_line l
     WHERE l.invoice_id = document.id
       AND l.kind IN ('usage', 'correction', 'written_off', 'carried', 'credit');
    IF exact <> document.exact_pico + document.residue_in_pico OR rounded <> document.net_pico THEN
        RAISE EXCEPTION 'document % is not the sum of its lines', document.id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'billing_invoice_adds_up';
    END IF;
    IF (SELECT max(i.number) <> count(*) FROM billing_invoice i
         WHERE i.organization_id = document.organization_id)
    THEN
        RAISE EXCEPTION 'document % would leave a gap in the numbers', document.id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'billing_invoice_gapless';
    END IF;
    RETURN NULL;
END
$$;
ALTER FUNCTION billing_invoice_adds_up OWNER TO headrace_definer;
REVOKE ALL ON FUNCTION billing_invoice_adds_up FROM PUBLIC;
CREATE CONSTRAINT TRIGGER billing_invoice_adds_up AFTER INSERT ON billing_invoice
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION billing_invoice_adds_up('id');
CREATE CONSTRAINT TRIGGER billing_invoice_adds_up AFTER INSERT ON billing_invoice_line
    DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION billing_invoice_adds_up('invoice_id');

-- Of a closed period's usage, what no grant has paid: the earliest charges are paid first, so what
-- is owed is owed for the latest, and usage of later periods comes off first. Takes the account.
CREATE FUNCTION billing_unpaid_usage(organization uuid, usage numeric) RETURNS numeric
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    account billing_account;
    later numeric;
BEGIN
    PERFORM billing_lock_account(organization);
    PERFORM billing_burn_grants(organization);
    SELECT * INTO account FROM billing_account a WHERE a.organization_id = organization;
    SELECT account.funded_pico - account.posted_pico - usage - coalesce(sum(i.usage_pico), 0)
      INTO later
      FROM billing_invoice i WHERE i.organization_id = organization AND i.kind <> 'credit_note';
    RETURN greatest(0, least(
        usage, account.funded_pico - account.posted_pico - account.burned_pico - later));
END
$$;

-- Turn what is owed into a receivable: the exact debt is credited, the receivable bears the rounded
-- sum and the tax, and the difference goes to rounding. The caller holds the account.
CREATE FUNCTION billing_post_invoice(
    organization uuid, number int, exact numeric, net numeric, tax numeric
) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    tx uuid;
BEGIN
    IF (exact > 0) IS NOT TRUE THEN
        RAISE EXCEPTION 'an invoice asks for what is owed' USING ERRCODE = 'check_violation';
    END IF;
    tx := billing_post(
        organization, 'invoice:' || number, 'invoice',
        jsonb_build_object('credit', exact, 'receivable', -(net + tax), 'rounding', net - exact,
                           'tax', tax));
    UPDATE billing_account SET burned_pico = burned_pico + exact
     WHERE organization_id = organization;
    RETURN tx;
END
$$;

-- What is still to be paid of an invoice; below 0 it is ours to give back.
CREATE FUNCTION billing_invoice_due(invoice billing_invoice) RETURNS numeric
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp
AS $$
    SELECT invoice.total_pico
         - coalesce((SELECT sum(p.amount_pico) FROM billing_invoice_payment p
                      WHERE p.invoice_id = invoice.id), 0)
         + coalesce((SELECT sum(n.total_pico) FROM billing_invoice n
                      WHERE n.corrects = invoice.id), 0)
$$;

-- The invoice of this id, its account taken.
CREATE FUNCTION billing_lock_invoice(organization uuid, invoice uuid) RETURNS billing_invoice
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    document billing_invoice;
BEGIN
    PERFORM billing_lock_account(organization);
    SELECT * INTO document FROM billing_invoice i
     WHERE i.organization_id = organization AND i.id = invoice AND i.kind = 'invoice';
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no such invoice'
            USING ERRCODE = 'foreign_key_violation', CONSTRAINT = 'billing_invoice_missing';
    END IF;
    RETURN document;
END
$$;

-- Money for an invoice, once per reference; below 0 it goes back to who paid too much. What came
-- beyond what is due becomes paid credit. False when that was noted before.
CREATE FUNCTION billing_pay_invoice(
    organization uuid, invoice uuid, amount numeric, payment text
) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    document billing_invoice := billing_lock_invoice(organization, invoice);
    due numeric := billing_invoice_due(document);
    before billing_invoice_payment;
    beyond numeric;
    tx uuid;
BEGIN
    SELECT * INTO before FROM billing_invoice_payment p
     WHERE p.organization_id = organization AND p.reference = payment;
    IF FOUND THEN
        SELECT coalesce(sum(g.amount_pico), 0) INTO beyond FROM billing_credit_grant g
         WHERE g.organization_id = organization AND g.source = 'grant:overpaid:' || payment;
        IF (before.invoice_id, before.amount_pico + beyond) <> (invoice, amount) THEN
            RAISE EXCEPTION 'the reference is another payment''s'
                USING ERRCODE = 'unique_violation', CONSTRAINT = 'billing_payment_once';
        END IF;
        RETURN false;
    END IF;
    beyond := greatest(0, amount - due);
    IF amount > 0 AND due <= 0 OR amount < 0 AND amount < due OR amount = 0 THEN
        RAISE EXCEPTION 'that much is not due'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'billing_invoice_due';
    END IF;
    IF amount > 0 AND beyond > 0 THEN
        PERFORM billing_grant_credit(organization, beyond, 'overpaid:' || payment, 'paid');
        amount := amount - beyond;
    END IF;
    tx := billing_post(
        organization, 'payment:' || payment, CASE WHEN amount > 0 THEN 'payment' ELSE 'refund' END,
        jsonb_build_object('receivable', amount, 'cash', -amount), document.ledger_tx_id);
    INSERT INTO billing_invoice_payment
        (id, organization_id, invoice_id, amount_pico, reference, ledger_tx_id)
    VALUES (uuidv7(), organization, invoice, amount, payment, tx);
    PERFORM tenants_audit(
        organization, 'operator', NULL, '', NULL, 'invoice.paid', 'invoice', invoice::text,
        jsonb_build_object('amount_pico', amount::text, 'reference', payment));
    RETURN true;
END
$$;

-- Hold an organization's account for the rest of the transaction, before its documents are read.
CREATE FUNCTION billing_hold_account(organization uuid) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
BEGIN
    PERFORM billing_lock_account(organization);
    RETURN true;
END
$$;

-- Take back part of an invoice; the note's row follows in the same transaction.
CREATE FUNCTION billing_post_credit_note(
    organization uuid, invoice uuid, idempotency text, net numeric, tax numeric
) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    document billing_invoice := billing_lock_invoice(organization, invoice);
BEGIN
    IF net <= 0 OR net + tax > document.total_pico + coalesce((
        SELECT sum(n.total_pico) FROM billing_invoice n WHERE n.corrects = invoice), 0)
    THEN
        RAISE EXCEPTION 'more than is left of the invoice'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'billing_invoice_due';
    END IF;
    RETURN billing_post(
        organization, 'credit_note:' || idempotency, 'credit_note',
        jsonb_build_object('receivable', net + tax, 'revenue', -net, 'tax', -tax),
        document.ledger_tx_id);
END
$$;

ALTER FUNCTION billing_unpaid_usage OWNER TO headrace_definer;
ALTER FUNCTION billing_post_invoice OWNER TO headrace_definer;
ALTER FUNCTION billing_invoice_due OWNER TO headrace_definer;
ALTER FUNCTION billing_lock_invoice OWNER TO headrace_definer;
ALTER FUNCTION billing_hold_account OWNER TO headrace_definer;
ALTER FUNCTION billing_pay_invoice OWNER TO headrace_definer;
ALTER FUNCTION billing_post_credit_note OWNER TO headrace_definer;
REVOKE ALL ON FUNCTION
    billing_unpaid_usage, billing_post_invoice, billing_invoice_due, billing_lock_invoice,
    billing_hold_account, billing_pay_invoice, billing_post_credit_note
    FROM PUBLIC;
GRANT EXECUTE ON FUNCTION
    billing_unpaid_usage, billing_post_invoice, billing_hold_account, billing_pay_invoice,
    billing_post_credit_note
    TO headrace_housekeeper;
