# Random schedules for the differential test.  An episode is a table (its shape
# and options drawn anew) and a list of steps; a step names a session and holds
# the statement for the strata table and the one for the heap twin, which differ
# only where a strata table is used differently: an insert into a table with
# on_duplicate 'replace' is INSERT ... ON CONFLICT DO UPDATE on a heap,
# maintenance has no counterpart.  A heap lets a transaction whose snapshot is
# fixed insert a key that it still sees though another one has deleted it, and
# then shows it twice; no strata table does, so the twin has a trigger (once) that
# fails then, too.  Both tables are called t, in schemas s and h.
#
# Who fails at SERIALIZABLE depends on how what was read is remembered: a heap
# has rows, pages and leaves of indexes, a strata table has keys and what they begin
# with.  Only of a table that was read whole both know the same.  So in some
# episodes (exact) all sessions are mostly SERIALIZABLE and read the whole table,
# with no condition that bounds the key; once they have, they do what they like
# (partial; but as the twin's trigger would read, no key is put that others may
# have deleted).  In the other episodes one transaction at a time is SERIALIZABLE
# (see _level in Differential.pm).
package Workload;

use strict;
use warnings;
use Exporter 'import';
use ValueTypes qw(%type %declared expr can_do);

our @EXPORT_OK = qw(episode prelude);

# What both databases need once.
sub prelude
{
	return <<'SQL';
CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy');
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE TYPE pair AS (x int, y text);
CREATE FUNCTION noise(seed int, n int) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
	RETURN (SELECT string_agg(md5((seed * 1000 + i)::text), '') FROM generate_series(1, n) i);
CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO audit SELECT TG_OP || ' ' || TG_LEVEL, CASE WHEN TG_LEVEL = 'ROW' AND TG_OP <> 'INSERT' THEN OLD::text END,
		CASE WHEN TG_LEVEL = 'ROW' AND TG_OP <> 'DELETE' THEN NEW::text END, count(*) FROM t;
	RETURN NULL;
END$$;
CREATE FUNCTION change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	NEW.n := coalesce(NEW.n, 0) % 400 + OLD.n % 3;
	RETURN NEW;
END$$;
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE FUNCTION once() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
	-- the rows of the statement may be in other partitions
	root regclass := coalesce(pg_partition_root(TG_RELID), TG_RELID);
	tables oid[] := root || ARRAY(SELECT relid::oid FROM pg_partition_tree(root));
	-- the index knows names that the snapshot does not see yet
	key text := coalesce((SELECT string_agg(pg_get_indexdef(indexrelid, n, false), ', ') FROM pg_index, generate_series(1, indnatts) n
			WHERE indisprimary AND indrelid = (SELECT max(indrelid) FROM pg_index WHERE indisprimary AND indrelid = ANY (tables))),
		(SELECT max(option_value) FROM pg_foreign_table, pg_options_to_table(ftoptions) WHERE ftrelid = ANY (tables) AND option_name = 'key'));
	twice bool;
BEGIN
	EXECUTE format('SELECT EXISTS (SELECT FROM %s GROUP BY %s HAVING count(*) > 1)', root, key) INTO twice;
	IF twice THEN
		RAISE serialization_failure;
	END IF;
	RETURN NEW;
END$$;
SQL
}

sub pick { return $_[ rand @_ ]; }
sub chance { return rand() < $_[0]; }

# ---- the table ----

