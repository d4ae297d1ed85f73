-- The quickstart's table and the helpers that fill it.  Idempotent.

SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS strata;

CREATE FOREIGN TABLE IF NOT EXISTS rollouts (
    id         text NOT NULL,
    run_id     text,
    rollout_id text,
    "group"    text,
    step       int,
    created_at timestamptz,
    reward     float8,
    status     text,
    model      text,
    messages   jsonb,
    metadata   jsonb,
    payload    text,
    token_ids  int[],
    logprobs   real[]
) SERVER strata OPTIONS (key 'id');

CREATE SCHEMA IF NOT EXISTS quickstart;

-- raw lines of the file being loaded
CREATE UNLOGGED TABLE IF NOT EXISTS quickstart.line (
    n    bigint GENERATED ALWAYS AS IDENTITY,
    line text NOT NULL
);
CREATE INDEX IF NOT EXISTS line_n ON quickstart.line (n);

CREATE TABLE IF NOT EXISTS quickstart.refused (
    run     timestamptz NOT NULL,
    file    text NOT NULL,
    line    bigint NOT NULL,
    message text NOT NULL
);

CREATE OR REPLACE FUNCTION quickstart.record(line text) RETURNS SETOF rollouts
LANGUAGE sql STABLE AS $$
    SELECT r.*
    FROM json_to_record(convert_from(convert_to(substr(line, 2), 'LATIN1'), 'UTF8')::json)
        AS r (id text, run_id text, rollout_id text, "group" text, step int, created_at timestamptz,
              reward float8, status text, model text, messages jsonb, metadata jsonb, payload text,
              token_ids int[], logprobs real[])
$$;

-- Load quickstart.line in chunks; a chunk that fails is loaded line by line,
-- and the lines that fail are kept in quickstart.refused.
CREATE OR REPLACE PROCEDURE quickstart.load() LANGUAGE plpgsql AS $$
DECLARE
    file     text := current_setting('quickstart.file');
    run      timestamptz := current_setting('quickstart.run');
    total    bigint;
    base     bigint;
    done     bigint := 0;
    loaded   bigint := 0;
    refused  bigint := 0;
    chunk    bigint := 500;
    got      bigint;
    l        record;
    why      text;
    detail   text;
    started  timestamptz := clock_timestamp();
    told     timestamptz := clock_timestamp();
BEGIN
    SELECT count(*), min(n) - 1 INTO total, base FROM quickstart.line;
    DELETE FROM quickstart.refused r WHERE r.file = current_setting('quickstart.file');
    WHILE done < total LOOP
        BEGIN
            INSERT INTO rollouts
                SELECT r.* FROM (SELECT q.line FROM quickstart.line q
                                 WHERE n > base + done AND n <= base + done + chunk AND q.line !~ '^x\s*$'
                                 ORDER BY n) AS s, LATERAL quickstart.record(s.line) AS r;
            GET DIAGNOSTICS got = ROW_COUNT;
            loaded := loaded + got;
        EXCEPTION WHEN OTHERS THEN
            FOR l IN SELECT n, line FROM quickstart.line
                     WHERE n > base + done AND n <= base + done + chunk AND line !~ '^x\s*$' ORDER BY n LOOP
                BEGIN
                    INSERT INTO rollouts SELECT * FROM quickstart.record(l.line);
                    loaded := loaded + 1;
                EXCEPTION WHEN OTHERS THEN
                    GET STACKED DIAGNOSTICS why = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL;
                    why := concat_ws(': ', why, nullif(detail, ''));
                    refused := refused + 1;
                    INSERT INTO quickstart.refused VALUES (run, file, l.n - base, why);
                    RAISE NOTICE '%:%: %', file, l.n - base, why;
                END;
            END LOOP;
        END;
        COMMIT;
        done := done + chunk;
        IF clock_timestamp() > told + interval '2 s' THEN
            RAISE NOTICE '% of % lines', least(done, total), total;
            told := clock_timestamp();
        END IF;
    END LOOP;
    RAISE NOTICE '% rows loaded, % lines refused, % s', loaded, refused,
        round(extract(epoch FROM clock_timestamp() - started), 1);
END
$$;

-- n rollouts of realistic sizes; every tenth one is sent again, with another reward.
CREATE OR REPLACE PROCEDURE quickstart.generate(n int) LANGUAGE plpgsql AS $$
DECLARE
    chunk   int := 200;
    i       int := 0;
    told    timestamptz := clock_timestamp();
BEGIN
    PERFORM setseed(0.42);
    WHILE i < n LOOP
        INSERT INTO rollouts
        SELECT format('run-%s/step-%s/%s', k % 20, k / 20, k), 'run-' || k % 20,
               k::text, 'prompt-' || k % 331, k / 20, timestamptz '2026-01-01' + k * interval '7 s',
               (hashint4(k) & 1023) / 1023.0, 'finished', 'policy-7b',
               jsonb_build_array(
                   jsonb_build_object('role', 'system', 'content', 'You solve tasks with the tools given.'),
                   jsonb_build_object('role', 'user', 'content', 'Task ' || k % 331 || ': ' || w.words),
                   jsonb_build_object('role', 'assistant', 'content', w.words || ' ' || w.words)),
               jsonb_build_object('seed', k, 'temperature', 0.7, 'host', 'worker-' || k % 16),
               repeat(w.words || E'\n', w.size / length(w.words) + 1),
               ARRAY(SELECT (t * 7919 + k * 31) % 50257 FROM generate_series(1, 200 + k % 1800) t),
               ARRAY(SELECT (-ln(1 + (t * 37 + k) % 97))::real FROM generate_series(1, 200 + k % 1800) t)
        FROM generate_series(i, least(i + chunk, n) - 1) k,
             LATERAL (SELECT string_agg(md5((k * 131 + s)::text), ' ') AS words,
                             CASE WHEN k % 500 = 0 THEN 1000000 WHEN k % 50 = 0 THEN 100000
                                  ELSE 1000 + (k * 7907) % 9000 END AS size
                      FROM generate_series(1, 4 + k % 20) s) w;
        COMMIT;
        i := i + chunk;
        IF clock_timestamp() > told + interval '2 s' THEN
            RAISE NOTICE '% of % rollouts', least(i, n), n;
            told := clock_timestamp();
        END IF;
    END LOOP;

    -- the same ids again: newest wins
    INSERT INTO rollouts
    SELECT id, run_id, rollout_id, "group", step, created_at, (hashtext(id) & 1023) / 1023.0, 'regraded',
           model, messages, metadata, payload, token_ids, logprobs
    FROM rollouts WHERE rollout_id::int % 10 = 0;
    RAISE NOTICE '% rollouts generated', n;
END
$$;
