# strata: build with PGXS.  PG_CONFIG names the server to build for; PAUSES=1
# compiles in the tests' pause points (src/pause.h).

EXTENSION = strata
MODULE_big = strata
DATA = strata--1.0.sql
PGFILEDESC = "strata - log-structured storage for foreign tables"

OBJS_storage = page.o metapage.o extent.o locks.o conflict.o subtransaction.o salvage.o relation_am.o
OBJS_manifest = options.o key.o store.o columns.o catalog.o catalog_rows.o deletes.o dictionaries.o manifest.o manifest_read.o manifest_write.o versions.o \
	create.o alter.o layers.o checks.o tablespace.o truncate.o lifecycle.o
OBJS_base = codec.o encode.o footer.o rowgroup_writer.o rowgroup_finish.o rowgroup_reader.o rowgroup_check.o dictionary.o dictionary_train.o zones.o cache.o collation.o keyindex.o keyindex_read.o
OBJS_log = entry.o tail.o append.o walk.o repair.o repair_pages.o repair_shard.o shard_check.o visibility.o pending.o pending_log.o pending_entries.o pending_keys.o pending_reader.o pending_resolve.o pending_superseded.o view.o view_serializable.o lookup.o scan.o ordered.o memtable.o memtable_keys.o memtable_rows.o memtable_flush.o conflict_check.o row_lock.o
OBJS_fdw = handler.o plan.o key_paths.o cost.o count.o aggregate_plan.o aggregate_exec.o aggregate_groups.o match.o value.o prune.o layer.o scan_exec.o scan_lock.o scan_parallel.o scan_range.o modify.o finish.o move.o check_rows.o import.o explain.o analyze.o
OBJS_merge = budget.o enter.o choose.o pass.o output.o compact.o supersede.o blocks.o shorten.o sweep.o freeze.o verify.o verify_keys.o repair.o repair_groups.o repair_pending.o functions.o inspect.o
OBJS_worker = shared.o attempt.o launcher.o worker.o step.o upkeep.o look.o trigger.o views.o health.o

OBJS = src/init.o src/pause.o \
	$(addprefix src/storage/,$(OBJS_storage)) \
	$(addprefix src/manifest/,$(OBJS_manifest)) \
	$(addprefix src/base/,$(OBJS_base)) \
	$(addprefix src/log/,$(OBJS_log)) \
	$(addprefix src/fdw/,$(OBJS_fdw)) \
	$(addprefix src/merge/,$(OBJS_merge)) \
	$(addprefix src/worker/,$(OBJS_worker))

PG_CONFIG ?= pg_config
PG_CPPFLAGS = -I$(srcdir)/src $(if $(PAUSES),-DSTRATA_TEST_PAUSES)
PG_CFLAGS = -Wall -Wextra -Wno-unused-parameter -Werror
# The server's own flags are for the compiler it was built with.
PG_CFLAGS += $(if $(findstring clang,$(CC)),-Wno-ignored-optimization-argument -Wno-unknown-warning-option)
SHLIB_LINK = -lzstd

REGRESS = $(patsubst sql/%.sql,%,$(sort $(wildcard sql/*.sql)))
ISOLATION = $(patsubst test/isolation/specs/%.spec,%,$(sort $(wildcard test/isolation/specs/*.spec)))
ISOLATION_OPTS = --inputdir=$(srcdir)/test/isolation --outputdir=output_iso
TAP_TESTS = 1
EXTRA_CLEAN = output_iso tmp_check

PGXS := $(shell $(PG_CONFIG) --pgxs)
include $(PGXS)

# PostgreSQL's headers are not ours to warn about.
override CPPFLAGS := $(patsubst -I$(includedir_server),-isystem $(includedir_server),$(CPPFLAGS))

# Every object depends on every header: the tree is small.
$(OBJS): $(wildcard $(srcdir)/src/*.h $(srcdir)/src/*/*.h)

# clang-format reads .clang-format.  White space within lines is pgindent's
# business (see there), so only what differs beyond it counts.
FORMATTED = $(wildcard src/*.[ch] src/*/*.[ch])

.PHONY: format format-check
format:
	@for f in $(FORMATTED); do clang-format $$f | diff -b -u $$f - | patch -s $$f; done
format-check:
	@rc=0; for f in $(FORMATTED); do clang-format $$f | diff -b -u $$f - || rc=1; done; exit $$rc
