# Runs episodes of Workload.pm: the same steps in the same order in sessions on
# the strata table (world s) and in sessions on the heap twin (world h), and
# compares what each step gives: rows, command tag, SQLSTATE, state of the
# transaction, and whether it waits for another session.  A failing episode is
# shrunk to few steps and written as a script.
#
# No difference is passed over.  Steps that could end differently for a good
# reason are left out while that reason holds (see _ready and _level).
package Differential;

use strict;
use warnings;
use IO::Select;
use Time::HiRes qw(sleep time);
use Wire;
use Workload;

my $hang = 120;    # seconds until a statement that waits for no lock counts as hanging

sub new
{
	my ($class, $node) = @_;
	my $self = bless { node => $node, count => {} }, $class;
	$self->_control->query('CREATE EXTENSION IF NOT EXISTS strata');
	$self->_control->query(Workload::prelude());
	return $self;
}

# The session that looks on, connected again after a crash.
sub _control
{
	my ($self) = @_;
	for (1 .. 300)
	{
		return $self->{control} if $self->{control} && !$self->{control}{dead};
		$self->{control} = Wire->new($self->{node}, 'postgres');
		sleep 0.2 unless $self->{control};
	}
	die 'the server does not come back';
}

sub count { my ($self, $what) = @_; $self->{count}{$what}++; return; }

sub _must
{
	my ($self, $wire, $sql) = @_;
	my $r = $wire->query($sql);
	die { class => 'crash', text => "$sql: $r->{message}" } if $wire->{dead};
	die "$sql: $r->{code} $r->{message}" if $r->{code};
	return $r;
}

