# Eight writers and a loop of merges (L18, L19, L21, L32, L36, P12, P48): no error, no lost
# or doubled row, and nobody waits for a lock that a pass holds.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Strata;
use IPC::Run ();
use Time::HiRes qw(sleep time);

my $seconds = $ENV{STRATA_SECONDS} // 60;
my $node = strata_node('concurrent', log_lock_waits => 'off');
create_pair($node, 't', "auto_merge 'off', generation_max_bytes '256kB', shards '2'");

# Each writer owns ids w<client>-<n> and sends some of them again.
my $script = $node->basedir . '/writer.sql';
append_to_file($script, pgbench_upserts('t'));
my ($out, $err) = ('', '');
my $bench = IPC::Run::start(
	[ 'pgbench', '-n', '-h', $node->host, '-p', $node->port, '-f', $script, '-c', 8, '-j', 2, '-T', $seconds, 'postgres' ],
	'>', \$out, '2>', \$err);

my $merges = $node->basedir . '/merges.sql';
append_to_file($merges, "SELECT count(*) FROM strata.merge('t');\nSELECT count(*) FROM strata.sweep('t');\n\\sleep 50 ms\n");
my ($mout, $merr) = ('', '');
my $merger = IPC::Run::start(
	[ 'pgbench', '-n', '-h', $node->host, '-p', $node->port, '-f', $merges, '-c', 1, '-T', $seconds, 'postgres' ],
	'>', \$mout, '2>', \$merr);

# Who waits for what?  Pass, storage, store and key locks: nobody behind a
# pass.  The extent lock (objsubid 10): never longer than 100 ms.
my $watch = $node->background_psql('postgres');
my $storage = $watch->query("SELECT storage::oid FROM strata.stores WHERE store = 't'::regclass");
my (%behind, $longest);
$longest = 0;
my $end = time + $seconds - 2;
my $looks = 0;
while (time < $end)
{
	my $rows = $watch->query(<<SQL);
SELECT w.locktype || ':' || coalesce(w.objsubid, 0) || ':' || w.mode,
       round(extract(epoch FROM clock_timestamp() - w.waitstart) * 1000)
FROM pg_locks w JOIN pg_stat_activity b ON b.pid = ANY (pg_blocking_pids(w.pid))
WHERE NOT w.granted AND w.waitstart IS NOT NULL AND b.query ~ 'strata\\.(merge|sweep)'
  AND (w.relation = $storage OR (w.locktype = 'advisory' AND w.classid = $storage))
SQL
	$looks++;
	for (split /\n/, $rows)
	{
		my ($what, $ms) = split /\|/;
		if ($what =~ /^advisory:10:/) { $longest = $ms if $ms > $longest; }
		else { $behind{$what}++; }
	}
	sleep 0.02;
}
$bench->finish;
$merger->finish;
is($bench->result(0), 0, 'the writers met no error') or diag $err;
is($merger->result(0), 0, 'nor did the merges') or diag $merr;
unlike($err . $merr, qr/ERROR|FATAL|PANIC/, 'nothing was reported');
like($out, qr/number of transactions actually processed: \d{3,}/, 'the writers wrote');
note $out =~ /(tps = \S+)/ ? $1 : '', ", $looks looks at pg_locks";
is(join(', ', map { "$_ x$behind{$_}" } sort keys %behind), '', 'nobody waited behind a pass');
cmp_ok($longest, '<', 100, "waits for the extent lock stay short ($longest ms)");
same_rows($node, 't', 'no row lost or doubled');
verify_clean($node, 't', 'after the run');
drain($node, 't');
same_rows($node, 't', 'nor after everything is merged');
$watch->quit;
verify_clean($node, 't', 'after drain');

$node->stop;
done_testing();
