-- Rules that limit what is in flight: the algorithm concurrency, with the time for which units are held.
--
-- A server of an earlier version refuses such a row by itself, because it does not know the algorithm.

-- Functions find their tables in this schema, whoever calls them.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- What is stored ---------------------------------------------------------------------------------------------------------

DO $$
DECLARE
    changed text;
BEGIN
    FOREACH changed IN ARRAY ARRAY['rate_limit_rules', 'rate_limit_overrides'] LOOP
        EXECUTE format($alter$
            ALTER TABLE %I
                ADD COLUMN hold_seconds numeric(20, 6),
                DROP CONSTRAINT algorithm_is_known,
                ADD CONSTRAINT algorithm_is_known CHECK (
                    algorithm IN ('absolute', 'suppressed', 'token_bucket', 'sliding_window', 'fixed_window', 'abuse',
                                  'concurrency')),
                DROP CONSTRAINT limit_count_and_window_seconds_are_allowed,
                ADD CONSTRAINT limit_count_and_window_seconds_are_allowed CHECK (CASE algorithm
                    WHEN 'absolute' THEN trypema_is_count(limit_count, 9007199254740990) AND trypema_is_window(window_seconds)
                    WHEN 'suppressed' THEN trypema_is_count(limit_count, 9007199254740990) AND trypema_is_window(window_seconds)
                    WHEN 'sliding_window' THEN trypema_is_count(limit_count, 4294967295) AND trypema_is_window(window_seconds)
                    WHEN 'fixed_window' THEN trypema_is_count(limit_count, 9007199254740991)
                        AND CASE WHEN per IS NULL THEN trypema_is_window(window_seconds) ELSE window_seconds IS NULL END
                    WHEN 'token_bucket' THEN true
                    WHEN 'concurrency' THEN trypema_is_count(limit_count, 9007199254740991) AND window_seconds IS NULL
                    ELSE limit_count IS NULL AND window_seconds IS NULL END),
                ADD CONSTRAINT hold_seconds_is_for_concurrency_and_up_to_an_hour CHECK (CASE
                    WHEN algorithm = 'concurrency' THEN hold_seconds IS NOT NULL AND hold_seconds > 0 AND hold_seconds <= 3600
                    ELSE hold_seconds IS NULL END)
        $alter$, changed);
    END LOOP;
END
$$;

ALTER TABLE rate_limit_rules
    DROP CONSTRAINT postpaid_is_not_for_abuse,
    ADD CONSTRAINT postpaid_is_not_for_abuse_or_concurrency CHECK (NOT postpaid OR algorithm NOT IN ('abuse', 'concurrency'));

-- Why a row is refused ---------------------------------------------------------------------------------------------------

-- Before a row is written: refuses it with every wrong number. The constraints stay; this function gives the reason.
CREATE OR REPLACE FUNCTION trypema_explain() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    wrong   text[] := '{}';
    most    bigint := CASE NEW.algorithm
        WHEN 'absolute' THEN 9007199254740990
        WHEN 'suppressed' THEN 9007199254740990
        WHEN 'sliding_window' THEN 4294967295
        WHEN 'fixed_window' THEN 9007199254740991
        WHEN 'concurrency' THEN 9007199254740991 END;
    times   text := NEW.algorithm || ' needs more than 0 and at most 31622400';
    name    text;
    value   text;
    owner   text;
    bucket  jsonb;
    place   bigint;
