//! What says who somebody is, and what that one may: tokens, rights, and what comes to an agent to be passed on.

use std::cell::RefCell;

use portreeve_api::fuzzing as api;
use portreeve_controller::fuzzing as controller;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::{choice, text};

/// A file of rights.
pub(crate) fn rights(bytes: &[u8]) {
    assert!(controller::rights(text(bytes)) <= 21);
}

/// The text of a stored token: there is one way to write each.
pub(crate) fn stored_token(bytes: &[u8]) {
    let text = text(bytes);
    if let Some(id) = controller::stored_token(text) {
        let rest = ["prt1.", "prj1.", "prh1."]
            .iter()
            .find_map(|begin| text.strip_prefix(begin));
        let secret = rest.and_then(|rest| rest.strip_prefix(&id)?.strip_prefix('.'));
        assert_eq!(secret.map(str::len), Some(64), "{text:?}");
    }
}

thread_local! {
    static ISSUER: (controller::Issuer, TempDir) = {
        let folder = tempfile::tempdir().expect("a folder");
        (controller::Issuer::in_folder(folder.path()), folder)
    };
    static RUNTIME: RefCell<Runtime> = RefCell::new(
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime"),
    );
}

const HEAD: &[u8] = br#"{"alg":"EdDSA","typ":"JWT"}"#;

/// A token of the site's issuer: the text itself, claims that the issuer signed, or a head that it signed.
pub(crate) fn jwt(bytes: &[u8]) {
    let (kind, bytes) = choice(bytes);
    ISSUER.with(|(issuer, _)| {
        let signed = match kind % 3 {
            0 => Some(text(bytes).to_owned()),
            1 => issuer.signed(HEAD, bytes),
            _ => issuer.signed(
                bytes,
                br#"{"iss":"i","aud":"a","exp":4000000000,"sub":"alice"}"#,
            ),
        };
        let named = signed.and_then(|text| issuer.named(&text));
        // Nothing in the inputs is signed: the key is not among them.
        assert!(kind % 3 != 0 || named.is_none());
        if let Some((user, groups, _)) = named {
            for name in std::iter::once(&user).chain(&groups) {
                assert!((1..=256).contains(&name.len()) && !name.contains(char::is_control));
            }
            assert!(groups.len() <= 1_000);
        }
    });
}

/// What somebody sends to the socket of an agent: it is passed on as one request, of who sent it, whatever it says.
pub(crate) fn relay_head(bytes: &[u8]) {
    RUNTIME.with_borrow(|runtime| {
        let relayed = runtime.block_on(api::relayed(bytes, "prh1.host", 1000));
        assert!(relayed.len() <= 1, "{relayed:?}");
        for asked in relayed {
            assert_eq!(asked.bearers, ["Bearer prh1.host"]);
            assert_eq!(asked.on_behalf, ["1000"]);
        }
    });
}
