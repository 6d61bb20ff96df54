-- Says which number of a row is wrong, before the constraints refuse the row without saying so.

-- Functions find their tables in this schema, whoever calls them.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- "limit_count is 0, but fixed_window needs 1 to 9007199254740991".
CREATE FUNCTION trypema_wrong(name text, value text, need text) RETURNS text LANGUAGE sql IMMUTABLE
RETURN name || ' is ' || coalesce(value, 'NULL') || ', but ' || need;

-- Lists the wrong numbers of a token bucket. The checks are those of trypema_is_bucket.
CREATE FUNCTION trypema_wrong_bucket(limit_count bigint, window_seconds numeric, burst_limit bigint, refill_rate numeric)
RETURNS text[] LANGUAGE plpgsql IMMUTABLE SET search_path FROM CURRENT AS $$
DECLARE
    wrong    text[] := '{}';
    counts   text := 'token_bucket needs 1 to 9007199254740991';
    capacity bigint := coalesce(burst_limit, limit_count);
BEGIN
    IF burst_limit IS NOT NULL AND NOT trypema_is_count(burst_limit, 9007199254740991) THEN
        wrong := wrong || trypema_wrong('burst_limit', burst_limit::text, counts);
    END IF;
    IF burst_limit IS NULL AND NOT trypema_is_count(limit_count, 9007199254740991) THEN
        wrong := wrong || trypema_wrong('limit_count', limit_count::text, counts);
    ELSIF refill_rate IS NULL AND (limit_count IS NULL OR limit_count < 1) THEN
        wrong := wrong || trypema_wrong('limit_count', limit_count::text, 'token_bucket without refill_rate needs at least 1');
    END IF;
    IF (window_seconds IS NOT NULL OR refill_rate IS NULL) AND NOT trypema_is_window(window_seconds) THEN
        wrong := wrong || trypema_wrong('window_seconds', window_seconds::text,
            'token_bucket needs more than 0 and at most 31622400');
    END IF;
    IF refill_rate IS NOT NULL AND (refill_rate <= 0 OR refill_rate > 100000000) THEN
        wrong := wrong || trypema_wrong('refill_rate', refill_rate::text, 'token_bucket needs more than 0 and at most 100000000');
    END IF;
    IF wrong = '{}' AND refill_rate IS NOT NULL AND capacity::float8 / refill_rate::float8 > 31622400 THEN
        wrong := wrong || trypema_wrong('refill_rate', refill_rate::text,
            capacity || ' tokens would take longer than 31622400 seconds to come back');
    END IF;
    IF wrong = '{}' AND NOT trypema_is_bucket(limit_count, window_seconds, burst_limit, refill_rate) THEN
        wrong := wrong || format('a bucket of %s tokens (limit_count %s, window_seconds %s, burst_limit %s, refill_rate %s) '
            'cannot be counted exactly, or takes longer than 31622400 seconds to refill: round one of the numbers',
            capacity, coalesce(limit_count::text, 'NULL'), coalesce(window_seconds::text, 'NULL'),
            coalesce(burst_limit::text, 'NULL'), coalesce(refill_rate::text, 'NULL'));
    END IF;
    RETURN wrong;
END
$$;

-- Before a row is written: refuses it with every wrong number. The constraints stay; this function gives the reason.
CREATE FUNCTION trypema_explain() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    wrong   text[] := '{}';
    most    bigint := CASE NEW.algorithm
        WHEN 'absolute' THEN 9007199254740990
        WHEN 'suppressed' THEN 9007199254740990
        WHEN 'sliding_window' THEN 4294967295
        WHEN 'fixed_window' THEN 9007199254740991 END;
    times   text := NEW.algorithm || ' needs more than 0 and at most 31622400';
    name    text;
    value   text;
    owner   text;
    bucket  jsonb;
    place   bigint;
BEGIN
    IF NEW.algorithm NOT IN ('absolute', 'suppressed', 'token_bucket', 'sliding_window', 'fixed_window', 'abuse') THEN
        RETURN NEW;
    END IF;
    IF most IS NOT NULL THEN
        IF NOT trypema_is_count(NEW.limit_count, most) THEN
            wrong := wrong || trypema_wrong('limit_count', NEW.limit_count::text, NEW.algorithm || ' needs 1 to ' || most);
        END IF;
        IF NOT trypema_is_window(NEW.window_seconds) THEN
            wrong := wrong || trypema_wrong('window_seconds', NEW.window_seconds::text, times);
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
                        'each a number that token_bucket allows', place - 1, bucket);
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
    -- Numbers that the algorithm does not have.
    FOR name, value, owner IN VALUES
            ('limit_count', NEW.limit_count::text, 'absolute,suppressed,token_bucket,sliding_window,fixed_window'),
            ('window_seconds', NEW.window_seconds::text, 'absolute,suppressed,token_bucket,sliding_window,fixed_window'),
            ('burst_limit', NEW.burst_limit::text, 'token_bucket'),
            ('refill_rate', NEW.refill_rate::text, 'token_bucket'),
            ('limits', NEW.limits::text, 'token_bucket'),
            ('group_ms', NEW.group_ms::text, 'absolute,suppressed'),
            ('hard_limit_factor', NEW.hard_limit_factor::text, 'suppressed'),
            ('temp_window_seconds', NEW.temp_window_seconds::text, 'abuse'),
            ('temp_threshold', NEW.temp_threshold::text, 'abuse'),
            ('temp_block_seconds', NEW.temp_block_seconds::text, 'abuse'),
            ('long_window_seconds', NEW.long_window_seconds::text, 'abuse'),
            ('long_threshold', NEW.long_threshold::text, 'abuse'),
            ('long_block_seconds', NEW.long_block_seconds::text, 'abuse'),
            ('while_blocked', NEW.while_blocked::text, 'abuse') LOOP
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

-- Triggers run in the order of their names: this one before `stamp`, so that a refused row takes no revision.
CREATE TRIGGER explain BEFORE INSERT OR UPDATE ON rate_limit_rules FOR EACH ROW EXECUTE FUNCTION trypema_explain();
CREATE TRIGGER explain BEFORE INSERT OR UPDATE ON rate_limit_overrides FOR EACH ROW EXECUTE FUNCTION trypema_explain();
