# The types of columns in the differential test's tables, and values of them.
package ValueTypes;

use strict;
use warnings;
use Exporter 'import';

our @EXPORT_OK = qw(%type %declared expr can_do);

# Types: an expression that makes a value of a number (@), and what the type can
# do: k = be a key, o = be ordered, m = min and max, n = arithmetic, l = LIKE,
# e = equal values always look the same.
our %type = (
	int => [ '(@ % 97 - 20)', 'komne' ],
	int8 => [ '((@)::int8 * 1000003 - 5000015)', 'komne' ],
	int2 => [ '((@) % 211)::int2', 'kome' ],
	text => [ "('k' || (@)::text)", 'komle' ],
	'varchar(12)' => [ "(('v' || (@)::text)::varchar(12))", 'kole' ],
	'char(6)' => [ "(('c' || ((@) % 50)::text)::char(6))", 'ko' ],
	name => [ "(('n' || (@)::text)::name)", 'ko' ],
	uuid => [ 'md5((@)::text)::uuid', 'koe' ],
	numeric => [ "(CASE (@) % 13 WHEN 5 THEN 'NaN' WHEN 6 THEN '-Infinity' WHEN 7 THEN ((@) / 2)::text || '.00' ELSE ((@) / 4.0)::text END)::numeric", 'kom' ],
	'numeric(12,3)' => [ '((@) / 8.0)::numeric(12,3)', 'komne' ],
	float8 => [ "(CASE (@) % 11 WHEN 3 THEN 'NaN' WHEN 4 THEN '-Infinity' WHEN 5 THEN '-0' WHEN 6 THEN '0' ELSE ((@) / 4.0)::text END)::float8", 'kom' ],
	float4 => [ "(CASE (@) % 11 WHEN 3 THEN 'NaN' WHEN 4 THEN 'Infinity' ELSE ((@) / 4.0 + 1)::text END)::float4", 'kome' ],
	timestamptz => [ "(CASE (@) % 19 WHEN 4 THEN 'infinity' ELSE timestamptz '2026-01-01 00:00+00' + (@) * interval '1 hour' END)", 'kome' ],
	timestamp => [ "(timestamp '2026-01-01 00:00' + (@) * interval '7 min')", 'kome' ],
	date => [ "(date '2025-12-01' + (@))", 'kome' ],
	interval => [ "(CASE (@) % 3 WHEN 0 THEN ((@) / 2) || ' mon' ELSE ((@) / 2 * 30) || ' days' END)::interval", 'kom' ],
	bool => [ '((@) % 3 = 1)', 'koe' ],
	oid => [ '((@) % 1000 + 1000)::oid', 'kome' ],
	time => [ "(time '00:00' + (@) * interval '7 min')", 'kome' ],
	timetz => [ "(time '00:00' + (@) * interval '7 min')::timetz", 'koe' ],
	'"char"' => [ 'chr(65 + abs(@) % 50)::"char"', 'koe' ],
	macaddr => [ "left(md5((@)::text), 12)::macaddr", 'koe' ],
	pg_lsn => [ "('0/0'::pg_lsn + abs(@) * 16)", 'koe' ],
	xid8 => [ 'abs(@)::text::xid8', 'koe' ],
	tid => [ "('(' || abs(@) / 7 || ',' || abs(@) % 7 + 1 || ')')::tid", 'koe' ],
	'text[]' => [ "ARRAY['a' || ((@) % 20)::text, NULL, repeat('b', abs(@) % 5)]", 'koe' ],
	'numeric[]' => [ "ARRAY[(((@) / 2)::text || CASE (@) % 2 WHEN 0 THEN '' ELSE '.0' END)::numeric]", 'ko' ],
	numrange => [ "numrange((((@) / 2)::text || CASE (@) % 2 WHEN 0 THEN '' ELSE '.0' END)::numeric, (@) / 2 + 1)", 'ko' ],
	bytea => [ "decode(md5((@)::text), 'hex')", 'koe' ],
	inet => [ "('10.0.' || abs((@) / 200) || '.' || abs((@) % 200))::inet", 'kome' ],
	'int[]' => [ 'ARRAY[(@) % 7, NULL, (@)]', 'koe' ],
	jsonb => [ "(CASE (@) % 4 WHEN 0 THEN to_jsonb((@)) WHEN 1 THEN 'null' WHEN 2 THEN to_jsonb(((@) / 4 * 4)::numeric(12,1)) ELSE jsonb_build_object('a', (@) % 5, 'b', repeat('x', (@) % 40)) END)", 'ko' ],
	int4range => [ 'int4range((@), (@) + 3)', 'koe' ],
	wide => [ "(CASE (@) % 6 WHEN 0 THEN '' WHEN 1 THEN repeat(md5((@)::text), 60) WHEN 2 THEN public.noise((@), 300) ELSE 'w' || (@)::text END)", 'oml' ],
	mood => [ "(ARRAY['sad','ok','happy'])[(@) % 3 + 1]::public.mood", 'oe' ],
	positive => [ '((@) % 50 + 1)::public.positive', 'one' ],
	pair => [ "ROW((@) % 9, 'p' || (@)::text)::public.pair", 'oe' ],
);
# How those are declared that are no types of PostgreSQL's.
our %declared = (wide => 'text', mood => 'public.mood', positive => 'public.positive', pair => 'public.pair');

sub expr { my ($type, $k) = @_; return $type{$type}[0] =~ s/@/$k/gr; }
sub can_do { my ($col, $what) = @_; return index($type{ $col->{type} }[1], $what) >= 0; }

1;
