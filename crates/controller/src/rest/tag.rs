//! Entity tags: whether an asker has this very answer (RFC 9110).

use http::{HeaderMap, header};

/// `tag`, a strong one in its quotes, as the asker holds it: as the weak one where `If-None-Match` names it only so,
/// for a cache looks for what it keeps by the very tag of a 304. `None`: it has no such answer. `""` names none.
pub(crate) fn held(headers: &HeaderMap, tag: &str) -> Option<String> {
    let given = headers.get_all(header::IF_NONE_MATCH).iter();
    let given = given.filter_map(|value| value.to_str().ok());
    // No tag of ours holds a comma.
    let tags = given.flat_map(|value| value.split(',')).map(str::trim);
    let mut weak = None;
    for given in tags {
        if given == "*" || given == tag {
            return Some(tag.to_owned());
        }
        if given.strip_prefix("W/") == Some(tag) {
            weak = Some(given.to_owned());
        }
    }
    weak
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_very_tag_is_known() {
        let strong = "\"e-1-json-own\"";
        let weak = "W/\"e-1-json-own\"";
        let held = |given: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("if-none-match", given.parse().unwrap());
            held(&headers, strong)
        };
        for (given, told) in [
            (strong, strong),
            ("\"x\", \"e-1-json-own\"", strong),
            (weak, weak),
            ("\"x\", W/\"e-1-json-own\"", weak),
            ("W/\"e-1-json-own\", \"e-1-json-own\"", strong),
            ("*", strong),
        ] {
            assert_eq!(held(given).as_deref(), Some(told), "{given}");
        }
        for given in [
            "\"\"",
            "",
            "e-1-json-own",
            "\"e-1-json-own-stale\"",
            "\"E-1-json-own\"",
        ] {
            assert_eq!(held(given), None, "{given}");
        }
        assert_eq!(super::held(&HeaderMap::new(), strong), None);
    }
}
