-- Rules, what was changed of them, and the revision that moves with every change. PostgreSQL 14 or later.
--
-- Documented columns have constraints, and triggers compare the rules of candidates and overrides: both refuse only what the
-- compiler refuses. All other fields of rules are in `extra`, which the compiler alone validates: `trypema rules check --database`
-- runs it before a COMMIT. Triggers keep the history, move the revision and tell the servers, for changes by hand, too.

DO $$
BEGIN
    IF current_setting('server_encoding') <> 'UTF8' THEN
        RAISE EXCEPTION 'the database is not encoded in UTF8';
    END IF;
END
$$;

-- Functions find their tables in this schema, also if their caller has another search_path.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- Texts ------------------------------------------------------------------------------------------------------------------

-- 1 to 255 characters, none of them a control character.
CREATE FUNCTION trypema_is_text(value text) RETURNS boolean LANGUAGE sql IMMUTABLE
RETURN value IS NOT NULL AND char_length(value) BETWEEN 1 AND 255 AND value !~ '[\u0001-\u001f\u007f-\u009f]';

-- Loops are in PL/pgSQL, which plans them once: thousands of rules are checked at a time.
CREATE FUNCTION trypema_are_texts(texts text[]) RETURNS boolean LANGUAGE plpgsql IMMUTABLE SET search_path FROM CURRENT AS $$
DECLARE
    value text;
BEGIN
    IF array_ndims(texts) > 1 THEN
        RETURN false;
    END IF;
    FOREACH value IN ARRAY texts LOOP
        IF NOT trypema_is_text(value) THEN
            RETURN false;
        END IF;
    END LOOP;
    RETURN true;
END
$$;

-- The name of an attribute, and the id of a rule.
CREATE FUNCTION trypema_is_name(value text) RETURNS boolean LANGUAGE sql IMMUTABLE
RETURN value IS NOT NULL AND value ~ '^[A-Za-z0-9_.-]{1,64}$';

-- `tenant:{api_key}`.
CREATE FUNCTION trypema_is_pattern(value text) RETURNS boolean LANGUAGE sql IMMUTABLE
RETURN char_length(value) <= 255 AND value ~ '^([^{}]|\{[A-Za-z0-9_.-]{1,64}\})*$';

-- `/api/search`, `/users/*/posts`, `/api/**`, `POST /login`: segments are `*`, `{id}` or text, up to 32, and `**` at the end.
CREATE FUNCTION trypema_is_endpoint(value text) RETURNS boolean LANGUAGE sql IMMUTABLE
RETURN value IS NOT NULL
   AND (strpos(value, ' ') = 0 OR value ~ '^[A-Z]+ ')
   AND value ~ ('^([A-Z]+ )?/+(([*]|[{][^{}*:/]+[}]|[^:/{}*?#% \u0001-\u001f\u007f-\u009f][^/{}*?#% \u0001-\u001f\u007f-\u009f]*)/+)*'
                '([*][*]?|[{][^{}*:/]+[}]|[^:/{}*?#% \u0001-\u001f\u007f-\u009f][^/{}*?#% \u0001-\u001f\u007f-\u009f]*)?/*$')
   AND value !~ '/[.]{1,2}(/|$)'
   AND cardinality(array_remove(string_to_array(regexp_replace(value, '(^[A-Z]+ |[*][*]/*$)', '', 'g'), '/'), '')) <= 32;

CREATE FUNCTION trypema_are_endpoints(texts text[]) RETURNS boolean LANGUAGE plpgsql IMMUTABLE SET search_path FROM CURRENT AS $$
DECLARE
    value text;
BEGIN
    IF array_ndims(texts) > 1 THEN
        RETURN false;
    END IF;
    FOREACH value IN ARRAY texts LOOP
        IF NOT trypema_is_endpoint(value) THEN
            RETURN false;
        END IF;
    END LOOP;
    RETURN true;
END
$$;

