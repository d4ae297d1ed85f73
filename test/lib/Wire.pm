# A connection that speaks PostgreSQL's protocol (simple queries over a Unix
# socket): it is told to run something and asked later what came of it, so that
# one process can drive several sessions of which some wait for locks.
package Wire;

use strict;
use warnings;
use IO::Select;
use IO::Socket::UNIX;

sub new
{
	my ($class, $node, $db) = @_;
	my $socket = IO::Socket::UNIX->new(Peer => $node->host . '/.s.PGSQL.' . $node->port) or return;
	my $self = bless { socket => $socket, in => '', busy => 1, result => {} }, $class;
	my $user = getpwuid $>;
	my $body = pack('N', 196608) . "user\0$user\0database\0$db\0application_name\0differential\0\0";
	syswrite $socket, pack('N', 4 + length $body) . $body;
	$self->finish;
	return $self->{dead} ? undef : $self;
}

sub _put
{
	my ($self, $type, $body) = @_;
	my $message = $type . pack('N', 4 + length $body) . $body;
	while (length $message)
	{
		my $n = syswrite $self->{socket}, $message;
		if (!$n) { $self->_died; return; }
		substr($message, 0, $n, '');
	}
	return;
}

# Starts a query; $copy is what COPY FROM STDIN is given.
sub send
{
	my ($self, $sql, $copy) = @_;
	local $SIG{PIPE} = 'IGNORE';
	@$self{qw(busy result copy)} = (1, { rows => [], tags => [], code => '', message => '' }, $copy);
	$self->_put('Q', "$sql\0");
	return;
}

sub _died
{
	my ($self) = @_;
	@$self{qw(dead busy)} = (1, 0);
	$self->{result}{code} ||= 'crash';
	$self->{result}{message} ||= 'connection lost';
	$self->{status} = 'I';
	return;
}

# Reads what has come; call it when the socket is readable.
sub read
{
	my ($self) = @_;
	my $n = sysread $self->{socket}, $self->{in}, 1 << 18, length $self->{in};
	if (!$n) { $self->_died; return; }
	my $at = 0;
	my $result = $self->{result};
	while (length($self->{in}) - $at >= 5)
	{
		my ($type, $length) = unpack 'aN', substr($self->{in}, $at, 5);
		last if length($self->{in}) - $at < 1 + $length;
		my $body = substr $self->{in}, $at + 5, $length - 4;
		$at += 1 + $length;
		if ($type eq 'D')
		{
			my $fields = unpack 'n', $body;
			my $p = 2;
			my @row;
			for (1 .. $fields)
			{
				my $size = unpack 'N', substr($body, $p, 4);
				$p += 4;
				if ($size == 0xffffffff) { push @row, '\N'; next; }
				push @row, substr($body, $p, $size);
				$p += $size;
			}
			push @{ $result->{rows} }, join '|', @row;
		}
		elsif ($type eq 'T')
		{
			my $fields = unpack 'n', $body;
			my $p = 2;
			my @names;
			for (1 .. $fields)
			{
				my $end = index $body, "\0", $p;
				push @names, substr($body, $p, $end - $p);
				$p = $end + 19;
			}
			$result->{names} = \@names;
		}
		elsif ($type eq 'C') { push @{ $result->{tags} }, $body =~ s/\0.*//sr; }
		elsif ($type eq 'E' && !$result->{code})
		{
			my %field = map { (substr($_, 0, 1), substr($_, 1)) } grep { length } split /\0/, $body;
			@$result{qw(code message)} = ($field{C}, $field{M} . (defined $field{D} ? " ($field{D})" : ''));
		}
		elsif ($type eq 'G')
		{
			local $SIG{PIPE} = 'IGNORE';
			$self->_put('d', $self->{copy}) if length($self->{copy} // '');
			$self->_put('c', '');
		}
		elsif ($type eq 'K') { $self->{pid} = unpack 'N', $body; }
		elsif ($type eq 'd') { $result->{out} .= $body; }
		elsif ($type eq 'Z') { @$self{qw(status busy)} = ($body, 0); }
	}
	substr($self->{in}, 0, $at, '');
	return;
}

# Waits for the end of the query; returns its result.
sub finish
{
	my ($self) = @_;
	$self->{result}{rows} //= [];
	my $select = IO::Select->new($self->{socket});
	while ($self->{busy})
	{
		if ($select->can_read(120)) { $self->read; }
		else { $self->_died; }
	}
	return $self->{result};
}

sub query
{
	my ($self, $sql, $copy) = @_;
	$self->send($sql, $copy);
	return $self->finish;
}

sub close
{
	my ($self) = @_;
	$self->_put('X', '') unless $self->{dead};
	CORE::close $self->{socket};
	return;
}

1;
