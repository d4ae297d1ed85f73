# List append: concurrent transactions append their number to lists (by UPDATE,
# by insert-or-nothing then UPDATE, under FOR UPDATE) and read others, in random
# key order, beside passes that merge.  What they read and the final lists say
# which transaction came before which; the history must have no cycle that the
# isolation level forbids, and no append may be lost, doubled or seen without
# its transaction having committed (P54, P17).
#   READ COMMITTED    no cycle of writes and reads of written values
#   REPEATABLE READ   none with a single anti-dependency between such either
#   SERIALIZABLE      none at all; also with lists that are no values but rows
#                     under a first column of the key, read by that in any way
# STRATA_TRANSACTIONS sets how many transactions each level runs.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Strata;

my $seed = seed();
my $transactions = $ENV{STRATA_TRANSACTIONS} // 7000;
my $clients = 6;
my $node = strata_node('list_append', deadlock_timeout => "'50ms'", fsync => 'off');

$node->safe_psql('postgres', <<'SQL');
CREATE SEQUENCE numbers;
CREATE TABLE history (txn int, keys int[], ops text, lists text[]);

-- keys move on, so that lists stay short
CREATE FUNCTION play() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  txn int := nextval('numbers');
  keys int[];
  ops text := '';
  lists text[];
  seen int[];
  k int;
  op text;
BEGIN
  FOR i IN 1 .. 2 + (random() * 2)::int LOOP
    k := txn / 150 * 10 + (random() * 7)::int;
    op := substr('aaaurrl', 1 + (random() * 6)::int, 1);
    seen := NULL;
    IF op = 'u' THEN
      INSERT INTO t VALUES (k, ARRAY[]::int[], repeat('x', (random() * 500)::int)) ON CONFLICT DO NOTHING;
    END IF;
    IF op = 'l' THEN
      SELECT t.list INTO seen FROM t WHERE id = k FOR UPDATE;
      -- (a row that comes between the two was not locked, and not seen)
      CONTINUE WHEN NOT FOUND;
      UPDATE t SET list = t.list || txn WHERE id = k;
      seen := seen || txn;
    ELSIF op = 'r' THEN
      SELECT t.list INTO seen FROM t WHERE id = k;
    ELSE
      UPDATE t SET list = t.list || txn WHERE id = k RETURNING t.list INTO seen;
      CONTINUE WHEN NOT FOUND;
    END IF;
    keys := keys || k;
    ops := ops || op;
    lists := lists || coalesce(seen, '{}')::text;
  END LOOP;
  INSERT INTO history VALUES (txn, keys, ops, lists);
END$$;

CREATE FUNCTION play_rows() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  txn int := nextval('numbers');
  keys int[];
  ops text := '';
  lists text[];
  seen int[];
  k int;
  op text;
  conditions text[] := ARRAY['id = $1', 'id = $1 AND pos > 0', 'id IN ($1, -1)', 'id = ANY (ARRAY[$1::int8, NULL])',
    'id IN ($1, -1) AND pos BETWEEN 1 AND 1000000', 'id BETWEEN $1 AND $1', 'id + 0 = $1'];
BEGIN
  PERFORM set_config('enable_indexscan', (random() < 0.8)::text, true);
  FOR i IN 1 .. 2 + (random() * 2)::int LOOP
    k := txn / 150 * 10 + (random() * 7)::int;
    op := substr('aar', 1 + (random() * 2)::int, 1);
    EXECUTE 'SELECT array_agg(txn ORDER BY pos) FROM t WHERE ' || conditions[1 + (random() * 6)::int] INTO seen USING k;
    IF op = 'a' THEN
      -- (two transactions that both find this place free do not both commit)
      INSERT INTO t VALUES (k, coalesce(cardinality(seen), 0) + 1, txn, repeat('x', (random() * 500)::int));
      seen := seen || txn;
    END IF;
    keys := keys || k;
    ops := ops || op;
    lists := lists || coalesce(seen, '{}')::text;
  END LOOP;
  INSERT INTO history VALUES (txn, keys, ops, lists);
END$$;
SQL

