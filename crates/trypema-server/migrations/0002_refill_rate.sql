-- A token bucket may have a window beside its refill rate. The refill rate takes precedence; the window has to be one that a rule may have.

SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

CREATE OR REPLACE FUNCTION trypema_is_bucket(limit_count bigint, window_seconds numeric, burst_limit bigint, refill_rate numeric)
RETURNS boolean LANGUAGE sql IMMUTABLE
RETURN CASE
    WHEN coalesce(burst_limit, limit_count) IS NULL OR coalesce(burst_limit, limit_count) < 1 THEN false
    WHEN window_seconds IS NOT NULL AND NOT trypema_is_window(window_seconds) THEN false
    WHEN refill_rate IS NOT NULL AND (refill_rate <= 0 OR refill_rate > 100000000) THEN false
    WHEN refill_rate IS NOT NULL AND coalesce(burst_limit, limit_count)::float8 / refill_rate::float8 > 31622400 THEN false
    WHEN refill_rate IS NOT NULL
        THEN trypema_is_exact(coalesce(burst_limit, limit_count),
                              ceil(coalesce(burst_limit, limit_count)::float8 / refill_rate::float8 * 1e6)::numeric)
    WHEN limit_count IS NULL OR limit_count < 1 OR window_seconds IS NULL THEN false
    ELSE trypema_is_exact(coalesce(burst_limit, limit_count),
                          div(window_seconds * 1000000 * coalesce(burst_limit, limit_count) + limit_count - 1, limit_count))
END;
