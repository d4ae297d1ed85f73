# No launcher on a standby; after promotion merging goes on by itself there (P53),
# and what a worker of the original was at is no crash of the copy's (L54).
# What strata.health() says of standbys and their slots.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Strata;

my $primary = strata_node('wprimary', streaming => 1, 'strata.max_workers' => 2, hot_standby_feedback => 'on');
create_pair($primary, 't', "merge_interval '1s'");
pause_arm($primary, 'pass-before-commit', 'hang');
$primary->safe_psql('postgres', send_rows('t', 1, 1000, 1));
pause_wait($primary, 'pass-before-commit');
$primary->safe_psql('postgres', "SELECT pg_create_physical_replication_slot('of_standby')");
$primary->backup('base');
pause_clear($primary, 'pass-before-commit');
my $standby = PostgreSQL::Test::Cluster->new('wstandby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
pause_clear($standby, 'pass-before-commit');
$standby->append_conf('postgresql.conf', "primary_slot_name = 'of_standby'");
$standby->start;

ok($primary->poll_query_until('postgres', "SELECT pending_generations = 0 FROM strata.stores"), 'merged on the primary');
$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
same_rows($standby, 't', 'rows on the standby');
is($standby->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'strata%'"), 0, 'no launcher on the standby');
is($standby->safe_psql('postgres', "SELECT pending_generations, wanted_by, failures FROM strata.stores"), '0||0', 'views work there');
is($standby->safe_psql('postgres', "SELECT count(*) FROM strata.health() WHERE severity <> 'info'"), 0, 'health works there');
is($standby->safe_psql('postgres', "SELECT count(*) FROM strata.workers"), 0, 'no worker');
isnt($standby->psql('postgres', "SELECT * FROM strata.compact('t')"), 0, 'compact is refused there');

# A standby without feedback, and the slot of one that is gone.
my $feedback = "SELECT count(*) FROM strata.health() WHERE severity = 'info' AND what LIKE 'standby wstandby sends no feedback'";
ok($primary->poll_query_until('postgres', $feedback, '0'), 'health: feedback is on');
$standby->safe_psql('postgres', 'ALTER SYSTEM SET hot_standby_feedback = off; SELECT pg_reload_conf()');
ok($primary->poll_query_until('postgres', $feedback, '1'), 'health: a standby without feedback is told');
$standby->safe_psql('postgres', 'ALTER SYSTEM SET hot_standby_feedback = on; SELECT pg_reload_conf()');
ok($primary->poll_query_until('postgres', $feedback, '0'), 'health: on again');
my $slot = "SELECT count(*) FROM strata.health() WHERE severity = 'warning' AND what LIKE 'replication slot of_standby, not in use%'";
is($primary->safe_psql('postgres', $slot), 0, 'health: a slot in use is none of its business');

# Pending at the moment of promotion.
$primary->safe_psql('postgres', 'ALTER SYSTEM SET strata.max_workers = 0; SELECT pg_reload_conf()');
$primary->safe_psql('postgres', send_rows('t', 500, 1500, 2));
$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
$standby->promote;
ok($standby->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'strata launcher'"), 'a launcher after promotion');
ok($standby->poll_query_until('postgres', "SELECT pending_generations = 0 FROM strata.stores"), 'it finds what is pending');
ok(slurp_file($standby->logfile) !~ /the server crashed/, 'nothing crashed here');
ok($primary->poll_query_until('postgres', $slot, '1'), 'health: an unused slot that holds space back is told');
same_rows($standby, 't', 'rows after promotion');
verify_clean($standby, 't', 'after promotion');

$standby->stop;
$primary->stop;
done_testing();
