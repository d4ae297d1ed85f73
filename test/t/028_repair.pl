# Damage on disk is named, what it does not touch stays readable, and
# strata.repair tells and sets aside exactly what cannot be read (L55, P84), with
# and without data checksums.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Strata;
use Time::HiRes qw(sleep time);

use constant { BLOCK => 8192, START => 152, ENTRY_HEADER => 40, PAGE_HEADER => 24 };

my $node = strata_node('repair', checkpoint_timeout => '1h', wal_consistency_checking => "'generic'", restart_after_crash => 'on');
sub q1 { return $node->safe_psql('postgres', join ';', @_); }

# stderr of a statement that must fail with XX001
sub fails
{
	my ($what, $sql, $like) = @_;
	my ($rc, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\n$sql");
	like($err, qr/ERROR:\s+XX001/, "$what: XX001");
	like($err, $like, "$what: the message");
	return;
}

# ---- pages, read and written while the server is down ----

my %path;
sub with_file
{
	my ($name, $do) = @_;
	open my $file, '+<', $path{$name} or die "$path{$name}: $!";
	binmode $file;
	$do->($file);
	close $file;
	return;
}
sub get_bytes { my ($file, $block, $offset, $n) = @_; seek $file, $block * BLOCK + $offset, 0; read($file, my $bytes, $n); return $bytes; }
sub put_bytes { my ($file, $block, $offset, $bytes) = @_; seek $file, $block * BLOCK + $offset, 0; print $file $bytes; return; }
sub flip { my ($file, $block, $offset) = @_; put_bytes($file, $block, $offset, ~get_bytes($file, $block, $offset, 1)); return; }
sub flip_bit { my ($file, $block, $offset) = @_; put_bytes($file, $block, $offset, get_bytes($file, $block, $offset, 1) ^ "\1"); return; }
sub lower { return unpack 'x12 S', get_bytes($_[0], $_[1], 0, 16); }

# (offset, length, rows) of the entries that start on a log page
sub entries
{
	my ($file, $block) = @_;
	my $continuation = unpack "x38 S", get_bytes($file, $block, 0, 48);
	my $offset = START + (($continuation + 7) & ~7);
	my @entries;
	while ($offset < lower($file, $block))
	{
		my ($crc, $length, $fxid, $cid, $type, $flags, $rows) = unpack 'L L Q L S S L', get_bytes($file, $block, $offset, 40);
		push @entries, [ $offset, $length, $rows ];
		$offset += ($length + 7) & ~7;
	}
	return @entries;
}

# The bytes of a row group of a length from its first block on; they go back, changed
# by $do, under a checksum of the footer that is right.
sub crc32c
{
	my $crc = 0xffffffff;
	for my $byte (unpack 'C*', $_[0])
	{
		$crc ^= $byte;
		$crc = $crc & 1 ? $crc >> 1 ^ 0x82f63b78 : $crc >> 1 for 1 .. 8;
	}
	return $crc ^ 0xffffffff;
}
sub change_footer
{
	my ($file, $first, $length, $do) = @_;
	my ($bytes, @parts) = ('');
	for (my $block = $first; length $bytes < $length; $block++)
	{
		push @parts, [ $block, lower($file, $block) - PAGE_HEADER ];
		$bytes .= get_bytes($file, $block, PAGE_HEADER, $parts[-1][1]);
	}
	my ($footer_length, $crc, @trailer) = unpack 'L4', substr $bytes, -16;
	my $footer = substr $bytes, -16 - $footer_length, $footer_length;
	$do->($footer);
	my $end = $footer . pack('L4', $footer_length, 0, @trailer);
	substr($end, -12, 4) = pack 'L', crc32c($end);
	substr($bytes, -length $end) = $end;
	put_bytes($file, $_->[0], PAGE_HEADER, substr $bytes, 0, $_->[1], '') for @parts;
	return;
}

# ---- tables ----

# Rows of version $v: every third is so large that its entry may go on over pages.
q1(<<'SQL');
CREATE FUNCTION p(g int, v int) RETURNS text LANGUAGE sql IMMUTABLE AS $$
	SELECT string_agg(md5(g::text || i || v), '') FROM generate_series(1, CASE g % 3 WHEN 0 THEN 30 ELSE 6 END) i
$$;
CREATE FUNCTION words(g int) RETURNS text LANGUAGE sql IMMUTABLE AS $$
	SELECT string_agg(md5((hashint4(g * 31 + i) % 400)::text), ' ') FROM generate_series(1, 20) i
$$;
CREATE PROCEDURE by_row(name text, first int, last int, v int) LANGUAGE plpgsql AS $$BEGIN
	FOR g IN first .. last LOOP EXECUTE format('INSERT INTO %I VALUES (%L, %s, p(%s, %s))', name, 'k' || g, v, g, v); END LOOP;
	EXECUTE format('INSERT INTO %I SELECT ''k'' || g, %s, p(g, %s) FROM generate_series(%s, %s) g ON CONFLICT (id) DO UPDATE SET n = EXCLUDED.n, p = EXCLUDED.p',
		name || '_heap', v, v, first, last);
END$$;
CREATE PROCEDURE bulk(name text, first int, last int, v int, f text DEFAULT 'p(g, n)') LANGUAGE plpgsql AS $$BEGIN
	EXECUTE format('INSERT INTO %I SELECT ''k'' || g, n, %s FROM generate_series(%s, %s) g, (VALUES (%s)) v (n) ON CONFLICT (id) DO UPDATE SET n = EXCLUDED.n, p = EXCLUDED.p',
		name || '_heap', f, first, last, v);
	EXECUTE format('INSERT INTO %I SELECT * FROM %I WHERE n = %s AND substr(id, 2)::int BETWEEN %s AND %s', name, name || '_heap', v, first, last);
END$$;
SQL

my $columns = 'id text NOT NULL, n int, p text';
sub make_table
{
	my ($name, $options) = @_;
	return <<SQL;
CREATE FOREIGN TABLE $name ($columns) SERVER strata OPTIONS (key 'id', @{[ $options // "auto_merge 'off'" ]});
CREATE TABLE ${name}_heap ($columns, PRIMARY KEY (id));
CREATE FOREIGN TABLE ${name}_wal ($columns) SERVER strata OPTIONS (store '$name', layer 'wal');
CREATE FOREIGN TABLE ${name}_base ($columns) SERVER strata OPTIONS (store '$name', layer 'base');
SQL
}
sub fp { my ($table) = @_; return "SELECT count(*) || ' ' || coalesce(sum(hashtextextended(t::text, 0)::numeric), 0) FROM $table t"; }

# What repair reports, a line a loss.
sub repair
{
	my ($name, $dry) = @_;
	return q1("SELECT concat_ws(' ', kind, 'shard ' || shard, 'gen ' || generation, 'page ' || page, 'entry ' || entry, 'group ' || row_group,"
		  . " 'block ' || block, 'rows ' || coalesce(rows_lost::text, '?'), first_key, last_key, action) FROM strata.repair('$name'"
		  . ($dry ? ')' : ', dry_run => false)'));
}

# All that can be done with a table, its twin the same at every step.
sub use_table
{
	my ($name) = @_;
	my $same = "SELECT CASE WHEN (@{[ fp($name) ]}) = (@{[ fp(\"${name}_heap\") ]}) THEN 'same' ELSE 'different' END";
	my $out = q1(<<SQL);
$same;
SELECT 'left: ' || r::text FROM strata.repair('$name') r;
SELECT v::text FROM strata.verify('$name') v;
CALL by_row('$name', 101, 104, 7);
CALL bulk('$name', 105, 110, 8);
DELETE FROM $name WHERE id = 'k101'; DELETE FROM ${name}_heap WHERE id = 'k101';
$same;
CALL strata.drain('$name');
$same;
SELECT 'compacted' FROM strata.compact('$name');
SELECT 'swept' FROM strata.sweep('$name');
$same;
SELECT string_agg(n::text, ',' ORDER BY n) FROM $name WHERE id IN ('k103', 'k107');
SELECT v::text FROM strata.verify('$name', swept => true) v;
SQL
	is($out, "same\nsame\nsame\ncompacted\nswept\nsame\n7,8", "$name: rows and checks through writes, merge, compaction and sweep");
	return;
}

# The twin of a table of which versions [key, version] of rows are lost: what was
# there before them counts.  %versions says of which keys there is which version.
my %versions = (1 => [ 1, 60 ], 2 => [ 31, 90 ], 3 => [ 91, 100 ]);
sub lose
{
	my ($name, @lost) = @_;
	my %lost = map { $_ => 1 } @lost;
	my $sql = '';
	for my $version (@lost)
	{
		my ($g) = $version =~ /^k(\d+)/;
		my ($left) = grep { $g >= $versions{$_}[0] && $g <= $versions{$_}[1] && !$lost{"k$g v$_"} } 3, 2, 1;
		$sql .= $left ? "UPDATE ${name}_heap SET n = $left, p = p($g, $left) WHERE id = 'k$g';" : "DELETE FROM ${name}_heap WHERE id = 'k$g';";
	}
	q1($sql);
	return;
}

for my $checksums ('on', 'off')
{
	my $t = "c$checksums";
	my $on = $checksums eq 'on';
	if (!$on)
	{
		$node->stop;
		command_ok([ 'pg_checksums', '--disable', '-D', $node->data_dir ], 'checksums off');
		$node->start;
	}
	is(q1('SHOW data_checksums'), $checksums, "checksums $checksums");

	# ---- the log: three generations, the last one active ----
	my @log = map { "${t}_$_" } $on ? qw(body header length pages first tail foreign link shard spare) : qw(body pages tail foreign link);
	q1(make_table($_, /header|tail|shard/ ? "auto_merge 'off', shards '2'" : undef), "CALL by_row('$_', 1, 60, 1)", "SELECT * FROM strata.seal('$_')",
		"CALL by_row('$_', 31, 90, 2)", "SELECT * FROM strata.seal('$_')", "CALL by_row('$_', 91, 100, 3)") for @log;
	# ---- row groups of the base and of the log ----
	my @base = map { "${t}_$_" } $on ? qw(frame footer dict) : qw(frame footer);
	for my $name (@base)
	{
		my $f = $name =~ /dict/ ? 'words(g)' : 'p(g, n)';
		q1(make_table($name), "CALL bulk('$name', 1, 1000, 1, '$f')", "CALL strata.drain('$name')", "CALL bulk('$name', 801, 3000, 2, '$f')",
			"CALL strata.drain('$name')", "CALL bulk('$name', 1, 200, 3)");
	}
	my @pending = map { "${t}_$_" } qw(pframe pfooter);
	q1(make_table($_), "CALL bulk('$_', 1, 1000, 1)", "CALL strata.drain('$_')", "CALL bulk('$_', 501, 3000, 2)", "SELECT * FROM strata.seal('$_')",
		"CALL by_row('$_', 1, 20, 3)") for @pending;
	same_rows($node, $_, "$_: rows") for @log, @base, @pending;

	# Where things are: rows of the log by block, generations, row groups.
	$path{ (split /\|/)[0] } = $node->data_dir . '/' . (split /\|/)[1]
	  for split /\n/, q1('SELECT store::text, pg_relation_filepath(storage) FROM strata.stores');
	my (%keys, %gen, %group, %pgroup, %dictionary);
	for my $name (@log)
	{
		push @{ $keys{$name}{ (split /\|/)[0] } }, (split /\|/)[1]
		  for split /\n/, q1("SELECT (ctid::text::point)[0]::bigint - 2147483648 AS b, id || ' v' || n FROM ${name}_wal ORDER BY b, (ctid::text::point)[1]");
	}
	for (split /\n/, q1('SELECT store::text, shard, generation, first_block, last_block FROM strata.generations'))
	{
		my ($name, $shard, $number, $first, $last) = split /\|/;
		$gen{$name}{$number} = [ $first, $last ] if $shard == 0;
	}
	$group{ (split /\|/)[0] } = [ (split /\|/)[ 1 .. 4 ] ] for split /\n/, q1('SELECT store::text, number, first_block, blocks, rows FROM strata.row_groups ORDER BY number');
	$pgroup{ (split /\|/)[0] } = (split /\|/)[1]
	  for map { "$_|" . q1("SELECT (ctid::text::point)[0]::bigint - 2147483648 FROM ${_}_wal WHERE n = 2 LIMIT 1") } @pending;
	$dictionary{$t} = q1("SELECT first_block FROM strata.dictionary WHERE store = '${t}_dict'::regclass") if $on;
	my @w;
	if ($on)
	{
		q1(make_table('w', "merge_after_generations '1'"), "CALL by_row('w', 1, 10, 1)", "SELECT * FROM strata.seal('w')");
		@w = split /\n/, q1("SELECT (ctid::text::point)[0]::bigint - 2147483648 FROM w_wal LIMIT 1"), q1("SELECT pg_relation_filepath(storage) FROM strata.stores WHERE store = 'w'::regclass");
		$path{w} = $node->data_dir . '/' . q1("SELECT pg_relation_filepath(storage) FROM strata.stores WHERE store = 'w'::regclass");
	}

	# ---- damage, all of it in one go ----
	my (%lost, %report, %error);
	$node->stop;
	with_file("${t}_body", sub {
		my ($file) = @_;
		my $name = "${t}_body";
		# a byte in the middle of an entry; and one of an entry's part on the next page
		my $block = $gen{$name}{1}[0] + 1;
		my @entries = entries($file, $block);
		flip($file, $block, $entries[2][0] + ENTRY_HEADER + 20);
		push @{ $lost{$name} }, $keys{$name}{$block}[2];
		$report{$name} = "log entry shard 0 gen 1 page 1 entry $entries[2][0] block $block rows 1 set aside";
		if ($on)
		{
			# a flag that says that an entry was rolled back: only the page's
			# checksum covers it
			$block = $gen{$name}{1}[0];
			put_bytes($file, $block, (entries($file, $block))[1][0] + 22, pack('S', 2));
			$report{$name} = "log page shard 0 gen 1 page 0 block $block rows 0 rewritten\n$report{$name}";
		}
		for $block ($gen{$name}{2}[0] .. $gen{$name}{2}[1] - 1)
		{
			my ($last) = reverse entries($file, $block);
			next unless $last->[0] + $last->[1] > lower($file, $block);
			flip($file, $block + 1, START + 8);
			push @{ $lost{$name} }, $keys{$name}{$block}[-1];
			$report{$name} .= "\nlog entry shard 0 gen 2 page " . ($block - $gen{$name}{2}[0]) . " entry $last->[0] block $block rows 1 set aside";
			$report{$name} .= "\nlog page shard 0 gen 2 page " . ($block + 1 - $gen{$name}{2}[0]) . ' block ' . ($block + 1) . ' rows 0 rewritten' if $on;
			last;
		}
		$error{$name} = $on ? qr/invalid page in block \d+ of relation/ : qr/log of shard 0 in relation "s\d+" is damaged at block \d+, offset $entries[2][0]: checksum of entry does not match/;
	});
	with_file("${t}_header", sub {
		my ($file) = @_;
		my $name = "${t}_header";
		my $block = $gen{$name}{1}[0];
		my @entries = entries($file, $block);
		put_bytes($file, $block, $entries[1][0], pack('L L', 1, 0x7FFFFFFF));
		# one more entry of which the length alone is wrong, by a little
		put_bytes($file, $block, $entries[4][0] + 4, pack('L', $entries[4][1] - 8));
		@{ $lost{$name} } = @{ $keys{$name}{$block} }[1, 4];
		$report{$name} = join "\n", map { "log entry shard 0 gen 1 page 0 entry $entries[$_][0] block $block rows ? set aside" } 1, 4;
		$error{$name} = qr/invalid page in block $block/;
	}) if $on;
	with_file("${t}_length", sub {
		my ($file) = @_;
		my $name = "${t}_length";
		# a length that leads into the next entry, to where what would be freezing's
		# flags are set: that one is sound
		my $block = $gen{$name}{1}[0];
		my ($entry, $next) = entries($file, $block);
		for my $offset (map { $next->[0] + ENTRY_HEADER + 8 * $_ } 0 .. ($next->[1] - 2 * ENTRY_HEADER) / 8)
		{
			my ($xid, $type, $flags) = unpack 'x8 L x8 S S', get_bytes($file, $block, $offset, ENTRY_HEADER);
			next unless $xid > 100000 && $xid < 1 << 31 && $type != 4 && $flags & 3;
			put_bytes($file, $block, $entry->[0] + 4, pack('L', $offset - $entry->[0]));
			last;
		}
		isnt((entries($file, $block))[0][1], $entry->[1], "$name: length changed");
		@{ $lost{$name} } = $keys{$name}{$block}[0];
		$report{$name} = "log entry shard 0 gen 1 page 0 entry $entry->[0] block $block rows 1 set aside";
		$error{$name} = qr/invalid page in block $block/;
	}) if $on;
	with_file("${t}_pages", sub {
		my ($file) = @_;
		my $name = "${t}_pages";
		# the second page of the first generation and all after it, and the one
		# in the middle of the next
		my ($first, $last) = @{ $gen{$name}{1} };
		put_bytes($file, $_, 0, "\0" x BLOCK) for $first + 1 .. $last, $gen{$name}{2}[0] + 1;
		push @{ $lost{$name} }, map { @{ $keys{$name}{$_} } } $first + 1 .. $last, $gen{$name}{2}[0] + 1;
		for my $g ([ 1, $first ], [ 2, $gen{$name}{2}[0] ])
		{
			my ($number, $block) = @$g;
			my ($entry) = reverse entries($file, $block);
			if ($entry->[0] + $entry->[1] > lower($file, $block))
			{
				push @{ $lost{$name} }, $keys{$name}{$block}[-1];
				$report{$name} .= "log entry shard 0 gen $number page 0 entry $entry->[0] block $block rows 1 set aside\n";
			}
			my $rows = 0;
			$rows += @{ $keys{$name}{$_} } for $number == 1 ? ($first + 1 .. $last) : $block + 1;
			$report{$name} .= "log pages shard 0 gen $number page 1 block " . ($block + 1) . " rows $rows set aside\n";
		}
		chomp $report{$name};
		$error{$name} = qr/block @{[ $first + 1 ]} of relation "s\d+" does not hold a page of the log of shard 0/;
	});
	with_file("${t}_first", sub {
		my ($file) = @_;
		my $name = "${t}_first";
		my $block = $gen{$name}{1}[0];
		put_bytes($file, $block, 0, "\0" x BLOCK);
		@{ $lost{$name} } = @{ $keys{$name}{$block} };
		$report{$name} = "log pages shard 0 gen 1 page 0 block $block rows " . @{ $keys{$name}{$block} } . ' set aside';
		$error{$name} = qr/block $block of relation "s\d+" does not hold a page of the log of shard 0/;
	}) if $on;
	with_file("${t}_tail", sub {
		my ($file) = @_;
		my $name = "${t}_tail";
		my $block = $gen{$name}{3}[1];
		# no page at all; or one that says of itself to be the 16 millionth
		$on ? put_bytes($file, $block, 0, "\0" x BLOCK) : flip($file, $block, PAGE_HEADER + 8 + 2);
		@{ $lost{$name} } = @{ $keys{$name}{$block} };
		$report{$name} = "log pages shard 0 gen 3 page 0 block $block rows ? set aside";
		$error{$name} = $on ? qr/block $block of relation "s\d+" does not hold the end of a log/ :
		  qr/is damaged at block $block, .*page is number 16711680 of generation 3, expected was number 0 of generation 3/;
	});
	with_file("${t}_foreign", sub {
		my ($file) = @_;
		my $name = "${t}_foreign";
		# another page of the same log
		my $block = $gen{$name}{1}[0] + 1;
		put_bytes($file, $block, 0, get_bytes($file, $gen{$name}{2}[0], 0, BLOCK));
		@{ $lost{$name} } = @{ $keys{$name}{$block} };
		my ($entry) = reverse entries($file, $block - 1);
		if ($entry->[0] + $entry->[1] > lower($file, $block - 1))
		{
			push @{ $lost{$name} }, $keys{$name}{ $block - 1 }[-1];
			$report{$name} = "log entry shard 0 gen 1 page 0 entry $entry->[0] block @{[ $block - 1 ]} rows 1 set aside\n";
		}
		$report{$name} .= "log pages shard 0 gen 1 page 1 block $block rows " . @{ $keys{$name}{$block} } . ' set aside';
		$error{$name} = $on ? qr/invalid page in block $block/ : qr/is damaged at block $block, .*page is number 0 of generation 2, expected was number 1 of generation 1/;
	});
	with_file("${t}_link", sub {
		my ($file) = @_;
		my $name = "${t}_link";
		my $block = $gen{$name}{1}[0];
		put_bytes($file, $block, PAGE_HEADER + 48 + 8, pack('L', $gen{$name}{2}[0] + 1));
		@{ $lost{$name} } = ();
		$report{$name} = $on ? "log page shard 0 gen 1 page 0 block $block rows 0 rewritten\n" : '';
		$report{$name} .= "log link shard 0 gen 1 page 0 block $block rows 0 rewritten";
		$error{$name} = $on ? qr/invalid page in block $block/ : qr/is damaged at block \d+, .*page is number 1 of generation 2, expected was number 1 of generation 1/;
	});
	with_file("${t}_shard", sub {
		my ($file) = @_;
		put_bytes($file, 2, 0, "\0" x BLOCK);
		@{ $lost{"${t}_shard"} } = ();
		$report{"${t}_shard"} = "shard page shard 0 block 2 rows 0 rewritten";
		$error{"${t}_shard"} = qr/block 2 of relation "s\d+" does not hold a shard page/;
	}) if $on;
	with_file("${t}_spare", sub {
		my ($file) = @_;
		flip($file, 1, 100);
		@{ $lost{"${t}_spare"} } = ();
		$report{"${t}_spare"} = "spare page block 1 rows 0 rewritten";
		$error{"${t}_spare"} = qr/invalid page in block 1/;
	}) if $on;
	for my $name (@base)
	{
		my ($number, $first, $blocks, $rows) = @{ $group{$name} };
		with_file($name, sub {
			my ($file) = @_;
			my $damaged = $name =~ /footer/ ? $first + $blocks - 1 : $first + int($blocks / 2);
			$damaged = $dictionary{$t} if $name =~ /dict/;
			put_bytes($file, $damaged, lower($file, $damaged) - 10, 'damage') if $name =~ /footer/;
			put_bytes($file, $damaged, 0, "\0" x BLOCK) if $name =~ /dict/;
			flip($file, $damaged, 4000) if $name =~ /frame/;
			$error{$name} = $on && $name !~ /dict/ ? qr/invalid page in block $damaged/ :
			  $name =~ /dict/ ? qr/block $damaged of relation "s\d+" does not hold dictionary/ : qr/row group at block $first of relation "s\d+" is corrupted/;
		});
	}
	for my $name (@pending)
	{
		with_file($name, sub {
			my ($file) = @_;
			my $first = $pgroup{$name};
			my $last = $first;
			# up to the page with the magic at its end
			$last++ until get_bytes($file, $last, lower($file, $last) - 4, 4) eq pack('L', 0x47525453);
			# of rows that have an older version in the base
			my $damaged = $name =~ /footer/ ? $last : $first + int(($last - $first) / 8);
			$damaged == $last ? put_bytes($file, $damaged, lower($file, $damaged) - 10, 'damage') : flip($file, $damaged, 4000);
			$error{$name} = $on ? qr/invalid page in block $damaged/ : qr/row group at block $first of relation "s\d+" is corrupted/;
		});
	}
	with_file('w', sub { my ($file) = @_; flip($file, $w[0], (entries($file, $w[0]))[3][0] + ENTRY_HEADER + 4); }) if $on;
	$node->start;

	# ---- the log ----
	for my $name (@log)
	{
		my $fails = $name =~ /spare/ ? "CALL bulk('$name', 1000, 2000, 1)" : "SELECT count(*) FROM $name";
		fails("$name damaged: use", $fails, $error{$name});
		is(q1("SELECT count(*) FROM ${name}_base"), 0, "$name damaged: what is merged stays readable");
		my $told = repair($name, 1);
		is($told, $report{$name}, "$name damaged: what a dry run tells");
		# else pages would be made for all that its number says are missing
		is(q1("SELECT problem FROM strata.repair('$name')"), 'page is not one of this log', "$name damaged: one page is missing") || die if $name =~ /tail/;
		fails("$name damaged: use after it", $fails, $error{$name});
		is(repair($name), $told, "$name damaged: what repair tells");
		lose($name, @{ $lost{$name} });
	}

	# ---- row groups of the base ----
	for my $name (@base)
	{
		my ($number, $first, $blocks, $rows) = @{ $group{$name} };
		fails("$name damaged: a scan", "SELECT sum(length(p)) FROM $name", $error{$name});
		is(q1("SELECT sum(length(p)) FROM $name WHERE id IN ('k1', 'k300', 'k799')"), q1("SELECT sum(length(p)) FROM ${name}_heap WHERE id IN ('k1', 'k300', 'k799')"),
			"$name damaged: rows of other row groups stay readable");
		is(q1("SELECT count(*), sum(n) FROM $name"), q1("SELECT count(*), sum(n) FROM ${name}_heap"), "$name damaged: columns that are not stay readable")
		  unless $name =~ /footer/;
		like(q1("SELECT object || ': ' || problem FROM strata.verify('$name')"), qr/^row group $number: (row group at )?block /m, "$name damaged: verify names it");
		my $told = repair($name, 1);
		is(repair($name, 1), $told, "$name damaged: a dry run changes nothing");
		is(repair($name), $told, "$name damaged: what repair tells");
		my @missing = split /\n/, q1("SELECT substr(id, 2)::int FROM ${name}_heap WHERE id NOT IN (SELECT id FROM $name) ORDER BY 1");
		my $n = @missing;
		my ($low, $high) = map { "k$_" } (sort { "k$a" cmp "k$b" } @missing)[0, -1];
		cmp_ok($n, '>', 0, "$name damaged: $n rows are lost");
		if ($name =~ /frame/)
		{
			is($told, "row group group $number block $first rows $n (id)=($low) (id)=($high) rewritten", "$name damaged: exactly these are told");
			cmp_ok($n, '<', 200, "$name damaged: not more than a vector or so");
		}
		elsif ($name =~ /footer/)
		{
			is($n, 2200, "$name damaged: all rows of the row group, and none older comes back");
			is($told, "row group group $number block $first rows 2200 (id)=(k1000) (id)=(k999) set aside", "$name damaged: exactly these are told");
		}
		else
		{
			like($told, qr/^row group group $number block $first rows $n \(id\)=\($low\) \(id\)=\($high\) rewritten\ndictionary block $dictionary{$t} rows 0 set aside$/, "$name damaged: exactly these are told");
		}
		q1("DELETE FROM ${name}_heap WHERE id NOT IN (SELECT id FROM $name)");
	}

	# ---- row groups of the log ----
	for my $name (@pending)
	{
		my $first = $pgroup{$name};
		fails("$name damaged: a scan", "SELECT sum(length(p)) FROM $name", $error{$name});
		is(q1("SELECT count(*) FROM ${name}_base"), 1000, "$name damaged: what is merged stays readable");
		is(q1("SELECT count(*), sum(n) FROM $name"), q1("SELECT count(*), sum(n) FROM ${name}_heap"), "$name damaged: columns that are not stay readable")
		  unless $name =~ /footer/;
		my $told = repair($name, 1);
		is(repair($name, 1), $told, "$name damaged: a dry run changes nothing");
		is(repair($name), $told, "$name damaged: what repair tells");
		# The version before a lost one is back only where its key cannot be read.
		my $differ = q1("SELECT count(*) FROM ${name}_heap h LEFT JOIN $name t USING (id) WHERE (h.n, h.p) IS DISTINCT FROM (t.n, t.p)");
		is(q1("SELECT count(*) FROM ${name}_heap h JOIN $name t USING (id) WHERE (h.n, h.p) IS DISTINCT FROM (t.n, t.p) AND (h.n, t.n, t.p) IS DISTINCT FROM (2, 1, p(substr(id, 2)::int, 1))"),
			0, "$name damaged: nothing else comes back");
		is(q1("SELECT count(*) FROM ${name}_heap h JOIN $name t USING (id) WHERE h.n = 2 AND t.n = 1"), $name =~ /footer/ ? 500 : 0, "$name damaged: versions before lost ones");
		my $done = $name =~ /footer/ ? 'set aside' : '\(id\)=\(k\d+\) \(id\)=\(k\d+\) rewritten';
		like($told, qr/^pending row group shard 0 gen 2 page \d+ entry \d+ block $first rows $differ $done$/,
			"$name damaged: $differ rows, exactly these are told");
		is($differ, 2500, "$name damaged: all of them") if $name =~ /footer/;
		cmp_ok($differ, '<', 200, "$name damaged: not more than a vector or so") if $name =~ /frame/;
		q1("DELETE FROM ${name}_heap", "INSERT INTO ${name}_heap SELECT * FROM $name");
	}

	# What repair wrote survives a crash, and replay makes the same pages of it.
	$node->stop('immediate');
	$node->start;
	use_table($_) for @log, @base, @pending;

	# A worker backs off from a damaged entry, and goes on when it is repaired.
	if ($on)
	{
		q1('ALTER SYSTEM SET strata.max_workers = 1', 'SELECT pg_reload_conf()');
	}
	else
	{
		ok($node->poll_query_until('postgres', "SELECT failures > 0 FROM strata.stores WHERE store = 'w'::regclass"), 'a worker fails on it');
		like(q1("SELECT last_error FROM strata.stores WHERE store = 'w'::regclass"), qr/block $path{wblock}/, 'the error names the block');
	}
	$path{wblock} = $w[0] if $on;
}

# ---- fixed pages that say what is not so, or do not fit the file ----
# [name, damage, what repair tells]; rows are lost where the file is cut short.
my (%stale, %at);
my $spare_told = qr/^spare page block 1 rows 0 rewritten$/;
my @wrong = (
	[ 'run', sub { put_bytes($_[0], 1, 40, pack 'L', $at{run}{group}) }, $spare_told ],
	[ 'owner', sub { put_bytes($_[0], 1, PAGE_HEADER, pack 'Q', 5) }, $spare_told ],
	[ 'nowner', sub { put_bytes($_[0], 1, PAGE_HEADER, pack 'Q', 0) }, $spare_told ],
	[ 'stale', sub { put_bytes($_[0], 1, 0, $stale{stale}) }, $spare_told ],
	[ 'cut', sub { truncate $_[0], (-s $_[0]) - BLOCK or die $! }, $spare_told ],
	[ 'short', sub { truncate $_[0], 3 * BLOCK or die $! }, qr/^spare page block 1 rows 0 rewritten\nrow group .*^log pages shard 0 .*^shard page shard 1 block 3 /ms ],
	[ 'short28', sub { truncate $_[0], 28 * BLOCK or die $! }, qr/^spare page block 1 rows 0 rewritten\nrow group .*^shard page shard 1 block 3 rows 0 rewritten$/ms ],
	(map { my ($field, $byte) = split / /; [ $field, sub { flip_bit($_[0], 2, $byte) }, qr/^shard page shard 0 block 2 rows 0 rewritten$/ ] }
		'active 28', 'start 56', 'tail 72', 'extent 80', 'rows 113', 'bytes 121'),
	# these reach into the list of free extents
	(map { my ($field, $byte) = split / /; [ $field, sub { flip_bit($_[0], 2, $byte) }, qr/^spare page block 1 rows 0 rewritten\nshard page shard 0 block 2 rows 0 rewritten$/ ] }
		'long 94', 'next 97'),
	[ 'logowner', sub { flip_bit($_[0], $at{logowner}{active}, BLOCK - 12) }, qr/^log page shard 0 gen \d+ page 0 block \d+ rows 0 rewritten$/ ],
	[ 'logplace', sub { flip_bit($_[0], $at{logplace}{active}, BLOCK - 16) }, qr/^log page shard 0 gen \d+ page 0 block \d+ rows 0 rewritten$/ ],
	[ 'counts', sub { flip_bit($_[0], $at{counts}{active}, 57) }, qr/^log page shard 0 gen \d+ page 0 block \d+ rows 0 rewritten$/ ],
	[ 'far', sub { flip_bit($_[0], $at{far}{active}, 35) }, qr/^log pages shard 0 gen \d+ page 0 block \d+ rows \? set aside$/ ],
	# zone maps that hide rows: n is 1 in all of them; the footer's, and the manifest's
	[ 'zones', sub { change_footer($_[0], $at{zones}{group}, $at{zones}{length}, sub { substr($_[0], -8) = pack 'q', 0 }) }, qr/^row group group 1 block \d+ rows 0 rewritten$/ ],
	[ 'listed', sub { }, qr/^row group group 1 block \d+ rows 0 rewritten$/ ],
	[ 'sealed', sub { flip_bit($_[0], $at{sealed}{active}, 100) }, qr/^log link shard 0 gen \d+ page 0 block \d+ rows 0 rewritten$/ ],
);
my @wrong_names = map { $_->[0] } @wrong;
for my $name (@wrong_names)
{
	q1(make_table($name, "auto_merge 'off', shards '2'"), "CALL bulk('$name', 1, 300, 1)", "CALL strata.drain('$name')", "CALL by_row('$name', 1, 20, 2)");
	$path{$name} = $node->data_dir . '/' . q1("SELECT pg_relation_filepath(storage) FROM strata.stores WHERE store = '$name'::regclass");
	if ($name eq 'stale')
	{
		q1('CHECKPOINT');
		with_file($name, sub { $stale{$name} = get_bytes($_[0], 1, 0, BLOCK) });
	}
	q1("SELECT * FROM strata.seal('$name')", "CALL bulk('$name', 21, 200, 2)", "CALL by_row('$name', 201, 210, 3)");
	$at{$name}{active} = q1("SELECT first_block FROM strata.generations WHERE store = '$name'::regclass AND shard = 0 ORDER BY generation DESC LIMIT 1");
	@{ $at{$name} }{ 'group', 'length' } = split /\|/, q1("SELECT first_block, length FROM strata.row_group WHERE store = '$name'::regclass ORDER BY number LIMIT 1");
}
$node->stop;
with_file($_->[0], $_->[1]) for @wrong;
$node->start;
for (@wrong)
{
	my ($name, $damage, $told) = @$_;
	if ($name =~ /zones|listed/)
	{
		q1("UPDATE strata.row_group SET zones = overlay(zones PLACING decode('0000000000000000', 'hex') FROM length(zones) - 7) WHERE store = '$name'::regclass AND number = 1");
		is(q1("SELECT count(*) FROM $name WHERE n = 1"), 0, "$name wrong: rows are hidden");
		my $what = $name eq 'zones' ? 'zone map of column 2: row 0 is greater than its maximum' : 'zone map of column 2 in the manifest is not that of its footer';
		like(q1("SELECT object || ', ' || problem FROM strata.verify('$name')"), qr/^row group 1, row group at block $at{$name}{group} of relation "s\d+": $what$/, "$name wrong: verify names it");
	}
	isnt(q1("SELECT v::text FROM strata.verify('$name') v"), '', "$name wrong: verify tells") if $name ne 'counts';    # which nobody reads before sealing
	my $dry = repair($name, 1);
	like($dry, $told, "$name wrong: repair tells");
	is(repair($name), $dry, "$name wrong: and does it");
	verify_clean($node, $name, "$name wrong: repaired");
	if ($name =~ /short|far/)
	{
		# of the log an older version may come back
		$name eq 'far' || cmp_ok(q1("SELECT count(*) FROM $name t JOIN ${name}_heap h USING (id, n, p)"), '==', q1("SELECT count(*) FROM $name"), "$name wrong: no row that was not there");
		q1("DELETE FROM ${name}_heap", "INSERT INTO ${name}_heap SELECT * FROM $name");
	}
	use_table($name);
}

# ---- a store that was made and has no metapage, or something else there ----
my @lost = qw(nometa empty badmeta badkind);
for my $name (@lost)
{
	q1(make_table($name), "CALL bulk('$name', 1, 50, 1)", "CALL strata.drain('$name')");
	$path{$name} = $node->data_dir . '/' . q1("SELECT pg_relation_filepath(storage) FROM strata.stores WHERE store = '$name'::regclass");
}
$node->stop;
with_file('nometa', sub { put_bytes($_[0], 0, 0, "\0" x BLOCK) });
with_file('empty', sub { truncate $_[0], 0 or die $! });
with_file('badmeta', sub { flip_bit($_[0], 0, PAGE_HEADER) });
with_file('badkind', sub { flip_bit($_[0], 0, BLOCK - 8) });
$node->start;
for my $name (@lost)
{
	my $what = $name =~ /bad/ ? 'block 0 of relation "s\d+" does not hold the metapage' : 'relation "s\d+" has no metapage, although the manifest of \S+ has row groups';
	my $like = qr/$what\n.*HINT:  Restore the table from a backup/s;
	fails("$name: $_->[0]", $_->[1], $like) for [ 'a scan', "SELECT count(*) FROM $name" ], [ 'a lookup', "SELECT * FROM $name WHERE id = 'k1'" ],
	  [ 'an insert', "INSERT INTO $name VALUES ('x')" ], [ 'a bulk insert', "INSERT INTO $name SELECT 'x' || g FROM generate_series(1, 1000) g" ],
	  [ 'COPY', "COPY $name (id) FROM PROGRAM 'echo x'" ], [ 'a merge', "SELECT * FROM strata.merge('$name')" ], [ 'TRUNCATE', "TRUNCATE $name" ],
	  [ 'repair', "SELECT * FROM strata.repair('$name', dry_run => false)" ];
	like(q1("SELECT object || ': ' || problem FROM strata.verify('$name')"), $name =~ /bad/ ? qr/^store: $what$/ : qr/^metapage: missing, although the manifest has 1 row groups$/m, "$name: verify");
	is(repair($name, 1), 'store rows ? none', "$name: repair");
	like(q1("SELECT advice FROM strata.health() WHERE store = '$name'::regclass AND what LIKE 'the store cannot be read%'"), qr/strata\.repair\(\)/, "$name: health");
	is(q1("SELECT count(*) > 0 FROM short28"), 't', "$name: other tables do not notice");
	q1("DROP FOREIGN TABLE ${name}_base, ${name}_wal, $name");
}

# ---- stopped at each step ----
q1(make_table('crash'), "CALL bulk('crash', 1, 1000, 1)", "CALL strata.drain('crash')", "CALL by_row('crash', 3001, 3060, 2)", "SELECT * FROM strata.seal('crash')",
	"CALL bulk('crash', 1001, 3000, 2)", "SELECT * FROM strata.seal('crash')", "CALL by_row('crash', 3101, 3160, 3)");
$path{crash} = $node->data_dir . '/' . q1("SELECT pg_relation_filepath(storage) FROM strata.stores WHERE store = 'crash'::regclass");
my ($base) = split /\n/, q1("SELECT first_block + blocks / 2 FROM strata.row_groups WHERE store = 'crash'::regclass");
my ($bulk) = split /\n/, q1("SELECT (ctid::text::point)[0]::bigint - 2147483648 FROM crash_wal WHERE id = 'k2000'");
my @first = split /\n/, q1("SELECT first_block FROM strata.generations WHERE store = 'crash'::regclass ORDER BY generation");
$node->stop;
with_file('crash', sub {
	my ($file) = @_;
	flip($file, $base, 4000);
	flip($file, $bulk + 20, 4000);
	put_bytes($file, $first[0] + 1, 0, "\0" x BLOCK);
	put_bytes($file, $first[2], 0, "\0" x BLOCK);
});
$node->start;
my $before = repair('crash', 1);
my @all = split /\n/, $before;
like($before, qr/^row group .*\n(log entry .*\n)?log pages .*\nlog pages .*\npending row group .*$/, 'damage of each kind');
for my $step ([ 'repair-groups-written', 'kill' ], [ 'repair-groups-written', 'error' ], [ 'repair-after-page', 'kill' ], [ 'repair-after-page', 'error' ],
	[ 'repair-pending-group-written', 'kill' ], [ 'repair-before-commit', 'error' ])
{
	my ($point, $action) = @$step;
	pause_arm($node, $point, $action);
	isnt($node->psql('postgres', "SELECT * FROM strata.repair('crash', dry_run => false)"), 0, "$point, $action: failed");
	pause_clear($node, $point);
	$node->poll_query_until('postgres', 'SELECT true') or die 'no restart';
	# What is done of the log stays done; the base is as it was.
	my %left = map { $_ => 1 } split /\n/, repair('crash', 1);
	ok($left{ $all[0] }, "$point, $action: the row group is still to be repaired");
	cmp_ok(scalar keys %left, '<=', scalar @all, "$point, $action: no more damage than before");
}
repair('crash');
my $differ = q1("SELECT count(*) FROM crash_heap h LEFT JOIN crash t USING (id) WHERE (h.n, h.p) IS DISTINCT FROM (t.n, t.p)");
my $told = 0;
$told += $1 while $before =~ /rows (\d+)/g;
is($differ, $told, 'in the end exactly that is lost');
q1('DELETE FROM crash_heap', 'INSERT INTO crash_heap SELECT * FROM crash');
use_table('crash');

# ---- an older copy of a key index: keys that are there twice, and the cure that
# docs/administration.md has ----
q1(make_table('rollouts'), "CALL bulk('rollouts', 1, 500, 1)", "CALL strata.drain('rollouts')");
$path{index} = $node->data_dir . '/' . q1("SELECT pg_relation_filepath(indexrelid) FROM pg_index WHERE indrelid = (SELECT storage FROM strata.stores WHERE store = 'rollouts'::regclass)");
$node->stop;
my $older = slurp_file($path{index});
$node->start;
q1("CALL bulk('rollouts', 501, 1000, 1)", "CALL strata.drain('rollouts')");
$node->stop;
with_file('index', sub { my ($file) = @_; truncate $file, 0; put_bytes($file, 0, 0, $older); });
$node->start;
like(q1("SELECT v::text FROM strata.verify('rollouts') v"), qr/^\("key index","row 0 of row group 2 is not under its key"\)/m, 'older key index: verify tells');
q1("CALL bulk('rollouts', 496, 505, 2)", "CALL strata.drain('rollouts')");
is(q1('SELECT count(*), count(DISTINCT id) FROM rollouts'), '1005|1000', 'older key index: keys are there twice');
like(q1("SELECT v::text FROM strata.verify('rollouts') v"), qr/^\("keys of the base","row 0 of row group 2 and row \d+ of row group 3 have the same key"\)/m, 'older key index: verify tells');
is(repair('rollouts', 1), '', 'older key index: nothing that repair could do');
my ($cure) = slurp_file("$ENV{STRATA_TOP}/docs/administration.md") =~ /^### Keys that are there twice\n.*?^```sql\n(.*?)^```$/ms;
is(scalar(grep { /^\(/ } split /\n/, q1($cure)), 10, 'older key index: the cure shows both rows of each key');
use_table('rollouts');

# ---- STRATA_SECONDS: random damage, as long as that ----
my $end = time + ($ENV{STRATA_SECONDS} // 0);
seed() if time < $end;
my $checksums_on = 0;
for (my $i = 1; time < $end; $i++)
{
	my $name = "random$i";
	my $shards = 1 + int rand 2;
	my @steps = ("CALL bulk('$name', 1, 600, 1)", "CALL strata.drain('$name')", "CALL by_row('$name', 501, 560, 2)", "SELECT * FROM strata.seal('$name')",
		"CALL bulk('$name', 580, 1800, 2)", "SELECT * FROM strata.seal('$name')", "CALL by_row('$name', 581, 640, 3)");
	push @steps, "SELECT * FROM strata.merge('$name')", "CALL by_row('$name', 1, 50, 4)" if rand() < 0.3;
	q1(make_table($name, "auto_merge 'off', shards '$shards'"), @steps);
	$path{$name} = $node->data_dir . '/' . q1("SELECT pg_relation_filepath(storage) FROM strata.stores WHERE store = '$name'::regclass");
	my $nblocks = -s $path{$name};
	$nblocks /= BLOCK;
	$node->stop;
	if (rand() < 0.2)
	{
		$checksums_on = !$checksums_on;
		system_or_bail('pg_checksums', $checksums_on ? '--enable' : '--disable', '-D', $node->data_dir);
	}
	my @told;
	with_file($name, sub {
		my ($file) = @_;
		for (1 .. 1 + int rand 4)
		{
			# anything but the metapage
			my $block = 1 + int rand(rand() < 0.1 ? 1 + $shards : $nblocks - 1);
			my $kind = int rand 5;
			push @told, "$kind at $block";
			flip($file, $block, int rand BLOCK) if $kind == 0;
			put_bytes($file, $block, 0, "\0" x BLOCK) if $kind == 1;
			put_bytes($file, $block, 4096, "\0" x 4096) if $kind == 2;
			put_bytes($file, $block, 0, get_bytes($file, 2 + $shards + int rand($nblocks - 2 - $shards), 0, BLOCK)) if $kind == 3;
			put_bytes($file, $block, int rand(BLOCK - 16), join '', map { chr int rand 256 } 1 .. 16) if $kind == 4;
		}
	});
	$node->start;
	my $dry = repair($name, 1);
	is(repair($name), $dry, "random $i (@told): repair does what the dry run tells");
	note $dry;
	if (rand() < 0.3) { $node->stop('immediate'); $node->start; }
	my $known = $dry !~ /rows \?/;
	my $sum = 0;
	$sum += $1 while $dry =~ /rows (\d+)/g;
	my $lost = q1("SELECT count(*) FROM ${name}_heap h LEFT JOIN $name t USING (id) WHERE (h.n, h.p) IS DISTINCT FROM (t.n, t.p)");
	cmp_ok($lost, '<=', $sum, "random $i: no more than told is lost") if $known;
	is(q1("SELECT count(*) FROM $name WHERE p <> p(substr(id, 2)::int, n)"), 0, "random $i: no row has a value it never had");
	is(q1("SELECT count(*) - count(DISTINCT id) FROM $name"), 0, "random $i: none is there twice");
	q1("DELETE FROM ${name}_heap", "INSERT INTO ${name}_heap SELECT * FROM $name");
	use_table($name);
	q1("DROP FOREIGN TABLE ${name}_base, ${name}_wal, $name; DROP TABLE ${name}_heap");
}

is(repair('w') =~ /^log entry shard 0 gen 1 page 0 entry \d+ block $path{wblock} rows 1 set aside$/, 1, 'it is repaired');
lose('w', 'k4 v1');
ok($node->poll_query_until('postgres', "SELECT pending_generations = 0 AND failures = 0 FROM strata.stores WHERE store = 'w'::regclass"), 'and merged by the worker');
same_rows($node, 'w', 'w: rows');
verify_clean($node, 'w', 'w');
done_testing();
