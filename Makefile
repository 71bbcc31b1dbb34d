# Each target is a plain cargo line or a few of them. `verify` never writes into the tree; `fix` does.
#
# Tests are chosen among those of the whole workspace, also where one package has them: for a package alone cargo chooses
# other features of what is shared, and builds much of it once more.

CARGO ?= cargo
export RUSTDOCFLAGS ?= -D warnings

.PHONY: verify quick test scripts loom tsan fuzz external long fix abi help-pages sim seeds mutations bench bench-scale bench-server bench-controller \
	release install install-plugin uninstall deb

# Everything a commit must pass: at most 6 minutes warm, nothing to install.
verify:
	$(CARGO) fmt --all --check
	$(CARGO) fmt --manifest-path fuzz/Cargo.toml --check
	$(CARGO) clippy --workspace --all-targets --features portreeve-cli/e2e --locked -- -D warnings
	$(CARGO) doc --workspace --no-deps --locked
	$(MAKE) quick

# Unit, property, header, profile, layering and footprint tests: they start no daemon and need no package.
quick:
	$(CARGO) test --workspace --locked

# The README's test command: quick, external and end-to-end tests. QUICK=done leaves the quick ones out.
test:
ifneq ($(QUICK),done)
	$(MAKE) quick
endif
	$(MAKE) scripts
	$(MAKE) external

# The invariants of supervision over 100,000 random scripts; `long` runs a million.
scripts:
	PORTREEVE_SCRIPTS=100000 $(CARGO) test --workspace --lib --locked -- supervision::scripts

# Explores the orders of the endpoint table's writer, readers and sleepers, and of the bells that watches ring, and shows
# that wrong ones are found. In a folder of its own, because everything is built for it anew.
loom:
	RUSTFLAGS="$$RUSTFLAGS --cfg loom" $(CARGO) test -p portreeve --lib --locked --target-dir target/loom -- endpoints::loom_test plugin_abi::watch::loom_test

# Readers of the C table against its writer, all built for the thread sanitizer, in a folder of their own.
tsan:
	$(CARGO) test -p portreeve-plugin --locked --test instruments -- --ignored --nocapture the_thread_sanitizer

# Every fuzz target over its corpus for SECONDS (10) each, built for it in a folder of its own; TARGETS="ranges token" those
# alone (the build takes 150 s of one processor), SEED=17 as that run, KEEP=1 adds what was found to the corpus and makes it small again.
fuzz:
	SECONDS_EACH=$(or $(SECONDS),10) SEED=$(SEED) KEEP=$(KEEP) fuzz/run $(TARGETS)

# What needs Debian packages, real daemons or minutes (a minute of fresh seeds; end-to-end tests, which mostly wait, so that three run beside each
# other on two cores; the worker's tests on each rung that holds processes; the
# plugin under valgrind and sanitizers, with defects, linked statically); installs the packages where it may, else names
# what it skips.
external: loom
	.ci/install-packages
	$(MAKE) fuzz
	$(MAKE) seeds LASTS=$(or $(LASTS),60s) STEPS=300000
	$(CARGO) test --workspace --features portreeve-cli/e2e --locked --test e2e -- --skip crowds:: --test-threads 3
	PORTREEVE_LONG=1 $(CARGO) test --workspace --features portreeve-cli/e2e --locked --test e2e -- crowds::
	PORTREEVE_LONG=1 $(CARGO) test --workspace --locked --lib -- probes_of_a_dead_port a_check_that_writes_much
	for rung in pid-namespace freezer process-tree; do \
		PORTREEVE_TEST_CONTAINMENT=$$rung $(CARGO) test --workspace --locked --test replica -- \
			--skip containment:: --skip kills:: --skip reuse:: || exit 1; \
	done
	$(CARGO) test --workspace --locked --test cases -- --ignored
	$(CARGO) test --workspace --locked --test instruments -- --ignored --nocapture
	PORTREEVE_LONG=1 $(CARGO) test --workspace --locked --test header -- second_look::
	$(CARGO) test --workspace --locked --test install -- --ignored
	$(CARGO) test --workspace --locked --test mini_worker -- --ignored

