//! A contract as source code of its own, from which compilers make objects with debug information.

use std::fmt::Write as _;

use crate::record::Contract;

impl Contract {
    /// The same contract as C of its own: what was recorded, whatever the header says today.
    pub(crate) fn c_source(&self) -> String {
        let mut text = String::from("#include <stdint.h>\n");
        for (name, kind) in &self.ids {
            writeln!(text, "typedef {kind} {name};").unwrap();
        }
        for one in &self.structs {
            writeln!(text, "typedef struct {} {{", one.name).unwrap();
            for (name, kind) in &one.members {
                if let Some((answer, parameters)) = function(kind) {
                    writeln!(text, "  {answer} (*{name})({parameters});").unwrap();
                } else if let Some((of, count)) = array(kind) {
                    writeln!(text, "  {of} {name}[{count}];").unwrap();
                } else {
                    writeln!(text, "  {kind} {name};").unwrap();
                }
            }
            writeln!(text, "}} {};", one.name).unwrap();
        }
        text
    }

    /// The same contract as Rust that is named as ours is, so that a reader of debug information finds
    /// the same types.
    pub(crate) fn rust_source(&self) -> String {
        let mut text = String::from(RUST_HEAD);
        for (name, _) in &self.ids {
            writeln!(text, "pub type {} = u64;", camel(name)).unwrap();
        }
        for one in &self.structs {
            writeln!(text, "#[repr(C)] pub struct {} {{", camel(&one.name)).unwrap();
            for (name, kind) in &one.members {
                let told = match function(kind) {
                    Some(_) if one.name == "pr_api" => rust(kind),
                    Some(_) => format!("Option<{}>", rust(kind)),
                    None => rust(kind),
                };
                writeln!(text, "pub {name}: {told},").unwrap();
            }
            text.push_str("}\n");
        }
        text.push_str(RUST_FOOT);
        text
    }
}

fn function(kind: &str) -> Option<(&str, &str)> {
    let (answer, rest) = kind.split_once(" (")?;
    Some((answer, rest.trim_end_matches(')')))
}

fn array(kind: &str) -> Option<(&str, &str)> {
    kind.trim_end_matches(']').split_once('[')
}

/// A C type in Rust.
fn rust(kind: &str) -> String {
    if let Some((answer, parameters)) = function(kind) {
        let parameters: Vec<_> = parameters.split(", ").map(rust).collect();
        let answer = match answer {
            "void" => String::new(),
            answer => format!(" -> {}", rust(answer)),
        };
        return format!("unsafe extern \"C\" fn({}){answer}", parameters.join(", "));
    }
    if let Some((of, count)) = array(kind) {
        return format!("[{}; {count}]", rust(of));
    }
    if let Some(to) = kind.strip_suffix('*') {
        let to = to.trim();
        return match to.strip_prefix("const ").filter(|to| !to.ends_with('*')) {
            Some(to) => format!("*const {}", rust(to)),
            None => format!("*mut {}", rust(to)),
        };
    }
    match kind {
        "void" => "std::ffi::c_void".to_owned(),
        "char" => "std::ffi::c_char".to_owned(),
        number if number.ends_with("_t") => {
            let letter = if number.starts_with('u') { 'u' } else { 'i' };
            let bits: String = number.chars().filter(char::is_ascii_digit).collect();
            format!("{letter}{bits}")
        }
        ours => camel(ours),
    }
}

/// `pr_sup_event` is `PrSupEvent`.
fn camel(name: &str) -> String {
    let parts = name.split('_').map(|part| {
        let (first, rest) = part.split_at(1);
        first.to_uppercase() + rest
    });
    parts.collect()
}

const RUST_HEAD: &str = "#![crate_name = \"portreeve\"]\npub mod plugin_abi { pub mod types {\n";

const RUST_FOOT: &str = r#"}}
use plugin_abi::types::*;
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pr_get_api(host: *const PrHostinfo, api: *mut *const PrApi, plugin_abi: *mut u32) -> i32 {
    _ = (host, api, plugin_abi);
    0
}
"#;
