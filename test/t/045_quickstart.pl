# ./quickstart from a copy of the checkout: it loads rollouts, and run again after
# a kill -9 it waits until the server has recovered, also one that somebody else
# has started.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Strata;

my $dir = PostgreSQL::Test::Utils::tempdir;
my $top = "$dir/strata";
mkdir $top;
system_or_bail('sh', '-c', 'cd "$0" && tar cf - --exclude=./.git --exclude=./.test --exclude=./.quickstart --exclude="*.o" --exclude="*.so" . | (cd "$1" && tar xf -)', $ENV{STRATA_TOP}, $top);
my $data = "$top/.quickstart/data";
$ENV{STRATA_QUICKSTART_PORT} = PostgreSQL::Test::Cluster::get_free_port();
$ENV{STRATA_QUICKSTART_ROWS} = 200;

sub quickstart
{
	my $out;
	my $ok = IPC::Run::run([ "$top/quickstart", @_ ], '<', '/dev/null', '>&', \$out);
	return ($ok ? 'done' : "failed: $out", $out);
}
END { local $?; system "$top/quickstart", 'remove' if defined $top && -d "$top/.quickstart"; }

my ($result, $out) = quickstart();
is($result, 'done', 'quickstart runs');
my ($rows) = $out =~ /live_rows\s*\n[-+]+\n.*\|\s*(\d+)\s*$/m;
cmp_ok($rows // 0, '>', 100, 'and has rows');
my ($socket) = $out =~ /on socket (\S+),/;
sub kill_all { kill_cluster($data, "$socket/.s.PGSQL.$ENV{STRATA_QUICKSTART_PORT}.lock"); return; }

kill_all();
($result, $out) = quickstart();
is($result, 'done', 'it runs after a kill -9');
like($out, qr/^ .*\|\s*$rows\s*$/m, 'with the rows that were there');

# Recovery goes on until the archive has said that there is no more.
kill_all();
append_to_file("$data/recovery.signal", '');
append_to_file("$data/postgresql.conf", "restore_command = 'touch \"$dir/asked\"; until [ -e \"$dir/go\" ]; do sleep 0.1; done; false'\n");
system_or_bail("$top/.quickstart/pg/bin/pg_ctl", '-s', '-W', '-D', $data, '-l', "$data/server.log", '-o', "-k '$socket' -p $ENV{STRATA_QUICKSTART_PORT}", 'start');
my $waiting;
my $run = IPC::Run::start([ "$top/quickstart" ], '<', '/dev/null', '>&', \$waiting);
$run->pump until $waiting =~ /waiting for the server|quickstart: / || !$run->pumpable;
like($waiting, qr/waiting for the server to accept connections/, 'it waits while the server is in recovery');
append_to_file("$dir/go", '');
ok($run->finish, 'and goes on afterwards') or diag $waiting;
like($waiting, qr/^ .*\|\s*$rows\s*$/m, 'with the rows that were there');
done_testing();
