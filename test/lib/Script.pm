# psql scripts taken apart and run statement by statement, so that the output of
# each can be told from the next.
package Script;

use strict;
use warnings;
use Exporter 'import';
use IPC::Run;

our @EXPORT_OK = qw(statements start_statements outputs);

# The statements of a script, each with the lines it stands on: a statement, a
# psql command or COPY with its data.
sub statements
{
	my ($text) = @_;
	my @statements;
	my $now = '';
	my $state = '';     # '', "'", "E" (E''), '"', '/' (comment) or a dollar quote's tag
	my ($depth, $nested) = (0, 0);
	my $data = 0;

	my @lines = split /^/, $text;
	for my $at (0 .. $#lines)
	{
		my $line = $lines[$at];
		$now .= $line;
		if ($data)
		{
			if ($line =~ /^\\\.\s*$/) { $data = 0; push @statements, $now; $now = ''; }
			next;
		}
		my $ended = 0;
		# a psql command where a statement could begin
		if ($state eq '' && $line =~ /^\s*\\/ && ($now =~ s/^\s*--.*\n//mgr) =~ /\A\s*\\/)
		{
			push @statements, $now;
			$now = '';
			next;
		}
		pos($line) = 0;
		while (pos($line) < length $line)
		{
			if ($state eq "'") { $line =~ /\G(?:[^']|'')*/gc; $state = '' if $line =~ /\G'/gc; }
			elsif ($state eq 'E') { $line =~ /\G(?:[^'\\]|''|\\.)*/gcs; $state = '' if $line =~ /\G'/gc; }
			elsif ($state eq '"') { $line =~ /\G[^"]*/gc; $state = '' if $line =~ /\G"/gc; }
			elsif ($state eq '/')
			{
				if ($line =~ m{\G\*/}gc) { $state = '' if --$nested == 0; }
				elsif ($line =~ m{\G/\*}gc) { $nested++; }
				else { $line =~ /\G./gcs; }
			}
			elsif ($state ne '')
			{
				if ($line =~ /\G\Q$state\E/gc) { $state = ''; }
				else { $line =~ /\G./gcs; }
			}
			elsif ($line =~ /\G--.*/gc) { }
			elsif ($line =~ m{\G/\*}gc) { $state = '/'; $nested = 1; }
			elsif ($line =~ /\G(?:e|E)'/gc) { $state = 'E'; }
			elsif ($line =~ /\G'/gc) { $state = "'"; }
			elsif ($line =~ /\G"/gc) { $state = '"'; }
			elsif ($line =~ /\G(\$\w*\$)/gc) { $state = $1; }
			elsif ($line =~ /\G\(/gc) { $depth++; }
			elsif ($line =~ /\G\)/gc) { $depth-- if $depth > 0; }
			elsif ($line =~ /\G\\;/gc) { }
			elsif ($line =~ /\G\\.*/gcs) { $ended = 1; $depth = 0; }
			elsif ($line =~ /\G;/gc)
			{
				$ended = 1 if $depth == 0 && ($now !~ /\bbegin\s+atomic\b/i || $line =~ /^\s*end\s*;/i);
			}
			elsif ($line =~ /\G\s+/gc) { }
			elsif ($line =~ /\G\w+/gc) { $ended = 0; }
			else { $line =~ /\G./gcs; }
		}
		if ($ended && $state eq '' && $depth == 0)
		{
			if ($now =~ /^\s*(?:--.*\n\s*)*copy\b[^;]*\bfrom\s+stdin\b/i && data_follows(@lines[ $at + 1 .. $#lines ]))
			{
				$data = 1;
				next;
			}
			push @statements, $now;
			$now = '';
		}
	}
	push @statements, $now if $now =~ /\S/;
	return @statements;
}

# Whether COPY's data comes next: what is to fail before has none.
sub data_follows
{
	for (@_)
	{
		return 1 if /^\\\.\s*$/;
		return 0 if /^(?:--|\\)|^(?:copy|select|create|drop|insert|begin|rollback)\b.*;\s*$/i;
	}
	return 0;
}

# Starts the statements in one psql session of $db with PGOPTIONS $options.
# Returns what outputs() takes.
sub start_statements
{
	my ($node, $db, $options, @statements) = @_;
	my $n = 0;
	my $script = "\\set VERBOSITY verbose\n\\set SHOW_CONTEXT never\n\\pset null '<NULL>'\n";
	for (@statements)
	{
		$script .= "\\echo \@\@\@ $n\n$_";
		$script .= "\n" if $script !~ /\n\z/;
		$n++;
	}
	my $file = $node->basedir . "/$db.sql";
	PostgreSQL::Test::Utils::append_to_file("$file.new", $script);
	rename "$file.new", $file;
	local $ENV{PGHOST} = $node->host;
	local $ENV{PGPORT} = $node->port;
	local $ENV{PGOPTIONS} = $options;
	local $ENV{PGUSER} = 'postgres';
	local $ENV{PGTZ} = 'America/Los_Angeles';
	local $ENV{PGDATESTYLE} = 'Postgres, MDY';
	my $handle = IPC::Run::start([ 'psql', '-X', '-q', '-f', $file, $db ], '<', \undef, '>', "$file.out", '2>&1');
	return ($handle, "$file.out");
}

# Waits for the session; what each statement printed, with errors as their
# SQLSTATE, and a second array with all that was printed.
sub outputs
{
	my ($handle, $file) = @_;
	$handle->finish;
	my $all = PostgreSQL::Test::Utils::slurp_file($file);
	my (@out, @raw);
	for my $piece (split /^\@\@\@ (?=\d+$)/m, $all)
	{
		my ($n, $text) = $piece =~ /\A(\d+)\n(.*)\z/s or next;
		$text =~ s/^psql:\S+?:\d+: //mg;
		$raw[$n] = $text;
		$text =~ s/^(ERROR|FATAL|PANIC):  (\w{5}): .*/$1: $2/mg;
		$text =~ s/^(NOTICE|WARNING|INFO|LOG):  \w{5}: /$1: /mg;
		$text =~ s/^(?:DETAIL|HINT|LOCATION|QUERY|CONTEXT|(?:SCHEMA|TABLE|COLUMN|CONSTRAINT|DATA TYPE|DATATYPE) NAME):  .*\n//mg;
		$text =~ s/^WARNING: skipped scanning foreign table .*\n//mg;
		$text =~ s/^NOTICE: view \S+ will be a temporary view\n//mg;
		$text =~ s/\bforeign table\b/table/g;
		$text =~ s/^LINE \d+: .*\n.*\^\n//mg;
		$out[$n] = $text;
	}
	return (\@out, \@raw);
}

1;
