//! What a request shows of itself: one bearer token, and for whom an agent asks.

use http::{HeaderMap, header};
use portreeve_api::ON_BEHALF_HEADER;

use crate::rest::refused::Refused;

/// The bearer token, if there is one.
pub(crate) fn bearer(headers: &HeaderMap) -> Result<Option<&str>, Refused> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        // Which of two counts would be a matter of who reads them.
        return Err(Refused::unauthenticated("send one credential, not several"));
    }
    let text = value.to_str().unwrap_or_default();
    match text.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => Ok(Some(token.trim())),
        _ => Err(Refused::unauthenticated(
            "write the credential as \"Authorization: Bearer TOKEN\"",
        )),
    }
}

/// The account of another machine for which its agent asks, if it does.
pub(crate) fn on_behalf(headers: &HeaderMap) -> Result<Option<u32>, Refused> {
    let mut values = headers.get_all(ON_BEHALF_HEADER).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    let uid = value.to_str().ok().and_then(|text| text.parse().ok());
    match uid {
        Some(uid) if values.next().is_none() => Ok(Some(uid)),
        _ => Err(Refused::header(ON_BEHALF_HEADER, "write one uid")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_without_its_scheme_is_explained() {
        let mut headers = HeaderMap::new();
        assert_eq!(bearer(&headers).unwrap(), None);
        headers.insert("authorization", "bearer abc".parse().unwrap());
        assert_eq!(bearer(&headers).unwrap(), Some("abc"));
        for bad in ["abc", "Basic abc", ""] {
            headers.insert("authorization", bad.parse().unwrap());
            assert!(bearer(&headers).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn of_two_credentials_none_is_believed() {
        let mut headers = HeaderMap::new();
        headers.append("authorization", "Bearer abc".parse().unwrap());
        headers.append("authorization", "Bearer def".parse().unwrap());
        assert!(bearer(&headers).is_err());
        assert_eq!(on_behalf(&headers).unwrap(), None);
        headers.append(ON_BEHALF_HEADER, "1000".parse().unwrap());
        assert_eq!(on_behalf(&headers).unwrap(), Some(1000));
        headers.append(ON_BEHALF_HEADER, "0".parse().unwrap());
        assert!(on_behalf(&headers).is_err());
        headers.insert(ON_BEHALF_HEADER, "root".parse().unwrap());
        assert!(on_behalf(&headers).is_err());
    }
}
