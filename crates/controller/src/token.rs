//! Replica tokens: what a worker and its job prove themselves with.
//!
//! A token names one incarnation of one replica of one service and is signed with a secret of the data
//! directory, so it needs no storage and cannot be made up or bent to another replica. A job's is another
//! than its worker's: it must not say of itself that it is ready, or that it ended and its ports are free.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use hmac::{Hmac, KeyInit, Mac};
use portreeve::identity::{Incarnation, ServiceId, ServiceName};
use sha2::Sha256;

/// The secret that signs replica tokens.
pub(crate) struct TokenKey(Hmac<Sha256>);

/// What a token speaks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReplicaToken {
    pub(crate) service: ServiceName,
    /// Never used again, so that a token dies with its service and not only with its name.
    pub(crate) service_id: ServiceId,
    pub(crate) index: u32,
    pub(crate) incarnation: Incarnation,
}

/// Who has a token, and so what it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bearer {
    /// Tells the state of its incarnation.
    Worker,
    /// Reads as its owner.
    Job,
}

impl Bearer {
    /// Begins the token; the number is its form.
    const fn prefix(self) -> &'static str {
        match self {
            Self::Worker => "pr1.",
            Self::Job => "pj1.",
        }
    }

    /// Begins what is signed: no claim begins so, since a service's name holds a dot and no slash.
    const fn signed(self) -> &'static str {
        match self {
            Self::Worker => "",
            Self::Job => "job/",
        }
    }
}

impl TokenKey {
    pub(crate) const LENGTH: usize = 32;
    /// The file's name in the data directory.
    pub(crate) const FILE: &str = "secret";
    /// The longest text that is looked at.
    const MAX_TEXT: usize = 512;

    /// Reads `folder/secret`, making it (0600) from the system's randomness if it is not there.
    pub(crate) fn of(folder: &Path) -> Result<Self, KeyError> {
        if !Self::is_in(folder) {
            let mut secret = [0; Self::LENGTH];
            getrandom::fill(&mut secret).map_err(|cause| KeyError {
                path: folder.join(Self::FILE),
                reason: cause.to_string(),
            })?;
            Self::put(folder, &secret)?;
        }
        Self::bytes_of(folder).map(|secret| Self::from_bytes(&secret))
    }

    /// Whether `folder` has a secret, or something in its place.
    pub(crate) fn is_in(folder: &Path) -> bool {
        std::fs::symlink_metadata(folder.join(Self::FILE)).is_ok()
    }

    /// The secret itself, for a backup that shall have it.
    pub(crate) fn bytes_of(folder: &Path) -> Result<[u8; Self::LENGTH], KeyError> {
        let path = folder.join(Self::FILE);
        let bytes = read(&path).map_err(|cause| KeyError::io(&path, &cause))?;
        <[u8; Self::LENGTH]>::try_from(bytes.as_slice()).map_err(|_| KeyError {
            reason: format!("it has {} bytes, not {}", bytes.len(), Self::LENGTH),
            path,
        })
    }

    /// Leaves this secret in `folder` (0600).
    pub(crate) fn put(folder: &Path, secret: &[u8; Self::LENGTH]) -> Result<(), KeyError> {
        let path = folder.join(Self::FILE);
        put(folder, &path, secret).map_err(|cause| KeyError::io(&path, &cause))
    }

    fn from_bytes(secret: &[u8; Self::LENGTH]) -> Self {
        Self(Hmac::new_from_slice(secret).expect("HMAC takes a key of any length"))
    }

    /// The token of one incarnation.
    pub(crate) fn sign(&self, token: &ReplicaToken, bearer: Bearer) -> String {
        let claim = token.to_string();
        let mac = self.mac(&claim, bearer).finalize().into_bytes();
        let mut text = format!("{}{claim}.", bearer.prefix());
        for byte in mac {
            text.push_str(&format!("{byte:02x}"));
        }
        text
    }

    /// What `text` speaks for; `None` if we did not sign it. Takes the same time for every wrong signature.
    pub(crate) fn verify(&self, text: &str) -> Option<(ReplicaToken, Bearer)> {
        if text.len() > Self::MAX_TEXT {
            return None;
        }
        let (bearer, rest) = [Bearer::Worker, Bearer::Job]
            .into_iter()
            .find_map(|bearer| Some((bearer, text.strip_prefix(bearer.prefix())?)))?;
        let (claim, mac) = rest.rsplit_once('.')?;
        let mac = from_hex(mac)?;
        self.mac(claim, bearer).verify_slice(&mac).ok()?;
        Some((parse(claim)?, bearer))
    }

