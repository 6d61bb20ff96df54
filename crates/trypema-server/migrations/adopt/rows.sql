-- Copies the rows of an adopted table back, after the last migration. A row that the compiler refuses, that violates a constraint, or
-- that the table cannot store exactly, is set aside. So the rules can be put in force, and no row is lost.

SET CONSTRAINTS ALL IMMEDIATE;

CREATE TABLE rate_limit_unusable_rules (
    number       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id           text,
    reason       text NOT NULL,
    -- Every column of the row, unchanged.
    original     jsonb NOT NULL,
    set_aside_at timestamptz NOT NULL DEFAULT now()
);

-- The trigger would overwrite the rows' own timestamps.
ALTER TABLE rate_limit_rules DISABLE TRIGGER stamp;

DO $$
DECLARE
    columns           text;
    expressions       text;
    adopted           record;
    stored            jsonb;
    inexact           text;
    said              text;
    violated          text;
    violated_column   text;
BEGIN
    PERFORM set_config('trypema.changed_by', 'trypema rules migrate', true);
    -- A NULL in a column that is NOT NULL here becomes the column's default. Not so in `enabled`: nobody
    -- knows whether such a rule was in force.
    SELECT string_agg(format('%I', a.attname), ', ' ORDER BY a.attnum),
           string_agg(CASE
               WHEN a.attname IN ('plan_tiers', 'endpoints', 'action', 'priority', 'created_at', 'updated_at')
               THEN format('coalesce(%I::%s, %s)', a.attname, format_type(t.atttypid, NULL), pg_get_expr(d.adbin, d.adrelid))
               -- A direct cast from a float to numeric would round to 15 digits.
               WHEN t.atttypid = 'numeric'::regtype AND a.atttypid IN ('float4'::regtype, 'float8'::regtype)
               THEN format('%I::text::numeric', a.attname)
               ELSE format('%I', a.attname) END, ', ' ORDER BY a.attnum)
    INTO STRICT columns, expressions
    FROM pg_attribute a
    JOIN pg_attribute t ON t.attrelid = 'rate_limit_rules'::regclass AND t.attname = a.attname AND t.attgenerated = ''
    LEFT JOIN pg_attrdef d ON d.adrelid = t.attrelid AND d.adnum = t.attnum
    WHERE a.attrelid = 'trypema_adopted'::regclass AND a.attnum > 0 AND NOT a.attisdropped;

    FOR adopted IN
        SELECT a.ctid AS place, a.id::text AS id, to_jsonb(a) AS original, count(*) OVER (PARTITION BY a.id) AS copies, refused.reason
        FROM trypema_adopted a LEFT JOIN trypema_refused refused ON refused.place = a.ctid ORDER BY a.id
    LOOP
        BEGIN
            IF adopted.reason IS NOT NULL THEN
                RAISE EXCEPTION '%', adopted.reason;
            END IF;
            IF adopted.copies > 1 THEN
                RAISE EXCEPTION '% rows have this id', adopted.copies;
            END IF;
            EXECUTE format('INSERT INTO rate_limit_rules (%s, revision) SELECT %s, trypema_revision() FROM trypema_adopted '
                           'WHERE ctid = $1 RETURNING to_jsonb(rate_limit_rules)', columns, expressions)
            INTO STRICT stored USING adopted.place;
            SELECT string_agg(before.key, ', ') INTO inexact FROM jsonb_each(adopted.original) AS before
            WHERE before.value <> 'null' AND before.key NOT IN ('id', 'created_at', 'updated_at')
              AND before.value IS DISTINCT FROM stored -> before.key;
            IF inexact IS NOT NULL THEN
                RAISE EXCEPTION 'cannot be stored exactly: %', inexact;
            END IF;
        EXCEPTION WHEN integrity_constraint_violation OR data_exception OR raise_exception THEN
            GET STACKED DIAGNOSTICS said = MESSAGE_TEXT, violated = CONSTRAINT_NAME, violated_column = COLUMN_NAME;
            INSERT INTO rate_limit_unusable_rules (id, reason, original)
            VALUES (adopted.id, CASE SQLSTATE WHEN '23502' THEN violated_column || ' is NULL'
                                              WHEN '23514' THEN 'violates the constraint ' || violated
                                              ELSE said END, adopted.original);
        END;
    END LOOP;
END
$$;

ALTER TABLE rate_limit_rules ENABLE TRIGGER stamp;
