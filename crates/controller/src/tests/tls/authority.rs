//! Certificates for the tests: CAs, and what they sign.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use portreeve_api::tls::OwnCertificate;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd,
};

use crate::ServerTls;

/// A CA whose own certificate lies in a folder.
pub(super) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: PathBuf,
    name: String,
}

impl Authority {
    pub(super) fn new(folder: &Path, name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let issuer = CertifiedIssuer::self_signed(params, key).unwrap();
        let authority = Self {
            issuer,
            folder: folder.to_owned(),
            name: name.to_owned(),
        };
        std::fs::write(authority.file(), authority.issuer.pem()).unwrap();
        authority
    }

    /// Its certificate, for those who believe it.
    pub(super) fn file(&self) -> PathBuf {
        self.folder.join(format!("{}.pem", self.name))
    }

    /// A certificate for these names and its key, good until the end of this year.
    pub(super) fn signs(&self, file: &str, names: &[&str], until: i32) -> OwnCertificate {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.not_before = date_time_ymd(2000, 1, 1);
        params.not_after = date_time_ymd(until, 12, 31);
        let key = KeyPair::generate().unwrap();
        let signed = params.signed_by(&key, &self.issuer).unwrap();
        let own = OwnCertificate {
            certificate: self.folder.join(format!("{file}.pem")),
            key: self.folder.join(format!("{file}.key")),
        };
        std::fs::write(&own.certificate, signed.pem()).unwrap();
        std::fs::write(&own.key, key.serialize_pem()).unwrap();
        std::fs::set_permissions(&own.key, Permissions::from_mode(0o600)).unwrap();
        own
    }

    /// What a controller needs to answer at this machine's own addresses.
    pub(super) fn serves(&self, file: &str) -> ServerTls {
        let own = self.signs(file, &["127.0.0.1", "localhost"], 4000);
        ServerTls {
            certificate: own.certificate,
            key: own.key,
            client_ca: None,
        }
    }
}