# $workers: background workers merge while the statements run.
sub episode
{
	my ($workers) = @_;
	# Some are about who waits for whom: few keys, one in a statement.
	my $hot = $ENV{STRATA_HOT} // chance(0.2);
	my $e = { sessions => $hot ? pick(2, 2, 2, 3) : pick(1, 1, 2, 2, 2, 3), serial => 0, steps => [], hot => $hot };
	my $keys = pick(1, 1, 1, 1, 2, 2, 3);
	my $exact = $e->{exact} = !$hot && $e->{sessions} > 1 && ($ENV{STRATA_EXACT} // chance(0.25));
	# A heap's upsert that sets key columns, as it has to where equal keys may look
	# different, locks more than one that does not.
	my $alone = $e->{sessions} == 1;
	my @keytypes = grep { $type{$_}[1] =~ ($alone ? qr/k/ : qr/k.*e/) } sort keys %type;
	$e->{set_key} = $alone;
	# Statements read the whole table, so UPDATE and DELETE join nothing.
	$e->{whole} = $e->{narrow} = $exact;
	my @types = sort keys %type;
	my @cols;
	for my $i (1 .. $keys)
	{
		push @cols, { name => "k$i", type => pick(@keytypes, 'int', 'text', 'uuid'), key => 1 };
	}
	push @cols, { name => 'n', type => 'int' };
	push @cols, { name => "c$_", type => pick(@types) } for 1 .. 2 + int rand 5;
	# Columns before, between and after the key.
	@cols = sort { $a->{at} <=> $b->{at} } map { { %$_, at => rand } } @cols if chance(0.4);
	for my $c (@cols) { $c->{default} = expr($c->{type}, 7) if !$c->{key} && chance(0.15); }
	my @keycols = sort { $a->{name} cmp $b->{name} } grep { $_->{key} } @cols;
	my $mode = pick('replace', 'replace', 'replace', 'error', $exact ? 'error' : 'ignore');
	for (@cols) { $_->{required} = 1 if $_->{name} eq 'n' && chance(0.3); }
	my @defs = map {
		my $d = "$_->{name} " . ($declared{ $_->{type} } // $_->{type});
		$d .= ' NOT NULL' if $_->{key} || $_->{required};
		$d .= " DEFAULT $_->{default}" if $_->{default};
		$d
	} @cols;
	if (chance(0.15)) { push @defs, 'gen int GENERATED ALWAYS AS (n * 2) STORED'; }
	my $check = chance(0.3);
	push @defs, 'CONSTRAINT small CHECK (n < 1000)' if $check;
	my @options = ("key '" . join(',', map { $_->{name} } @keycols) . "'", "on_duplicate '$mode'");
	push @options, $workers ? "merge_after_generations '1', merge_interval '1s'" : "auto_merge 'off'";
	$e->{workers} = $workers;
	push @options, "shards '" . (1 + int rand 5) . "'" if chance(0.3);
	# Not 50: an INSERT of more rows over 60 keys would put the last ones after the 64 rows
	# whose keys are locked.
	push @options, "row_group_rows '" . pick(20, 80, 200) . "'" if chance(0.5);
	push @options, "generation_max_rows '" . pick(10, 40, 100) . "'" if chance(0.4);
	push @options, "generation_max_bytes '" . pick('16kB', '64kB') . "'" if chance(0.2);
	push @options, "row_group_bytes '64kB'" if chance(0.2);
	push @options, "compression_level '" . pick(1, 3, 9) . "'" if chance(0.2);
	my $defs = join ', ', @defs;
	my $list = join ', ', map { $_->{name} } @keycols;
	@$e{qw(mode cols key check space)} = ($mode, \@cols, [ map { $_->{name} } @keycols ], $check,
		$hot ? pick(1, 2, 4) : $e->{sessions} == 1 ? pick(10, 60, 300, 2000) : $ENV{STRATA_LARGE} // chance(0.25) ? 200 : pick(6, 20, 60));
	$e->{keycols} = \@keycols;
	# Inserts of so many keys that they are not locked.
	$e->{large} = $e->{sessions} > 1 && $e->{space} > 64;
	my $options = 'SERVER strata OPTIONS (' . join(', ', @options) . ')';
	$e->{stores} = ['t'];
	if (chance(0.15))
	{
		# Partitions of which one has its columns in another order.  A heap
		# partition's unique index does what on_duplicate 'error' does.
		$e->{stores} = $mode eq 'error' ? [ 'p0', 'p1' ] : [ 'p0', 'p1', 'p2' ];
		my $reverse = join ', ', 'gone int', reverse @defs;
		my $parts = "CREATE TABLE t ($defs) PARTITION BY HASH ($keycols[0]{name}); CREATE {F} p0 PARTITION OF t FOR VALUES WITH (MODULUS 3, REMAINDER 0) {O}; "
		  . "CREATE {F} p1 ($reverse) {O}; ALTER TABLE p1 DROP COLUMN gone; ALTER TABLE t ATTACH PARTITION p1 FOR VALUES WITH (MODULUS 3, REMAINDER 1); "
		  . 'CREATE {F2} p2 PARTITION OF t FOR VALUES WITH (MODULUS 3, REMAINDER 2) {O2}';
		my %s = (F => 'FOREIGN TABLE', O => $options, F2 => 'FOREIGN TABLE', O2 => $options);
		@s{qw(F2 O2)} = ('TABLE', '') if $mode eq 'error';
		my %h = (F => 'TABLE', O => '', F2 => 'TABLE', O2 => '');
		$e->{create}{s} = ($parts =~ s/\{(\w+)\}/$s{$1}/gr) . ($mode eq 'error' ? "; ALTER TABLE p2 ADD PRIMARY KEY ($list)" : '');
		$e->{create}{h} = ($parts =~ s/\{(\w+)\}/$h{$1}/gr) . "; ALTER TABLE t ADD PRIMARY KEY ($list)";
	}
	else
	{
		$e->{create}{s} = "CREATE FOREIGN TABLE t ($defs) $options";
		$e->{create}{h} = "CREATE TABLE t ($defs, PRIMARY KEY ($list))";
	}
	# Statistics, or an UPDATE that joins it expects so many rows that it locks all.
	$e->{create}{both} = 'CREATE TABLE o AS SELECT i, i * 7 % 31 AS v, ' . expr($keycols[0]{type}, 'i') . ' AS w FROM generate_series(-20, 76) i; ANALYZE o; '
	  . 'CREATE TABLE audit (what text, old text, new text, rows bigint)';
	my $after = '';
	if (chance(0.3))
	{
		$e->{view} = 1;
		$after .= '; CREATE VIEW v WITH (security_barrier = ' . pick('on', 'off') . ') AS SELECT * FROM t WHERE n < 50 OR n IS NULL' . pick('', ' WITH CHECK OPTION');
	}
	if (!$alone)
	{
		my $levels = $exact ? "= 'repeatable read'" : "<> 'read committed'";
		my $once = "WHEN (current_setting('transaction_isolation') $levels) EXECUTE FUNCTION public.once()";
		my $at_end = "; CREATE TRIGGER once_at_end AFTER INSERT OR UPDATE ON t FOR EACH STATEMENT $once";
		# For the rows so far, lest the next one fail for another reason.
		my $so_far = "; CREATE TRIGGER once_so_far BEFORE INSERT ON t FOR EACH ROW $once";
		$e->{create}{h} .= $at_end . $so_far;
		# The heap partition needs them.
		$e->{create}{s} .= $at_end . $so_far if $e->{create}{s} =~ /ALTER TABLE p2 ADD PRIMARY KEY/;
	}
	if ($mode ne 'replace' && chance(0.4))
	{
		# An upsert of the heap would fire those of UPDATE.  With row triggers, rows
		# are locked before they are joined and before new values are computed.
		$e->{locks_first} = $e->{sessions} > 1;
		$e->{narrow} ||= $e->{locks_first};
		$after .= "; CREATE TRIGGER a AFTER INSERT OR UPDATE OR DELETE ON t FOR EACH ROW EXECUTE FUNCTION public.audit()" if chance(0.6);
		$after .= "; CREATE TRIGGER b BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION public.change()" if chance(0.5);
		$after .= "; CREATE TRIGGER c BEFORE DELETE ON t FOR EACH ROW WHEN (OLD.n % 5 = 1) EXECUTE FUNCTION public.refuse()" if chance(0.3);
		$after .= "; CREATE TRIGGER d AFTER INSERT OR UPDATE OR DELETE ON t FOR EACH STATEMENT EXECUTE FUNCTION public.audit()" if chance(0.4);
	}
	$e->{create}{$_} .= $after for 's', 'h';
	my $steps = pick(40, 80, 160, 250);
	my @in = (0) x $e->{sessions};
	my $s = 0;
	for my $n (0 .. $e->{sessions} - 1)
	{
		add($e, $n, both('set', "SET work_mem = 64; SET strata.cache_size = '64kB'")) if chance(0.15);
		if ($exact) { add($e, $n, map { both('set', "SET $_ = off") } qw(enable_indexscan enable_bitmapscan enable_indexonlyscan)); }
		elsif (chance(0.2)) { add($e, $n, setting($e)); }
	}
	add($e, 0, insert_bulk($e)) if chance($hot ? 0.3 : 0.8);
	while (@{ $e->{steps} } < $steps)
	{
		$s = int rand $e->{sessions} if chance(0.5);
		add($e, $s, step($e, \$in[$s]));
	}
	return $e;
}

sub add { my ($e, $s, @steps) = @_; push @{ $e->{steps} }, map { { session => $s, fail => pick('to', 'all'), %$_ } } @steps; return; }

# puts, removes: may put a key that is not there, may remove one that is.
sub both { my ($kind, $sql, %more) = @_; return { kind => $kind, s => $sql, h => $sql, $kind eq 'insert' ? (puts => 1) : (), $kind eq 'delete' ? (removes => 1) : (), %more }; }

sub step
{
	my ($e, $in) = @_;
	my $r = rand;
	if ($e->{sessions} > 1 ? chance($$in ? 0.08 : 0.3) : chance($$in ? 0.06 : 0.1))
	{
		if (!$$in)
		{
			# One that only inserts reads nothing.
			$$in = $e->{exact} && chance(0.4) ? 2 : 1;
			my $level = pick('READ COMMITTED', 'READ COMMITTED', 'REPEATABLE READ', 'REPEATABLE READ', 'SERIALIZABLE');
			$level = 'SERIALIZABLE' if $e->{exact} && chance(0.8);
			my $begin = both('begin', "BEGIN ISOLATION LEVEL $level", level => $level);
			return ($begin, read_all($e)) if $e->{exact} && $$in == 1 && chance(0.6);
			# Sometimes the snapshot is taken while the table is still free.
			return chance(0.3) ? ($begin, both('select', 'SELECT sum(v) FROM o')) : $begin;
		}
		$$in = 0;
		return both('end', pick('COMMIT', 'COMMIT', 'COMMIT', 'ROLLBACK')) unless chance(0.15);
		$e->{serial}++;
		return { kind => 'prepare', gid => $e->{serial} };
	}
	return chance(0.7) ? insert_values($e) : insert_bulk($e) if $$in == 2;
	# What a savepoint that was rolled back has read is remembered, and a heap's
	# upsert reads the row that it replaces.
	my %partial = $e->{exact} ? (partial => 1) : ();
	if ($$in && chance(0.15))
	{
		return both('savepoint', '', %partial) if chance(0.5);
		return both(pick('rollback to', 'rollback to', 'release'), '');
	}
	return command($e, $in, $r) unless $e->{exact} && chance(0.5);
	local @$e{qw(whole narrow)} = (0, $e->{locks_first});
	return { %{ command($e, $in, $r) }, %partial };
}

sub command
{
	my ($e, $in, $r) = @_;
	return insert_bulk($e) if $e->{large} && chance(0.15);
	if ($e->{hot} && $r < 0.9)
	{
		return select_step($e) if $r < 0.08;
		return insert_values($e) if $r < 0.36;
		return update_step($e) if $r < 0.53;
		return delete_step($e) if $r < 0.70;
		return lock_step($e) if $r < 0.85;
		return maintenance($e);
	}
	return select_step($e) if $r < 0.40;
	return insert_values($e) if $r < 0.53;
	return insert_bulk($e) if $r < 0.58;
	return update_step($e) if $r < 0.69;
	return delete_step($e) if $r < 0.76;
	return lock_step($e) if $r < 0.81;
	return maintenance($e) if $r < 0.91;
	return select_step($e) if $r < 0.96 && $e->{whole} || $r < 0.93 && $e->{exact};
	return setting($e) if $r < 0.93;
	return cursor($e) if $r < 0.95;
	return error_step($e) if $r < 0.96;
	return { kind => 'finish', how => pick('COMMIT', 'COMMIT', 'ROLLBACK') } if $r < 0.963;
	# What a rollback takes back, later statements still believe in.
	return select_step($e) if $r < 0.99 && $$in && chance(0.7);
	my $ddl = $r < 0.99 ? ddl($e) : both('ddl', 'TRUNCATE t');
	# No level isolates from what TRUNCATE does; and other commands read and write
	# strata's own tables.
	return { %$ddl, $e->{exact} ? (level => 'READ COMMITTED') : () };
}

# ---- expressions ----

# The key of row number $k: its parts, for a composite one, share prefixes.
sub key_exprs
{
	my ($e, $k) = @_;
	my $n = @{ $e->{keycols} };
	my @parts = $n == 1 ? ($k) : $n == 2 ? ("($k / 5)", "($k % 5)") : ("($k / 15)", "($k / 5 % 3)", "($k % 5)");
	return map { expr($e->{keycols}[$_]{type}, $parts[$_]) } 0 .. $n - 1;
}

sub random_k { my ($e) = @_; return int rand $e->{space}; }

sub key_is
{
	my ($e, $k, $x) = @_;
	my @at = key_exprs($e, $k // random_k($e));
	return unbounded($e, $x, join ' AND ', map { ($x ? "$x." : '') . "$e->{key}[$_] = $at[$_]" } 0 .. $#at);
}

# The same condition, which where that matters takes the whole table to answer.
sub unbounded { my ($e, $x, $where) = @_; return $e->{whole} ? "($where OR " . ($x ? "$x." : '') . 'n = -1000000)' : $where; }

sub literal { my ($col) = @_; return chance(0.12) && !$col->{required} ? 'NULL::' . ($declared{ $col->{type} } // $col->{type}) : expr($col->{type}, int rand 300); }
sub payload { my ($e) = @_; return grep { !$_->{key} } @{ $e->{cols} }; }
sub key_list { my ($e, $x, $dir) = @_; return join ', ', map { ($x ? "$x." : '') . $_ . ($dir // '') } @{ $e->{key} }; }

sub comparison
{
	my ($e, $x) = @_;
	my $col = chance(0.5) ? pick(@{ $e->{keycols} }) : pick(@{ $e->{cols} });
	my $name = "$x.$col->{name}";
	my $space = $col->{key} ? (@{ $e->{keycols} } > 1 ? 8 : $e->{space}) : 300;
	my $value = sub { expr($col->{type}, int rand $space) };
	my $r = rand;
	return "$name = " . $value->() if $r < 0.2;
	return "$name " . pick('<', '<=', '>', '>=') . ' ' . $value->() if $r < 0.45;
	return "$name <> " . $value->() if $r < 0.5;
	return "$name BETWEEN " . $value->() . ' AND ' . $value->() if $r < 0.6;
	return "$name IN (" . join(', ', map { $value->() } 1 .. 1 + int rand 6) . ')' if $r < 0.7;
	return "$name = ANY (ARRAY[" . join(', ', map { $value->() } 1 .. 1 + int rand 6) . (chance(0.1) ? ', NULL' : '') . '])' if $r < 0.76 && $col->{type} !~ /\[/;
	return "$name IS " . pick('', 'NOT ') . 'NULL' if $r < 0.84;
	return "$name IS NOT DISTINCT FROM " . $value->() if $r < 0.86;
	return "$name LIKE '" . pick('k1%', 'v%', '%5', 'k_', 'w%', '%') . "'" if can_do($col, 'l') && $r < 0.95;
	return "$name " . pick('=', '<', '>=') . " (SELECT max(z.$col->{name}) FROM t z WHERE z.n < " . int(rand 80) . ')' if can_do($col, 'm') && $r < 0.95;
	return '(' . key_list($e, $x) . ') ' . pick('<', '>', '>=', '=') . ' (' . join(', ', key_exprs($e, random_k($e))) . ')' if @{ $e->{keycols} } > 1;
	return "$name " . pick('=', '>') . ' ' . $name;
}

# Arrays and the like on leading key columns.
sub key_arrays
{
	my ($e, $x) = @_;
	my @cols = @{ $e->{keycols} };
	my $space = @cols > 1 ? 8 : $e->{space};
	return join ' AND ', map {
		my $col = $_;
		my @values = map { expr($col->{type}, int rand $space) } 1 .. 1 + int rand 5;
		chance(0.2) ? "$x.$col->{name} = $values[0]"
		  : chance(0.2) ? "$x.$col->{name} > $values[0]"
		  : chance(0.3) || $col->{type} =~ /\[/ ? "$x.$col->{name} IN (" . join(', ', @values) . ')'
		  : chance(0.3) && $col->{type} =~ /^int2?$/ ? "$x.$col->{name} = ANY (ARRAY[" . join(', ', map { "$_ + 0::int8" } @values) . '])'
		  : "$x.$col->{name} = ANY (ARRAY(SELECT z FROM unnest(ARRAY[" . join(', ', @values, 'NULL') . "]) z WHERE " . int(rand 9) . ' < 8))'
	} @cols[ 0 .. int rand @cols ];
}

sub condition { my ($e, $x) = @_; return unbounded($e, $x, any_condition($e, $x)); }

sub any_condition
{
	my ($e, $x) = @_;
	my $r = rand;
	return key_is($e, undef, $x) if $r < 0.25;
	return comparison($e, $x) if $r < 0.65;
	return key_arrays($e, $x) if $r < 0.7;
	return comparison($e, $x) . ' AND ' . comparison($e, $x) if $r < 0.85;
	return '(' . comparison($e, $x) . ' OR ' . comparison($e, $x) . ')' if $r < 0.93;
	return 'NOT (' . comparison($e, $x) . ')' if $r < 0.96;
	return 'true' if $e->{narrow};
	return "EXISTS (SELECT 1 FROM o WHERE o.i = $x.n AND o.v " . pick('<', '>') . ' 15)' if $r < 0.98;
	return 'true';
}

sub output
{
	my ($e, $x) = @_;
	my $r = rand;
	return "$x.*" if $r < 0.5;
	return $x if $r < 0.55;
	return key_list($e, $x) if $r < 0.65;
	return join ', ', map { "$x.$_->{name}" } grep { chance(0.5) } @{ $e->{cols} } if $r < 0.85;
	return "$x.n * 2 + 1, $x.tableoid::regclass::text, " . key_list($e, $x) if $r < 0.95;
	return '1';
}

# ---- queries ----

sub select_step
{
	my ($e, $plain) = @_;
	my $out = output($e, 't') || 't.n';
	my $where = condition($e, 't');
	my $key = key_list($e, 't');
	my $on = join ' AND ', map { "t.$_ = u.$_" } @{ $e->{key} };
	my @minmax = grep { can_do($_, 'm') && can_do($_, 'e') } @{ $e->{cols} };
	my @group = grep { can_do($_, 'e') } payload($e);
	my $g = pick(@group)->{name};
	my $m = @minmax ? pick(@minmax)->{name} : 'n';
	my $dir = pick('', ' DESC');
	my $order = key_list($e, 't', $dir);
	my $limit = int rand 12;
	my $n = 1 + int rand 60;
	my @query = (
		sub { "SELECT $out FROM t WHERE $where" },
		sub { "SELECT $out FROM t WHERE " . key_is($e, undef, 't') },
		sub { "SELECT $out, $key FROM t WHERE $where ORDER BY $order LIMIT $limit", 1 },
		sub { "SELECT $out, $key FROM t WHERE $where ORDER BY $order OFFSET $limit", 1 },
		sub { "SELECT $out, $key FROM t ORDER BY $order LIMIT $limit OFFSET " . int rand 5, 1 },
		sub { 'SELECT count(*) FROM t' },
		sub { "SELECT count(*), count($g), min($m), max($m), sum(n) FROM t" . (chance(0.5) ? " WHERE $where" : '') },
		sub { "SELECT min($m) FROM t" },
		sub { "SELECT max($m) FROM t WHERE $where" },
		sub { "SELECT $g, count(*), sum(n), min($m) FROM t GROUP BY $g" },
		sub { "SELECT $key, count(*), max(n) FROM t WHERE $where GROUP BY $key HAVING count(*) > 0" },
		sub { "SELECT DISTINCT $g, n FROM t WHERE $where" },
		sub { "SELECT $key, u.n, t.n FROM t " . pick('JOIN', 'LEFT JOIN', 'RIGHT JOIN', 'FULL JOIN') . " t u ON $on WHERE " . condition($e, 't') },
		sub { "SELECT t.n, u.$g FROM t JOIN (SELECT * FROM t WHERE n < $n) u ON t.n = u.n AND t.n > " . int($n / 2) . " WHERE $where" },
		sub { "SELECT o.i, $out FROM o JOIN t ON o.w = t.$e->{key}[0] WHERE o.i < $n" },
		sub { "SELECT o.i, $out FROM o LEFT JOIN t ON o.i = t.n AND $where WHERE o.v < 10" },
		sub { "SELECT $out FROM t WHERE " . pick('', 'NOT ') . "EXISTS (SELECT 1 FROM t u WHERE $on AND u.n < $n)" },
		sub { "SELECT $out FROM t WHERE t.n " . pick('', 'NOT ') . "IN (SELECT v FROM o WHERE i < $n)" },
		sub { "SELECT $out FROM t WHERE ($key) " . pick('', 'NOT ') . 'IN (SELECT ' . key_list($e, 'u') . " FROM t u WHERE u.n > $n)" },
		sub { "SELECT o.i, l.* FROM o, LATERAL (SELECT $out FROM t WHERE t.$e->{key}[0] = o.w ORDER BY $order LIMIT 2) l WHERE o.i < 12" },
		sub { "SELECT $key, row_number() OVER (PARTITION BY n ORDER BY $order), lag(n) OVER (ORDER BY $key) FROM t WHERE $where" },
		sub { "SELECT n FROM t WHERE $where " . pick('UNION', 'UNION ALL', 'EXCEPT', 'INTERSECT') . " SELECT n FROM t WHERE n < $n" },
		sub { "WITH x AS " . pick('', 'MATERIALIZED ') . "(SELECT * FROM t WHERE $where) SELECT a.n, b.n FROM x a JOIN x b USING (" . key_list($e) . ")" },
		sub { "SELECT string_agg(t::text, ';' ORDER BY $order) FROM t WHERE $where", 1 },
		sub { "SELECT (SELECT count(*) FROM t u WHERE u.n = o.v), (SELECT max(n) FROM t u WHERE u.$e->{key}[0] < o.w) FROM o WHERE o.i < 10" },
		sub { "SELECT " . pick($g, 'n % 4', 'n') . " AS a, sum(n % 10), avg(n), bool_and(n > 3), count(*) FILTER (WHERE n > $n), max(n + 1) FROM t WHERE $where GROUP BY a" . (chance(0.3) ? ' HAVING sum(n) > 50' : '') },
		sub { "SELECT o.i, l.* FROM o, LATERAL (SELECT $g, sum(n), count($m) FROM t WHERE t.n > o.v GROUP BY $g) l WHERE o.i < 8" },
		sub { "SELECT n, count(*) FILTER (WHERE $where), count(DISTINCT $g) FROM t GROUP BY n" },
		sub { "SELECT sum(length(t::text)) FROM t" },
		sub { "SELECT $out FROM (SELECT * FROM t ORDER BY $order LIMIT 7) t WHERE $where" },
		sub { "SELECT t.$e->{key}[0] FROM t WHERE $where ORDER BY $order LIMIT 1", 1 },
	);
	# Of these every plan reads the whole table (or the partitions that the condition leaves).
	@query = (
		sub { "SELECT $out FROM t WHERE $where" },
		sub { "SELECT $out, $key FROM t WHERE $where ORDER BY $order LIMIT $limit", 1 },
		sub { "SELECT count(*), min($m), sum(n) FROM t WHERE $where" },
		sub { "SELECT $g, count(*) FROM t GROUP BY $g" },
	) if $e->{whole};
	my ($sql, $ordered) = pick(@query)->();
	if (!$ordered && !$plain && chance(0.1))
	{
		# Parameters, with a generic plan or one of their own.
		my $i = 0;
		my @args;
		my $col = pick(@{ $e->{keycols} });
		my $value = expr($col->{type}, int rand(@{ $e->{keycols} } > 1 ? 8 : $e->{space}));
		my $type = $declared{ $col->{type} } // $col->{type};
		my $op = pick('=', '=', '=', '<', '>=');
		$type =~ s/\(.*\)//;
		$sql = "SET plan_cache_mode = " . pick('force_generic_plan', 'force_custom_plan')
		  . "; PREPARE p($type, int) AS SELECT $out FROM t WHERE "
		  . unbounded($e, 't', "t.$col->{name} $op \$1 AND t.n <> \$2")
		  . "; EXECUTE p($value, 5); "
		  . "EXECUTE p(NULL, 5); EXECUTE p($value, " . int(rand 90) . '); DEALLOCATE p';
	}
	return both('select', $sql, ordered => $ordered);
}

sub read_all { my ($e) = @_; return both('select', 'SELECT count(*), sum(n), min(t::text) FROM t', read_all => 1); }

sub lock_step
{
	my ($e) = @_;
	my $strength = pick('UPDATE', 'UPDATE', 'NO KEY UPDATE', 'SHARE', 'KEY SHARE');
	my $wait = pick('', '', ' NOWAIT', ' SKIP LOCKED');
	my $r = rand($e->{hot} ? 0.5 : $e->{whole} ? 0.75 : 1);
	my $key = key_list($e, 't');
	return both('lock', "SELECT t.* FROM t WHERE " . key_is($e, undef, 't') . " FOR $strength$wait", single => 1) if $r < 0.5;
	return both('lock', "SELECT t.* FROM t WHERE " . condition($e, 't') . " FOR $strength$wait") if $r < 0.75;
	return both('lock', "SELECT t.* FROM t ORDER BY $key LIMIT " . (1 + int rand 3) . " FOR $strength$wait", ordered => 1) if $r < 0.9;
	return both('lock', "SELECT t.n, $key, o.i FROM t JOIN o ON o.i = t.n WHERE o.v < 12 FOR $strength OF t$wait");
}

# ---- inserts ----

# The rows that an insert of $rows (a query with a column ord) leaves.
sub lasting
{
	my ($e, $rows) = @_;
	return $rows if $e->{mode} ne 'replace';
	my $list = key_list($e);
	return "SELECT DISTINCT ON ($list) * FROM ($rows) q ORDER BY $list, ord DESC";
}

# The heap's statement for them.
sub twin_insert
{
	my ($e, $names, $rows) = @_;
	return "INSERT INTO t ($names) SELECT $names FROM (" . lasting($e, $rows) . ') q ORDER BY ord' . conflict($e);
}

# What the strata table is given: all of them, unless the ones that do not last
# may fail a check.
sub given { my ($e, $rows) = @_; return $e->{strict} ? lasting($e, $rows) : $rows; }

sub conflict
{
	my ($e) = @_;
	return '' if $e->{mode} eq 'error';
	return ' ON CONFLICT DO NOTHING' if $e->{mode} eq 'ignore';
	return ' ON CONFLICT (' . key_list($e) . ') DO UPDATE SET {SET}';
}

# Some payload columns may be left to their defaults.
sub named
{
	my ($e) = @_;
	return grep { $_->{key} || $_->{required} || chance(0.9) } @{ $e->{cols} };
}

sub insert_values
{
	my ($e) = @_;
	my @cols = named($e);
	my $names = join ', ', map { $_->{name} } @cols;
	my $n = $e->{hot} ? 1 : pick(1, 1, 1, 2, 4, 8);
	my @rows;
	for my $ord (1 .. $n)
	{
		my $k = random_k($e);
		my %key;
		@key{ @{ $e->{key} } } = key_exprs($e, $k);
		push @rows, "($ord, " . join(', ', map { $_->{key} ? $key{ $_->{name} } : literal($_) } @cols) . ')';
	}
	# A heap does not count as read what ON CONFLICT DO NOTHING looked at.
	my $nothing = !$e->{whole} && chance(0.2);
	my $returning = ($n == 1 || $e->{mode} ne 'replace') && chance(0.3) ? ' RETURNING *' : '';
	my ($s, $h);
	if ($n == 1)
	{
		$s = "INSERT INTO t ($names) VALUES " . $rows[0] =~ s/^\(1, /(/r;
		$h = $s . ($nothing ? ' ON CONFLICT DO NOTHING' : conflict($e));
		$s .= ' ON CONFLICT DO NOTHING' if $nothing;
	}
	else
	{
		my $rows = 'SELECT * FROM (VALUES ' . join(', ', @rows) . ") v(ord, $names)";
		my $from = "SELECT $names FROM (" . ($nothing ? $rows : given($e, $rows)) . ') q ORDER BY ord';
		$s = "INSERT INTO t ($names) $from" . ($nothing ? ' ON CONFLICT DO NOTHING' : '');
		$h = $nothing ? $s : twin_insert($e, $names, $rows);
	}
	return { kind => 'insert', puts => 1, s => $s . $returning, h => $h . $returning, single => $n == 1, may_fail => $e->{strict}, untagged => $n > 1 && !$nothing && $e->{mode} eq 'replace' };
}

sub insert_bulk
{
	my ($e) = @_;
	my @cols = named($e);
	my $names = join ', ', map { $_->{name} } @cols;
	my $n = $e->{large} ? pick(20, 80, 150) : $e->{sessions} > 1 ? pick(5, 20, 60, 150) : pick(20, 100, 100, 400, 2000);
	my ($stride, $first, $p) = (pick(1, 7, 13), int rand $e->{space}, 1 + int rand 50);
	my %key;
	@key{ @{ $e->{key} } } = key_exprs($e, 'k');
	my $rows = 'SELECT g AS ord, ' . join(', ', map {
			my $v = $_->{key} ? $key{ $_->{name} } : expr($_->{type}, "(g * $p % 301)");
			$v = "CASE WHEN g % 9 <> 4 THEN $v END" if !$_->{key} && !$_->{required} && $_->{name} ne 'n';
			"$v AS $_->{name}"
		} @cols) . " FROM (SELECT g, ($first + g * $stride) % $e->{space} AS k FROM generate_series(1, $n) g) g";
	my $from = "SELECT $names FROM (" . given($e, $rows) . ') q ORDER BY ord';
	my $replace = $e->{mode} eq 'replace';
	my $blind = $n > 64 && $e->{large};
	if (chance(0.25))
	{
		return { kind => 'insert', puts => 1, copy => $from, s => "COPY t ($names) FROM STDIN", h => twin_insert($e, $names, $rows), blind => $blind, untagged => 1, may_fail => $e->{strict} };
	}
	if (!$e->{whole} && chance(0.2))
	{
		my $s = "INSERT INTO t ($names) $from ON CONFLICT DO NOTHING";
		return both('insert', $s);
	}
	if (chance(0.15))
	{
		# Rows that the table itself has.
		my $n2 = join ', ', map { $_->{key} ? "t.$_->{name}" : can_do($_, 'n') && $_->{type} =~ /^int/ ? "t.$_->{name} / 2 AS $_->{name}" : "t.$_->{name}" } @cols;
		my $r = "SELECT 1 AS ord, $n2 FROM t WHERE " . condition($e, 't');
		return { kind => 'insert', puts => 1, s => "INSERT INTO t ($names) SELECT $names FROM ($r) q", h => twin_insert($e, $names, $r), blind => $e->{large}, may_fail => $e->{strict} };
	}
	return { kind => 'insert', puts => 1, s => "INSERT INTO t ($names) $from", h => twin_insert($e, $names, $rows), blind => $blind, untagged => $replace, may_fail => $e->{strict} };
}

# ---- updates, deletes ----

# What UPDATE and DELETE name.
sub target { my ($e) = @_; return $e->{view} && chance(0.25) ? 'v AS t' : 't'; }

sub assignments
{
	my ($e) = @_;
	my @cols = grep { chance(0.4) } payload($e);
	@cols = (pick(payload($e))) unless @cols;
	return join ', ', map { "$_->{name} = " . ($_->{type} eq 'int' && chance(0.6) ? "t.$_->{name} + 1" : literal($_)) } @cols;
}

sub returning { my ($e) = @_; return chance(0.4) ? ' RETURNING ' . (output($e, 't') || '1') : ''; }

# Some rows get other keys, none of them one that another of these rows had: the
# order in which they do does not matter.  Where two of the keys are the same value
# (0 and -0, NaN), none does.
sub rekey_some
{
	my ($e, $back) = @_;
	my %seen;
	my @ks = grep { !$seen{$_}++ } map { random_k($e) } 1 .. 6;
	my $n = int(@ks / 2) or return both('select', 'SELECT count(*) FROM t');
	my @columns = 0 .. $#{ $e->{key} };
	my $pairs = join ', ', map { '(' . join(', ', key_exprs($e, $ks[$_]), key_exprs($e, $ks[ $n + $_ ])) . ')' } 0 .. $n - 1;
	my $set = join ', ', map { "$e->{key}[$_] = m.b$_" } @columns;
	$set .= ', ' . assignments($e) if chance(0.5) && !$e->{strict};
	my $names = join ', ', (map { "a$_" } @columns), map { "b$_" } @columns;
	my $on = join ' AND ', map { "t.$e->{key}[$_] = m.a$_" } @columns;
	my $keys = join ', ', map { '(' . join(', ', $_, key_exprs($e, $ks[$_])) . ')' } 0 .. 2 * $n - 1;
	my $key = join ', ', 'i', map { "c$_" } @columns;
	my $same = join ' AND ', 'x.i < y.i', map { "x.c$_ = y.c$_" } @columns;
	$on .= " AND NOT EXISTS (SELECT 1 FROM (VALUES $keys) x ($key) JOIN (VALUES $keys) y ($key) ON $same)";
	return both('update', 'UPDATE ' . target($e) . " SET $set FROM (VALUES $pairs) m ($names) WHERE $on$back", may_fail => 1, puts => 1, removes => 1);
}

sub update_step
{
	my ($e) = @_;
	my $r = $e->{hot} ? pick(0, 0, $e->{narrow} ? 0 : 0.7) : rand($e->{narrow} ? 0.6 : 1);
	my $on = join ' AND ', map { "t.$_ = u.$_" } @{ $e->{key} };
	my $back = returning($e);
	my $target = target($e);
	# See _ready in Differential.pm.
	my %may = (may_fail => $e->{strict} || $target ne 't');
	return both('update', "UPDATE $target SET " . assignments($e) . " WHERE " . key_is($e, undef, 't') . $back, single => 1, %may) if $r < 0.35;
	return both('update', "UPDATE $target SET " . assignments($e) . " WHERE " . condition($e, 't') . $back, %may) if $r < 0.6;
	if ($r < 0.75)
	{
		return rekey_some($e, $back) if chance(0.3);
		my @to = key_exprs($e, random_k($e));
		my $set = join ', ', map { "$e->{key}[$_] = $to[$_]" } 0 .. $#to;
		$set .= ', ' . assignments($e) if chance(0.5);
		return both('update', "UPDATE $target SET $set WHERE " . key_is($e, undef, 't') . $back, single => 1, puts => 1, removes => 1, %may);
	}
	return both('update', "UPDATE $target SET n = u.n + 1 FROM t u WHERE $on AND " . condition($e, 'u') . $back, %may) if $r < 0.83;
	return both('update', "UPDATE $target SET n = o.v FROM o WHERE o.i = t.n AND o.v > " . int(rand 30) . $back, %may) if $r < 0.9;
	return both('update', "UPDATE $target SET n = (SELECT max(u.n) FROM t u WHERE u.n < t.n) WHERE " . condition($e, 't') . $back, may_fail => 1) if $r < 0.95;
	if ($r < 0.975)
	{
		my $key = join ' AND ', map { "$_ = r.$_" } @{ $e->{key} };
		return both('update', "DO \$\$DECLARE r t; BEGIN FOR r IN SELECT * FROM t WHERE " . condition($e, 't') . ' ORDER BY ' . key_list($e)
			  . " LIMIT 8 LOOP BEGIN UPDATE t SET n = r.n + 1 WHERE $key; IF r.n % 4 = 0 THEN RAISE division_by_zero; END IF; "
			  . 'IF r.n % 4 = 1 THEN DELETE FROM t WHERE ' . $key . '; END IF; EXCEPTION WHEN division_by_zero THEN NULL; END; END LOOP; END$$', removes => 1);
	}
	return both('update', "WITH c AS (UPDATE t SET n = n + 1 WHERE " . condition($e, 't') . ' RETURNING t.*) SELECT count(*), sum(n) FROM c', %may);
}

sub delete_step
{
	my ($e) = @_;
	my $r = $e->{hot} ? 0 : rand($e->{narrow} ? 0.6 : 1);
	my $on = join ' AND ', map { "t.$_ = u.$_" } @{ $e->{key} };
	my $back = returning($e);
	if ($r > 0.93 && $r < 0.97)
	{
		# Gone and back in one command.
		my @cols = @{ $e->{cols} };
		my $names = join ', ', map { $_->{name} } @cols;
		my $values = join ', ', map { $_->{name} eq 'n' ? 'n + 1' : $_->{name} } @cols;
		my $sql = 'WITH d AS (DELETE FROM t WHERE ' . condition($e, 't') . " RETURNING *) INSERT INTO t ($names) SELECT $values FROM d";
		return { kind => 'update', s => $sql, h => $sql . conflict($e), puts => 1, removes => 1, may_fail => $e->{strict} };
	}
	return both('delete', "DELETE FROM " . target($e) . " WHERE " . key_is($e, undef, 't') . $back, single => 1) if $r < 0.4;
	return both('delete', "DELETE FROM " . target($e) . " WHERE " . condition($e, 't') . $back) if $r < 0.6;
	return both('delete', "DELETE FROM " . target($e) . " USING o WHERE o.i = t.n AND o.v > " . (15 + int rand 20) . $back) if $r < 0.75;
	return both('delete', "DELETE FROM " . target($e) . " USING t u WHERE $on AND " . condition($e, 'u') . $back) if $r < 0.85;
	return both('delete', "WITH d AS (DELETE FROM " . target($e) . " WHERE n < " . int(rand 30) . " RETURNING *) SELECT count(*), min(n) FROM d") if $r < 0.93;
	return both('delete', "DELETE FROM " . target($e) . " WHERE n = ANY (ARRAY[" . join(', ', map { int rand 90 } 1 .. 4) . "])$back");
}

# ---- the rest ----

# On the strata side only.  alone: needs every other session out of the way.
sub maintenance
{
	my ($e) = @_;
	my $t = pick(@{ $e->{stores} });
	my ($sql, $alone, $top) = @{ pick(
		([ "SELECT count(*) FROM strata.seal('$t')" ]) x 6,
		([ "SELECT count(*) FROM strata.merge('$t', " . pick(0, 1, 1, 2, 8) . ')' ]) x 8,
		([ "CALL strata.drain('$t')", 0, 1 ]) x 4,
		([ "SELECT count(*) FROM strata.compact('$t')" ]) x 4,
		([ "SELECT count(*) FROM strata.sweep('$t')", 0 ]) x 4,
		[ "SELECT strata.drop_key_index('$t')", 1, 1 ],
		([ "SELECT strata.create_key_index('$t')" ]) x 2,
		[ "VACUUM", 1, 1 ], [ "VACUUM (FREEZE)", 1, 1 ], [ "VACUUM (FULL)", 1, 1 ],
		[ "ALTER FOREIGN TABLE $t OPTIONS (" . pick("ADD merge_max_generations '2'", "SET on_duplicate '$e->{mode}'", "ADD merge_max_bytes '100kB'") . ')', 1, 1 ],
		[ "SELECT * FROM strata.verify('$t')", 0 ],
		[ 'EXPLAIN (ANALYZE, VERBOSE) ' . select_step($e, 1)->{s} ], [ 'EXPLAIN (VERBOSE) ' . update_step($e)->{s} ],
	) };
	return { kind => 'maintenance', s => $sql, alone => $alone, top => $top, store => $t };
}

sub setting
{
	my ($e) = @_;
	my $what = pick(
		(map { "enable_$_" } qw(seqscan indexscan bitmapscan nestloop hashjoin mergejoin sort hashagg material memoize incremental_sort indexonlyscan)),
		'jit', 'parallel', 'work_mem', 'cache', 'cursor_tuple_fraction', 'reset', 'reset');
	return both('set', 'RESET ALL; SET search_path = {W}, public; SET deadlock_timeout = 20') if $what eq 'reset';
	return both('set', "SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0; SELECT set_config(name, '" . pick('on', 'off') . "', false) FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query')") if $what eq 'parallel';
	return both('set', pick("SET strata.cache_size = '64kB'", "SET strata.cache_size = '4MB'", 'SET strata.index_before_merge = off')) if $what eq 'cache';
	return both('set', 'SET work_mem = ' . pick('64', "'4MB'")) if $what eq 'work_mem';
	return both('set', 'SET cursor_tuple_fraction = ' . pick(0.0001, 1)) if $what eq 'cursor_tuple_fraction';
	return both('set', "SET $what = " . pick('on', 'off', 'off'));
}

sub cursor
{
	my ($e) = @_;
	my $r = rand;
	my $order = key_list($e, 't', pick('', ' DESC'));
	return both('cursor', 'DECLARE c ' . pick('', 'SCROLL ', 'NO SCROLL ') . 'CURSOR FOR SELECT * FROM t WHERE ' . condition($e, 't') . " ORDER BY $order") if $r < 0.4;
	return both('cursor', "DECLARE c CURSOR WITH HOLD FOR SELECT * FROM t ORDER BY $order") if $r < 0.45;
	return both('cursor', pick('FETCH 3 FROM c', 'FETCH 1 FROM c', 'FETCH ALL FROM c', 'MOVE 2 IN c', 'FETCH BACKWARD 2 FROM c', 'FETCH FIRST FROM c', 'FETCH ABSOLUTE 3 FROM c'), ordered => 1) if $r < 0.9;
	return both('cursor', 'CLOSE c');
}

sub error_step
{
	my ($e) = @_;
	my @cols = named($e);
	my $k = $e->{key}[0];
	my $list = key_list($e);
	my @key = key_exprs($e, random_k($e));
	my $at = key_is($e, undef, 't');
	return pick(
		both('error', "INSERT INTO t ($list) VALUES (" . join(', ', ('NULL') x @key) . ')'),
		both('error', "UPDATE " . target($e) . " SET $k = NULL WHERE $at", single => 1, may_fail => 1),
		both('error', "INSERT INTO t ($list, n) VALUES (" . join(', ', @key) . ", 'abc')"),
		(both('error', "INSERT INTO t ($list, n) VALUES (" . join(', ', @key) . ", 5000)")) x ($e->{check} ? 1 : 0),
		(both('error', "UPDATE " . target($e) . " SET n = 5000 WHERE $at", single => 1, may_fail => 1)) x ($e->{check} ? 1 : 0),
		both('error', "UPDATE " . target($e) . " SET n = 1 / (n - n) WHERE $at", single => 1, may_fail => 1),
		both('select', "SELECT 1 / (n - " . int(rand 80) . ") FROM t"),
		both('error', 'SELECT nosuch FROM t'),
		both('error', "INSERT INTO t (nosuch) VALUES (1)"),
		both('error', "DELETE FROM " . target($e) . " WHERE n = 1 / (n - n)"),
		both('error', "DO \$\$BEGIN UPDATE t SET n = n + 1 WHERE $at; RAISE division_by_zero; EXCEPTION WHEN division_by_zero THEN NULL; END\$\$", single => 1),
		both('error', "DO \$\$BEGIN DELETE FROM t WHERE $at; BEGIN UPDATE t SET n = n + 1; RAISE division_by_zero; EXCEPTION WHEN division_by_zero THEN NULL; END; END\$\$", removes => 1, may_fail => $e->{strict}),
	);
}

# Columns come and go, under new names too.  What the statement names may be
# gone already: then it fails on both sides.
sub ddl
{
	my ($e) = @_;
	my $r = rand;
	my @payload = grep { $_->{name} ne 'n' } payload($e);
	my $col = @payload ? pick(@payload) : undef;
	$e->{serial}++;
	if ($r < 0.3 || !$col)
	{
		my $type = pick(grep { !/positive|wide/ } sort keys %type);
		my $new = { name => "a$e->{serial}", type => $type };
		my $sql = "ADD COLUMN $new->{name} " . ($declared{$type} // $type);
		if (chance(0.6)) { $sql .= ' DEFAULT ' . expr($type, int rand 300); if (chance(0.3)) { $sql .= ' NOT NULL'; $new->{required} = 1; } }
		push @{ $e->{cols} }, $new;
		return alter($sql);
	}
	if ($r < 0.45)
	{
		@{ $e->{cols} } = grep { $_ != $col } @{ $e->{cols} };
		return alter("DROP COLUMN $col->{name}");
	}
	if ($r < 0.6)
	{
		$col = pick(@{ $e->{keycols} }) if chance(0.2) && !$e->{exact};
		my $old = $col->{name};
		$col->{name} = ($col->{key} ? "k" : "") . "r$e->{serial}";
		$e->{key} = [ map { $_ eq $old ? $col->{name} : $_ } @{ $e->{key} } ] if $col->{key};
		return alter("RENAME COLUMN $old TO $col->{name}");
	}
	return alter("ALTER COLUMN $col->{name} SET DEFAULT " . expr($col->{type}, int rand 300)) if $r < 0.68;
	return alter("ALTER COLUMN $col->{name} DROP DEFAULT") if $r < 0.74;
	# Core does not look at the rows of a foreign table.
	$col->{required} = 1 if $r >= 0.74 && $r < 0.8;
	return { kind => 'ddl', level => 'READ COMMITTED', h => "ALTER TABLE t ALTER COLUMN $col->{name} SET NOT NULL",
		s => "DO \$\$BEGIN ALTER TABLE t ALTER COLUMN $col->{name} SET NOT NULL; "
		  . "IF EXISTS (SELECT FROM t WHERE num_nulls($col->{name}) = 1) THEN RAISE not_null_violation; END IF; END\$\$" } if $r < 0.8;
	return alter("ALTER COLUMN $col->{name} DROP NOT NULL") if $r < 0.84;
	if ($r < 0.9)
	{
		$e->{strict} = 1;
		return alter("ADD CONSTRAINT x$e->{serial} CHECK (n < " . pick(60, 2000) . ') NOT VALID');
	}
	return both('analyze', 'ANALYZE t');
}

sub alter { my ($what) = @_; return both('ddl', "ALTER TABLE t $what"); }

1;