BEGIN
    IF NEW.algorithm NOT IN ('absolute', 'suppressed', 'token_bucket', 'sliding_window', 'fixed_window', 'abuse', 'concurrency') THEN
        RETURN NEW;
    END IF;
    IF most IS NOT NULL THEN
        IF NOT trypema_is_count(NEW.limit_count, most) THEN
            wrong := wrong || trypema_wrong('limit_count', NEW.limit_count::text, NEW.algorithm || ' needs 1 to ' || most);
        END IF;
        IF NEW.algorithm = 'concurrency' THEN
            -- For window_seconds, see the numbers that an algorithm does not have.
            IF NEW.hold_seconds IS NULL OR NEW.hold_seconds <= 0 OR NEW.hold_seconds > 3600 THEN
                wrong := wrong || trypema_wrong('hold_seconds', NEW.hold_seconds::text,
                    'concurrency needs more than 0 and at most 3600');
            END IF;
        ELSIF NEW.algorithm = 'fixed_window' AND NEW.per IS NOT NULL THEN
            IF NEW.window_seconds IS NOT NULL THEN
                wrong := wrong || trypema_wrong('window_seconds', NEW.window_seconds::text, 'per is given, so it must be NULL');
            END IF;
            wrong := wrong || trypema_wrong_calendar(NEW.per, NEW.zone, NEW.starts) || trypema_wrong_spelling(NEW.zone);
        ELSIF NOT trypema_is_window(NEW.window_seconds) THEN
            wrong := wrong || trypema_wrong('window_seconds', NEW.window_seconds::text,
                times || CASE WHEN NEW.algorithm = 'fixed_window' THEN ', or per' ELSE '' END);
        END IF;
    END IF;
    IF NEW.algorithm = 'token_bucket' AND NEW.limits IS NULL THEN
        wrong := wrong || trypema_wrong_bucket(NEW.limit_count, NEW.window_seconds, NEW.burst_limit, NEW.refill_rate);
    ELSIF NEW.algorithm = 'token_bucket' THEN
        IF num_nonnulls(NEW.limit_count, NEW.window_seconds, NEW.burst_limit, NEW.refill_rate) > 0 THEN
            wrong := wrong || 'limits is given, so limit_count, window_seconds, burst_limit and refill_rate must be NULL'::text;
        END IF;
        IF (CASE WHEN jsonb_typeof(NEW.limits) = 'array' THEN jsonb_array_length(NEW.limits) NOT BETWEEN 1 AND 16 ELSE true END) THEN
            wrong := wrong || 'limits needs to be a list of 1 to 16 limits'::text;
        ELSE
            FOR bucket, place IN SELECT * FROM jsonb_array_elements(NEW.limits) WITH ORDINALITY LOOP
                IF NOT trypema_are_buckets(jsonb_build_array(bucket)) THEN
                    wrong := wrong || format('limits[%s] is %s, but needs limit_count, window_seconds and at most burst_limit, '
                        'each a number that token_bucket allows', place - 1, left(bucket::text, 255));
                END IF;
            END LOOP;
        END IF;
    END IF;
    IF NEW.algorithm = 'abuse' THEN
        FOR name, value IN VALUES ('temp_window_seconds', NEW.temp_window_seconds), ('temp_block_seconds', NEW.temp_block_seconds),
                ('long_window_seconds', NEW.long_window_seconds), ('long_block_seconds', NEW.long_block_seconds) LOOP
            IF NOT trypema_is_window(value::numeric) THEN
                wrong := wrong || trypema_wrong(name, value, times);
            END IF;
        END LOOP;
        FOR name, value IN VALUES ('temp_threshold', NEW.temp_threshold), ('long_threshold', NEW.long_threshold) LOOP
            IF NOT trypema_is_count(value::bigint, 10000) THEN
                wrong := wrong || trypema_wrong(name, value, 'abuse needs 1 to 10000');
            END IF;
        END LOOP;
        IF coalesce(NEW.while_blocked, 'count') NOT IN ('count', 'lengthen', 'ignore') THEN
            wrong := wrong || trypema_wrong('while_blocked', NEW.while_blocked, 'abuse needs count, lengthen or ignore');
        END IF;
    END IF;
    IF NEW.group_ms NOT BETWEEN 1 AND 3600000 THEN
        wrong := wrong || trypema_wrong('group_ms', NEW.group_ms::text, 'it needs 1 to 3600000');
    END IF;
    IF NEW.hard_limit_factor NOT BETWEEN 1 AND 1000000 THEN
        wrong := wrong || trypema_wrong('hard_limit_factor', NEW.hard_limit_factor::text, 'it needs 1 to 1000000');
    END IF;
    IF NEW.algorithm = 'fixed_window' AND NEW.per IS NULL THEN
        FOR name, value IN VALUES ('zone', trypema_quoted(NEW.zone)), ('starts', trypema_quoted(NEW.starts)) LOOP
            IF value IS NOT NULL THEN
                wrong := wrong || trypema_wrong(name, value, 'per is NULL');
            END IF;
        END LOOP;
    END IF;
    -- Numbers that the algorithm does not have.
    FOR name, value, owner IN VALUES
            ('limit_count', NEW.limit_count::text, 'absolute,suppressed,token_bucket,sliding_window,fixed_window,concurrency'),
            ('window_seconds', NEW.window_seconds::text, 'absolute,suppressed,token_bucket,sliding_window,fixed_window'),
            ('burst_limit', NEW.burst_limit::text, 'token_bucket'),
            ('refill_rate', NEW.refill_rate::text, 'token_bucket'),
            ('limits', left(NEW.limits::text, 255), 'token_bucket'),
            ('group_ms', NEW.group_ms::text, 'absolute,suppressed'),
            ('hard_limit_factor', NEW.hard_limit_factor::text, 'suppressed'),
            ('per', trypema_quoted(NEW.per), 'fixed_window'),
            ('zone', trypema_quoted(NEW.zone), 'fixed_window'),
            ('starts', trypema_quoted(NEW.starts), 'fixed_window'),
            ('temp_window_seconds', NEW.temp_window_seconds::text, 'abuse'),
            ('temp_threshold', NEW.temp_threshold::text, 'abuse'),
            ('temp_block_seconds', NEW.temp_block_seconds::text, 'abuse'),
            ('long_window_seconds', NEW.long_window_seconds::text, 'abuse'),
            ('long_threshold', NEW.long_threshold::text, 'abuse'),
            ('long_block_seconds', NEW.long_block_seconds::text, 'abuse'),
            ('while_blocked', NEW.while_blocked::text, 'abuse'),
            ('hold_seconds', NEW.hold_seconds::text, 'concurrency') LOOP
        IF value IS NOT NULL AND NOT coalesce(NEW.algorithm = ANY (string_to_array(owner, ',')), false) THEN
            wrong := wrong || trypema_wrong(name, value,
                CASE WHEN NEW.algorithm IS NULL THEN 'algorithm is NULL'
                     ELSE 'only ' || replace(owner, ',', ', ') || CASE WHEN owner LIKE '%,%' THEN ' have it' ELSE ' has it' END END);
        END IF;
    END LOOP;
    IF wrong <> '{}' THEN
        RAISE EXCEPTION 'rule "%": %', coalesce(to_jsonb(NEW) ->> 'id', to_jsonb(NEW) ->> 'rule_id'), array_to_string(wrong, '; ')
            USING ERRCODE = 'check_violation', CONSTRAINT = 'numbers_are_allowed', TABLE = TG_TABLE_NAME;
    END IF;
    RETURN NEW;
