//! What an asker takes: the `Accept` header (RFC 9110) against what a route can give.

use http::{HeaderMap, StatusCode, header};

use super::refused::Refused;

/// A form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Json,
    Text,
    /// A stream of server-sent events.
    Events,
    /// A stream of JSON objects, one a line.
    Lines,
    /// What `/metrics` tells, as OpenMetrics.
    OpenMetrics,
}

impl Form {
    /// Its media type.
    pub(crate) const fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Text => "text/plain",
            Self::Events => "text/event-stream",
            Self::Lines => "application/x-ndjson",
            Self::OpenMetrics => "application/openmetrics-text",
        }
    }
}

/// The form that the asker likes best of what the route gives; of equals the one that is named more exactly, then
/// the earlier one. Who says nothing takes the first.
///
/// A header that cannot be read as ranges at all says nothing. Cost: one pass; nothing is allocated but in a refusal.
pub(crate) fn choose(headers: &HeaderMap, given: &[Form]) -> Result<Form, Refused> {
    let ranges = || {
        let values = headers.get_all(header::ACCEPT).iter();
        let texts = values.filter_map(|value| value.to_str().ok());
        texts
            .flat_map(|text| text.split(','))
            .filter_map(Range::parse)
    };
    let Some(&first) = given.first().filter(|_| ranges().next().is_none()) else {
        let liked = |form: Form| {
            let fitting = ranges().filter(|range| range.covers(form));
            // What is said of it most exactly holds.
            let exact = fitting.max_by_key(Range::exactness)?;
            (exact.quality > 0).then_some((exact.quality, exact.exactness(), form))
        };
        let best = given.iter().filter_map(|form| liked(*form));
        let best = best.reduce(|best, next| {
            if (next.0, next.1) > (best.0, best.1) {
                next
            } else {
                best
            }
        });
        return best.map(|(.., form)| form).ok_or_else(|| refused(given));
    };
    Ok(first)
}

fn refused(given: &[Form]) -> Refused {
    let types: Vec<_> = given.iter().map(|form| form.media_type()).collect();
    Refused::new(
        StatusCode::NOT_ACCEPTABLE,
        "not_acceptable",
        format!(
            "this is given as {}; ask for one of them with Accept",
            types.join(", ")
        ),
    )
    .with("available", types)
}

/// One element of the header.
#[derive(Clone, Copy, Debug)]
struct Range<'a> {
    kind: &'a str,
    subtype: &'a str,
    /// In thousandths.
    quality: u16,
}

impl<'a> Range<'a> {
    /// `None`: it is no media range. Parameters other than `q` do not matter for what we give.
    fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.split(';').map(str::trim);
        let (kind, subtype) = parts.next()?.split_once('/')?;
        let is_token = |text: &str| {
            !text.is_empty()
                && text
                    .bytes()
                    .all(|byte| byte.is_ascii_graphic() && byte != b'/')
        };
        if !is_token(kind) || !is_token(subtype) || (kind == "*" && subtype != "*") {
            return None;
        }
        let quality = parts.find_map(|part| {
            let (name, value) = part.split_once('=')?;
            name.trim().eq_ignore_ascii_case("q").then(|| value.trim())
        });
        Some(Self {
            kind,
            subtype,
            quality: quality.map_or(Some(1000), thousandths)?,
        })
    }

    fn covers(&self, form: Form) -> bool {
        let (kind, subtype) = form.media_type().split_once('/').unwrap_or_default();
        (self.kind == "*" || self.kind.eq_ignore_ascii_case(kind))
            && (self.subtype == "*" || self.subtype.eq_ignore_ascii_case(subtype))
    }

    fn exactness(&self) -> u8 {
        u8::from(self.kind != "*") + u8::from(self.subtype != "*")
    }
}

/// `0.8` as 800; at most three places, between 0 and 1.
fn thousandths(text: &str) -> Option<u16> {
    let (whole, places) = text.split_once('.').unwrap_or((text, ""));
    if places.len() > 3 || !places.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let places: u16 = format!("{places:0<3}").parse().ok()?;
    match whole {
        "0" => Some(places),
        "1" if places == 0 => Some(1000),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: &[Form] = &[Form::Json, Form::Text];

    fn of(accept: &str, given: &[Form]) -> Option<Form> {
        let mut headers = HeaderMap::new();
        headers.insert("accept", accept.parse().unwrap());
        choose(&headers, given).ok()
    }

    #[test]
    fn the_best_liked_form_is_given_and_the_first_of_equals() {
        for (accept, form) in [
            ("*/*", Form::Json),
            ("application/json", Form::Json),
            ("text/plain", Form::Text),
            ("TEXT/Plain; charset=utf-8", Form::Text),
            ("text/*", Form::Text),
            ("text/html, application/xhtml+xml, */*;q=0.8", Form::Json),
            ("application/json, text/plain;q=0.9", Form::Json),
            ("application/json;q=0.1, text/plain;q=0.2", Form::Text),
            ("text/plain, application/json", Form::Json),
            ("text/plain, */*", Form::Text),
            ("*/*, application/json;q=0", Form::Text),
            ("application/json;Q=0.001", Form::Json),
        ] {
            assert_eq!(of(accept, BOTH), Some(form), "{accept}");
        }
        assert_eq!(choose(&HeaderMap::new(), BOTH).unwrap(), Form::Json);
        let all = &[Form::Json, Form::Text, Form::Events, Form::Lines];
        for (accept, form) in [
            ("*/*", Form::Json),
            ("text/*", Form::Text),
            ("Text/Event-Stream; charset=utf-8", Form::Events),
            ("application/x-ndjson, text/event-stream", Form::Events),
            ("application/x-ndjson, text/event-stream;q=0.9", Form::Lines),
            ("text/event-stream, application/json", Form::Json),
        ] {
            assert_eq!(of(accept, all), Some(form), "{accept}");
        }
        assert_eq!(of("text/plain;q=0.1", &[Form::Text]), Some(Form::Text));
    }

    #[test]
    fn what_cannot_be_given_is_refused_and_what_cannot_be_read_says_nothing() {
        for accept in [
            "text/html",
            "application/json;q=0, text/plain;q=0",
            "image/*",
            "*/*;q=0",
        ] {
            assert_eq!(of(accept, BOTH), None, "{accept}");
        }
        for accept in ["", "garbage", ",,;q=1", "*/json", "/", "text/"] {
            assert_eq!(of(accept, BOTH), Some(Form::Json), "{accept}");
        }
        // One bad element does not spoil the others.
        assert_eq!(
            of("application/json;q=7, text/plain", BOTH),
            Some(Form::Text)
        );
    }
}