# Runs the steps of $e (or those given); undef, or what differed: class and text.
sub run
{
	my ($self, $e, $steps) = @_;
	my $failure;
	@$self{qw(e log sessions prepared altered executed)} = ($e, [], [], [], 0, 0);
	$self->_control->query('SELECT 1');    # finds out whether it is alive
	my $control = $self->_control;
	$control->query('SET client_min_messages = error');
	$self->_must($control, "ROLLBACK PREPARED '$_'") for @{ $control->query('SELECT gid FROM pg_prepared_xacts')->{rows} };
	$self->_must($control, 'DROP SCHEMA IF EXISTS s, h CASCADE; CREATE SCHEMA s; CREATE SCHEMA h');
	for my $w ('s', 'h')
	{
		my $r = $control->query("SET search_path = $w, public; $e->{create}{both}; $e->{create}{$w}; RESET search_path");
		die "$e->{create}{$w}: $r->{code} $r->{message}" if $r->{code};
	}
	eval {
		for my $n (0 .. $e->{sessions} - 1)
		{
			my $session = { n => $n, saves => [] };
			$self->_connect($session);
			push @{ $self->{sessions} }, $session;
		}
		my $at = 0;
		for my $step (@{ $steps // $e->{steps} })
		{
			$self->{at} = $at++;
			$self->_finish_prepared if @{ $self->{prepared} } && ($e->{sessions} == 1 || $at % 8 == 0);
			$self->_step($step) if $self->_ready($step);
			while (my ($lagging) = grep { $_->{lags} } @{ $self->{sessions} }) { $self->_let_go($lagging); }
			$self->_whole_table($self->{sessions}[0], "after step $at") if $ENV{STRATA_PARANOID} && !grep { $_->{step} || _in($_) } @{ $self->{sessions} };
		}
		$self->_end;
		1;
	} or do {
		$failure = $@;
		die $failure unless ref $failure;
		$failure->{class} = 'crash' if grep { $_->{s} && $_->{s}{dead} || $_->{h} && $_->{h}{dead} } @{ $self->{sessions} };
	};
	for my $session (@{ $self->{sessions} }) { $_ && $_->close for @$session{qw(s h)}; }
	# Sessions that are gone may still hold locks for a moment.
	$self->_idle unless $failure && $failure->{class} eq 'crash';
	return $failure;
}

sub _idle
{
	my ($self) = @_;
	for (1 .. 500)
	{
		my $r = $self->_control->query("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'differential' AND pid <> pg_backend_pid()");
		return if ($r->{rows}[0] // 1) eq '0';
		$self->_control->query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'differential' AND pid <> pg_backend_pid()") if $_ == 50;
		sleep 0.01;
	}
	return;
}

# ---- which steps can run now ----

sub _in { my ($session) = @_; return $session->{s}{status} ne 'I'; }

# Has any of these sessions, or a prepared transaction, done $what?
sub _did
{
	my ($self, $what, @sessions) = @_;
	return grep({ $_->{$what} } @sessions) || grep { $_->{holds} =~ /\b$what\b/ } @{ $self->{prepared} };
}

sub _ready
{
	my ($self, $step) = @_;
	my $me = $self->{sessions}[ $step->{session} ];
	my $kind = $step->{kind};
	my @others = grep { $_ != $me } @{ $self->{sessions} };
	my $quiet = !@{ $self->{prepared} } && !grep { $_->{step} || _in($_) } @others;
	my $in = _in($me);
	return if $me->{step};
	return if $kind eq 'begin' ? $in : $kind =~ /^(savepoint|rollback to|release|end|prepare)$/ ? !$in : 0;
	return if $kind =~ /^(rollback to|release)$/ && !@{ $me->{saves} };
	return if $kind eq 'finish' && !@{ $self->{prepared} };
	return if $kind eq 'cursor' && ($step->{s} =~ /^DECLARE c CURSOR WITH HOLD/ ? $me->{cursor} : $step->{s} =~ /^DECLARE/ ? !$in || $me->{cursor} : !$me->{cursor});
	# Which plans can go back without SCROLL is core's affair.
	return if $kind eq 'cursor' && $step->{s} =~ /BACKWARD|FIRST|ABSOLUTE/ && !$me->{scroll};
	return if $step->{level} && $kind ne 'begin' && $in && $me->{level} ne $step->{level};
	return if $step->{partial} && $me->{level} eq 'SERIALIZABLE' && !$me->{read_all};

	# A statement that waits holds some of its locks: which ones depends on the
	# order in which it takes them, unless it is after a single key.
	for my $other (grep { $_->{step} } @others)
	{
		next if $kind =~ /^(end|rollback to|finish|prepare)$/;
		return if $other->{step}{kind} =~ /^(ddl|analyze)$/;
		# What waits for the same lock on the table runs in any order.
		return if $self->_did('ddl', @{ $self->{sessions} });
		next if $kind eq 'select' && !$me->{cursor};
		# Which of two that wait for the same key goes first is anybody's guess.
		return if @others > 1 || $self->{e}{hot} || !$other->{step}{single} || $kind eq 'maintenance' || !$step->{single};
	}

	# An insert of many rows locks no keys, on a heap it does.
	my $others = $self->_did('locked', @others);
	my $fixed = _fixed($me);
	my $waiting = grep { $_->{step} } @others;
	return if $step->{blind} && ($waiting || $others && $self->{e}{exact});
	# Nor does one of few wait for it, and so makes no deadlock with who waits for us.
	return if $kind eq 'insert' && $waiting && $self->_did('blind', @others);

	# Rows of one statement come in another order; those of an INSERT do not, but keys
	# that it replaces are locked all at the end, and those of a large one are judged
	# there.  So it must not matter which of them fails first (who waits is another
	# matter: see _lags); nor, with row triggers, whether a row is locked before its
	# new values are computed.
	return if _any_order($self->{e}, $step) && $others && $fixed && $step->{s} =~ /NOWAIT|SKIP LOCKED|LIMIT/;
	return if $self->{e}{locks_first} && $step->{may_fail} && ($others || $fixed);
	return if _any_order($self->{e}, $step) && $step->{may_fail} && ($fixed || $others && $kind ne 'insert');
	return if $step->{blind} && $step->{may_fail} && $self->{e}{mode} eq 'error';

	# On a heap, who waits for a row of a savepoint that was released waits for the
	# whole transaction (XactLockTableWait).
	return if $kind eq 'rollback to' && $self->_to_the_end($me);

	# And who does not want to wait does so for the lock on a version that came after
	# one that he need not wait for (heap_lock_updated_tuple).
	return if $step->{s} && $step->{s} =~ /FOR KEY SHARE.* (NOWAIT|SKIP LOCKED)$/ && ($self->_did('relocked', @others) || $others && $fixed);

	# See once() in Workload.pm: what it reads would be remembered.
	return if $step->{puts} && $self->{e}{exact} && $me->{level} eq 'SERIALIZABLE' && ($me->{removed} || $self->_did('removes', @others));

	# A transaction that is being committed by COMMIT PREPARED is seen, and still has its locks.
	return if $step->{s} && $step->{s} =~ /(NOWAIT|SKIP LOCKED)$/ && $self->_did('ddl');

	# Passes and schema changes exclude each other in the storage relation.
	return if $kind eq 'ddl' && $self->_did('pass', @others);
	# The heap's insert names all columns: they must not be about to change.
	return if defined $step->{h} && $step->{h} =~ /\{SET\}/ && $self->_did('ddl', @others);
	if ($kind eq 'maintenance')
	{
		return if $step->{top} && $in;
		return if $step->{alone} && !$quiet;
		return if $in && $me->{level} ne 'READ COMMITTED';
		# One in an open block keeps its locks.
		return if $self->_did('pass', @others) || $self->_did('ddl', @others);
	}
	return 1;
}

sub _fixed { my ($me) = @_; return ($me->{level} || 'READ COMMITTED') ne 'READ COMMITTED'; }

# Does the order in which it comes to its rows differ?
sub _any_order
{
	my ($e, $step) = @_;
	return if $step->{single};
	return $step->{kind} =~ /^(update|delete|lock|error)$/ || $step->{kind} eq 'insert' && ($step->{blind} || $e->{mode} eq 'replace');
}

# $me's statement has ended on one side and waits on the other, $w.  Will it end there
# in the same way, once those that it waits for are gone?
sub _lags
{
	my ($self, $me, $w) = @_;
	my $step = $me->{step};
	my $code = $me->{ $w eq 's' ? 'h' : 's' }{result}{code};
	# One that comes to its rows in another order has met the row first for which it fails.
	return 1 if _fixed($me) && $code eq '40001' && _any_order($self->{e}, $step);
	# Keys that are not locked are not waited for, and those that are all at the end,
	# after the last row was checked.
	return if $w eq 's' || $self->{e}{mode} ne 'replace' || $step->{kind} ne 'insert';
	return $step->{blind} || !_fixed($me) && ($self->_did('blind', grep { $_ != $me } @{ $self->{sessions} }) || !$step->{single} && $code =~ /^23/);
}

# Others do nothing but end until both sides of $lagging's statement have ended: first
# those who had locks.  If it failed at REPEATABLE READ it has to fail whatever they
# do, so nothing is committed that it could fail for.
sub _let_go
{
	my ($self, $lagging) = @_;
	my $end = ($lagging->{level} // '') eq 'REPEATABLE READ' ? 'ROLLBACK' : 'COMMIT';
	return $self->_finish_prepared($end) if @{ $self->{prepared} };
	my ($other) = sort { !!$b->{locked} <=> !!$a->{locked} } grep { !$_->{step} && _in($_) } @{ $self->{sessions} };
	die { class => 'lags', text => "session $lagging->{n}: only one side waits, and not for a transaction" } unless $other;
	$self->count('waits on one side only');
	$self->_step({ session => $other->{n}, kind => 'end', fail => 'all', s => $end, h => $end });
	return;
}

# Is $me waited for by somebody who may, on a heap, wait for the end of it all?
sub _to_the_end
{
	my ($self, $me) = @_;
	return $me->{released} && grep { $_ != $me && $_->{step} } @{ $self->{sessions} };
}

# At SERIALIZABLE what a statement wrote before it failed counts also after ROLLBACK TO,
# and it depends on the order what that is.
sub _half_done
{
	my ($e, $me, $step) = @_;
	return ($me->{level} // '') eq 'SERIALIZABLE' && _any_order($e, $step);
}

# At which level a transaction that wants $level can run: see Workload.pm.
sub _level
{
	my ($self, $me, $level) = @_;
	my $other = $self->_did('serializable', grep { $_ != $me } @{ $self->{sessions} });
	return $level eq 'SERIALIZABLE' && $other && !$self->{e}{exact} ? 'REPEATABLE READ' : $level;
}

# ---- doing a step ----

sub _text
{
	my ($self, $me, $w, $sql) = @_;
	$sql =~ s/\{W\}/$w/g;
	if ($sql =~ /\{SET\}/)
	{
		my $names = $self->_must($me->{h}, 'SELECT * FROM t LIMIT 0')->{names};
		my $set = join ', ', map { "$_ = EXCLUDED.$_" } grep { $_ ne 'gen' && ($self->{e}{set_key} || !/^k/) } @$names;
		$sql =~ s/\{SET\}/$set/;
	}
	return $sql;
}

sub _step
{
	my ($self, $step) = @_;
	my $me = $self->{sessions}[ $step->{session} ];
	my $kind = $step->{kind};
	$self->{executed}++;
	$self->count($step->{blind} ? 'large insert' : $kind);
	return $self->_maintain($me, $step) if $kind eq 'maintenance';
	return $self->_finish_prepared($step->{how}) if $kind eq 'finish';
	return $self->_prepare($me, "$step->{gid}") if $kind eq 'prepare';
	$step = { %$step, level => $self->_level($me, $step->{level}) } if $kind eq 'begin';
	my ($s, $h) = @$step{qw(s h)};
	if ($kind eq 'begin') { $s = $h = "BEGIN ISOLATION LEVEL $step->{level}"; }
	elsif ($kind eq 'savepoint') { $me->{next}++; push @{ $me->{saves} }, "s$me->{next}"; $s = $h = "SAVEPOINT s$me->{next}"; }
	elsif ($kind eq 'rollback to') { $s = $h = "ROLLBACK TO $me->{saves}[-1]"; }
	elsif ($kind eq 'release') { $s = $h = 'RELEASE ' . pop @{ $me->{saves} }; $me->{released} = 1; }
	my $copy;
	if ($step->{copy}) { $copy = $self->_must($self->_control, "COPY ($step->{copy}) TO STDOUT")->{out} // ''; }
	$h = $self->_text($me, 'h', $h);
	$s = $self->_text($me, 's', $s);
	$me->{step} = $step;
	push @{ $self->{log} }, [ $me->{n}, $s, $h, $copy ];
	$me->{s}->send($s, $copy);
	$me->{h}->send($h);
	$self->_settle;
	return;
}

# Waits until every statement has ended or waits for a lock, then compares what
# has ended.
sub _settle
{
	my ($self) = @_;
	my $deadline = time + $hang;
	# Workers give way, sooner or later.
	my $held_up = $self->{e}{workers} ? " AND 'client backend' = ALL (SELECT w.backend_type FROM unnest(pg_blocking_pids(a.pid)) b JOIN pg_stat_activity w ON w.pid = b)" : '';
	my $still = 0;
	while (my @busy = grep { $_->{busy} } map { $_->{step} ? @$_{qw(s h)} : () } @{ $self->{sessions} })
	{
		my %of = map { ($_->{socket} => $_) } @busy;
		my @readable = IO::Select->new(map { $_->{socket} } @busy)->can_read($still ? 0.015 : 0.01);
		if (@readable)
		{
			for my $socket (@readable) { $of{$socket}->read; $still = 0 unless $of{$socket}{busy}; }
			next;
		}
		my $pids = join ',', map { $_->{pid} } @busy;
		my $waiting = $self->_control->query("SELECT count(*) FROM pg_stat_activity a WHERE pid IN ($pids) AND pg_blocking_pids(pid) <> '{}'$held_up")->{rows}[0];
		$still = $waiting == @busy ? $still + 1 : 0;
		last if $still == 4;    # longer than deadlock_timeout
		die { class => 'hang', text => 'a statement does not end' } if time > $deadline;
	}
	for my $session (@{ $self->{sessions} })
	{
		next unless $session->{step};
		my ($s, $h) = ($session->{s}{busy}, $session->{h}{busy});
		next if $s && $h;
		if ($s || $h) { $self->_one_waits($session, $s ? 's' : 'h'); }
		else { $self->_judge($session); }
	}
	return;
}

sub _show
{
	my ($r) = @_;
	my @rows = map { length > 300 ? substr($_, 0, 300) . '...' : $_ } @{ $r->{rows} };
	return join "\n    ", ($r->{code} ? "$r->{code} $r->{message}" : join(', ', @{ $r->{tags} })), @rows > 20 ? (@rows[ 0 .. 19 ], '...') : @rows;
}

sub _one_waits
{
	my ($self, $session, $w) = @_;
	my $other = $w eq 's' ? 'h' : 's';
	die { class => 'crash', text => 'connection lost' } if $session->{$other}{dead};
	$session->{lags} ||= $self->_lags($session, $w);
	return if $session->{lags};
	die { class => "only $w waits", text => "session $session->{n}: only $w waits, $other: " . _show($session->{$other}{result}) };
}

sub _judge
{
	my ($self, $me) = @_;
	my $step = delete $me->{step};
	delete $me->{lags};
	my ($s, $h) = map { $_->{result} } @$me{qw(s h)};
	my $class;
	my @rows = map { my $r = $_->{rows}; join "\n", $step->{ordered} ? @$r : sort @$r } $s, $h;
	if ($s->{code} ne $h->{code}) { $class = "code $s->{code}, $h->{code}"; }
	elsif ($s->{code} =~ /^(XX|crash)/) { $class = "code $s->{code}"; }
	elsif ($me->{s}{status} ne $me->{h}{status}) { $class = 'transaction status'; }
	elsif ($s->{code}) { }
	elsif ($rows[0] ne $rows[1]) { $class = 'rows'; }
	elsif (!$step->{untagged} && $step->{kind} ne 'ddl' && "@{ $s->{tags} }" ne "@{ $h->{tags} }") { $class = 'tags'; }
	if ($class)
	{
		return if $self->_both_fail($me, $s, $h);
		die { class => $class, text => "session $me->{n}, $class\n" . (defined $self->{log}[-1] ? "  $self->{log}[-1][1]\n" : '') . "  s: " . _show($s) . "\n  h: " . _show($h) };
	}
	$self->count("SQLSTATE $s->{code}") if $s->{code};
	my $kind = $step->{kind};
	if ($kind eq 'begin' && !$s->{code}) { @$me{qw(level serializable)} = ($step->{level}, $step->{level} eq 'SERIALIZABLE'); }
	$me->{removes} = 1 if $step->{removes};
	$me->{blind} = 1 if $step->{blind};
	$me->{read_all} = 1 if $step->{read_all} && !$s->{code};
	$me->{relocked} = 1 if $me->{wrote} && ($kind eq 'delete' || $step->{s} =~ /FOR UPDATE/);
	$me->{locked} = 1 if $kind =~ /^(insert|update|delete|lock|error)$/;
	$me->{wrote} = 1 if $kind =~ /^(insert|update|delete|error)$/;
	if ($kind eq 'cursor' && !$s->{code} && $step->{s} =~ /^(DECLARE|CLOSE)(.*WITH HOLD)?/) { @$me{qw(cursor held scroll)} = ($1 eq 'DECLARE', !!$2, !!($step->{s} =~ / c SCROLL/)); }
	$me->{ddl} = 1 if $kind eq 'ddl' && _in($me);
	if ($me->{s}{status} eq 'E')
	{
		if (@{ $me->{saves} } && $step->{fail} eq 'to' && !$self->_to_the_end($me) && !_half_done($self->{e}, $me, $step)) { $self->_step({ session => $me->{n}, kind => 'rollback to', fail => 'all', s => '', h => '' }); }
		else { $self->_step({ session => $me->{n}, kind => 'end', fail => 'all', s => 'ROLLBACK', h => 'ROLLBACK' }); }
	}
	elsif (!_in($me)) { $self->_ended($me); }
	return;
}

# Others still see what a transaction that ends has removed; it did what %$did says.
sub _outlive
{
	my ($self, $did, $me) = @_;
	for my $other (grep { $_ != $me && _in($_) } @{ $self->{sessions} })
	{
		$other->{removed} = 1 if $did->{removes};
	}
	return;
}

sub _ended
{
	my ($self, $me) = @_;
	$self->_outlive($me, $me);
	@$me{qw(saves level cursor)} = ([], '', $me->{held});
	delete @$me{qw(ddl pass released locked wrote relocked removes removed serializable blind read_all)};
	return;
}

# Ends the transaction on both sides, whatever became of it.
sub _abort
{
	my ($self, $me) = @_;
	for my $w ('s', 'h') { $me->{$w}->query('ROLLBACK') if $me->{$w}{status} ne 'I'; }
	push @{ $self->{log} }, [ $me->{n}, 'ROLLBACK', 'ROLLBACK' ];
	$self->_ended($me);
	$self->_settle;
	return;
}

# A serializable transaction that is to fail does so when it next looks for
# conflicts: that may be at its end.  Ends it if both sides' do.
sub _both_fail
{
	my ($self, $me, $s, $h) = @_;
	my %code = (s => $s->{code}, h => $h->{code});
	return if $me->{level} ne 'SERIALIZABLE' || !grep { $_ eq '40001' } values %code;
	for my $w (grep { !$code{$_} && $me->{$_}{status} eq 'T' } 's', 'h')
	{
		$code{$w} = $me->{$w}->query('COMMIT')->{code};
	}
	return if grep { $_ ne '40001' } values %code;
	$self->count('SQLSTATE 40001 on the other side at the end');
	$self->_abort($me);
	return 1;
}

sub _maintain
{
	my ($self, $me, $step) = @_;
	my $in = _in($me);
	my $sql = $step->{s};
	if ($sql =~ /^VACUUM/)
	{
		my $storage = $self->_control->query("SELECT storage FROM strata.stores WHERE store = 's.$step->{store}'::regclass")->{rows}[0];
		$sql .= " $storage";
	}
	push @{ $self->{log} }, [ $me->{n}, $sql, '' ];
	my $r = $me->{s}->query($sql);
	$self->count("maintenance $r->{code}") if $r->{code};
	my $expected = '';
	if ($sql =~ /^EXPLAIN/) { $expected = $me->{h}->query($sql)->{code}; }
	elsif ($sql =~ /key_index|OPTIONS/ || $self->{e}{workers}) { $expected = $r->{code} if $r->{code} =~ ($self->{e}{workers} ? qr/^(55P03|42710|42704|40P01|40001)$/ : qr/^(42710|42704)$/); }
	my $bad = $r->{code} ne $expected;
	die { class => "maintenance $r->{code}", text => "$sql\n  s: " . _show($r) } if $bad || $sql =~ /verify/ && @{ $r->{rows} };
	$me->{pass} = 1 if $in;
	if ($me->{s}{status} eq 'E') { $self->_abort($me); }
	$self->_settle;
	return;
}

sub _gid { my ($w, $gid) = @_; return "'$w$gid'"; }

sub _prepare
{
	my ($self, $me, $gid) = @_;
	my %code;
	my $holds = join ' ', grep { $me->{$_} } qw(ddl pass locked wrote relocked removes serializable blind);
	push @{ $self->{log} }, [ $me->{n}, map { 'PREPARE TRANSACTION ' . _gid($_, $gid) } 's', 'h' ];
	$code{$_} = $me->{$_}->query('PREPARE TRANSACTION ' . _gid($_, $gid))->{code} for 's', 'h';
	die { class => "prepare $code{s}, $code{h}", text => "PREPARE TRANSACTION: $code{s}, $code{h}" } if $code{s} ne $code{h};
	if ($code{s}) { $self->count("SQLSTATE $code{s}"); }
	else { push @{ $self->{prepared} }, { gid => $gid, holds => $holds }; }
	$self->_ended($me);
	$self->_settle;
	return !$code{s} && !$code{h};
}

sub _finish_prepared
{
	my ($self, $how) = @_;
	my $p = shift @{ $self->{prepared} };
	$self->_outlive({ map { $_ => 1 } split / /, $p->{holds} }, $self);
	$how //= $p->{gid} =~ /[37]$/ ? 'ROLLBACK' : 'COMMIT';
	for my $w ('s', 'h')
	{
		my $r = $self->_control->query("$how PREPARED " . _gid($w, $p->{gid}));
		die { class => 'finish', text => "$how PREPARED: $r->{code} $r->{message}" } if $r->{code};
	}
	push @{ $self->{log} }, [ 'control', map { "$how PREPARED " . _gid($_, $p->{gid}) } 's', 'h' ];
	$self->_settle;
	return;
}

# The server crashes (by $self->{crash}) and everybody connects again.
sub _crash
{
	my ($self) = @_;
	for my $session (@{ $self->{sessions} }) { $_->close for @$session{qw(s h)}; }
	$self->{crash}->();
	$self->{control} = undef;
	$self->_control;
	for my $session (@{ $self->{sessions} })
	{
		$self->_connect($session);
		$self->_ended($session);
		delete @$session{qw(step lags held cursor)};
	}
	push @{ $self->{log} }, [ 'control', '-- crash', '-- crash' ];
	$self->_whole_table($self->{sessions}[0], 'after a crash');
	return;
}

sub _connect
{
	my ($self, $session) = @_;
	for my $w ('s', 'h')
	{
		$session->{$w} = Wire->new($self->{node}, 'postgres') or die { class => 'crash', text => 'cannot connect' };
		$session->{$w}->query("SET search_path = $w, public; SET deadlock_timeout = 20; SET client_min_messages = error");
	}
	return;
}

# All transactions end; the tables must be the same, before and after everything
# is merged and swept.
sub _end
{
	my ($self) = @_;
	for (1 .. 6)
	{
		$self->_finish_prepared while @{ $self->{prepared} };
		for my $session (@{ $self->{sessions} })
		{
			$self->_step({ session => $session->{n}, kind => 'end', fail => 'all', s => 'COMMIT', h => 'COMMIT' }) if !$session->{step} && _in($session);
		}
		last unless grep { $_->{step} || _in($_) } @{ $self->{sessions} };
		die { class => 'never ends', text => 'a transaction does not end' } if $_ == 6;
	}
	my $me = $self->{sessions}[0];
	$self->_whole_table($me, 'at the end');
	$self->_crash if $self->{e}{crash};
	for my $sql (map { ("CALL strata.drain('$_')", "SELECT count(*) FROM strata.compact('$_')", "SELECT count(*) FROM strata.sweep('$_')", "SELECT * FROM strata.verify('$_'" . ($self->{e}{workers} ? ')' : ', swept => true)')) } @{ $self->{e}{stores} })
	{
		push @{ $self->{log} }, [ $me->{n}, $sql, '' ];
		my $r = $me->{s}->query($sql);
		next if $r->{code} eq '' && !($sql =~ /verify/ && @{ $r->{rows} });
		die { class => 'final ' . $r->{code}, text => "$sql\n  s: " . _show($r) };
	}
	$self->_whole_table($me, 'after draining');
	return;
}

sub _whole_table
{
	my ($self, $me, $when) = @_;
	for my $table ('t', 'audit')
	{
		my @r = map { my $r = $me->{$_}->query("SELECT * FROM $table"); [ _show($r), join("\n", sort @{ $r->{rows} }), $r->{code} ] } 's', 'h';
		next if $r[0][1] eq $r[1][1] && !$r[0][2] && !$r[1][2];
		push @{ $self->{log} }, [ $me->{n}, ("SELECT * FROM $table") x 2 ];
		die { class => $table, text => "$table $when\n  s: $r[0][0]\n  h: $r[1][0]" };
	}
	return;
}

# ---- after a failure ----

# Fewer steps with the same kind of failure, for at most $seconds.
sub shrink
{
	my ($self, $e, $failure, $seconds) = @_;
	my $until = time + $seconds;
	my @steps = @{ $e->{steps} }[ 0 .. ($self->{at} // $#{ $e->{steps} }) ];
	my $fails = sub { my ($some) = @_; my $f = $self->run($e, $some); return $f && $f->{class} eq $failure->{class} ? $f : undef; };
	my $size = int(@steps / 2) || 1;
	while (time < $until)
	{
		my $less = 0;
		for (my $from = 0; $from < @steps && time < $until;)
		{
			my @try = @steps;
			splice @try, $from, $size;
			if ($fails->(\@try)) { @steps = @try; $less = 1; }
			else { $from += $size; }
		}
		if ($size > 1) { $size = int($size / 2); }
		elsif (!$less) { last; }
	}
	my $last = $self->run($e, \@steps);
	return ($last // $failure, \@steps);
}

# The steps of the last run as SQL.
sub script
{
	my ($self, $failure) = @_;
	my $e = $self->{e};
	my @out = ("-- heap: $e->{create}{h};", "$e->{create}{both};", "$e->{create}{s};");
	for (@{ $self->{log} })
	{
		my ($n, $s, $h, $copy) = @$_;
		push @out, "-- session $n" . ($h eq $s ? '' : "; heap: $h");
		push @out, "$s;" . (defined $copy ? "\n$copy\\." : '');
	}
	return join "\n", @out, map { "-- $_" } split /\n/, $failure->{text};
}

1;
