//! Pages in a browser: they must not act for who looks at them.

use std::net::IpAddr;

use http::{HeaderMap, Uri, header};

use crate::rest::refused::Refused;

/// A web page in the user's browser reaches loopback addresses too, with the user's uid: it must not act
/// for the user. Browsers name the page's origin; a page that made its own name point here gives itself
/// away by that name.
pub(crate) fn refuse_foreign_pages(uri: &Uri, headers: &HeaderMap) -> Result<(), Refused> {
    let from_a_page = headers.contains_key(header::ORIGIN)
        || headers
            .get("sec-fetch-site")
            .is_some_and(|site| site != "none");
    // Whichever of several names a server believes, none may be another's.
    let mut hosts = headers.get_all(header::HOST).iter();
    let ours = hosts.all(|host| host.to_str().is_ok_and(is_local))
        && uri.authority().is_none_or(|it| is_local(it.as_str()));
    if ours && !from_a_page {
        return Ok(());
    }
    Err(Refused::forbidden(
        "web pages may not speak for the user who looks at them",
    ))
}

fn is_local(authority: &str) -> bool {
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.parse::<u16>().is_ok() => host,
        _ => authority,
    };
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    matches!(host, "" | "localhost" | "portreeve") || bare.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_in_a_browser_is_not_its_user() {
        let with = |name: &'static str, value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().unwrap());
            refuse_foreign_pages(&Uri::from_static("/x"), &headers).is_ok()
        };
        for host in [
            "127.0.0.1:7373",
            "[::1]:7373",
            "localhost:7373",
            "portreeve",
            "",
        ] {
            assert!(with("host", host), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:7373",
            "127.0.0.1.evil.example:1",
        ] {
            assert!(!with("host", host), "{host}");
        }
        assert!(!with("origin", "http://evil.example"));
        assert!(!with("origin", "null"));
        assert!(!with("sec-fetch-site", "cross-site"));
        assert!(with("sec-fetch-site", "none"));
        assert!(refuse_foreign_pages(&Uri::from_static("/x"), &HeaderMap::new()).is_ok());
    }

    #[test]
    fn a_foreign_name_is_seen_wherever_it_stands() {
        let mut headers = HeaderMap::new();
        headers.append("host", "127.0.0.1:7373".parse().unwrap());
        let whole = |uri| refuse_foreign_pages(&Uri::from_static(uri), &headers).is_ok();
        assert!(whole("http://localhost:7373/x"));
        assert!(!whole("http://evil.example/x"), "the whole address counts");
        headers.append("host", "evil.example".parse().unwrap());
        assert!(refuse_foreign_pages(&Uri::from_static("/x"), &headers).is_err());
    }
}
