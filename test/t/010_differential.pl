# Random statements of several sessions on a strata table and on a heap twin: what
# each gives, and whether it waits, must agree (test/lib/Workload.pm makes them,
# test/lib/Differential.pm runs and compares them).
#
#   STRATA_STATEMENTS=n   how many, 10,000 if not set
#   STRATA_SEED=n         repeats a run
#   STRATA_EPISODE=n      runs one episode, as named by a failure
#   STRATA_HOT=1          only episodes about few keys and who waits for whom (0: none)
#   STRATA_LARGE=1        inserts of many keys in all others of several sessions (0: none)
#   STRATA_EXACT=1        SERIALIZABLE in all episodes of several sessions that are not hot (0: none)
#   STRATA_WORKERS=1      lets background workers merge meanwhile
#   STRATA_PARANOID=1     compares the whole table after every step
#
# A failing episode is shrunk for up to STRATA_SHRINK seconds (120) to a script,
# printed and left in tmp_check.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Differential;
use Strata;
use Workload;

# The same schedules each time, unless told otherwise: to look for more faults,
# give it others (STRATA_SEED=$(date +%s)).
$ENV{STRATA_SEED} //= 1;
my $seed = seed();
my $wanted = $ENV{STRATA_STATEMENTS} // 10000;
my $node = strata_node('differential', restart_after_crash => 'on', max_connections => 40, max_worker_processes => 16,
	log_statement => 'none', $ENV{STRATA_WORKERS} ? ('strata.max_workers' => 2) : ());
my $test = Differential->new($node);
my ($episodes, $statements, $bad) = (0, 0, 0);
$test->{crash} = sub { crash($node); $node->start; };

while ($statements < $wanted && !$bad)
{
	# Seeds of episodes of neighbouring runs differ.
	my $own = $ENV{STRATA_EPISODE} // $seed * 1000 + $episodes;
	srand $own;
	my $e = Workload::episode($ENV{STRATA_WORKERS});
	$e->{crash} = $own % 50 == 20;
	my $failure = $test->run($e);
	$episodes++;
	$statements += $test->{executed};
	if ($failure)
	{
		$bad = 1;
		fail("episode $own");
		diag "seed $seed, episode $own (STRATA_EPISODE=$own repeats it): $failure->{text}";
		($failure) = $test->shrink($e, $failure, $ENV{STRATA_SHRINK} // 120);
		my $script = $test->script($failure);
		my $file = "$PostgreSQL::Test::Utils::tmp_check/differential_$own.sql";
		append_to_file($file, "$script\n");
		diag "shrunk, in $file:\n$script";
	}
	last if $ENV{STRATA_EPISODE};
}
is($bad, 0, "strata and heap agreed in $statements statements of $episodes episodes");

my %count = %{ $test->{count} };
note "$_: $count{$_}" for sort keys %count;
$node->stop;
done_testing();
