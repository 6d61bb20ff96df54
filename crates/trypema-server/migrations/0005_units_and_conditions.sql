-- Units, conditions and postpaid rules; fixed windows that follow a calendar; and a path of an override whose only segment
-- that is no text is removed by `..`.

-- Functions find their tables in this schema, whoever calls them.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- Units ------------------------------------------------------------------------------------------------------------------

-- The units that rules count besides requests.
CREATE TABLE rate_limit_units (
    name       text PRIMARY KEY,
    created_at timestamptz NOT NULL DEFAULT now(),
    -- That of the last change.
    revision   bigint NOT NULL DEFAULT 0,

    CONSTRAINT unit_has_1_to_64_letters_digits_underscores_dashes_dots CHECK (trypema_is_name(name)),
    CONSTRAINT unit_is_not_requests CHECK (name <> 'requests')
);

-- The units belong to the owner of the lists, and roles that may use the lists may use the units, so that servers need no
-- further rights after this migration, whoever runs it.
DO $$
DECLARE
    owner   regrole := (SELECT relowner FROM pg_class WHERE oid = 'rate_limit_lists'::regclass);
    granted record;
BEGIN
    BEGIN
        EXECUTE format('ALTER TABLE rate_limit_units OWNER TO %s', owner);
    EXCEPTION WHEN insufficient_privilege THEN
        -- It lacks CREATE on the schema, and the role that migrates is no superuser. It gets an owner's rights instead.
        EXECUTE format('GRANT ALL ON rate_limit_units TO %s WITH GRANT OPTION', owner);
    END;
    FOR granted IN
        SELECT acl.privilege_type AS privilege,
               CASE acl.grantee WHEN 0 THEN 'PUBLIC' ELSE acl.grantee::regrole::text END AS grantee,
               CASE WHEN acl.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END AS option
        FROM pg_class, aclexplode(relacl) AS acl
        WHERE oid = 'rate_limit_lists'::regclass AND acl.grantee <> relowner
    LOOP
        EXECUTE format('GRANT %s ON rate_limit_units TO %s%s', granted.privilege, granted.grantee, granted.option);
    END LOOP;
END
$$;

-- Conditions -------------------------------------------------------------------------------------------------------------

-- Lists what is wrong with conditions: {"model": ["gpt-5", "claude-*"], "region": {"not": ["eu"]}, "batch_id": "absent"}.
-- `in_key` are the placeholders of the rule's key.
CREATE FUNCTION trypema_wrong_conditions(conditions jsonb, in_key text[]) RETURNS text[] LANGUAGE plpgsql IMMUTABLE
SET search_path FROM CURRENT AS $$
DECLARE
    wrong     text[] := '{}';
    attribute text;
    condition jsonb;
    at        text;
    need      text;
    listed    jsonb;
    value     jsonb;
    place     bigint;
    -- An error repeats at most this many characters of a value.
    shown     int := 255;
