//! Entity tags: whether an asker has this very answer, and whether a service still is what it read (RFC 9110).

use http::{HeaderMap, HeaderName, header};
use portreeve::registry::{Command, Precondition, ServiceView};

use super::refused::Refused;

/// The tag of a service: of what its owner wants, not of how its replicas fare, so that a replica that turns ready
/// between a read and a write is no conflict.
pub(crate) fn of_service(service: &ServiceView) -> String {
    format!("\"s-{}\"", service.definition())
}

/// The command, held to what `If-Match` and `If-None-Match` ask of its service.
pub(crate) fn conditional(headers: &HeaderMap, command: Command) -> Result<Command, Refused> {
    let is_there = named(headers, &header::IF_MATCH)?.map(|tags| {
        if tags.contains(&"*") {
            return Vec::new();
        }
        // Packed, an answer's tag is a weak one; it names the same definition.
        let strong = |tag: &str| tag.strip_prefix("W/").unwrap_or(tag).to_owned();
        let tags = tags.into_iter().map(strong);
        let own = |tag: String| {
            let bare = tag.strip_prefix("\"s-").and_then(|it| it.strip_suffix('"'));
            // One that is none of ours fits no service.
            bare.map_or(tag.clone(), str::to_owned)
        };
        tags.map(own).collect()
    });
    let is_absent = match named(headers, &header::IF_NONE_MATCH)? {
        None => false,
        Some(tags) if tags == ["*"] => true,
        Some(_) => {
            let reason = "If-None-Match: * creates only; for one version give its tag in If-Match";
            return Err(Refused::header("if-none-match", reason));
        }
    };
    if is_there.is_none() && !is_absent {
        return Ok(command);
    }
    Ok(Command::OnlyIf {
        precondition: Precondition {
            is_there,
            is_absent,
        },
        command: Box::new(command),
    })
}

/// The elements of a header; none if it is not there.
fn named<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<Vec<&'a str>>, Refused> {
    let mut all = Vec::new();
    for value in headers.get_all(name) {
        let text = value.to_str().unwrap_or_default();
        let elements = text.split(',').map(str::trim).filter(|it| !it.is_empty());
        all.extend(elements);
    }
    if all.is_empty() && headers.contains_key(name) {
        // Not to be taken for a request without a condition.
        let reason = "write * or tags in their quotes, as ETag gives them";
        return Err(Refused::header(name.as_str(), reason));
    }
    Ok((!all.is_empty()).then_some(all))
}

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