# The same with full figures: more rounds, more cases.
long:
	.ci/install-packages
	PROPTEST_CASES=20000 PORTREEVE_SCRIPTS=1000000 PORTREEVE_LONG=1 $(CARGO) test --workspace --features portreeve-cli/e2e --locked --release
	$(MAKE) seeds LASTS=60m SEEDS_BUILD=--release

fix:
	$(CARGO) fmt --all
	$(CARGO) fmt --manifest-path fuzz/Cargo.toml
	$(CARGO) clippy --workspace --all-targets --features portreeve-cli/e2e --fix --allow-dirty --allow-staged

# Records in include/portreeve.abi what include/portreeve.h gained; refuses what breaks the contract.
abi:
	PORTREEVE_RECORD_ABI=1 $(CARGO) test -p portreeve --locked --test header -- gate::what_was_recorded

# Records the help of every command in crates/cli/tests/golden/help and docs/cli.md, to be read and committed.
help-pages:
	PORTREEVE_RECORD_HELP=1 $(CARGO) test --workspace --locked --bin portreeve -- teaching::

# Plays the shipped scenarios and the examples of the docs, then tries seeds: each is another virtual cluster with a mix of
# faults of its own, watched for broken promises. SEEDS=1 FROM=17 tries seed 17 alone, LASTS=60s fresh seeds for a minute,
# with STEPS=300000 for longer where it is slower than that.
sim:
	$(CARGO) test -p portreeve-sim --locked
	$(MAKE) seeds

# SEEDS_BUILD=--release makes ten times as many steps, and is built for minutes.
seeds:
	$(CARGO) test --quiet --workspace $(SEEDS_BUILD) --locked --no-run --test seeds
	$(TARGET)/$(if $(SEEDS_BUILD),release,debug)/swarm $(if $(LASTS),--for $(LASTS)) $(if $(STEPS),--steps $(STEPS)) \
		$(if $(SEEDS),--seeds $(SEEDS)) $(if $(FROM),--from $(FROM))

# Shows that the seeds find faults: each patch of crates/sim/mutations breaks one decision, and is to be found.
mutations:
	crates/sim/mutations/run

# Prints how costs grow, then target, measured and verdict for each row of performance.md that is built; leaves both as
# bench-growth.json and bench-rows.json in the target folder. PORTREEVE_ROWS=1,5,growth measures these alone.
bench: bench-scale
	$(CARGO) bench -p portreeve --bench product --locked

# The row of the virtual cluster (24): an hour of 10,000 hosts takes long; PORTREEVE_SCALE=1000 is a smaller one.
bench-scale:
	$(CARGO) bench -p portreeve-sim --bench scale --locked

# The rows of the whole server over loopback, beside nginx; its line per row is repeated by `bench`. PORTREEVE_ROWS=18,20
# measures these alone.
bench-server:
	.ci/install-packages
	$(CARGO) bench -p portreeve-cli --bench server --locked

# The rows of the controller's store, on the disk of the target folder. PORTREEVE_ROWS=14,21 measures these alone.
bench-controller:
	$(CARGO) bench -p portreeve-controller --bench store --locked

# What `install` copies: the program, and the plugin as shared object and static library, which is built as one (its
# profile in Cargo.toml says why).
release:
	$(CARGO) build --release --locked -p portreeve-cli
	$(CARGO) build --profile plugin --locked -p portreeve-plugin

PREFIX ?= /usr/local
BINDIR ?= $(PREFIX)/bin
LIBDIR ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
DOCDIR ?= $(PREFIX)/share/doc/portreeve
DATADIR ?= $(PREFIX)/share
MANDIR ?= $(DATADIR)/man/man1
# BUILD=debug installs what `cargo build` made.
BUILD ?= release
TARGET ?= $(or $(CARGO_TARGET_DIR),target)
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
# Its major number is PR_ABI, as in its soname.
SHARED := libportreeve_plugin.so.1.$(VERSION)
BUILT := $(TARGET)/$(BUILD)
BUILT_PLUGIN := $(TARGET)/$(if $(filter release,$(BUILD)),plugin,$(BUILD))