END
$$;

-- The same for the unit, postpaid and the conditions of a rule.
CREATE OR REPLACE FUNCTION trypema_explain_rule() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    wrong    text[] := trypema_wrong_conditions(NEW.conditions, trypema_placeholders(NEW.key_pattern, NEW.scope));
    violated text := 'conditions_are_allowed';
BEGIN
    IF NEW.postpaid AND NEW.algorithm = 'abuse' THEN
        wrong := wrong || trypema_wrong('postpaid', 'true', 'abuse counts attempts, which have no later cost');
        violated := 'postpaid_is_not_for_abuse_or_concurrency';
    END IF;
    IF NEW.postpaid AND NEW.algorithm = 'concurrency' THEN
        wrong := wrong || trypema_wrong('postpaid', 'true',
            'concurrency limits what is held at the moment: nothing is counted afterwards');
        violated := 'postpaid_is_not_for_abuse_or_concurrency';
    END IF;
    IF NEW.unit = 'requests' THEN
        wrong := wrong || trypema_wrong('unit', NEW.unit, 'requests are counted if it is NULL');
        violated := 'rate_limit_rules_unit_fkey';
    END IF;
    IF wrong <> '{}' THEN
        RAISE EXCEPTION 'rule "%": %', NEW.id, array_to_string(wrong, '; ')
            USING ERRCODE = 'check_violation', CONSTRAINT = violated, TABLE = TG_TABLE_NAME;
    END IF;
    RETURN NEW;
END
$$;
