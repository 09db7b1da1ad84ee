-- Orders and reports of the operator's pages. Run once by migration 0001.
--
-- No tenant's rows, hence no policy; the web's role has no right to either table. It places and
-- reads through functions that ask whether who asks is of the staff. Placing alone does nothing: a
-- worker carries out only what is signed by a key outside the database.

GRANT SELECT, UPDATE (claimed_at, ended_at, outcome, answer) ON operator_order
    TO headrace_housekeeper;
GRANT SELECT, INSERT ON operator_order TO headrace_definer;
GRANT SELECT, INSERT, UPDATE ON operator_report TO headrace_housekeeper;
GRANT SELECT ON operator_report TO headrace_definer;
GRANT EXECUTE ON FUNCTION tenants_require_operator TO headrace_housekeeper;

-- What was ordered stays as it was signed.
CREATE FUNCTION operator_order_ends_once() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    RAISE EXCEPTION 'an order ends once' USING ERRCODE = 'restrict_violation';
END
$$;
CREATE TRIGGER operator_order_ends_once BEFORE UPDATE ON operator_order
    FOR EACH ROW WHEN (OLD.outcome <> '') EXECUTE FUNCTION operator_order_ends_once();

-- False where as many wait as may. Placing an order again changes nothing.
CREATE FUNCTION operator_place_order(
    operator uuid, order_id uuid, operator_ip text, web_request uuid, order_kind text,
    order_body text, order_signature bytea, waiting_max int
) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
BEGIN
    PERFORM tenants_require_operator(operator);
    IF (SELECT count(*) FROM operator_order WHERE outcome = '') >= waiting_max THEN
        RETURN false;
    END IF;
    INSERT INTO operator_order (id, operator_id, ip, request_id, kind, body, signature)
    VALUES (order_id, operator, operator_ip, web_request, order_kind, order_body, order_signature)
    ON CONFLICT DO NOTHING;
    RETURN true;
END
$$;

-- The latest orders, or the one asked for.
CREATE FUNCTION operator_orders(operator uuid, order_id uuid, rows_max int)
RETURNS TABLE (
    id uuid, operator_id uuid, operator_email text, kind text, body text, placed_at timestamptz,
    ended_at timestamptz, outcome text, answer jsonb
)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
#variable_conflict use_column
BEGIN
    PERFORM tenants_require_operator(operator);
    RETURN QUERY
    SELECT o.id, o.operator_id, coalesce(u.email, '')::text, o.kind::text, o.body, o.placed_at,
           o.ended_at, o.outcome::text, o.answer
      FROM operator_order o LEFT JOIN tenants_user u ON u.id = o.operator_id
     WHERE order_id IS NULL OR o.id = order_id
     ORDER BY o.placed_at DESC, o.id LIMIT rows_max;
END
$$;

CREATE FUNCTION operator_report_named(operator uuid, wanted text)
RETURNS TABLE (made_at timestamptz, content jsonb)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
AS $$
#variable_conflict use_column
BEGIN
    PERFORM tenants_require_operator(operator);
    RETURN QUERY SELECT r.made_at, r.content FROM operator_report r WHERE r.name = wanted;
END
$$;

ALTER FUNCTION operator_place_order OWNER TO headrace_definer;
ALTER FUNCTION operator_orders OWNER TO headrace_definer;
ALTER FUNCTION operator_report_named OWNER TO headrace_definer;
REVOKE ALL ON FUNCTION operator_place_order, operator_orders, operator_report_named FROM PUBLIC;
GRANT EXECUTE ON FUNCTION operator_place_order, operator_orders, operator_report_named
    TO headrace_app;