# Everything under DESTDIR and PREFIX, completions and man pages too, which the program writes itself. Compiles nothing, so that root need not: `make release` first.
install: install-plugin
	install -D -m 755 $(BUILT)/portreeve $(DESTDIR)$(BINDIR)/portreeve
	$(BUILT)/portreeve man $(DESTDIR)$(MANDIR) > /dev/null
	install -d $(DESTDIR)$(DATADIR)/bash-completion/completions $(DESTDIR)$(DATADIR)/zsh/site-functions $(DESTDIR)$(DATADIR)/fish/vendor_completions.d
	$(BUILT)/portreeve completions bash > $(DESTDIR)$(DATADIR)/bash-completion/completions/portreeve
	$(BUILT)/portreeve completions zsh > $(DESTDIR)$(DATADIR)/zsh/site-functions/_portreeve
	$(BUILT)/portreeve completions fish > $(DESTDIR)$(DATADIR)/fish/vendor_completions.d/portreeve.fish

# What a scheduler needs: header, shared object, static library, and pkg-config files for either.
install-plugin:
	@test -f $(BUILT)/libportreeve_plugin.so || { echo "make install: nothing is built in $(BUILT): 'make release' first" >&2; exit 1; }
	install -d $(DESTDIR)$(INCLUDEDIR) $(DESTDIR)$(LIBDIR)/pkgconfig $(DESTDIR)$(DOCDIR)
	install -m 644 include/portreeve.h $(DESTDIR)$(INCLUDEDIR)
	install -m 755 $(BUILT_PLUGIN)/libportreeve_plugin.so $(DESTDIR)$(LIBDIR)/$(SHARED)
	ln -sf $(SHARED) $(DESTDIR)$(LIBDIR)/libportreeve_plugin.so.1
	ln -sf libportreeve_plugin.so.1 $(DESTDIR)$(LIBDIR)/libportreeve_plugin.so
	crates/plugin/hide-symbols $(BUILT_PLUGIN)/libportreeve_plugin.a $(DESTDIR)$(LIBDIR)/libportreeve_plugin.a
	for pc in portreeve portreeve-static; do \
		sed -e 's|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(LIBDIR)|; s|@INCLUDEDIR@|$(INCLUDEDIR)|; s|@VERSION@|$(VERSION)|' \
			crates/plugin/$$pc.pc.in > $(DESTDIR)$(LIBDIR)/pkgconfig/$$pc.pc || exit 1; \
	done
	install -m 644 README.md CHANGELOG.md LICENSE-APACHE LICENSE-MIT docs/*.md examples/*.* $(DESTDIR)$(DOCDIR)

# Debian packages of what `make release` built, into TARGET/deb.
deb:
	packaging/deb/build $(TARGET)/deb

uninstall:
	rm -f $(DESTDIR)$(BINDIR)/portreeve $(DESTDIR)$(INCLUDEDIR)/portreeve.h $(DESTDIR)$(LIBDIR)/libportreeve_plugin.*
	rm -f $(DESTDIR)$(LIBDIR)/pkgconfig/portreeve.pc $(DESTDIR)$(LIBDIR)/pkgconfig/portreeve-static.pc
	rm -f $(DESTDIR)$(MANDIR)/portreeve.1 $(DESTDIR)$(MANDIR)/portreeve-*.1
	rm -f $(DESTDIR)$(DATADIR)/bash-completion/completions/portreeve $(DESTDIR)$(DATADIR)/zsh/site-functions/_portreeve
	rm -f $(DESTDIR)$(DATADIR)/fish/vendor_completions.d/portreeve.fish
	rm -rf $(DESTDIR)$(DOCDIR)
