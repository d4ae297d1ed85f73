# Shared by test/run, test/bench/run and quickstart; sourced, POSIX sh.
# Finds or installs PostgreSQL 15 and what strata needs, copies the PostgreSQL
# tree, builds.  STRATA_PG_CONFIG names the pg_config of another server to use.

pg_major=15
debian_bin=/usr/lib/postgresql/$pg_major/bin
server_config=${STRATA_PG_CONFIG:-$debian_bin/pg_config}

as_root()
{
	if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

# strata_install_packages quickstart|test: install what is missing.  A server
# package that apt brings must not start a cluster of its own.
strata_install_packages()
{
	want="postgresql-common libzstd-dev gcc make zstd"
	[ -n "${STRATA_PG_CONFIG:-}" ] || want="postgresql-$pg_major postgresql-server-dev-$pg_major $want"
	[ "$1" = quickstart ] || want="$want perl libipc-run-perl"
	# shellcheck disable=SC2086
	strata_install $want
}

# strata_install PACKAGE...: those of them that are missing.
strata_install()
{
	missing=
	for p in "$@"; do
		dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing="$missing $p"
	done
	[ -n "$missing" ] || return 0
	echo "installing:$missing"
	if [ ! -x $debian_bin/postgres ] && [ ! -e /etc/postgresql-common/createcluster.conf ]; then
		as_root mkdir -p /etc/postgresql-common
		echo 'create_main_cluster = false' | as_root tee /etc/postgresql-common/createcluster.conf > /dev/null
	fi
	log=$(mktemp)
	# shellcheck disable=SC2086
	if ! { as_root apt-get update -q && as_root env DEBIAN_FRONTEND=noninteractive \
			apt-get install -y -q --no-install-recommends $missing; } > "$log" 2>&1; then
		tail -20 "$log"
		echo "could not install:$missing" >&2
		rm -f "$log"
		return 1
	fi
	rm -f "$log"
}

# PostgreSQL refuses to run as root: pick the user that runs the clusters.
strata_choose_user()
{
	run_user=
	[ "$(id -u)" -ne 0 ] || run_user=postgres
}

as_user()
{
	if [ -n "$run_user" ]; then
		runuser -u "$run_user" -- "$@"
	else
		"$@"
	fi
}

# strata_choose_work DIR: sets $work to DIR, or to a directory below /tmp when
# the user that runs the clusters cannot reach DIR (a checkout in /root) or a
# socket path would be too long there.
strata_choose_work()
{
	work=$1
	strata_choose_user
	mkdir -p "$work"
	# make takes no path with a space or a quote in it.
	case $1 in
		*[!A-Za-z0-9_./+,@%-]*) odd=1 ;;
		*) odd= ;;
	esac
	if [ -n "$odd" ] || { [ -n "$run_user" ] && ! runuser -u "$run_user" -- test -x "$work" -a -r "$work"; }; then
		work=/tmp/strata-$(printf %s "$1" | cksum | cut -d' ' -f1)
		mkdir -p "$work"
		# The name can be guessed: take no directory that somebody else made.
		[ -O "$work" ] && [ ! -L "$work" ] || { echo "$work belongs to somebody else" >&2; exit 1; }
		chmod 755 "$work"
		echo "cannot work in $1: working in $work"
	fi
}

