//! The second look at the contract: abidiff reads the debug information of objects, ours and the recorded.
//!
//! It looks at objects that are not stripped, and at what it prints, not only at how it ends: an addition
//! and an insertion end alike, and a suppression of additions was seen to let insertions through.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::record::Contract;
use crate::tampering::{TAMPERINGS, Tampering};
use crate::{found, header, include, passed};

#[test]
fn the_objects_of_c_and_of_rust_have_the_recorded_layout() {
    if !is_asked_for() {
        return;
    }
    let record =
        Contract::of_record(&std::fs::read_to_string(include().join("portreeve.abi")).unwrap());
    let recorded = Object::of_c("recorded", &record.c_source());
    let ours = Object::of_c("ours", &header());
    assert_eq!(recorded.look_at(&ours), "", "the header, beside the record");
    let recorded = Object::of_rust("recorded", &record.rust_source());
    assert_eq!(
        recorded.look_at(&plugin()),
        "",
        "the plugin, beside the record"
    );
}

#[test]
fn an_addition_passes_the_second_look_and_a_change_does_not() {
    if !is_asked_for() {
        return;
    }
    let record = Contract::of_header(&header());
    let c = Object::of_c("before", &record.c_source());
    let rust = Object::of_rust("before", &record.rust_source());
    for tampering in TAMPERINGS {
        let after = Contract::of_header(&tampering.of(&header()));
        verdict(
            tampering,
            &c.look_at(&Object::of_c(tampering.name, &after.c_source())),
        );
        verdict(
            tampering,
            &rust.look_at(&Object::of_rust(tampering.name, &after.rust_source())),
        );
    }
}

fn verdict(tampering: &Tampering, said: &str) {
    let (name, in_objects) = (tampering.name, tampering.is_in_objects);
    assert_eq!(
        only_adds(said),
        tampering.passes || !in_objects,
        "{name}:\n{said}"
    );
    assert_eq!(
        said.is_empty(),
        tampering.is_silent || !in_objects,
        "{name}:\n{said}"
    );
}

/// Whether a report tells of nothing but members that stand behind what was there.
fn only_adds(report: &str) -> bool {
    let mut end = None;
    report.lines().map(str::trim).all(|line| {
        if let Some(sizes) = line.strip_prefix("type size changed from ") {
            let before = sizes
                .split_once(' ')
                .and_then(|(before, _)| before.parse::<u64>().ok());
            end = before;
            return before.is_some();
        }
        if let Some((_, at)) = line.split_once("', at offset ") {
            let at = at.split_once(' ').and_then(|(at, _)| at.parse().ok());
            return at >= end && end.is_some();
        }
        // The head of a struct: its end is not known before its sizes are read.
        if line.starts_with("'struct ") && line.ends_with("changed:") {
            end = None;
            return true;
        }
        line.is_empty()
            || line.ends_with(" data member insertion:")
            || line.ends_with(" data member insertions:")
    })
}

/// A shared object with debug information, whose one function leads to every type of the contract.
struct Object(PathBuf);

impl Object {
    fn of_c(name: &str, source: &str) -> Self {
        let object = place(name).join("c.so");
        let text = source.to_owned() + C_FOOT;
        let source = object.with_extension("c");
        std::fs::write(&source, text).unwrap();
        let mut command = Command::new("gcc");
        command
            .args(["-std=c11", "-w", "-g", "-shared", "-fPIC"])
            .arg(source);
        passed(&command.arg("-o").arg(&object).output().unwrap(), name);
        Self(object)
    }

    fn of_rust(name: &str, source: &str) -> Self {
        let object = place(name).join("rust.so");
        let file = object.with_extension("rs");
        std::fs::write(&file, source).unwrap();
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let mut command = Command::new(rustc);
        command
            .args(["--edition", "2024", "--crate-type", "cdylib", "-g"])
            .arg(file)
            // The number that programs are linked with is held as well.
            .arg("-Clink-arg=-Wl,-soname,libportreeve_plugin.so.1");
        passed(&command.arg("-o").arg(&object).output().unwrap(), name);
        Self(object)
    }

    /// What is different in another one; nothing if all is the same.
    fn look_at(&self, other: &Self) -> String {
        let mut command = Command::new("abidiff");
        let output = command
            .arg("--leaf-changes-only")
            .args([&self.0, &other.0])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        // 1 and 2: it did not get as far as to compare. 4: something differs, 8: in a way that it knows to be bad.
        let ended = output.status.code();
        assert!(
            matches!(ended, Some(0 | 4 | 12)),
            "abidiff ended with {ended:?}: {said}"
        );
        if ended == Some(0) {
            return String::new();
        }
        // The sums say the same again.
        let report = said.lines().filter(|line| !line.contains(" summary: "));
        let report = report.filter(|line| !line.starts_with("Removed/Changed/Added"));
        let report = report.map(|line| format!("{line}\n")).collect::<String>();
        assert!(
            report.contains("changed"),
            "abidiff says that something differs and not what: {said}"
        );
        report
    }
}

/// The plugin as it is built for tests, with types in its debug information.
fn plugin() -> Object {
    let temporary = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let target = temporary.parent().unwrap();
    let mut command = Command::new(env!("CARGO"));
    command.args(["rustc", "--locked", "-p", "portreeve-plugin"]);
    command.args(["--crate-type", "cdylib", "--target-dir"]);
    command.arg(target);
    // The other builds have line tables only, which tell no types.
    command.args(["--config", "profile.dev.package.portreeve.debug=\"full\""]);
    passed(&command.output().unwrap(), "the plugin with its types");
    let kept = place("plugin").join("rust.so");
    std::fs::copy(target.join("debug/libportreeve_plugin.so"), &kept).unwrap();
    Object(kept)
}

/// The second look takes half a minute and a package. It is named when it is left out.
fn is_asked_for() -> bool {
    if std::env::var("PORTREEVE_LONG").is_err() {
        println!("skipped: the second look is taken with PORTREEVE_LONG=1");
        return false;
    }
    found("abidiff").is_some() && found("gcc").is_some()
}

fn place(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("second-look")
        .join(name);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

const C_FOOT: &str = "
static const pr_api table;
int32_t pr_get_api(const pr_hostinfo *host, const pr_api **api, uint32_t *plugin_abi) {
    (void)host;
    *api = &table;
    *plugin_abi = 1;
    return 0;
}
";
