# PostgreSQL's own regression queries on strata tables in place of heap ones: each
# script runs on a cluster with heap tables and on one where every table that it
# creates is replaced by a strata table (test/data/heap_to_strata.sql) while
# workers merge, and each statement must print the same rows, or fail with the
# same SQLSTATE (T9, P17, P26, P29, P30, P31, P44, P52, P61; C3, C4, C7).
#
# The scripts are not part of this project, and Debian has them only in the
# source package.  STRATA_PG_SOURCE names a source tree of PostgreSQL 15; test/run
# fetches them where apt can.  Without them this is skipped.  STRATA_CORE names
# the scripts to run, of those below or others.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Strata;
use Script qw(statements start_statements outputs);

my $source = $ENV{STRATA_PG_SOURCE} // '';
plan skip_all => "no scripts of PostgreSQL's (STRATA_PG_SOURCE)" if !-e "$source/src/test/regress/sql/join.sql";
my $regress = "$source/src/test/regress";

# Tables are as the scripts have them, that is mostly without a key.
my @plain = qw(select_distinct select_distinct_on select_having select_implicit aggregates window union
  join_hash memoize equivclass tsrf hash_part partition_join partition_aggregate enum);
# A table without a primary key gets another column, which is its key.
my @keyed = qw(select select_into join subselect case limit groupingsets incremental_sort rangefuncs partition_prune arrays jsonb
  rowtypes numeric rangetypes insert update delete returning with triggers portals transactions updatable_views inherit generated
  identity combocid prepared_xacts truncate copy2 copydml copyselect insert_conflict plancache prepare domain polymorphism
  plpgsql fast_default constraints);

