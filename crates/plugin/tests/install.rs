//! The plugin as others get it: how it is linked, what loading it does, and where `make install` puts it.

mod built;
mod tools;

use std::path::Path;
use std::process::Command;

use built::{compiler, root, run, shared_object, temporary};
use tools::is_there;

/// abi 3
#[test]
fn a_thousand_loads_leave_no_thread_descriptor_or_mapping() {
    let peek = temporary().join("peek");
    run(compiler()
        .arg(root().join("crates/plugin/tests/install/peek.c"))
        .args(["-ldl", "-o"])
        .arg(&peek));
    for does in ["open", "call"] {
        run(Command::new(&peek).arg(shared_object()).arg(does));
    }
}

/// abi 4
#[test]
fn the_shared_object_needs_nothing_that_is_not_there_and_looks_nowhere_else() {
    let missing = run(Command::new("ldd").arg("-r").arg(shared_object()));
    assert!(
        !missing.contains("undefined") && !missing.contains("not found"),
        "{missing}"
    );
    let dynamic = run(Command::new("readelf").arg("-d").arg(shared_object()));
    for wanted in ["[libportreeve_plugin.so.1]", "NODELETE", "BIND_NOW"] {
        assert!(dynamic.contains(wanted), "no {wanted} in {dynamic}");
    }
    for unwanted in ["RPATH", "RUNPATH", "TEXTREL"] {
        assert!(!dynamic.contains(unwanted), "{unwanted} in {dynamic}");
    }
    assert!(run(Command::new("readelf").arg("-lW").arg(shared_object())).contains("GNU_RELRO"));
}

/// Two run when it is loaded, and neither is ours: the C compiler's own, and the one by which Rust's standard
/// library keeps where the arguments of the program are. Both only note something.
#[test]
fn nothing_of_ours_runs_when_the_shared_object_is_loaded() {
    let sections = run(Command::new("readelf").arg("-SW").arg(shared_object()));
    let section = sections.lines().find(|line| line.contains(" .init_array "));
    let words: Vec<_> = section.unwrap_or_default().split_whitespace().collect();
    let size = words
        .iter()
        .position(|word| *word == "INIT_ARRAY")
        .map(|at| words[at + 3]);
    assert_eq!(size, Some("000010"), "{section:?}");
    let symbols = run(Command::new("nm").arg("-C").arg(shared_object()));
    let noted = symbols.lines().filter(|line| line.contains("INIT_ARRAY"));
    let noted: Vec<_> = noted
        .filter_map(|line| line.split_once(" d "))
        .map(|(_, name)| name)
        .collect();
    assert!(
        noted
            .iter()
            .all(|name| name.starts_with("std::sys::args::")),
        "{noted:?}"
    );
}

#[test]
#[ignore = "make external: links the whole static library anew"]
fn an_installed_plugin_is_found_by_pkg_config_alone() {
    if !is_there("pkg-config") {
        return;
    }
    let stage = temporary().join("stage");
    let _absent = std::fs::remove_dir_all(&stage);
    let make = |what: &str| {
        let mut make = Command::new("make");
        make.args(["-s", what, "PREFIX=/opt/portreeve", "BUILD=debug"]);
        make.arg(format!("DESTDIR={}", stage.display()));
        make.arg(format!("TARGET={}", built::PLUGIN.join("..").display()));
        run(make.current_dir(root()));
    };
    make("install-plugin");
    let prefix = stage.join("opt/portreeve");
    let asked = |package: &str| {
        let mut pkg_config = Command::new("pkg-config");
        pkg_config.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
        pkg_config.env("PKG_CONFIG_SYSROOT_DIR", &stage);
        run(pkg_config.args(["--cflags", "--libs", package]))
    };
    for package in ["portreeve", "portreeve-static"] {
        let program = temporary().join(package);
        let mut cc = Command::new("cc");
        cc.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-DLINKED"]);
        cc.arg(root().join("examples/first_call.c"))
            .arg("-o")
            .arg(&program);
        run(cc.args(asked(package).split_whitespace()));
        let mut program = Command::new(program);
        if package == "portreeve" {
            program.env("LD_LIBRARY_PATH", prefix.join("lib"));
        }
        let said = run(&mut program);
        assert!(said.contains("web.alice 10.0.0.2:20004"), "{said}");
    }
    let needed = |program: &str| {
        run(Command::new("readelf")
            .arg("-d")
            .arg(temporary().join(program)))
    };
    assert!(needed("portreeve").contains("[libportreeve_plugin.so.1]"));
    assert!(!needed("portreeve-static").contains("portreeve"));
    let library = prefix.join("lib/libportreeve_plugin.a");
    assert_eq!(defined(&library), ["pr_get_api"], "in the static library");
    make("uninstall");
    assert_eq!(files(&stage), 0, "what was installed is gone again");
}

/// The global symbols that an object defines.
fn defined(object: &Path) -> Vec<String> {
    let symbols = run(Command::new("nm")
        .args(["-g", "--defined-only"])
        .arg(object));
    let names = symbols
        .lines()
        .filter(|line| line.contains(" T ") || line.contains(" D "));
    names
        .filter_map(|line| line.split_whitespace().last())
        .map(str::to_owned)
        .collect()
}

fn files(folder: &Path) -> usize {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let counts = entries.map(|entry| match entry.path() {
        path if path.is_dir() && !path.is_symlink() => files(&path),
        _ => 1,
    });
    counts.sum()
}