-- An address, or a network, without the short forms that only PostgreSQL understands. A mapped IPv4 network is one of IPv4.
CREATE FUNCTION trypema_is_network(value text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    -- IPv4, or IPv6 with a whole IPv4 address at its end or none, and a prefix without needless digits.
    IF value !~ '^((0|[1-9][0-9]{0,2})([.](0|[1-9][0-9]{0,2})){3}|[0-9a-fA-F:]*:[0-9a-fA-F:]*|[0-9a-fA-F:]*:(0|[1-9][0-9]{0,2})([.](0|[1-9][0-9]{0,2})){3})(/(0|[1-9][0-9]{0,2}))?$'
       OR value ~ '(^:|[^:]:)(/|$)' THEN
        RETURN false;
    END IF;
    RETURN NOT (family(value::inet) = 6 AND strpos(value, '/') > 0 AND masklen(value::inet) > 32
                AND set_masklen(value::inet, 128) <<= '::ffff:0:0/96');
EXCEPTION WHEN invalid_text_representation THEN
    RETURN false;
END
$$;

-- The key of an override with its address as servers count it: IPv6 by its /64, a mapped IPv4 address as IPv4.
CREATE FUNCTION trypema_folded(key jsonb) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    address inet;
BEGIN
    IF NOT key ? 'ip' OR strpos(key ->> 'ip', ':') = 0 OR strpos(key ->> 'ip', '/') > 0 THEN
        RETURN key;
    END IF;
    address := (key ->> 'ip')::inet;
    IF address <<= '::ffff:0:0/96' THEN
        RETURN key || jsonb_build_object('ip', replace(host(address), '::ffff:', ''));
    END IF;
    RETURN key || jsonb_build_object('ip', host(network(set_masklen(address, 64))) || '/64');
EXCEPTION WHEN invalid_text_representation THEN
    RETURN key;
END
$$;

-- A segment of a path without needless percent-encoding: of `/` and `%` it is needed. Fails if it is no text.
CREATE FUNCTION trypema_segment(value text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    part  text;
    bytes bytea := '';
BEGIN
    IF strpos(value, '%') = 0 THEN
        RETURN value;
    END IF;
    FOR part IN SELECT piece[1] FROM regexp_matches(value, '%[0-9A-Fa-f]{2}|%|[^%]+', 'g') AS piece LOOP
        bytes := bytes || CASE
            WHEN part = '%' OR part = '%25' THEN '%25'::bytea
            WHEN lower(part) = '%2f' THEN '%2F'::bytea
            WHEN part LIKE '\%__' AND strpos(part, '%') = 1 THEN decode(substr(part, 2), 'hex')
            ELSE convert_to(part, 'UTF8')
        END;
    END LOOP;
    RETURN convert_from(bytes, 'UTF8');
END
$$;

-- A path as servers count it: without a query, empty segments, `.`, `..` and needless percent-encoding. NULL if it is no text.
-- A segment that is no text does not matter if `..` removes it.
CREATE FUNCTION trypema_path(value text) RETURNS text LANGUAGE plpgsql IMMUTABLE SET search_path FROM CURRENT AS $$
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

-- The key of an override as servers count it: IPv6 by its /64, a mapped IPv4 address as IPv4, and a path in its usual form.
CREATE FUNCTION trypema_counted(key jsonb) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE SET search_path FROM CURRENT AS $$
BEGIN
    IF key ? 'endpoint' THEN
        RETURN trypema_folded(key) || jsonb_build_object('endpoint', trypema_path(key ->> 'endpoint'));
    END IF;
    RETURN trypema_folded(key);
END
$$;

-- What is stored ---------------------------------------------------------------------------------------------------------

-- The units that rules count besides requests.
CREATE TABLE rate_limit_units (
    name       text PRIMARY KEY,
    created_at timestamptz NOT NULL DEFAULT now(),
    -- That of the last change.
    revision   bigint NOT NULL DEFAULT 0,

    CONSTRAINT unit_has_1_to_64_letters_digits_underscores_dashes_dots CHECK (trypema_is_name(name)),
    CONSTRAINT unit_is_not_requests CHECK (name <> 'requests')
);

-- What rules and overrides have in common: an algorithm and its numbers. It is copied with its constraints, and then dropped.
CREATE TABLE trypema_numbers (
    algorithm           varchar(30),
    limit_count         bigint,
    window_seconds      numeric(20, 6),
    -- token_bucket
    burst_limit         bigint,
    refill_rate         numeric,
    -- Every other field, in the notation of rules files: {"if_missing": "deny", "per": "month"}.
    extra               jsonb NOT NULL DEFAULT '{}',

    CONSTRAINT algorithm_is_known CHECK (
        algorithm IN ('absolute', 'suppressed', 'token_bucket', 'sliding_window', 'fixed_window', 'abuse', 'concurrency')),
    -- Integers up to 2^53 - 1 are exact in Lua.
    CONSTRAINT limit_count_is_allowed CHECK (CASE
        WHEN algorithm IS NULL OR algorithm = 'abuse' THEN limit_count IS NULL
        WHEN algorithm = 'token_bucket' THEN limit_count IS NULL OR limit_count >= 0
        ELSE limit_count IS NOT NULL AND limit_count BETWEEN 1 AND CASE algorithm
            WHEN 'sliding_window' THEN 4294967295
            WHEN 'absolute' THEN 9007199254740990
            WHEN 'suppressed' THEN 9007199254740990
            ELSE 9007199254740991 END END),
    -- Up to a leap year. A token bucket may have a refill rate instead, and a fixed window a calendar.
    CONSTRAINT window_seconds_is_allowed CHECK (CASE
        WHEN algorithm IS NULL OR algorithm IN ('abuse', 'concurrency') THEN window_seconds IS NULL
        WHEN window_seconds IS NULL THEN algorithm IN ('token_bucket', 'fixed_window')
        ELSE window_seconds > 0 AND window_seconds <= 31622400 END),
    CONSTRAINT burst_limit_is_allowed CHECK (
        burst_limit IS NULL OR algorithm IS NOT DISTINCT FROM 'token_bucket' AND burst_limit BETWEEN 1 AND 9007199254740991),
    CONSTRAINT refill_rate_is_allowed CHECK (
        refill_rate IS NULL
        OR algorithm IS NOT DISTINCT FROM 'token_bucket' AND refill_rate > 0 AND refill_rate <= 100000000),
    CONSTRAINT extra_is_an_object_with_known_keys CHECK (CASE jsonb_typeof(extra) WHEN 'object' THEN extra - '{
        unit,postpaid,when,max_delay,if_missing,on_store_failure,share,
        group,hard_limit_factor,limits,per,zone,starts,temp,long,while_blocked,hold}'::text[] = '{}' ELSE false END)
);

CREATE TABLE rate_limit_rules (
    id               text PRIMARY KEY DEFAULT gen_random_uuid()::text,
    name             varchar(255),

    -- Matching
    key_pattern      varchar(255),
    scope            varchar(20) NOT NULL,

    -- Algorithm and limits, and every other field
    LIKE trypema_numbers INCLUDING CONSTRAINTS INCLUDING DEFAULTS,

    -- Targeting
    plan_tiers       varchar[] NOT NULL DEFAULT '{}',
    endpoints        varchar[] NOT NULL DEFAULT '{}',

    -- Behaviour
    action           varchar(20) NOT NULL DEFAULT 'reject',
    priority         integer NOT NULL DEFAULT 100,
    enabled          boolean NOT NULL DEFAULT true,

    -- A candidate beside a live rule
    candidate_for    text REFERENCES rate_limit_rules DEFERRABLE INITIALLY DEFERRED,

    created_at       timestamptz NOT NULL DEFAULT now(),
    updated_at       timestamptz NOT NULL DEFAULT now(),
    -- That of the last change.
    revision         bigint NOT NULL DEFAULT 0,

    CONSTRAINT id_has_1_to_64_letters_digits_underscores_dashes_dots CHECK (trypema_is_name(id)),
    CONSTRAINT name_is_text_without_control_characters CHECK (name IS NULL OR trypema_is_text(name)),
    CONSTRAINT key_pattern_has_whole_placeholders CHECK (trypema_is_pattern(key_pattern)),
    CONSTRAINT scope_is_known CHECK (scope IN ('global', 'tenant', 'user', 'ip', 'endpoint')),
    CONSTRAINT key_pattern_fits_the_scope CHECK (CASE scope
        WHEN 'global' THEN key_pattern IS NULL OR strpos(key_pattern, '{') = 0
        WHEN 'endpoint' THEN true
        ELSE key_pattern IS NULL OR strpos(key_pattern, '{') > 0 END),
    CONSTRAINT algorithm_is_given CHECK (algorithm IS NOT NULL),
    CONSTRAINT plan_tiers_are_texts CHECK (trypema_are_texts(plan_tiers::text[])),
    CONSTRAINT endpoints_are_allowed CHECK (trypema_are_endpoints(endpoints::text[])),
    CONSTRAINT action_is_known CHECK (action IN ('reject', 'throttle', 'log_only'))
);

CREATE INDEX ON rate_limit_rules (candidate_for) WHERE candidate_for IS NOT NULL;

-- What single keys get in place of their rule's limit.
CREATE TABLE rate_limit_overrides (
    rule_id    text NOT NULL REFERENCES rate_limit_rules ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED,
    -- A value for each placeholder of the rule: {"user": "ann"}.
    key        jsonb NOT NULL,
    verdict    varchar(20),
    LIKE trypema_numbers INCLUDING CONSTRAINTS INCLUDING DEFAULTS,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    revision   bigint NOT NULL DEFAULT 0,

    PRIMARY KEY (rule_id, key),
    CONSTRAINT key_is_an_object_of_texts CHECK (
        jsonb_typeof(key) = 'object' AND NOT jsonb_path_exists(key, 'strict $.* ? (@.type() != "string")')),
    CONSTRAINT key_has_at_most_2048_bytes CHECK (octet_length(key::text) <= 2048),
    CONSTRAINT verdict_is_known CHECK (verdict IN ('allow', 'block')),
    -- A value that is no text is refused by key_is_an_object_of_texts.
    CONSTRAINT endpoint_of_key_is_text CHECK (
        jsonb_typeof(key -> 'endpoint') <> 'string' OR trypema_path(key ->> 'endpoint') IS NOT NULL),
    CONSTRAINT either_a_verdict_or_numbers CHECK (num_nonnulls(verdict, algorithm) = 1)
);

CREATE UNIQUE INDEX one_override_for_each_key ON rate_limit_overrides (rule_id, trypema_counted(key));

-- Values of attributes that pass every rule, or none.
CREATE TABLE rate_limit_lists (
    list       varchar(20) NOT NULL,
    attribute  varchar(64) NOT NULL,
    value      text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    revision   bigint NOT NULL DEFAULT 0,

    PRIMARY KEY (list, attribute, value),
    CONSTRAINT list_is_known CHECK (list IN ('allow', 'block')),
    CONSTRAINT attribute_has_a_name CHECK (trypema_is_name(attribute)),
    CONSTRAINT value_has_at_most_2048_bytes CHECK (octet_length(value) <= 2048),
    CONSTRAINT value_of_ip_is_a_network CHECK (attribute <> 'ip' OR trypema_is_network(value))
);

DROP TABLE trypema_numbers;

-- What belongs together --------------------------------------------------------------------------------------------------

-- The placeholders of a rule.
CREATE FUNCTION trypema_placeholders(key_pattern text, scope text) RETURNS text[] LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF key_pattern IS NULL THEN
        RETURN CASE scope WHEN 'global' THEN '{}'::text[] ELSE ARRAY[scope] END;
    END IF;
    RETURN ARRAY(SELECT DISTINCT part[1] FROM regexp_matches(key_pattern, '\{([^{}]*)\}', 'g') AS part);
END
$$;

-- Whether an override has a value for each placeholder of its rule, and its algorithm.
CREATE FUNCTION trypema_fits(key jsonb, algorithm text, rule rate_limit_rules) RETURNS boolean LANGUAGE plpgsql IMMUTABLE
SET search_path FROM CURRENT AS $$
DECLARE
    placeholders text[] := trypema_placeholders(rule.key_pattern, rule.scope);
BEGIN
    RETURN (algorithm IS NULL OR algorithm = rule.algorithm) AND key ?& placeholders AND key - placeholders = '{}';
END
$$;

CREATE FUNCTION trypema_check_override() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM FROM rate_limit_overrides o JOIN rate_limit_rules r ON r.id = o.rule_id
    WHERE o.rule_id = NEW.rule_id AND o.key = NEW.key AND NOT trypema_fits(o.key, o.algorithm, r);
    IF FOUND THEN
        RAISE EXCEPTION 'the override for % does not fit the rule %: it needs a value for each placeholder, and the same algorithm',
            NEW.key, NEW.rule_id USING ERRCODE = 'check_violation', CONSTRAINT = 'override_fits_its_rule';
    END IF;
    RETURN NULL;
END
$$;

CREATE FUNCTION trypema_check_rule() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    wrong text;
BEGIN
    SELECT o.key::text INTO wrong
    FROM rate_limit_overrides o JOIN rate_limit_rules r ON r.id = o.rule_id
    WHERE r.id = NEW.id AND NOT trypema_fits(o.key, o.algorithm, r)
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'the override for % does not fit the rule %: it needs a value for each placeholder, and the same algorithm',
            wrong, NEW.id USING ERRCODE = 'check_violation', CONSTRAINT = 'override_fits_its_rule';
    END IF;
    PERFORM FROM rate_limit_rules candidate JOIN rate_limit_rules live ON live.id = candidate.candidate_for
    WHERE candidate.id = NEW.id AND live.candidate_for IS NOT NULL
    UNION ALL
    SELECT FROM rate_limit_rules live JOIN rate_limit_rules candidate ON candidate.candidate_for = live.id
    WHERE live.id = NEW.id AND live.candidate_for IS NOT NULL;
    IF FOUND THEN
        RAISE EXCEPTION 'rule %: a candidate is for a live rule, and not for another candidate', NEW.id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'candidate_is_for_a_live_rule';
    END IF;
    RETURN NULL;
END
$$;

-- At the end of a transaction, so that what belongs together can be changed one after the other.
CREATE CONSTRAINT TRIGGER together_with_live AFTER INSERT ON rate_limit_rules
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.candidate_for IS NOT NULL)
    EXECUTE FUNCTION trypema_check_rule();
CREATE CONSTRAINT TRIGGER together_with_others AFTER UPDATE ON rate_limit_rules
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN ((OLD.id, OLD.key_pattern, OLD.scope, OLD.algorithm, OLD.candidate_for)
          IS DISTINCT FROM (NEW.id, NEW.key_pattern, NEW.scope, NEW.algorithm, NEW.candidate_for))
    EXECUTE FUNCTION trypema_check_rule();
CREATE CONSTRAINT TRIGGER together_with_rule AFTER INSERT OR UPDATE ON rate_limit_overrides
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION trypema_check_override();

-- Revisions and history --------------------------------------------------------------------------------------------------

-- One row. Whoever changes anything locks it, so that revisions are committed in their order.
CREATE TABLE rate_limit_state (
    is_only  boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    -- Tells these rules from those of another database.
    set_id    uuid NOT NULL DEFAULT gen_random_uuid(),
    revision  bigint NOT NULL DEFAULT 0,
    -- Tells this revision from one of the same number that a backup or a failover has lost.
    change_id uuid NOT NULL DEFAULT gen_random_uuid()
);
INSERT INTO rate_limit_state DEFAULT VALUES;

CREATE TABLE rate_limit_revisions (
    revision   bigint PRIMARY KEY,
    changed_at timestamptz NOT NULL DEFAULT now(),
    -- Who says so: the name of a token, or the role.
    changed_by text NOT NULL,
    role       text NOT NULL DEFAULT session_user,
    transaction xid8 NOT NULL DEFAULT pg_current_xact_id()
);
CREATE INDEX ON rate_limit_revisions (transaction);

CREATE TABLE rate_limit_history (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    revision bigint NOT NULL REFERENCES rate_limit_revisions ON DELETE CASCADE,
    -- unit, rule, override, list
    kind     text NOT NULL,
    -- The unit; the rule's id; with the key of an override; the list, the attribute and the value.
    name     text NOT NULL,
    before   jsonb,
    after    jsonb
);
CREATE INDEX ON rate_limit_history (revision);
CREATE INDEX ON rate_limit_history (split_part(name, ' ', 1), id);

-- The revision of this transaction, which begins with its first change.
CREATE FUNCTION trypema_revision() RETURNS bigint LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    known bigint;
BEGIN
    -- A restored database may have seen another transaction of this number, at another time.
    SELECT revision INTO known FROM rate_limit_revisions
    WHERE transaction = pg_current_xact_id() AND changed_at = now();
    IF NOT FOUND THEN
        UPDATE rate_limit_state SET revision = revision + 1, change_id = gen_random_uuid()
        RETURNING revision INTO STRICT known;
        INSERT INTO rate_limit_revisions (revision, changed_by)
        VALUES (known, coalesce(nullif(current_setting('trypema.changed_by', true), ''), session_user));
        PERFORM pg_notify('trypema_rules', known::text);
    END IF;
    RETURN known;
END
$$;

-- Before anything is written: transactions lock this row first and then others, so that no two wait for each other.
CREATE FUNCTION trypema_lock() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM FROM rate_limit_state FOR UPDATE;
    RETURN NULL;
END
$$;

-- Before a row is written: it gets its revision. A change of nothing is none.
CREATE FUNCTION trypema_stamp() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    stamps text[] := '{created_at,updated_at,revision}';
BEGIN
    IF TG_OP = 'UPDATE' THEN
        -- As text: 28.0 equals 28 in jsonb, but the compiler refuses the first.
        IF (to_jsonb(NEW) - stamps)::text = (to_jsonb(OLD) - stamps)::text THEN
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

CREATE FUNCTION trypema_name(kind text, written jsonb) RETURNS text LANGUAGE sql IMMUTABLE
RETURN CASE kind
    WHEN 'rule' THEN written ->> 'id'
    WHEN 'override' THEN (written ->> 'rule_id') || ' ' || (written ->> 'key')
    WHEN 'unit' THEN written ->> 'name'
    ELSE (written ->> 'list') || ' ' || (written ->> 'attribute') || ' ' || (written ->> 'value')
END;

-- After a row was written: what it was, and what it is.
CREATE FUNCTION trypema_record() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    kind    text := TG_ARGV[0];
    old_row jsonb := CASE WHEN TG_OP <> 'INSERT' THEN to_jsonb(OLD) END;
    new_row jsonb := CASE WHEN TG_OP <> 'DELETE' THEN to_jsonb(NEW) END;
    old_name text := trypema_name(kind, old_row);
    new_name text := trypema_name(kind, new_row);
    at      bigint;
BEGIN
    IF old_row IS NOT DISTINCT FROM new_row THEN
        RETURN NULL;
    END IF;
    at := trypema_revision();
    IF old_name <> new_name THEN
        INSERT INTO rate_limit_history (revision, kind, name, before, after)
        VALUES (at, kind, old_name, old_row, NULL), (at, kind, new_name, NULL, new_row);
    ELSE
        INSERT INTO rate_limit_history (revision, kind, name, before, after)
        VALUES (at, kind, coalesce(new_name, old_name), old_row, new_row);
    END IF;
    RETURN NULL;
END
$$;

CREATE FUNCTION trypema_refuse_truncate() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'TRUNCATE leaves no history: use DELETE';
END
$$;

CREATE FUNCTION trypema_refuse_forgetting() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'history is forgotten by whole revisions: delete from rate_limit_revisions';
END
$$;

DO $$
DECLARE
    kind text;
BEGIN
    FOREACH kind IN ARRAY ARRAY['unit', 'rule', 'override', 'list'] LOOP
        EXECUTE format($trigger$
            CREATE TRIGGER lock BEFORE INSERT OR UPDATE OR DELETE ON %1$I FOR EACH STATEMENT EXECUTE FUNCTION trypema_lock();
            CREATE TRIGGER stamp BEFORE INSERT OR UPDATE ON %1$I FOR EACH ROW EXECUTE FUNCTION trypema_stamp();
            CREATE TRIGGER record AFTER INSERT OR UPDATE OR DELETE ON %1$I FOR EACH ROW EXECUTE FUNCTION trypema_record(%2$L);
            CREATE TRIGGER no_truncate BEFORE TRUNCATE ON %1$I EXECUTE FUNCTION trypema_refuse_truncate();
        $trigger$, format('rate_limit_%ss', kind), kind);
    END LOOP;
END
$$;
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON rate_limit_history EXECUTE FUNCTION trypema_refuse_forgetting();
-- What a revision takes along is in a trigger's depth already.
CREATE TRIGGER whole BEFORE UPDATE OR DELETE ON rate_limit_history FOR EACH ROW WHEN (pg_trigger_depth() = 0)
    EXECUTE FUNCTION trypema_refuse_forgetting();

-- Reading ----------------------------------------------------------------------------------------------------------------

-- All stored rules, as the calling transaction sees them: each table's rows with their revisions. Servers read this, and so does
-- `trypema rules check --database -`.
CREATE FUNCTION trypema_rules() RETURNS json LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT json_build_object(
        -- The number of the last migration: a server knows by it whether these tables are older than itself.
        'schema', 1,
        'version', (SELECT json_build_array(revision, set_id, change_id) FROM rate_limit_state),
        'tables', json_build_object(
            'unit', (SELECT json_agg(json_build_array(revision, to_json(u))) FROM rate_limit_units u),
            'rule', (SELECT json_agg(json_build_array(revision, to_json(r))) FROM rate_limit_rules r),
            'override', (SELECT json_agg(json_build_array(revision, to_json(o))) FROM rate_limit_overrides o),
            'list', (SELECT json_agg(json_build_array(revision, to_json(l))) FROM rate_limit_lists l)))
$$;
