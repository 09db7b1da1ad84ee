"""What must hold of the hours of models: the queries that `billing.reconcile` runs for them.

Each is a statement, the table it is about, and a query of the rows that break it.
"""

_GROUP = "organization_id, hour, project_id, model_served, tier, currency"
_COUNTED = """
    SELECT e.*, date_trunc('hour', e.occurred_at, 'UTC') AS hour,
           billing_latency_place(billing_first_token_ms(
               e.finish_reason, e.output_tokens, e.queue_ms, e.prefill_ms)) AS place
      FROM billing_usage_event e
     WHERE NOT EXISTS (SELECT FROM billing_usage_delta d
                        WHERE d.organization_id = e.organization_id
                          AND d.request_id = e.request_id)"""

MODEL_HOURS = f"""
    SELECT {_GROUP}, sum(requests) AS requests, sum(charge_pico) AS charge_pico,
           sum(cache_saved_pico) AS cache_saved_pico
      FROM (SELECT {_GROUP}, 1 AS requests, billing_usage_is_error(finish_reason)::int AS errors,
                   uncached_input_tokens, cached_input_tokens, output_tokens, cost_pico,
                   charge_pico, cached_input_tokens::numeric
                       * (input_micros_per_mtok - cached_input_micros_per_mtok) AS cache_saved_pico
              FROM ({_COUNTED}) AS event
            UNION ALL
            SELECT {_GROUP}, -requests, -errors, -uncached_input_tokens, -cached_input_tokens,
                   -output_tokens, -cost_pico, -charge_pico, -cache_saved_pico
              FROM billing_usage_model_hour) AS counted
     GROUP BY {_GROUP}
    HAVING sum(requests) <> 0 OR sum(errors) <> 0 OR sum(uncached_input_tokens) <> 0
        OR sum(cached_input_tokens) <> 0 OR sum(output_tokens) <> 0 OR sum(cost_pico) <> 0
        OR sum(charge_pico) <> 0 OR sum(cache_saved_pico) <> 0"""  # noqa: S608 - our own text

FIRST_TOKENS = f"""
    SELECT {_GROUP}, place, sum(events) AS events
      FROM (SELECT {_GROUP}, place, 1 AS events FROM ({_COUNTED}) AS event
             WHERE place IS NOT NULL
            UNION ALL
            SELECT {_GROUP}, place, -events FROM billing_usage_model_hour
             CROSS JOIN LATERAL unnest(first_token_counts) WITH ORDINALITY AS c (events, place)
             WHERE events <> 0) AS counted
     GROUP BY {_GROUP}, place HAVING sum(events) <> 0"""  # noqa: S608 - our own text

INVARIANTS = (
    (
        "an hour's usage of a model, counted and queued, is not that of its events",
        "billing_usage_model_hour",
        MODEL_HOURS,
    ),
    (
        "an hour's times to the first token are not those of its events",
        "billing_usage_model_hour",
        FIRST_TOKENS,
    ),
)