BEGIN
    IF jsonb_typeof(conditions) <> 'object' THEN
        RETURN ARRAY[trypema_wrong('conditions', left(conditions::text, shown),
            'it needs an object, such as {"model": ["gpt-5"]}')];
    END IF;
    IF (SELECT count(*) > 32 FROM jsonb_object_keys(conditions)) THEN
        RETURN ARRAY[(SELECT format('conditions has %s attributes, but a request has at most 32', count(*))
                      FROM jsonb_object_keys(conditions))];
    END IF;
    FOR attribute, condition IN SELECT * FROM jsonb_each(conditions) LOOP
        at := 'conditions.' || CASE WHEN trypema_is_name(attribute) THEN attribute ELSE to_json(left(attribute, shown))::text END;
        need := CASE
            WHEN NOT trypema_is_name(attribute) THEN 'an attribute needs 1 to 64 letters, digits, _, - and .'
            WHEN attribute = 'endpoint' THEN 'the column endpoints selects paths'
            WHEN attribute = 'method' THEN 'the column endpoints selects methods'
            WHEN attribute = 'plan' THEN 'the column plan_tiers selects plans'
            WHEN attribute = 'ip' THEN 'conditions compare text, and an address has many spellings: use rate_limit_lists'
            WHEN condition = '"absent"' AND attribute = ANY (in_key) THEN 'this can never hold: the key of the rule needs it'
        END;
        IF need IS NOT NULL THEN
            wrong := wrong || trypema_wrong(at, left(condition::text, shown), need);
        END IF;
        CONTINUE WHEN need IS NOT NULL OR condition = '"absent"';
        listed := condition;
        IF jsonb_typeof(condition) = 'object' AND condition ? 'not' AND condition - 'not' = '{}' THEN
            listed := condition -> 'not';
            at := at || '.not';
        END IF;
        IF jsonb_typeof(listed) IS DISTINCT FROM 'array' THEN
            wrong := wrong || trypema_wrong(at, left(condition::text, shown),
                'it needs a list of values, {"not": [...]} or "absent"');
        ELSIF jsonb_array_length(listed) NOT BETWEEN 1 AND 256 THEN
            wrong := wrong || format('%s has %s values, but it needs 1 to 256', at, jsonb_array_length(listed));
        ELSE
            FOR value, place IN SELECT * FROM jsonb_array_elements(listed) WITH ORDINALITY LOOP
                need := CASE
                    WHEN jsonb_typeof(value) <> 'string' OR NOT trypema_is_text(value #>> '{}')
                        THEN 'it needs 1 to 255 characters, none of them a control character'
                    WHEN listed IS DISTINCT FROM condition AND value #>> '{}' ~ '^[*]+$'
                        THEN CASE WHEN attribute = ANY (in_key) THEN 'this can never hold: the key of the rule needs it'
                                  ELSE 'this holds only if the attribute is absent: write "absent"' END
                END;
                IF need IS NOT NULL THEN
                    wrong := wrong || trypema_wrong(format('%s[%s]', at, place - 1), left(value::text, shown), need);
                END IF;
            END LOOP;
        END IF;
    END LOOP;
    RETURN wrong;
END
$$;

-- Calendars --------------------------------------------------------------------------------------------------------------

-- A text as an error repeats it.
CREATE FUNCTION trypema_quoted(value text) RETURNS text LANGUAGE sql IMMUTABLE
RETURN to_json(left(value, 255))::text;

-- Lists what is wrong with a calendar. Of a zone only the form is checked: a constraint must not depend on a list of names.
CREATE FUNCTION trypema_wrong_calendar(per text, zone text, starts text) RETURNS text[] LANGUAGE plpgsql IMMUTABLE
SET search_path FROM CURRENT AS $$
DECLARE
    wrong text[] := '{}';
    need  text;
BEGIN
    IF per NOT IN ('day', 'week', 'month') THEN
        wrong := wrong || trypema_wrong('per', trypema_quoted(per), 'it needs day, week or month');
    END IF;
    IF char_length(zone) > 64 OR zone !~ '^[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*$' THEN
        wrong := wrong || trypema_wrong('zone', trypema_quoted(zone), 'it needs an IANA name such as Europe/Berlin');
    END IF;
    need := CASE
        WHEN per = 'day' AND starts !~ '^([01][0-9]|2[0-3]):[0-5][0-9]$' THEN 'a time from 00:00 to 23:59'
        WHEN per = 'week' AND starts NOT IN ('monday', 'tuesday', 'wednesday', 'thursday', 'friday', 'saturday', 'sunday')
            THEN 'a weekday such as monday'
        WHEN per = 'month' AND starts !~ '^([1-9]|1[0-9]|2[0-8])$' THEN 'a day from 1 to 28, which every month has'
    END;
    IF need IS NOT NULL THEN
        wrong := wrong || trypema_wrong('starts', trypema_quoted(starts), format('per %s needs %s', per, need));
    END IF;
    RETURN wrong;
END
$$;

-- Reports a zone that differs from a name in PostgreSQL's list only in case, because servers compare names exactly. A zone that
-- is not in the list may be in that of the servers.
CREATE FUNCTION trypema_wrong_spelling(zone text) RETURNS text[] LANGUAGE plpgsql SET search_path FROM CURRENT
SET TimeZone = 'UTC' AS $$
DECLARE
    spelled text;
BEGIN
    IF zone IS NOT NULL THEN
        -- PostgreSQL finds the zone in any case, and then shows the name of its list. The session's zone is back after this function.
        PERFORM set_config('TimeZone', zone, true);
        spelled := current_setting('TimeZone');
        -- A zone in the notation of POSIX, such as foo+3, is shown in upper case, but not in the list. The list takes long to read.
        IF spelled <> zone AND EXISTS (SELECT FROM pg_timezone_names WHERE name = spelled) THEN
            RETURN ARRAY[trypema_wrong('zone', trypema_quoted(zone), 'it needs the spelling ' || spelled)];
        END IF;
    END IF;
    RETURN '{}';
EXCEPTION WHEN invalid_parameter_value THEN
    RETURN '{}';
END
$$;

-- Paths ------------------------------------------------------------------------------------------------------------------

-- A path as servers count it: without a query, empty segments, `.`, `..` and needless percent-encoding. NULL if it is no text.
-- A segment that is no text does not matter if `..` removes it. Of every other path the result is as before.
CREATE OR REPLACE FUNCTION trypema_path(value text) RETURNS text LANGUAGE plpgsql IMMUTABLE SET search_path FROM CURRENT AS $$
DECLARE
    segment  text;
    path     text;
    segments text[] := '{}';
BEGIN
    IF value IS NULL THEN
        RETURN NULL;
    END IF;
    FOREACH segment IN ARRAY regexp_split_to_array(substring(value FROM '^[^?#]*'), '/|%2[fF]') LOOP
        IF strpos(segment, '%') > 0 THEN
            BEGIN
                segment := trypema_segment(segment);
            EXCEPTION WHEN character_not_in_repertoire OR untranslatable_character THEN
                segment := chr(65533);
            END;
        END IF;
        IF segment = '..' THEN
            segments := segments[1:cardinality(segments) - 1];
        ELSIF segment NOT IN ('', '.') THEN
            segments := segments || segment;
        END IF;
    END LOOP;
    path := '/' || array_to_string(segments, '/');
    RETURN CASE WHEN strpos(path, chr(65533)) = 0 THEN path END;
END
$$;

-- What is stored ---------------------------------------------------------------------------------------------------------

ALTER TABLE rate_limit_rules
    -- NULL: requests.
    ADD COLUMN unit text REFERENCES rate_limit_units DEFERRABLE INITIALLY DEFERRED,
    ADD COLUMN postpaid boolean NOT NULL DEFAULT false,
    ADD COLUMN conditions jsonb NOT NULL DEFAULT '{}',
    ADD COLUMN per text,
    ADD COLUMN zone text,
    ADD COLUMN starts text,
    DROP CONSTRAINT limit_count_and_window_seconds_are_allowed,
    ADD CONSTRAINT postpaid_is_not_for_abuse CHECK (NOT postpaid OR algorithm <> 'abuse'),
    ADD CONSTRAINT conditions_are_allowed CHECK (
        conditions = '{}' OR trypema_wrong_conditions(conditions, trypema_placeholders(key_pattern, scope)) = '{}');

CREATE INDEX ON rate_limit_rules (unit) WHERE unit IS NOT NULL;

ALTER TABLE rate_limit_overrides
    ADD COLUMN per text,
    ADD COLUMN zone text,
    ADD COLUMN starts text,
    DROP CONSTRAINT limit_count_and_window_seconds_are_allowed,
    -- A value that is no text is refused by key_is_an_object_of_texts.
    DROP CONSTRAINT endpoint_of_key_is_text,
    ADD CONSTRAINT endpoint_of_key_is_text CHECK (
        jsonb_typeof(key -> 'endpoint') <> 'string' OR trypema_path(key ->> 'endpoint') IS NOT NULL);

-- A server of an earlier version does not know the columns unit, postpaid and conditions, and would apply the rule to every
-- request. It reads every number of a row, and refuses the row because this one exceeds its range. (Without window_seconds,
-- it refuses a fixed window anyway.)
ALTER TABLE rate_limit_rules
    ADD COLUMN refused_by_older_servers numeric GENERATED ALWAYS AS (
        CASE WHEN unit IS NOT NULL OR postpaid OR conditions <> '{}' THEN 1e309 END) STORED;

DO $$
DECLARE
    changed text;
BEGIN
    FOREACH changed IN ARRAY ARRAY['rate_limit_rules', 'rate_limit_overrides'] LOOP
        EXECUTE format($alter$
            ALTER TABLE %I
                ADD CONSTRAINT limit_count_and_window_seconds_are_allowed CHECK (CASE algorithm
                    WHEN 'absolute' THEN trypema_is_count(limit_count, 9007199254740990) AND trypema_is_window(window_seconds)
                    WHEN 'suppressed' THEN trypema_is_count(limit_count, 9007199254740990) AND trypema_is_window(window_seconds)
                    WHEN 'sliding_window' THEN trypema_is_count(limit_count, 4294967295) AND trypema_is_window(window_seconds)
                    WHEN 'fixed_window' THEN trypema_is_count(limit_count, 9007199254740991)
                        AND CASE WHEN per IS NULL THEN trypema_is_window(window_seconds) ELSE window_seconds IS NULL END
                    WHEN 'token_bucket' THEN true
                    ELSE limit_count IS NULL AND window_seconds IS NULL END),
                ADD CONSTRAINT calendar_is_allowed CHECK (CASE
                    WHEN algorithm = 'fixed_window' AND per IS NOT NULL THEN trypema_wrong_calendar(per, zone, starts) = '{}'
                    ELSE num_nonnulls(per, zone, starts) = 0 END)
        $alter$, changed);
    END LOOP;
END
$$;

-- Why a row is refused ---------------------------------------------------------------------------------------------------

-- Before a row is written: refuses it with every wrong number. The constraints stay; this function gives the reason.
CREATE OR REPLACE FUNCTION trypema_explain() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
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
        IF NEW.algorithm = 'fixed_window' AND NEW.per IS NOT NULL THEN
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
            ('limit_count', NEW.limit_count::text, 'absolute,suppressed,token_bucket,sliding_window,fixed_window'),
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

-- The same for the unit, postpaid and the conditions of a rule.
CREATE FUNCTION trypema_explain_rule() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    wrong    text[] := trypema_wrong_conditions(NEW.conditions, trypema_placeholders(NEW.key_pattern, NEW.scope));
    violated text := 'conditions_are_allowed';
BEGIN
    IF NEW.postpaid AND NEW.algorithm = 'abuse' THEN
        wrong := wrong || trypema_wrong('postpaid', 'true', 'abuse counts attempts, which have no later cost');
        violated := 'postpaid_is_not_for_abuse';
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

-- The same for a unit.
CREATE FUNCTION trypema_explain_unit() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF NEW.name = 'requests' THEN
        RAISE EXCEPTION 'unit "requests" always exists: leave it out'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'unit_is_not_requests', TABLE = TG_TABLE_NAME;
    END IF;
    IF NEW.name IS NOT NULL AND NOT trypema_is_name(NEW.name) THEN
        RAISE EXCEPTION 'unit % is not 1 to 64 letters, digits, _, - and .', to_json(left(NEW.name, 255))
            USING ERRCODE = 'check_violation', CONSTRAINT = 'unit_has_1_to_64_letters_digits_underscores_dashes_dots',
                  TABLE = TG_TABLE_NAME;
    END IF;
    RETURN NEW;
END
$$;

CREATE FUNCTION trypema_check_units() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    units bigint := (SELECT count(*) FROM rate_limit_units);
BEGIN
    IF units > 15 THEN
        RAISE EXCEPTION '% units: at most 15 are allowed', units
            USING ERRCODE = 'check_violation', CONSTRAINT = 'at_most_15_units', TABLE = TG_TABLE_NAME;
    END IF;
    RETURN NULL;
END
$$;

-- Triggers run in the order of their names: these before `stamp`, so that a refused row takes no revision.
CREATE TRIGGER explain_rule BEFORE INSERT OR UPDATE ON rate_limit_rules FOR EACH ROW EXECUTE FUNCTION trypema_explain_rule();
CREATE TRIGGER explain BEFORE INSERT OR UPDATE ON rate_limit_units FOR EACH ROW EXECUTE FUNCTION trypema_explain_unit();
-- At the end of a transaction, so that one unit can take the place of another.
CREATE CONSTRAINT TRIGGER at_most_15_units AFTER INSERT ON rate_limit_units
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION trypema_check_units();

-- Revisions and history --------------------------------------------------------------------------------------------------

-- Before a row is written: it gets its revision. A change of nothing is none.
CREATE OR REPLACE FUNCTION trypema_stamp() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    -- A generated column has no value yet in NEW.
    stamps text[] := '{created_at,updated_at,revision,refused_by_older_servers}';
BEGIN
    IF TG_OP = 'UPDATE' THEN
        IF to_jsonb(NEW) - stamps = to_jsonb(OLD) - stamps THEN
            RETURN OLD;
        END IF;
    END IF;
    NEW.revision := trypema_revision();
    IF TG_TABLE_NAME NOT IN ('rate_limit_lists', 'rate_limit_units') THEN
        NEW.updated_at := now();
    END IF;
    RETURN NEW;
END
$$;

CREATE OR REPLACE FUNCTION trypema_name(kind text, written jsonb) RETURNS text LANGUAGE sql IMMUTABLE
RETURN CASE kind
    WHEN 'rule' THEN written ->> 'id'
    WHEN 'override' THEN (written ->> 'rule_id') || ' ' || (written ->> 'key')
    WHEN 'unit' THEN written ->> 'name'
    ELSE (written ->> 'list') || ' ' || (written ->> 'attribute') || ' ' || (written ->> 'value')
END;

CREATE TRIGGER lock BEFORE INSERT OR UPDATE OR DELETE ON rate_limit_units FOR EACH STATEMENT EXECUTE FUNCTION trypema_lock();
CREATE TRIGGER stamp BEFORE INSERT OR UPDATE ON rate_limit_units FOR EACH ROW EXECUTE FUNCTION trypema_stamp();
CREATE TRIGGER record AFTER INSERT OR UPDATE OR DELETE ON rate_limit_units FOR EACH ROW EXECUTE FUNCTION trypema_record('unit');
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON rate_limit_units EXECUTE FUNCTION trypema_refuse_truncate();

-- Only the owner of a function can replace it, as the next migration may do. So functions, too, belong to the owner of the lists,
-- unless it lacks CREATE on the schema.
DO $$
DECLARE
    owner regrole := (SELECT relowner FROM pg_class WHERE oid = 'rate_limit_lists'::regclass);
    given regprocedure;
BEGIN
    FOR given IN
        SELECT oid FROM pg_proc
        WHERE pronamespace = current_schema()::regnamespace AND proname LIKE 'trypema\_%' AND proowner <> owner
    LOOP
        EXECUTE format('ALTER FUNCTION %s OWNER TO %s', given, owner);
    END LOOP;
EXCEPTION WHEN insufficient_privilege THEN
    NULL;
END
$$;