    /// Reads the text as a token, and as what a token claims: what is accepted of a claim is signed, and the token speaks
    /// for just that.
    #[cfg(fuzzing)]
    pub(crate) fn read_and_signed(text: &str) -> Option<String> {
        let key = Self::from_bytes(&[7; Self::LENGTH]);
        assert!(key.verify(text).is_none(), "nobody signed it: {text:?}");
        let token = parse(text)?;
        let signed = key.sign(&token, Bearer::Job);
        if signed.len() <= Self::MAX_TEXT {
            assert_eq!(key.verify(&signed), Some((token, Bearer::Job)));
        }
        Some(signed)
    }

    fn mac(&self, claim: &str, bearer: Bearer) -> Hmac<Sha256> {
        let begun = self.0.clone().chain_update(bearer.signed());
        begun.chain_update(claim)
    }
}

impl fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenKey(..)")
    }
}

impl fmt::Display for ReplicaToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            service,
            service_id,
            index,
            incarnation,
        } = self;
        write!(f, "{service}/{service_id}/{index}/{incarnation}")
    }
}

fn parse(claim: &str) -> Option<ReplicaToken> {
    let mut parts = claim.split('/');
    let token = ReplicaToken {
        service: parts.next()?.parse().ok()?,
        service_id: ServiceId(parts.next()?.parse().ok()?),
        index: parts.next()?.parse().ok()?,
        incarnation: Incarnation(parts.next()?.parse().ok()?),
    };
    parts.next().is_none().then_some(token)
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text
        .chars()
        .map(|digit| u8::try_from(digit.to_digit(16)?).ok())
        .collect();
    let (pairs, rest) = digits.as_ref()?.as_chunks::<2>();
    rest.is_empty()
        .then(|| pairs.iter().map(|[high, low]| high << 4 | low).collect())
}

fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let file = File::open(path)?;
    if file.metadata()?.mode() & 0o077 != 0 {
        let reason = "others may read it: chmod 600, or remove it and restart every service";
        return Err(std::io::Error::new(ErrorKind::PermissionDenied, reason));
    }
    let mut bytes = Vec::new();
    file.take(1024).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn put(folder: &Path, path: &Path, secret: &[u8]) -> std::io::Result<()> {
    // Under another name first: a crash must not leave half a secret. What one left is made anew, not written into: it
    // may be a link, or open to others.
    let begun = folder.join("secret.new");
    match std::fs::remove_file(&begun) {
        Err(cause) if cause.kind() != ErrorKind::NotFound => return Err(cause),
        _ => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&begun)?;
    file.write_all(secret)?;
    file.sync_all()?;
    std::fs::rename(&begun, path)?;
    File::open(folder)?.sync_all()
}

/// Why the secret could not be read or made.
#[derive(Debug)]
pub(crate) struct KeyError {
    pub(crate) path: PathBuf,
    pub(crate) reason: String,
}

impl KeyError {
    fn io(path: &Path, cause: &std::io::Error) -> Self {
        Self {
            path: path.to_owned(),
            reason: cause.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn token() -> ReplicaToken {
        ReplicaToken {
            service: "web.alice.b@site".parse().unwrap(),
            service_id: ServiceId(7),
            index: 3,
            incarnation: Incarnation(2),
        }
    }

    #[test]
    fn a_signed_token_speaks_for_its_incarnation_and_no_other() {
        let key = TokenKey::from_bytes(&[1; 32]);
        for bearer in [Bearer::Worker, Bearer::Job] {
            let text = key.sign(&token(), bearer);
            assert_eq!(key.verify(&text), Some((token(), bearer)));
            assert_eq!(TokenKey::from_bytes(&[2; 32]).verify(&text), None);
        }
        let text = key.sign(&token(), Bearer::Job);
        for bent in [
            text.replacen("/3/", "/4/", 1),
            text.replacen("/7/", "/8/", 1),
            text.replacen("alice", "bob", 1),
            text.replacen("pj1.", "pj2.", 1),
            text.replacen("pj1.", "pr1.", 1),
            text.replacen("pj1.", "pr1.job/", 1),
            text[..text.len() - 2].to_owned(),
            format!("{text}0"),
            String::new(),
            "pr1..".to_owned(),
        ] {
            assert_eq!(key.verify(&bent), None, "{bent}");
        }
    }

    #[test]
    fn the_secret_is_made_once_and_kept_from_others() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let made = TokenKey::of(folder.path()).unwrap();
        let text = made.sign(&token(), Bearer::Job);
        let again = TokenKey::of(folder.path()).unwrap();
        assert_eq!(again.verify(&text), Some((token(), Bearer::Job)));
        let path = folder.path().join("secret");
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(
            TokenKey::of(folder.path())
                .unwrap_err()
                .reason
                .contains("chmod")
        );
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "short").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert!(TokenKey::of(folder.path()).is_err());
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in "(p[rj]1\\.)?[ -~äé/.]{0,90}") {
            prop_assert_eq!(TokenKey::from_bytes(&[1; 32]).verify(&text), None);
        }
    }
}
