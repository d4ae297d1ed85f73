# Shared by the TAP files: clusters with strata loaded, a heap twin fed the
# same rows, and the comparison of the two.
package Strata;

use strict;
use warnings;
use Exporter 'import';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(strata_node create_pair send_rows pgbench_upserts fingerprint same_rows verify_clean
  seal drain pending crash kill_cluster pause_arm pause_clear pause_wait seed);

# A cluster with strata preloaded and created in database postgres.  Workers
# are off, so that what a test finds does not depend on when they run, unless
# it asks for them: 'strata.max_workers' => 2.
sub strata_node
{
	my ($name, %conf) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);
	$node->init(allows_streaming => $conf{streaming} // 0, extra => ['-k']);
	delete $conf{streaming};
	$node->append_conf('postgresql.conf', <<'CONF');
shared_preload_libraries = 'strata'
strata.max_workers = 0
max_prepared_transactions = 20
shared_buffers = 128MB
autovacuum_naptime = 1h
CONF
	$node->append_conf('postgresql.conf', "$_ = $conf{$_}\n") for sort keys %conf;
	$node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION strata');
	return $node;
}

# Foreign table $name and heap twin ${name}_heap with columns of a rollout.
sub create_pair
{
	my ($node, $name, $options) = @_;
	my $columns = "id text NOT NULL, run_id int, reward float8, tokens int[], meta jsonb, payload text";
	$options = $options ? ", $options" : '';
	$node->safe_psql('postgres', <<SQL);
CREATE FOREIGN TABLE $name ($columns) SERVER strata OPTIONS (key 'id'$options);
CREATE TABLE ${name}_heap ($columns, PRIMARY KEY (id));
SQL
	return;
}

# The statements that put rows $from .. $to (version $v, payload of $size
# characters) into both tables.
sub send_rows
{
	my ($name, $from, $to, $v, $size) = @_;
	$size //= 100;
	my $rows = <<SQL;
SELECT 'k' || g, g % 7, (g * 31 + $v) % 1000 / 10.0, ARRAY[g, $v, NULL], jsonb_build_object('v', $v, 'g', g),
       left(repeat(md5(g::text || '-$v'), $size / 32 + 1), $size)
FROM generate_series($from, $to) g
SQL
	return <<SQL;
INSERT INTO $name $rows;
INSERT INTO ${name}_heap $rows ON CONFLICT (id) DO UPDATE SET run_id = EXCLUDED.run_id, reward = EXCLUDED.reward,
    tokens = EXCLUDED.tokens, meta = EXCLUDED.meta, payload = EXCLUDED.payload;
SQL
}

# A script of pgbench's by which each client puts some of its own rows, ids
# w<client>-<n>, into a table and its twin, again and again; it sets n, m and v.
sub pgbench_upserts
{
	my ($name) = @_;
	return <<"SQL";
\\set n random(1, 3000)
\\set m random(1, 40)
\\set v random(1, 1000000)
BEGIN;
INSERT INTO $name SELECT 'w' || :client_id || '-' || g, :client_id, :v, ARRAY[g], NULL, repeat('x', g % 300)
  FROM generate_series(:n, :n + :m) g;
INSERT INTO ${name}_heap SELECT 'w' || :client_id || '-' || g, :client_id, :v, ARRAY[g], NULL, repeat('x', g % 300)
  FROM generate_series(:n, :n + :m) g
  ON CONFLICT (id) DO UPDATE SET reward = EXCLUDED.reward, tokens = EXCLUDED.tokens, payload = EXCLUDED.payload;
COMMIT;
SQL
}

# An order-free hash over every column of every row, with the count.
sub fingerprint
{
	my ($node, $table, $db) = @_;
	return $node->safe_psql($db // 'postgres',
		"SELECT count(*) || ' ' || coalesce(sum(hashtextextended(t::text, 0)::numeric), 0) FROM $table t");
}

sub same_rows
{
	my ($node, $name, $what) = @_;
	is(fingerprint($node, $name), fingerprint($node, "${name}_heap"), $what);
	return;
}

# $swept: the store was just swept and nobody writes, so every block has to be
# accounted for.
sub verify_clean
{
	my ($node, $name, $what, $swept) = @_;
	my $args = $swept ? ', swept => true' : '';
	is($node->safe_psql('postgres', "SELECT object || ': ' || problem FROM strata.verify('$name'$args)"),
		'', "$what: verify is clean");
	return;
}

sub seal  { my ($node, $name) = @_; return $node->safe_psql('postgres', "SELECT count(*) FROM strata.seal('$name')"); }
sub drain { my ($node, $name) = @_; return $node->safe_psql('postgres', "CALL strata.drain('$name')"); }

sub pending
{
	my ($node, $name) = @_;
	return $node->safe_psql('postgres',
		"SELECT count(*) FROM strata.generations WHERE store = '$name'::regclass AND state = 'sealed'");
}

# kill -9 of the postmaster and of every process of its: a backend that outlived
# it would keep the shared memory of the data directory in use.  Dead ones that
# nobody has waited for yet (init can be slow at it) hold nothing, but make the
# postmaster's lock files look valid.
sub kill_cluster
{
	my ($data_dir, $socket_lock) = @_;
	my $lockfile = "$data_dir/postmaster.pid";
	my ($postmaster) = slurp_file($lockfile) =~ /^(\d+)/;
	my @children;
	# Stopped, it starts no more while we count them.
	kill 'STOP', $postmaster;
	for my $stat (glob '/proc/[0-9]*/stat')
	{
		open my $f, '<', $stat or next;
		my $line = <$f> // '';
		push @children, $1 if $line =~ /^(\d+) \(.*\) \S (\d+) / && $2 == $postmaster;
	}
	kill 'KILL', $postmaster, @children;
	my $runs = sub {
		open my $f, '<', "/proc/$_[0]/stat" or return 0;
		return (<$f> // '') !~ /^\d+ \(.*\) [ZX] /;
	};
	for (1 .. 1500)
	{
		last unless grep { $runs->($_) } $postmaster, @children;
		select undef, undef, undef, 0.02;
	}
	unlink $lockfile, $socket_lock if !$runs->($postmaster);
	return;
}

sub crash
{
	my ($node) = @_;
	kill_cluster($node->data_dir, $node->host . '/.s.PGSQL.' . $node->port . '.lock');
	$node->kill9;
	return;
}

# Pause points (src/pause.h): armed by a file in the data directory.
sub pause_arm
{
	my ($node, $point, $action) = @_;
	my $dir = $node->data_dir . '/strata.pause';
	mkdir $dir;
	unlink "$dir/$point.reached";
	append_to_file("$dir/$point.new", $action);
	rename "$dir/$point.new", "$dir/$point" or die "pause_arm: $!";
	return;
}

sub pause_clear
{
	my ($node, $point) = @_;
	unlink map { $node->data_dir . "/strata.pause/$point$_" } '', '.held';
	return;
}

# Wait until somebody waits at the point (it says so in <point>.reached).
sub pause_wait
{
	my ($node, $point) = @_;
	my $file = $node->data_dir . "/strata.pause/$point.reached";
	for (1 .. 1800)
	{
		return 1 if -e $file;
		select(undef, undef, undef, 0.1);
	}
	die "nobody reached $point";
}

# Seed of this run: STRATA_SEED or the time; printed so that a failure repeats.
sub seed
{
	my $seed = $ENV{STRATA_SEED} // time;
	note "seed $seed (STRATA_SEED=$seed repeats this run)";
	srand($seed);
	return $seed;
}

1;