# Statements that neither run has, and why.
my $left_out = join '|', map { $_->[0] } (
	[ qr/(?:create\s+(?:unique\s+)?index|drop\s+index|reindex|cluster|alter\s+index)\b/i, 'foreign tables have no indexes' ],
	[ qr/alter\s+table\s+(?:if\s+exists\s+)?(?:only\s+)?\S+\s+(?:re)?set\s*\(/i, 'they have no storage parameters' ],
	[ qr/(?:create|declare)\s+.*\bconstraint\s+trigger\b/is, 'they have no constraint triggers' ],
	[ qr/[^;]*\bwhere\s+current\s+of\b/is, 'WHERE CURRENT OF does not reach them' ],
	[ qr/[^;]*\b[xc]m(?:in|ax)\b/is, 'their rows have no xmin, xmax, cmin and cmax' ],
	[ qr/alter\s+table\s+\S+\s+alter\s+(?:column\s+)?\S+\s+(?:set\s+data\s+)?type\b/i, 'stored rows are not rewritten' ],
	[ qr/(?:explain|vacuum|\\gexec)|[^;]*(?:explain_\w+|hash_join_batches)\s*\(/is, 'plans and vacuum are not results' ],
	[ qr/\\(?:d|sf|sv|z|h)|[^;]*\b(?:pg_class|pg_constraint|pg_attribute|pg_inherits|pg_depend|pg_stats|pg_statistic|pg_cursors|information_schema|pg_\w*size)\b/is,
		'catalogs and sizes are not results' ]);
# Tables that stay heap tables: a script does to them what core refuses on foreign ones.
my @keep = (
	qr/\breferences\s+(?:\w+\.)?(\w+)/i, qr/^\s*create\s+constraint\s+trigger\s+\w+\s+after.*?\bon\s+(?:\w+\.)?(\w+)/ims,
	qr/^\s*create\s+trigger[^;]*?\bon\s+(?:\w+\.)?(\w+)\s+referencing/ims,
	qr/insert\s+into\s+(?:\w+\.)?(\w+)[^;]*on\s+conflict[^;]*\bdo\s+update/i,
	qr/insert\s+into\s+(?:\w+\.)?(\w+)[^;]*on\s+conflict\s*(?:\(|on\b)/i,
	qr/^\s*merge\s+into\s+(?:only\s+)?(?:\w+\.)?(\w+)/im, qr/\b(\w+)\s+tablesample/i,
	qr/alter\s+table\s+(?:only\s+)?(?:if\s+exists\s+)?(?:\w+\.)?(\w+)\s+(?:enable|disable|force)\s+row/i,
	qr/alter\s+table\s+(?:only\s+)?(?:\w+\.)?(\w+)\s+add\s+(?:constraint\s+\w+\s+)?(?:primary|unique|foreign|exclude)/i,
	qr/^\s*create\s+(?:or\s+replace\s+)?rule\b[^;]*?\bto\s+(?:\w+\.)?(\w+)/im, qr/^\s*lock\s+(?:table\s+)?(\w+)/im,
	qr/create\s+(?:temp\w*\s+)?table\s+(\w+)[^;]*on\s+commit/i,
	qr/(?:update|delete\s+from)\s+(?:only\s+)?(\w+)[^;]*where\s+current\s+of/i, qr/^\s*copy\s+(\w+)\s*(?:\([^()]*\)\s*)?to\b/im,
);
# The same by script (patterns of LIKE), with the reason.
my %keep = (
	update => 'range_parted part\_% upsert_test%',    # transition tables, upserts
	triggers => 'parted%',    # likewise, and constraint triggers
	inherit => 'inhpar% inhcld% errtst% inh\_temp% inh\_perm%',    # likewise; types that change; temporary parents
	generated => 'gtest\_parent gtest\_child% gtest\_tableoid gtest25 gtest27',    # likewise; generated columns added to rows
	transactions => 'temptest',    # temporary, for a read-only transaction
	rowtypes => 'people fullname tt1 tt2 tt3',    # a row type that changes; a key that is null
	jsonb => 'rows',    # looked for in pg_temp
	identity => 'itest3 itest8 itest13 itest18',    # columns added to rows, types that change, UNLOGGED
	truncate => 'trunc\_trigger\_test',    # TRUNCATE triggers
	fast_default => 'has\_volatile t t2 vtype%',    # volatile defaults, types that change
	constraints => 't tp parted\_fk%',    # foreign keys; temporary parents
	insert => 'large\_tuple\_test',    # rows that do not fit a heap page
	plancache => 't1 temptable',    # dropped within functions
	polymorphism => 't',    # aggregates that tell the order of their input
);

my @scripts = ((map { [ $_, 'off' ] } @plain), (map { [ $_, 'on' ] } @keyed));
if ($ENV{STRATA_CORE})
{
	my %keyed = map { @$_ } @scripts;
	@scripts = map { [ $_, $keyed{$_} // 'on' ] } split ' ', $ENV{STRATA_CORE};
}

my %conf = ('fsync' => 'off', lc_messages => "'C'", max_connections => 30);
my $heap = strata_node('heap', %conf);
my $strata = strata_node('strata', %conf, 'strata.max_workers' => 1, 'strata.merge_interval' => 1,
	'strata.generation_max_rows' => 300, max_worker_processes => 16);
my $setup = slurp_file("$ENV{STRATA_TOP}/test/data/heap_to_strata.sql");
$ENV{PG_ABS_SRCDIR} = $regress;
$ENV{PG_ABS_BUILDDIR} = $heap->basedir;
$ENV{PG_LIBDIR} = $regress;
$ENV{PG_DLSUFFIX} = '.so';
mkdir $heap->basedir . '/results';

sub kept
{
	my ($name) = @_;
	my $text = slurp_file("$regress/sql/$name.sql");
	my %names = map { $_ => 1 } split ' ', $keep{$name} // '';
	for my $r (@keep) { $names{ lc $1 } = 1 while $text =~ /$r/g; }
	return join ', ', map { "('$_')" } sort keys %names;
}

sub options
{
	my ($node, $keyed) = @_;
	return "-c core.keyed=$keyed -c core.strata=" . ($node == $strata ? 'on' : 'off') . ' -c search_path=public -c intervalstyle=postgres_verbose';
}

# The statements of a script that are run, changed where the tables are not what
# the script takes them for.
sub chosen
{
	my ($script, $keyed) = @_;
	my @chosen;
	my $columns = q{SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) AS columns FROM pg_attribute
WHERE attrelid = to_regclass('TABLE') AND attnum > 0 AND NOT attisdropped AND attname <> 'strata_k'};
	for my $s (statements(slurp_file("$regress/sql/$script.sql")))
	{
		(my $bare = $s) =~ s/^\s*--.*\n//mg;
		$bare =~ s{\A\s*/\*.*?\*/}{}s;
		$s =~ s/vacuum\s+analyze/ANALYZE/i if $bare =~ s/^\s*vacuum\s+analyze/ANALYZE/i;
		# a foreign scan goes backward only in a cursor that is declared so
		$s =~ s/(declare\s+\w+\s+)(cursor)/$1scroll $2/i if $bare =~ /^\s*declare\b/i;
		# a table may be of either kind
		$s =~ s/^(\s*)drop\s+table\s+([^;]+);/$1CALL public.drop_tables(\$\$$2\$\$);/im if $bare =~ /^\s*drop\s+table/i;
		# COPY's data has no column strata_k
		$s =~ s{^(\s*)copy\s+([\w.]+)\s+from}{$1 . ($columns =~ s/TABLE/$2/r) . " \\gset\nCOPY $2 (:columns) FROM"}ime if $keyed eq 'on';
		push @chosen, $s if $bare !~ /\A\s*(?:$left_out)/;
	}
	return @chosen;
}

# The tables that all scripts share, with and without the added key.
for my $node ($heap, $strata)
{
	for my $keyed ('off', 'on')
	{
		my $db = "core_$keyed";
		$node->safe_psql('postgres', "CREATE DATABASE $db");
		$node->safe_psql($db, "CREATE EXTENSION strata; GRANT USAGE ON FOREIGN SERVER strata TO PUBLIC; GRANT ALL ON SCHEMA public TO PUBLIC; $setup");
		$node->safe_psql($db, 'CREATE EVENT TRIGGER table_created ON ddl_command_end EXECUTE FUNCTION public.table_created()');
		my @all = map { chosen($_, $keyed) } 'test_setup', 'create_misc';
		outputs(start_statements($node, $db, options($node, $keyed), @all));
	}
}
my $replaced = () = slurp_file($strata->logfile) =~ /LOG:  replaced: /g;
cmp_ok($replaced, '>', 40, 'tables of the setup are strata tables');

my ($compared, $rows, @ties) = (0, 0);
for (@scripts)
{
	my ($name, $keyed) = @$_;
	my @statements = chosen($name, $keyed);
	my $kept = kept($name);
	my @runs;
	for my $node ($heap, $strata)
	{
		$node->safe_psql('postgres', "CREATE DATABASE \"$name\" TEMPLATE core_$keyed");
		$node->safe_psql($name, "INSERT INTO public.strata_keep VALUES $kept") if $kept;
		push @runs, [ start_statements($node, $name, options($node, $keyed), @statements) ];
	}
	my ($h, undef) = outputs(@{ $runs[0] });
	my ($s, $raw) = outputs(@{ $runs[1] });
	my @bad;
	for my $i (0 .. $#statements)
	{
		my ($x, $y) = ($h->[$i] // '(nothing)', $s->[$i] // '(nothing)');
		$compared++;
		$rows++ if $x =~ /^\(\d+ rows?\)$/m;
		next if $x eq $y;
		# rows in another order: with ORDER BY, only ties
		if (join("\n", sort split /\n/, $x) eq join("\n", sort split /\n/, $y))
		{
			push @ties, "$name $i: $statements[$i]" if $statements[$i] =~ /\border\s+by[^()]*\z/i;
			next;
		}
		push @bad, $i;
	}
	is(scalar @bad, 0, "$name: " . @statements . ' statements') or diag map { "$name $_ $statements[$_]\n heap:\n" . ($h->[$_] // '') . "\n strata:\n" . ($raw->[$_] // '') . "\n" } @bad;
	$strata->safe_psql('postgres', "DROP DATABASE \"$name\"");
	$heap->safe_psql('postgres', "DROP DATABASE \"$name\"");
}
cmp_ok(scalar @ties, '<', 4, 'rows are in order') or diag @ties;
$replaced = () = slurp_file($strata->logfile) =~ /LOG:  replaced: /g;
cmp_ok($replaced, '>', 40 + 3 * @scripts, "$replaced tables were strata tables");
my $merged = () = slurp_file($strata->logfile) =~ /LOG:  strata: merged /g;
cmp_ok($merged, '>', 0, "$merged passes ran");
note "$compared statements, $rows with rows";
for my $node ($heap, $strata) { unlike(slurp_file($node->logfile), qr/terminated by signal/, 'nothing crashed'); $node->stop; }
done_testing();
