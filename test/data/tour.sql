-- What a person wants to see after loading: run by quickstart.
\pset footer off
\echo
\echo '-- rows, and what is still pending in the log'
SELECT count(*) AS rows, count(DISTINCT id) AS ids, count(DISTINCT run_id) AS runs FROM rollouts;
SELECT * FROM strata.seal('rollouts');
SELECT shard, generation, state, rows, pg_size_pretty(bytes) AS bytes FROM strata.generations
WHERE store = 'rollouts'::regclass ORDER BY shard, generation LIMIT 12;
\echo '-- one bounded pass, then passes until nothing is pending'
SET client_min_messages = notice;
\x on
SELECT * FROM strata.merge('rollouts', max_generations => 1);
\x off
CALL strata.drain('rollouts');
SELECT blocks_total, blocks_freed, blocks_truncated FROM strata.sweep('rollouts');
RESET client_min_messages;
SELECT shard, generation, state, rows FROM strata.generations WHERE store = 'rollouts'::regclass;
SELECT what, generations_merged, rows_read, rows_inserted, rows_replaced, row_groups_written AS written,
       row_groups_adopted AS adopted, pg_size_pretty(peak_memory) AS peak_memory
FROM strata.merges WHERE store = 'rollouts'::regclass ORDER BY started DESC LIMIT 5;
\echo '-- a key lookup'
SELECT id AS some_id FROM rollouts LIMIT 1 \gset
SELECT id, run_id, step, reward, status, model, length(payload) AS payload_chars FROM rollouts WHERE id = :'some_id';
EXPLAIN (ANALYZE, COSTS off, TIMING off, SUMMARY off) SELECT * FROM rollouts WHERE id = :'some_id';
\echo '-- mean reward of a run'
SELECT run_id, count(*) AS rollouts, round(avg(reward)::numeric, 3) AS mean_reward
FROM rollouts GROUP BY run_id ORDER BY rollouts DESC, run_id LIMIT 10;
\echo '-- sizes'
SELECT pg_size_pretty(sum(raw_bytes)) AS raw, pg_size_pretty(sum(stored_bytes)) AS stored,
       pg_size_pretty(strata.relation_size('rollouts')) AS on_disk, count(*) AS row_groups, sum(rows - deleted) AS live_rows
FROM strata.row_groups WHERE store = 'rollouts'::regclass;
