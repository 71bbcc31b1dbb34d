//! Profiles as people and programs write them, and the numbers a scheduler grants to one.

use std::sync::LazyLock;

use portreeve::profile::{Checked, Profile, ProfileErrors};
use portreeve_worker::alone::GrantFile;

/// A profile as a file.
pub(crate) fn toml(bytes: &[u8]) {
    hold(Profile::from_toml_bytes(bytes));
}

/// A profile as over REST.
pub(crate) fn json(bytes: &[u8]) {
    hold(Profile::from_json_bytes(bytes));
}

fn hold(read: Result<Checked, ProfileErrors>) {
    let profile = match read {
        Ok(checked) => checked.profile,
        Err(errors) => {
            assert!(!errors.as_slice().is_empty());
            assert!(errors.as_slice().len() <= ProfileErrors::MOST);
            assert!(errors.to_string().len() < 256 << 10, "a refusal is bounded");
            return;
        }
    };
    // What follows from it.
    let request = profile.request();
    assert_eq!(request.as_slice().len(), profile.ports.len());
    let _ = profile.forecast();
    // The effective profile is what is stored, and read again at every start.
    let text = serde_json::to_string(&profile).expect("plain data is written as JSON");
    let again = match Profile::from_json_text(&text) {
        Ok(again) => again.profile,
        Err(errors) => panic!("{text} was accepted, and is not read again: {errors}"),
    };
    assert_eq!(again, profile, "{text}");
}

static GRANTED: LazyLock<Profile> = LazyLock::new(|| {
    let text = "name = \"web\"\ncommand = [\"x\"]\n[ports]\nhttp = \"any\"\nblock = { any = 3 }\n\
                fixed = { fixed = 8080, protocol = \"tcp+udp\" }\n";
    Profile::from_toml(text).expect("it is a profile").profile
});

/// A grant file for a profile of three ports.
pub(crate) fn grant(bytes: &[u8]) {
    match GrantFile::read(bytes, &GRANTED) {
        Ok(grant) => assert_eq!(grant.ports.ports.len(), GRANTED.ports.len()),
        Err(errors) => assert!(errors.in_file("grant").to_string().len() < 256 << 10),
    }
}
