# Aborted, killed and half-written bulk loads leave nothing visible, and their
# space comes back after seal, drain and sweep (P1, P46, P83).
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Strata;

my $node = strata_node('aborted', restart_after_crash => 'on');
create_pair($node, 't', "auto_merge 'off'");
$node->safe_psql('postgres', send_rows('t', 1, 2000, 0, 500));

my $load = "INSERT INTO t SELECT 'big' || g, 0, 0, NULL, NULL, string_agg(md5((g * 100 + s)::text), '') "
  . "FROM generate_series(1, 12000) g, generate_series(1, 60) s GROUP BY g";

sub settle
{
	my ($what) = @_;
	$node->safe_psql('postgres', "SELECT * FROM strata.seal('t')");
	drain($node, 't');
	$node->safe_psql('postgres', "SELECT * FROM strata.sweep('t')");
	same_rows($node, 't', "$what: nothing shows");
	verify_clean($node, 't', $what, 1);
	return $node->safe_psql('postgres', "SELECT pg_relation_size(storage) FROM strata.stores WHERE store = 't'::regclass");
}

my $size = settle('before');

$node->safe_psql('postgres', "BEGIN; $load; ROLLBACK");
is($node->safe_psql('postgres', "SELECT count(*) FROM t WHERE id LIKE 'big%'"), 0, 'aborted: invisible');
cmp_ok(settle('aborted'), '<=', $size + 1024 * 1024, 'aborted: the space came back');

$node->safe_psql('postgres', "BEGIN; SAVEPOINT a; $load; ROLLBACK TO a; INSERT INTO t VALUES ('kept'); COMMIT; INSERT INTO t_heap VALUES ('kept')");
cmp_ok(settle('savepoint'), '<=', $size + 1024 * 1024, 'savepoint: the space came back');

# A COPY that fails on its last line.
my $file = $node->basedir . '/load.copy';
$node->safe_psql('postgres', "COPY (SELECT 'big' || g, 1, 2.5, NULL::int[], NULL::jsonb, repeat(md5(g::text), 60) FROM generate_series(1, 20000) g) TO '$file'");
append_to_file($file, "x\tnot a number\t1\t\\N\t\\N\ty\n");
my ($ret, $out, $err) = $node->psql('postgres', "COPY t FROM '$file'");
like($err, qr/invalid input syntax for type integer.*line 20001/s, 'COPY names the line');
cmp_ok(settle('bad COPY'), '<=', $size + 1024 * 1024, 'bad COPY: the space came back');

# Killed between taking the extent and writing it, and in mid-write.
for my $point ('log-extent-after-record', 'storage-run-written')
{
	pause_arm($node, $point, 'kill');
	$ret = $node->psql('postgres', $load, timeout => 120);
	isnt($ret, 0, "$point: killed");
	pause_clear($node, $point);
	$node->poll_query_until('postgres', 'SELECT true') or die 'no restart';
	cmp_ok(settle($point), '<=', $size + 1024 * 1024, "$point: the space came back");
}

# The whole server goes in mid-load.
my $session = $node->background_psql('postgres', on_error_stop => 0);
$session->query_until(qr/go/, "\\echo go\nBEGIN;\n$load;\n$load;\n");
select undef, undef, undef, 0.5;
crash($node);
eval { $session->quit };
$node->start;
cmp_ok(settle('kill -9'), '<=', $size + 1024 * 1024, 'kill -9: the space came back');

# And a load that does commit uses it.
$node->safe_psql('postgres', $load);
$node->safe_psql('postgres', "INSERT INTO t_heap SELECT * FROM t WHERE id LIKE 'big%'");
settle('committed');
$node->stop;
done_testing();
