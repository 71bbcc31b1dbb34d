//! Exit codes, documented and tested: scripts tell outcomes apart by them.

use std::fmt;
use std::process::ExitCode;

use portreeve_api::ClientError;
use portreeve_api::tls::TlsFault;

use crate::look::Mark;
use crate::output::tell;

/// Why a command ended without success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    /// It failed, or what it waited for ended.
    Failure = 1,
    /// The words of the command are off.
    Usage = 2,
    /// The service is known, but no replica is ready.
    NoneReady = 3,
    /// No such service, replica or host, or not visible.
    NoSuchService = 4,
    /// Not authenticated, or not allowed.
    NotAllowed = 5,
    /// No controller answers.
    Unreachable = 6,
    /// It took too long.
    Timeout = 7,
    /// The hosts have not confirmed it since the controller started, and only what is fresh was wished.
    Stale = 8,
}

/// What a command leaves behind when it does not succeed: a code and one message.
#[derive(Debug)]
pub(crate) struct Failure {
    code: Code,
    message: String,
    /// The service that is not there, where that is why.
    missing: Option<String>,
}

impl Failure {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            missing: None,
        }
    }

    /// The service of this name is not there, or not visible.
    pub(crate) fn missing(service: &str, message: impl Into<String>) -> Self {
        Self {
            missing: Some(service.to_owned()),
            ..Self::new(Code::NoSuchService, message)
        }
    }

    /// The service is there, and has no such replica.
    pub(crate) fn no_such_replica(service: &str, index: u32) -> Self {
        let message =
            format!("{service} has no replica {index}; `portreeve service {service}` lists them");
        Self::new(Code::NoSuchService, message)
    }

    /// The service that is not there, where that is why.
    pub(crate) fn missing_service(&self) -> Option<&str> {
        self.missing.as_deref()
    }

    /// The same with a hint behind its message.
    pub(crate) fn with_hint(mut self, hint: &str) -> Self {
        self.message.push_str("; ");
        self.message.push_str(hint);
        self
    }

    /// A plain failure.
    pub(crate) fn plain(message: impl fmt::Display) -> Self {
        Self::new(Code::Failure, message.to_string())
    }

    /// Why it ended.
    pub(crate) const fn code(&self) -> Code {
        self.code
    }

    /// Says the message on standard error and gives the code to the shell.
    pub(crate) fn report(&self) -> ExitCode {
        if !self.message.is_empty() {
            // The code counts even where nobody can read the words.
            tell!("{} {}", Mark::Bad.around("portreeve:"), self.message);
        }
        ExitCode::from(self.code as u8)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let code = match &error {
            ClientError::Unreachable { .. } => Code::Unreachable,
            ClientError::Timeout { .. } => Code::Timeout,
            ClientError::TokenInClear { .. }
            | ClientError::Tls {
                fault: TlsFault::CertificateWanted | TlsFault::CertificateRefused { .. },
                ..
            } => Code::NotAllowed,
            ClientError::Tls { .. } => Code::Unreachable,
            ClientError::Refused(problem) => match problem.status {
                401 | 403 => Code::NotAllowed,
                404 => Code::NoSuchService,
                _ => Code::Failure,
            },
            _ => Code::Failure,
        };
        let hint = if matches!(error, ClientError::Unreachable { .. }) {
            "; start one with `portreeve dev PROFILE` or `portreeve controller`, or name it with --controller"
        } else {
            ""
        };
        let missing = match &error {
            ClientError::Refused(problem) if problem.code == "service_not_found" => {
                let service = problem.more.get("service").and_then(|it| it.as_str());
                service.map(str::to_owned)
            }
            _ => None,
        };
        Self {
            missing,
            ..Self::new(code, format!("{error}{hint}"))
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::plain(error)
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        // The whole chain of causes on one line.
        Self::plain(format!("{error:#}"))
    }
}
