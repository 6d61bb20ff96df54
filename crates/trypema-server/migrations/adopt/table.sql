-- Gives an existing table `rate_limit_rules` the shape that 0001 would have created. Runs in place of
-- 0001's CREATE TABLE, which creates `trypema_template` instead. Grants, indexes, triggers and additional
-- columns of the table stay.

-- Copy every row in its original types; adopt/rows.sql copies them back. An empty table can be given any
-- shape.
CREATE TABLE trypema_adopted AS TABLE rate_limit_rules;
TRUNCATE rate_limit_rules;

DO $$
DECLARE
    wanted record;
BEGIN
    FOR wanted IN
        SELECT w.attname AS name, format_type(w.atttypid, w.atttypmod) AS type, w.attnotnull AS is_required,
               pg_get_expr(d.adbin, d.adrelid) AS initial, format_type(h.atttypid, h.atttypmod) AS present_type
        FROM pg_attribute w
        LEFT JOIN pg_attrdef d ON d.adrelid = w.attrelid AND d.adnum = w.attnum
        LEFT JOIN pg_attribute h ON h.attrelid = 'rate_limit_rules'::regclass AND h.attname = w.attname AND NOT h.attisdropped
        WHERE w.attrelid = 'trypema_template'::regclass AND w.attnum > 0 AND NOT w.attisdropped
        ORDER BY w.attnum
    LOOP
        IF wanted.present_type IS NULL THEN
            EXECUTE format('ALTER TABLE rate_limit_rules ADD COLUMN %I %s', wanted.name, wanted.type);
        ELSE
            EXECUTE format('ALTER TABLE rate_limit_rules ALTER COLUMN %1$I DROP IDENTITY IF EXISTS, ALTER COLUMN %1$I DROP DEFAULT', wanted.name);
            IF wanted.present_type <> wanted.type THEN
                EXECUTE format('ALTER TABLE rate_limit_rules ALTER COLUMN %I TYPE %s USING NULL::%2$s', wanted.name, wanted.type);
            END IF;
        END IF;
        IF wanted.initial IS NOT NULL THEN
            EXECUTE format('ALTER TABLE rate_limit_rules ALTER COLUMN %I SET DEFAULT %s', wanted.name, wanted.initial);
        END IF;
        EXECUTE format('ALTER TABLE rate_limit_rules ALTER COLUMN %I %s NOT NULL', wanted.name,
                       CASE WHEN wanted.is_required THEN 'SET' ELSE 'DROP' END);
    END LOOP;
    FOR wanted IN
        SELECT conname AS name, pg_get_constraintdef(oid) AS definition FROM pg_constraint
        WHERE conrelid = 'trypema_template'::regclass AND contype = 'c'
    LOOP
        EXECUTE format('ALTER TABLE rate_limit_rules ADD CONSTRAINT %I %s', wanted.name, wanted.definition);
    END LOOP;
    IF NOT EXISTS (SELECT FROM pg_constraint WHERE conrelid = 'rate_limit_rules'::regclass AND contype = 'p') THEN
        ALTER TABLE rate_limit_rules ADD PRIMARY KEY (id);
    END IF;
END
$$;

ALTER TABLE rate_limit_rules ADD CONSTRAINT rate_limit_rules_candidate_for_fkey
    FOREIGN KEY (candidate_for) REFERENCES rate_limit_rules DEFERRABLE INITIALLY DEFERRED;

DROP TABLE trypema_template;