# Strongly connected components of more than one node (or a loop): iterative
# Tarjan.  Returns one such component, or nothing.
sub cycle
{
	my ($graph) = @_;
	my (%index, %low, %on, @stack);
	my $n = 0;
	for my $root (sort { $a <=> $b } keys %$graph)
	{
		next if exists $index{$root};
		my @work = ([ $root, undef ]);
		while (@work)
		{
			my $frame = $work[-1];
			my ($v, $next) = @$frame;
			if (!defined $next)
			{
				$index{$v} = $low{$v} = $n++;
				push @stack, $v;
				$on{$v} = 1;
				$frame->[1] = [ keys %{ $graph->{$v} // {} } ];
				next;
			}
			if (defined(my $w = shift @$next))
			{
				return ($v) if $w eq $v;
				if (!exists $index{$w}) { push @work, [ $w, undef ]; }
				elsif ($on{$w} && $index{$w} < $low{$v}) { $low{$v} = $index{$w}; }
				next;
			}
			if ($low{$v} == $index{$v})
			{
				my @component;
				while (1)
				{
					my $w = pop @stack;
					delete $on{$w};
					push @component, $w;
					last if $w eq $v;
				}
				return @component if @component > 1;
			}
			pop @work;
			$low{ $work[-1][0] } = $low{$v} if @work && $low{$v} < $low{ $work[-1][0] };
		}
	}
	return;
}

for my $case ('READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE', 'SERIALIZABLE, rows')
{
	(my $short = lc $case) =~ s/\W+/_/g;
	my ($level, $rows) = split /, /, $case;
	my ($columns, $key, $final) = ('id int NOT NULL, list int[]', 'id', "SELECT id, array_to_string(list, ',') FROM t");
	($columns, $key, $final) = ('id int NOT NULL, pos int NOT NULL, txn int', 'id, pos',
		"SELECT id, string_agg(txn::text, ',' ORDER BY pos) FROM t GROUP BY id") if $rows;
	my $function = $rows ? 'play_rows' : 'play';
	my $mode = $rows ? ", on_duplicate 'error'" : '';
	$node->safe_psql('postgres', <<SQL);
DROP FOREIGN TABLE IF EXISTS t;
CREATE FOREIGN TABLE t ($columns, pad text) SERVER strata
  OPTIONS (key '$key', shards '2', generation_max_rows '200', auto_merge 'off'$mode);
TRUNCATE history;
ALTER SEQUENCE numbers RESTART;
SQL
	my $play = $node->basedir . "/$short.play";
	append_to_file($play, "BEGIN ISOLATION LEVEL $level;\nSELECT $function();\nCOMMIT;\n");
	my $merge = $node->basedir . "/$short.merge";
	append_to_file($merge, "SELECT count(*) FROM strata.seal('t');\nSELECT count(*) FROM strata.merge('t');\n\\sleep 20 ms\n");

	my $dir = $node->basedir;
	local $ENV{PGHOST} = $node->host;
	local $ENV{PGPORT} = $node->port;
	my $merger = IPC::Run::start([ 'pgbench', '-n', '-c', 1, '-T', 600, '-f', $merge, 'postgres' ],
		'>', "$dir/merge.out", '2>', "$dir/merge.err");
	my $rc = system('pgbench', '-n', '-c', $clients, '-j', 2, '-t', int($transactions / $clients), '--max-tries=1000',
		"--random-seed=$seed", '-f', $play, 'postgres');
	is($rc, 0, "$case: the transactions ran");
	$merger->signal('TERM');
	$merger->finish;

	my %final = map { my ($k, $l) = split /\|/; $k => [ split /,/, $l ] }
	  split /\n/, $node->safe_psql('postgres', $final);
	my @history = map { [ split /\|/ ] } split /\n/,
	  $node->safe_psql('postgres', q{SELECT txn, array_to_string(keys, ' '), ops, array_to_string(lists, ' ') FROM history WHERE keys IS NOT NULL});
	my (%appended, %committed, %dep, %anti);
	my ($lost, $torn) = (0, 0);
	my (%position);
	for my $k (keys %final)
	{
		my $l = $final{$k};
		for my $i (0 .. $#$l)
		{
			# a transaction may append twice to a list
			$dep{ $l->[ $i - 1 ] }{ $l->[$i] } = 1 if $i > 0 && $l->[ $i - 1 ] != $l->[$i];
		}
	}
	my $reads = 0;
	for my $h (@history)
	{
		my ($txn, $keys, $ops, $lists) = @$h;
		$committed{$txn} = 1;
		my @keys = split / /, $keys;
		my @lists = split / /, $lists;
		for my $i (0 .. $#keys)
		{
			my $k = $keys[$i];
			my @seen = $lists[$i] =~ /(\d+)/g;
			my $l = $final{$k} // [];
			$appended{$k}{$txn}++ if substr($ops, $i, 1) ne 'r';
			$reads++;
			# what is read is how the list began
			if (@seen > @$l || grep { $seen[$_] != $l->[$_] } 0 .. $#seen)
			{
				$torn++;
				diag "$case: transaction $txn read {@seen} of key $k, which is {@$l}" if $torn < 5;
				next;
			}
			my $last = $#seen;
			$last-- while $last >= 0 && $seen[$last] == $txn;
			$dep{ $seen[$last] }{$txn} = 1 if $last >= 0;
			my $next = $#seen + 1;
			$next++ while $next <= $#$l && $l->[$next] == $txn;
			$anti{$txn}{ $l->[$next] } = 1 if $next <= $#$l && $l->[$next] != $txn;
		}
	}
	for my $k (keys %final)
	{
		my %count;
		$count{$_}++ for @{ $final{$k} };
		for my $txn (keys %count, keys %{ $appended{$k} // {} })
		{
			next if ($count{$txn} // 0) == ($appended{$k}{$txn} // 0);
			$lost++;
			diag "$case: key $k has $txn " . ($count{$txn} // 0) . " times, appended " . ($appended{$k}{$txn} // 0) if $lost < 5;
		}
	}
	cmp_ok(scalar @history, '>', $transactions / 2, "$case: a history of " . @history . " transactions, $reads operations");
	is($lost, 0, "$case: no append lost, doubled or left by an aborted transaction");
	is($torn, 0, "$case: every read is a prefix");

	my %graph;
	if ($level eq 'READ COMMITTED') { %graph = %dep; }
	elsif ($level eq 'SERIALIZABLE')
	{
		%graph = map { $_ => { %{ $dep{$_} // {} }, %{ $anti{$_} // {} } } } keys %dep, keys %anti;
	}
	else
	{
		for my $a (keys %dep)
		{
			for my $b (keys %{ $dep{$a} })
			{
				$graph{$a}{$b} = 1;
				$graph{$a}{$_} = 1 for keys %{ $anti{$b} // {} };
			}
		}
	}
	my @cycle = cycle(\%graph);
	is("@cycle", '', "$case: no forbidden cycle among " . (scalar keys %graph) . " transactions");
	verify_clean($node, 't', $case);
	my $merged = $node->safe_psql('postgres', "SELECT count(*) > 0 FROM strata.merges WHERE store = 't'::regclass");
	is($merged, 't', "$case: passes ran meanwhile");
}
$node->stop;
done_testing();
