-- Locks the tables that migrations alter, before the first of them runs.
--
-- A server locks the row of rate_limit_state and then tables. An UPDATE by hand locks its table before the trigger `lock` locks
-- the row, and its transaction may have read other tables before. So a migration that held the row or a table while it waits
-- for the other would deadlock with one of them. This statement waits only for the row, and locks the tables only if they are
-- free. Otherwise it releases everything, so that the change continues, and tries again until lock_timeout has passed.
-- Sessions that only read never queue behind a waiting migration.
DO $$
DECLARE
    deadline timestamptz := clock_timestamp() + current_setting('lock_timeout')::interval;
    present  regclass[] := ARRAY(
        SELECT to_regclass(name)
        FROM unnest(ARRAY['rate_limit_units', 'rate_limit_rules', 'rate_limit_overrides', 'rate_limit_lists']) AS name
        WHERE to_regclass(name) IS NOT NULL);
    holders  text;
BEGIN
    LOOP
        -- An exception undoes the whole block, and so releases its locks.
        BEGIN
            IF to_regclass('rate_limit_state') IS NOT NULL THEN
                PERFORM FROM rate_limit_state FOR UPDATE;
            END IF;
            EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE NOWAIT', array_to_string(present, ', '));
            RETURN;
        EXCEPTION WHEN lock_not_available THEN
            IF clock_timestamp() >= deadline THEN
                EXIT;
            END IF;
        END;
        PERFORM pg_sleep(0.1);
    END LOOP;
    SELECT string_agg(DISTINCT format('pid %s (%s, role %s)', pid, coalesce(nullif(application_name, ''), 'unnamed'), usename), ', ')
    INTO holders
    FROM pg_locks JOIN pg_stat_activity USING (pid)
    WHERE locktype = 'relation' AND granted AND pid <> pg_backend_pid()
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND relation = ANY (present || to_regclass('rate_limit_state'));
    RAISE EXCEPTION 'the tables are locked by other sessions: %. Nothing was changed: wait until they have finished, or end one '
        'with `SELECT pg_terminate_backend(PID)`, and run `trypema rules migrate` again. It waits for lock_timeout (%): to wait '
        'longer, add `?options[lock_timeout]=10min` to database_url',
        coalesce(holders, 'not any more'), current_setting('lock_timeout')
        USING ERRCODE = 'lock_not_available';
END
$$;
