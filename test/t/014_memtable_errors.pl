# A flush that fails while somebody else causes it makes its own statement
# fail, even when an exception block swallowed the error: else half a
# statement could commit.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Strata;

my $node = strata_node('memtable');
$node->safe_psql('postgres', q{
	CREATE FOREIGN TABLE t (id int NOT NULL, v int) SERVER strata OPTIONS (key 'id', auto_merge 'off');
	CREATE FUNCTION peek() RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
	BEGIN
		RETURN (SELECT count(*) FROM t);
	EXCEPTION WHEN OTHERS THEN
		RAISE NOTICE 'swallowed: %', SQLERRM;
		RETURN -1;
	END$$;
});

# The second row's function reads the table, which flushes the first row.
for my $point ('log-flush-linked', 'log-append-before-record')
{
	pause_arm($node, $point, 'error');
	my ($ret, $out, $err) = $node->psql('postgres',
		'INSERT INTO t SELECT g, peek() FROM generate_series(1, 3) g');
	pause_clear($node, $point);
	like($err, qr/swallowed: /, "$point: the function swallowed the error");
	like($err, qr/ERROR:  stopped at pause point "$point"/, "$point: the statement raised it again");
	is($node->safe_psql('postgres', 'SELECT count(*) FROM t'), 0, "$point: nothing of it is there");
}

# A flush that fails while it makes or extends the file, under the statement's
# resource owner, lets go of the extent lock, for which others wait.
$node->safe_psql('postgres', q{
	CREATE FOREIGN TABLE large (id int NOT NULL, v text) SERVER strata OPTIONS (key 'id', auto_merge 'off');
	CREATE FUNCTION look(g int) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
	DECLARE
		n bigint;
	BEGIN
		IF g = 2000 THEN
			SELECT count(*) INTO n FROM large;
		END IF;
		RETURN (SELECT string_agg(md5(g::text || i), '') FROM generate_series(1, 60) i);
	EXCEPTION WHEN OTHERS THEN
		SELECT count(*) INTO n FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 10;
		RAISE NOTICE 'swallowed: %, % extent locks', SQLERRM, n;
		RETURN '';
	END$$;
});
for my $point ('storage-initialize-extended', 'storage-extended')
{
	pause_arm($node, $point, 'error');
	my ($ret, $out, $err) = $node->psql('postgres', 'INSERT INTO large SELECT g, look(g) FROM generate_series(1, 2000) g');
	pause_clear($node, $point);
	like($err, qr/swallowed: stopped at pause point "$point", 0 extent locks.*ERROR:  stopped at/s, "$point: the extent lock is let go");
	$node->safe_psql('postgres', 'INSERT INTO large VALUES (0)');
	is($node->safe_psql('postgres', 'DELETE FROM large RETURNING id'), 0, "$point: others go on");
}

# Nobody puts another row: the end of the statement raises it.
pause_arm($node, 'log-flush-linked', 'error');
my ($ret, $out, $err) = $node->psql('postgres',
	'INSERT INTO t SELECT 1, 1 UNION ALL SELECT 2, 2 WHERE peek() > 0');
pause_clear($node, 'log-flush-linked');
like($err, qr/swallowed: .*ERROR:  stopped at pause point/s, 'the end of the statement raised it again');
is($node->safe_psql('postgres', 'SELECT count(*) FROM t'), 0, 'nothing of it is there');

# Nothing of it is left in the backends: later statements work.
pause_arm($node, 'log-flush-linked', 'error');
($ret, $out, $err) = $node->psql('postgres', q{
	BEGIN;
	INSERT INTO t VALUES (0, 0);
	ROLLBACK;
}, on_error_stop => 0);
pause_clear($node, 'log-flush-linked');
$node->safe_psql('postgres', q{
	BEGIN;
	INSERT INTO t VALUES (1, 1);
	SAVEPOINT s;
	INSERT INTO t VALUES (2, 2);
	ROLLBACK TO s;
	INSERT INTO t VALUES (3, 3);
	COMMIT;
});
is($node->safe_psql('postgres', "SELECT string_agg(id::text, ',' ORDER BY id) FROM t"), '1,3',
	'later statements work');
verify_clean($node, 't', 'after failed flushes');

done_testing();
