-- What happens to a request that lacks an attribute of a rule's key; and endpoints of overrides, which are read as those of
-- requests are.

-- Functions find their tables in this schema, whoever calls them.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

ALTER TABLE rate_limit_rules
    ADD COLUMN if_missing varchar(20) NOT NULL DEFAULT 'skip',
    ADD CONSTRAINT if_missing_is_known CHECK (if_missing IN ('skip', 'deny', 'error'));

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
CREATE FUNCTION trypema_path(value text) RETURNS text LANGUAGE plpgsql IMMUTABLE SET search_path FROM CURRENT AS $$
DECLARE
    segment  text;
    decoded  text := '';
    segments text[] := '{}';
BEGIN
    FOREACH segment IN ARRAY string_to_array(substring(value FROM '^[^?#]*'), '/') LOOP
        decoded := decoded || '/' || trypema_segment(segment);
    END LOOP;
    FOREACH segment IN ARRAY string_to_array(replace(decoded, '%2F', '/'), '/') LOOP
        IF segment = '..' THEN
            segments := segments[1:cardinality(segments) - 1];
        ELSIF segment NOT IN ('', '.') THEN
            segments := segments || segment;
        END IF;
    END LOOP;
    decoded := '/' || array_to_string(segments, '/');
    RETURN CASE WHEN strpos(decoded, chr(65533)) = 0 THEN decoded END;
EXCEPTION WHEN character_not_in_repertoire OR untranslatable_character THEN
    RETURN NULL;
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

-- Of overrides for one path in several forms only the usual form has ever matched a request, or else none has: the others go.
DELETE FROM rate_limit_overrides USING (
    SELECT rule_id, key, row_number() OVER (
        PARTITION BY rule_id, trypema_counted(key)
        ORDER BY key = trypema_counted(key) DESC, revision DESC) AS place
    FROM rate_limit_overrides
) AS counted
WHERE counted.place > 1 AND rate_limit_overrides.rule_id = counted.rule_id AND rate_limit_overrides.key = counted.key;
DELETE FROM rate_limit_overrides WHERE key ? 'endpoint' AND trypema_path(key ->> 'endpoint') IS NULL;
-- What is checked at the end of the transaction has to be checked before tables are altered.
SET CONSTRAINTS ALL IMMEDIATE;

ALTER TABLE rate_limit_overrides ADD CONSTRAINT endpoint_of_key_is_text CHECK (
    NOT key ? 'endpoint' OR trypema_path(key ->> 'endpoint') IS NOT NULL);
DROP INDEX one_override_for_each_key;
CREATE UNIQUE INDEX one_override_for_each_key ON rate_limit_overrides (rule_id, trypema_counted(key));
