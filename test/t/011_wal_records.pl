# Rules that show in the WAL alone, read with pg_walinspect: what is one record
# (link, seal, bulk pages), what goes with what (an extension carries its last
# page), what comes first (a conflict record before anything is taken from old
# readers, M before the manifest), and that freezing needs no xid.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Strata;

my $node = strata_node('wal', streaming => 1, checkpoint_timeout => '1h', autovacuum => 'off',
	bgwriter_delay => '10s', max_wal_size => '1GB');
$node->safe_psql('postgres', 'CREATE EXTENSION pg_walinspect');

sub sql { return $node->safe_psql('postgres', @_); }

# Create a table; its storage's name, and the file that a record names it by.
sub make_table
{
	my ($name, $options) = @_;
	sql("CREATE FOREIGN TABLE $name (id int NOT NULL, v bytea) SERVER strata OPTIONS ($options)");
	return sql("SELECT storage FROM strata.stores WHERE store = '$name'::regclass");
}

sub file_of { return sql("SELECT 'rel 1663/' || d.oid || '/' || pg_relation_filenode('$_[0]') FROM pg_database d WHERE datname = current_database()"); }

# The records that some statements write, oldest first, as hashes with type,
# xid, description, and blocks: a list of [file, block, full image?].
sub records_of
{
	my ($statements) = @_;
	my $from = sql('SELECT pg_current_wal_insert_lsn()');
	sql($_) for ref $statements ? @$statements : $statements;
	my $to = sql('SELECT pg_current_wal_insert_lsn()');
	return () if $from eq $to;
	sql('SELECT pg_switch_wal()');
	my @records;
	for my $line (split /\n/, sql(
			"SELECT resource_manager || ' ' || record_type || E'\\t' || xid || E'\\t' || coalesce(description, '')"
			. " || E'\\t' || replace(coalesce(block_ref, ''), E'\\n', ' ')"
			. " FROM pg_get_wal_records_info('$from', '$to')"))
	{
		my ($type, $xid, $description, $refs) = split /\t/, $line, -1;
		my @blocks;
		push @blocks, [ $1, $2, $3 ? 1 : 0 ]
		  while $refs =~ m{blkref #\d+: (rel \d+/\d+/\d+) (?:fork main )?blk (\d+)( \(FPW\))?}g;
		push @records, { type => $type, xid => $xid, description => $description, blocks => \@blocks };
	}
	return @records;
}

# Of the records, those that name a block of the file from $first on.
sub touching
{
	my ($file, $first, @records) = @_;
	return grep { grep { $_->[0] eq $file && $_->[1] >= $first } @{ $_->{blocks} } } @records;
}

sub blocks { return join ' ', sort { $a <=> $b } map { $_->[1] } @{ $_[0]->{blocks} }; }

# Where the first record that passes is, or undef.
sub index_of
{
	my ($test, @records) = @_;
	for my $i (0 .. $#records)
	{
		local $_ = $records[$i];
		return $i if $test->();
	}
	return undef;
}

# n bytes that do not compress
sub noise { return "(SELECT string_agg(decode(md5(g::text), 'hex'), '') FROM generate_series(1, $_[0] / 16) g)"; }

# n rows with a kilobyte each that does not compress
sub noisy_rows
{
	return "SELECT g, (SELECT string_agg(decode(md5(g || ' ' || h), 'hex'), '') FROM generate_series(1, 60) h) FROM generate_series(1, $_[0]) g";
}

# ---- a new store: its length, then all its pages at once ----
my $storage = make_table('t', "key 'id', auto_merge 'off'");
my $file = file_of($storage);
my @records = touching($file, 0, records_of("INSERT INTO t VALUES (1, 'x')"));
my $size = sql("SELECT pg_relation_size('$storage') / 8192");
is($records[0]{type}, 'Generic Generic', 'a new file: first its length');
is(blocks($records[0]), $size - 1, 'by its last page');
ok($records[0]{blocks}[0][2], 'as a full image');
is("$records[1]{type} " . blocks($records[1]), 'XLOG FPI 0 1 2', 'then shard page, spare page and metapage at once');

# ---- an entry is linked by one record ----
sql("INSERT INTO t VALUES (3, " . noise(6000) . ")");
@records = records_of("INSERT INTO t VALUES (2, " . noise(14400) . ")");
my @link = grep { blocks($_) =~ /\b2\b/ } touching($file, 3, @records);
is(scalar @link, 1, 'an entry over two new pages: one record touches the shard page');
is(scalar @{ $link[0]{blocks} }, 4, 'and with it the old tail and both new pages');
is(scalar(touching($file, 3, @records)), 1, 'nothing else of the log is touched');
is(scalar(grep { $_->[2] } @{ $link[0]{blocks} }), 2, 'the new pages are full images')
  or diag explain \@link;

# ---- seal is one record ----
my ($first_block, $last_block) = split /\|/, sql("SELECT first_block, last_block FROM strata.generations WHERE store = 't'::regclass");
isnt($first_block, $last_block, 'the generation has several pages');
my @seal = touching($file, 2, records_of("SELECT * FROM strata.seal('t')"));
is(scalar @seal, 1, 'seal: one record');
is(blocks($seal[0]), join(' ', 2, $first_block, $last_block, $last_block + 1),
	'over shard page, first page, old tail and new tail');

# ---- an append touches one page, however many generations are pending (L19, L22, L31) ----
my $many = file_of(make_table('many', "key 'id', auto_merge 'off'"));
sql(join '', map { "INSERT INTO many VALUES ($_, 'x'); SELECT FROM strata.seal('many');" } 1 .. 50);
sql("INSERT INTO many VALUES (51, 'x')");
my @append = touching($many, 0, records_of("INSERT INTO many VALUES (52, 'x')"));
is(scalar @append, 1, 'a small append over 50 pending generations: one record');
is(scalar @{ $append[0]{blocks} }, 1, 'over one page');

# ---- bulk pages are logged up to 32 at a time, by full images ----
@records = records_of("INSERT INTO t " . noisy_rows(400));
my @pages = grep { $_->{type} eq 'XLOG FPI' } touching($file, 3, @records);
my $npages = 0;
$npages += @{ $_->{blocks} } for @pages;
cmp_ok($npages, '>', 40, 'a load of more than 40 pages');
is(scalar @{ $pages[0]{blocks} }, 32, 'a record has 32');
is(scalar @pages, int(($npages + 31) / 32), 'and there are as few records as that makes');
is(scalar(grep { !$_->[2] } map { @{ $_->{blocks} } } @pages), 0, 'all of them full images');

# ---- the record of an extension carries the last page ----
my $before = sql("SELECT pg_relation_size('$storage') / 8192");
@records = records_of("INSERT INTO t " . noisy_rows(2000));
my $after = sql("SELECT pg_relation_size('$storage') / 8192");
cmp_ok($after, '>', $before, 'the file was extended');
my @extensions = grep { $_->{type} eq 'Generic Generic' && blocks($_) =~ /^1 \d+$/ && $_->{blocks}[0][2] + $_->{blocks}[1][2] > 0 && (sort { $b <=> $a } map { $_->[1] } @{ $_->{blocks} })[0] >= $before } touching($file, 1, @records);
is(scalar @extensions, ($after - $before) / 64, 'one record for each step of 64 blocks');
is(blocks($extensions[-1]), '1 ' . ($after - 1), 'over spare page and the last page');
my ($last_ref) = grep { $_->[1] == $after - 1 } @{ $extensions[-1]{blocks} };
ok($last_ref->[2], 'which is a full image');

# ---- M is logged before the manifest is written ----
# Nothing but aborted rows: the pass takes no row group number, which would
# touch the metapage as well.
drain($node, 't');
sql("BEGIN; INSERT INTO t VALUES (1, 'aborted'); ROLLBACK");
sql("SELECT * FROM strata.seal('t')");
my $shard_file = file_of('strata.shard');
@records = records_of("SELECT * FROM strata.merge('t')");
my $m = index_of(sub { grep { $_->[0] eq $file && $_->[1] == 0 } @{ $_->{blocks} } }, @records);
my $manifest = index_of(sub { $_->{type} =~ /^Heap/ && grep { $_->[0] eq $shard_file } @{ $_->{blocks} } }, @records);
ok(defined $m && defined $manifest, 'a pass logs M and writes the manifest');
cmp_ok($m // 1e9, '<', $manifest // -1, 'in this order');

# ---- conflict records ----
# The first record that names the file, or its index, must be one that cancels
# readers older than the horizon; the horizon is the next xid, nobody else runs.
my $index_file;
sub takes_something
{
	my ($record, $type) = @_;
	return 0 if $type && $record->{type} !~ $type;
	return 1 if grep { $_->[0] eq $file || ($index_file && $_->[0] eq $index_file && $record->{type} =~ /VACUUM|DELETE/) } @{ $record->{blocks} };
	return $record->{type} eq 'Storage TRUNCATE' && $record->{description} =~ m{/\Q@{[ $file =~ s{.*/}{}r ]}\E to };
}

sub conflict_first
{
	my ($what, $type, $horizon, @records) = @_;
	my $conflict = index_of(sub { $_->{type} eq 'Btree REUSE_PAGE' }, @records);
	my $taken = index_of(sub { takes_something($_) }, @records);
	ok(defined index_of(sub { takes_something($_, $type) }, @records), "$what: something is taken")
	  or diag join "\n", map { "$_->{type} " . blocks($_) } @records;
	ok(defined $conflict && defined $taken && $conflict < $taken, "$what: a conflict record comes first");
	is(defined $conflict ? ($records[$conflict]{description} =~ /(?:latestRemovedXid|snapshotConflictHorizon:) \d+:(\d+)/)[0] : '', $horizon - 1,
		"$what: it names the horizon less one");
}

# A sweep that takes nothing cancels nobody.
sub takes_nothing
{
	my ($what, @records) = @_;
	is(join(' ', map { "$_->{type} " . blocks($_) } grep { $_->{type} eq 'Btree REUSE_PAGE' || takes_something($_) } @records), '',
		"$what: no conflict record, no change");
}
my $horizon_sql = 'SELECT pg_snapshot_xmax(pg_current_snapshot())';

my $index = sql("SELECT indexrelid::regclass FROM pg_index WHERE indrelid = '$storage'::regclass");
$index_file = file_of($index);
sql("INSERT INTO t SELECT g, 'again' FROM generate_series(1, 100) g");
drain($node, 't');
my $horizon = sql($horizon_sql);
conflict_first('blocks', qr/Generic/, $horizon, records_of("SELECT * FROM strata.sweep('t')"));

# An index built anew has the superseded rows again; there are no blocks to
# give back.
sql("SELECT strata.drop_key_index('t')");
@records = records_of("SELECT strata.create_key_index('t')");
is(scalar(grep { $_->{type} eq 'Btree REUSE_PAGE' } @records), 0, 'an index with the rows of all row groups: no conflict record');
$index = sql("SELECT indexrelid::regclass FROM pg_index WHERE indrelid = '$storage'::regclass");
$index_file = file_of($index);
$horizon = sql($horizon_sql);
conflict_first('TIDs', qr/Btree (VACUUM|DELETE)/, $horizon, records_of("SELECT * FROM strata.sweep('t')"));

takes_nothing('nothing to give back', records_of("SELECT * FROM strata.sweep('t')"));

# An index without the rows of row groups that are gone takes them from readers
# who still see those.
sql("INSERT INTO t SELECT g, 'once more' FROM generate_series(1, 2000) g");
drain($node, 't');
cmp_ok(sql("SELECT row_groups_read FROM strata.compact('t')"), '>', 0, 'index build: row groups went');
$horizon = sql($horizon_sql);
@records = records_of("REINDEX INDEX $index");
my $conflict = index_of(sub { $_->{type} eq 'Btree REUSE_PAGE' }, @records);
my $commit = index_of(sub { $_->{type} eq 'Transaction COMMIT' }, @records);
ok(defined $conflict && defined $commit && $conflict < $commit, 'index build: a conflict record comes before its commit');
is(defined $conflict ? ($records[$conflict]{description} =~ /latestRemovedXid \d+:(\d+)/)[0] : '', $horizon - 1,
	'index build: it names the horizon less one');

sql("INSERT INTO t SELECT g, 'pending' FROM generate_series(1, 10) g");
$horizon = sql($horizon_sql);
@records = records_of("VACUUM (FREEZE) $storage");
conflict_first('freezing', qr/Generic/, $horizon, @records);
is(join(' ', grep { $_ ne '0' } map { $_->{xid} } @records), '', 'freezing: no record has an xid');
is(sql($horizon_sql), $horizon, 'freezing: none was given out');

# Truncation by itself: a reader kept the first sweep from it, and without a key
# there is no index to sweep.
$storage = make_table('k', "auto_merge 'off'");
$file = file_of($storage);
$index_file = undef;
sql("INSERT INTO k VALUES (1, 'x')");
drain($node, 'k');
sql("BEGIN; INSERT INTO k " . noisy_rows(2000) . "; ROLLBACK") for 1, 2;
my $reader = $node->background_psql('postgres');
$reader->query("BEGIN; SELECT count(*) FROM k");
drain($node, 'k');
is(sql("SELECT blocks_freed > 128, blocks_truncated FROM strata.sweep('k')"), 't|0', 'a reader keeps sweep from truncating');
takes_nothing('truncation that cannot be', records_of("SELECT * FROM strata.sweep('k')"));
$reader->query('COMMIT');
$horizon = sql($horizon_sql);
conflict_first('truncation', qr/Storage TRUNCATE/, $horizon, records_of("SELECT * FROM strata.sweep('k')"));
verify_clean($node, 't', 'in the end');
verify_clean($node, 'k', 'in the end');

$reader->quit;
$node->stop;
done_testing();
