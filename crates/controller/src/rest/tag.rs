//! Entity tags: whether an asker has this very answer (RFC 9110).

use http::{HeaderMap, header};

/// Whether `If-None-Match` names `tag`, a strong tag in its quotes. `""` names no answer.
pub(crate) fn is_known(headers: &HeaderMap, tag: &str) -> bool {
    let given = headers.get_all(header::IF_NONE_MATCH).iter();
    let given = given.filter_map(|value| value.to_str().ok());
    // No tag of ours holds a comma.
    let mut tags = given.flat_map(|value| value.split(','));
    tags.any(|given| {
        let given = given.trim();
        given == "*" || given.strip_prefix("W/").unwrap_or(given) == tag
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_very_tag_is_known() {
        let known = |given: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("if-none-match", given.parse().unwrap());
            is_known(&headers, "\"e-1-json-own\"")
        };
        for given in [
            "\"e-1-json-own\"",
            "\"x\", \"e-1-json-own\"",
            "W/\"e-1-json-own\"",
            "*",
        ] {
            assert!(known(given), "{given}");
        }
        for given in [
            "\"\"",
            "",
            "e-1-json-own",
            "\"e-1-json-own-stale\"",
            "\"E-1-json-own\"",
        ] {
            assert!(!known(given), "{given}");
        }
        assert!(!is_known(&HeaderMap::new(), "\"e\""));
    }
}