# strata_copy_postgres DIR: a relocatable copy of the server's tree, in which the
# extension is installed without touching the system's.  DIR/bin is its bin.
strata_copy_postgres()
{
	c_bin=$("$server_config" --bindir) && c_lib=$("$server_config" --pkglibdir) &&
		c_share=$("$server_config" --sharedir) && c_include=$("$server_config" --pkgincludedir) || return 1
	if [ ! -e "$1/.copied" ] || [ "$(cat "$1/.copied")" != "$c_bin" ] || [ "$c_bin/postgres" -nt "$1/.copied" ]; then
		rm -rf "$1"
		# Programs find the other directories by their place beside their own.
		c_root=$c_bin
		for d in "$c_lib" "$c_share" "$c_include"; do
			while :; do
				case $d in "$c_root"/*) break ;; esac
				c_root=${c_root%/*}
			done
		done
		for d in "$c_bin" "$c_lib" "$c_share" "$c_include"; do mkdir -p "$1$(dirname "${d#"$c_root"}")" || return 1; done
		cp -a "$c_bin" "$1${c_bin#"$c_root"}" && cp -a "$c_lib" "$1${c_lib#"$c_root"}" &&
			cp -aL "$c_share" "$1${c_share#"$c_root"}" && ln -s "$c_include" "$1${c_include#"$c_root"}" || return 1
		[ -e "$1/bin" ] || ln -s "${c_bin#"$c_root"/}" "$1/bin" || return 1
		echo "$c_bin" > "$1/.copied"
	fi
}

# strata_build TOP BUILD PG_CONFIG [MAKE-ARGS...]: copy the sources, build and
# install into the tree of PG_CONFIG.
strata_build()
{
	b_top=$1 b_dir=$2 b_config=$(readlink -f "$3")
	shift 3
	mkdir -p "$b_dir"
	# Objects of an earlier build stay; make sees which sources are newer, but not
	# that the server is another one.
	b_for=$("$b_config" --version --configure)
	if [ "$b_for" != "$(cat "$b_dir/.built_for" 2> /dev/null)" ]; then
		find "$b_dir" -name '*.o' -delete
		echo "$b_for" > "$b_dir/.built_for"
	fi
	rm -rf "$b_dir/sql" "$b_dir/expected" "$b_dir/test"
	(cd "$b_top" && tar cf - --exclude=./.git --exclude=./.test --exclude=./.quickstart \
		--exclude='*.o' --exclude='*.so' .) | (cd "$b_dir" && tar xpf -) || return 1
	if ! make -C "$b_dir" -s -j2 with_llvm=no PG_CONFIG="$b_config" "$@" > "$b_dir/build.log" 2>&1 ||
		! make -C "$b_dir" -s install with_llvm=no PG_CONFIG="$b_config" "$@" >> "$b_dir/build.log" 2>&1; then
		tail -40 "$b_dir/build.log"
		echo "the build failed" >&2
		return 1
	fi
}

# strata_fetch_source DIR MAJOR [SUITE]: Debian's source package of a PostgreSQL,
# as DIR/postgresql-MAJOR_*.orig.tar.bz2; from the suites that apt has, or from
# that one.  Changes nothing of apt's.
strata_fetch_source()
{
	command -v apt-get > /dev/null || return 1
	rm -rf "$1"
	mkdir -p "$1/lists/partial" "$1/archives/partial" || return 1
	# the lists that apt has, as lists of sources
	{
		cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2> /dev/null |
			sed -n 's/^deb  *\(\[[^]]*\] *\)\{0,1\}\(http[^ ]*\/debian[^ ]*\)/deb-src \1\2/p'
		cat /etc/apt/sources.list.d/*.sources 2> /dev/null | awk '
			function out(  i, u, s, n, m) {
				n = split(uris, u, " "); m = split(suites, s, " ")
				for (i = 1; i <= n; i++) if (u[i] ~ /\/debian/)
					for (j = 1; j <= m; j++) print "deb-src " (key != "" ? "[signed-by=" key "] " : "") u[i], s[j], components
				uris = suites = components = key = ""
			}
			FNR == 1 { out() }
			/^URIs:/ { sub(/^[^:]*: */, ""); uris = $0 }
			/^Suites:/ { sub(/^[^:]*: */, ""); suites = $0 }
			/^Components:/ { sub(/^[^:]*: */, ""); components = $0 }
			/^Signed-By:/ { sub(/^[^:]*: */, ""); key = $0 }
			/^$/ { out() }
			END { out() }'
	} | if [ -n "${3:-}" ]; then
		sed -n "s/^\(deb-src \(\[[^]]*\] *\)\{0,1\}[^ ]*\/debian\/\{0,1\}\) .*/\1 $3 main/p"
	else
		cat
	fi | sort -u > "$1/sources.list"
	f_apt="apt-get -qq -o Dir::Etc::SourceList=$1/sources.list -o Dir::Etc::SourceParts=/dev/null
		-o Dir::State::Lists=$1/lists -o Dir::Cache=$1 -o APT::Sandbox::User=root -o Acquire::http::Timeout=20"
	f_source="source --download-only --tar-only postgresql-$2"
	# (a mirror may lack what the newest package was made of)
	# shellcheck disable=SC2086,SC1091
	(cd "$1" && $f_apt update && { $f_apt $f_source || $f_apt $f_source/"$(. /etc/os-release; echo "$VERSION_CODENAME")"; }) \
		> "$1/log" 2>&1
}

# strata_fetch_scripts DIR: PostgreSQL's own regression scripts, which only Debian's
# source package has, into DIR/src/test/regress.
strata_fetch_scripts()
{
	[ ! -e "$1/src/test/regress/parallel_schedule" ] || return 0
	rm -rf "$1"
	strata_fetch_source "$1/apt" "$pg_major" || return 1
	tar -xjf "$1"/apt/postgresql-*.orig.tar.bz2 -C "$1" --strip-components=1 --wildcards '*/src/test/regress/*' || return 1
	rm -rf "$1/apt"
}
