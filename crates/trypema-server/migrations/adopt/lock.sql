-- Locks the table that is adopted.
--
-- A session that has read the table and changes it later would deadlock with a migration that waits in line between the two. So this
-- statement never waits in line: it locks the table only if that is free, and otherwise tries again until lock_timeout has
-- passed. Sessions that only read never queue behind it.
DO $$
DECLARE
    deadline timestamptz := clock_timestamp() + current_setting('lock_timeout')::interval;
    holders  text;
BEGIN
    LOOP
        BEGIN
            LOCK TABLE rate_limit_rules IN ACCESS EXCLUSIVE MODE NOWAIT;
            RETURN;
        EXCEPTION WHEN lock_not_available THEN
            EXIT WHEN clock_timestamp() >= deadline;
        END;
        PERFORM pg_sleep(0.1);
    END LOOP;
    SELECT string_agg(DISTINCT format('pid %s (%s, role %s)', pid, coalesce(nullif(application_name, ''), 'unnamed'), usename), ', ')
    INTO holders
    FROM pg_locks JOIN pg_stat_activity USING (pid)
    WHERE locktype = 'relation' AND granted AND pid <> pg_backend_pid() AND relation = 'rate_limit_rules'::regclass
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database());
    RAISE EXCEPTION 'the table is locked by other sessions: %. Nothing was changed: wait until they have finished, or end one '
        'with `SELECT pg_terminate_backend(PID)`, and run `trypema rules migrate` again. It waits for lock_timeout (%): to wait '
        'longer, add `?options[lock_timeout]=10min` to database_url',
        coalesce(holders, 'not any more'), current_setting('lock_timeout')
        USING ERRCODE = 'lock_not_available';
END
$$;
