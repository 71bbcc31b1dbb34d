//! Refusals as the wire shows them: always `application/problem+json`.

use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue, StatusCode, header};
use portreeve::commit::Unheard;
use portreeve::identity::ServiceName;
use portreeve::registry::Refusal;
use portreeve_api::Problem;

use crate::queue::Unacknowledged;

/// A request that is not served, and why.
#[derive(Debug)]
pub(crate) struct Refused {
    problem: Box<Problem>,
    header: Option<(HeaderName, HeaderValue)>,
}

impl Refused {
    pub(crate) fn new(status: StatusCode, code: &str, detail: impl Into<String>) -> Self {
        Self {
            problem: Box::new(Problem::new(status, code, detail)),
            header: None,
        }
    }

    /// The same with one more member.
    pub(crate) fn with(mut self, name: &str, value: impl Into<serde_json::Value>) -> Self {
        *self.problem = self.problem.with(name, value);
        self
    }

    fn with_header(mut self, name: HeaderName, value: &'static str) -> Self {
        self.header = Some((name, HeaderValue::from_static(value)));
        self
    }

    /// A query parameter that is wrong.
    pub(crate) fn parameter(name: &str, reason: impl std::fmt::Display) -> Self {
        let detail = format!("parameter {name:?}: {reason}");
        Self::new(StatusCode::BAD_REQUEST, "bad_parameter", detail).with("parameter", name)
    }

    /// A header that is wrong.
    pub(crate) fn header(name: &str, reason: impl std::fmt::Display) -> Self {
        let detail = format!("header {name}: {reason}");
        Self::new(StatusCode::BAD_REQUEST, "bad_header", detail).with("header", name)
    }

    /// A part of the path that is no name.
    pub(crate) fn name(reason: impl std::fmt::Display) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_name", reason.to_string())
    }

    /// A body that is not what the route takes.
    pub(crate) fn body(reason: impl std::fmt::Display) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_body", reason.to_string())
    }

    /// Unknown and hidden: the same answer, so that it tells nothing.
    pub(crate) fn no_such_service(service: &ServiceName) -> Self {
        let refusal = Refusal::NoSuchService {
            service: service.clone(),
        };
        Self::new(
            StatusCode::NOT_FOUND,
            "service_not_found",
            refusal.to_string(),
        )
        .with("service", service.to_string())
    }

    /// Nobody known asks.
    pub(crate) fn unauthenticated(detail: impl Into<String>) -> Self {
        Self::unauthenticated_as("unauthenticated", detail)
    }

    /// Nobody known asks, for this reason.
    pub(crate) fn unauthenticated_as(code: &str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, code, detail)
            .with_header(header::WWW_AUTHENTICATE, "Bearer realm=\"portreeve\"")
    }

    /// Its stable word.
    pub(crate) fn code(&self) -> &str {
        &self.problem.code
    }

    /// Whether it is that nobody known asks.
    pub(crate) fn is_unauthenticated(&self) -> bool {
        self.problem.status == StatusCode::UNAUTHORIZED.as_u16()
    }

    /// Somebody known asks for what is not theirs to ask.
    pub(crate) fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "not_allowed", detail)
    }

    /// Something that will pass; ask again.
    pub(crate) fn unavailable(code: &str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, code, detail)
            .with_header(header::RETRY_AFTER, "1")
    }

    /// The asker has as many of something as it may have.
    pub(crate) fn too_many(code: &str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, code, detail).with_header(header::RETRY_AFTER, "1")
    }

    /// An answer that could not be written, which is an error of ours.
    pub(crate) fn broken(cause: &impl std::fmt::Display) -> Self {
        let detail =
            format!("the answer could not be written: {cause}; nothing was changed by that");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", detail)
    }

    /// The controller is going down.
    pub(crate) fn stopping() -> Self {
        Self::unavailable("stopping", "the controller is going down; ask again")
    }
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        let detail = refusal.to_string();
        match refusal {
            Refusal::NoSuchService { service } => Self::no_such_service(&service),
            Refusal::NoSuchReplica { service, index } => {
                Self::new(StatusCode::NOT_FOUND, "replica_not_found", detail)
                    .with("service", service.to_string())
                    .with("replica", index)
            }
            Refusal::NotAllowed { service, .. } => {
                Self::forbidden(detail).with("service", service.to_string())
            }
            Refusal::Differs { service, .. } => {
                Self::new(StatusCode::CONFLICT, "profile_differs", detail)
                    .with("service", service.to_string())
            }
            Refusal::StillRunning { service, live } => {
                Self::new(StatusCode::CONFLICT, "still_running", detail)
                    .with("service", service.to_string())
                    .with("live", live)
            }
            Refusal::Unfit { service, .. } => Self::new(StatusCode::CONFLICT, "unfit", detail)
                .with("service", service.to_string()),
            Refusal::Taken { service, index, .. } => {
                Self::new(StatusCode::CONFLICT, Problem::REPLICA_TAKEN, detail)
                    .with("service", service.to_string())
                    .with("replica", index)
            }
            Refusal::NoRoom { service, .. } => {
                Self::new(StatusCode::CONFLICT, Problem::NO_PORT, detail)
                    .with("service", service.to_string())
            }
            Refusal::NoSuchHost { host } => {
                Self::new(StatusCode::NOT_FOUND, "host_not_found", detail)
                    .with("host", host.to_string())
            }
            Refusal::OperatorsOnly { host, .. } => {
                Self::forbidden(detail).with("host", host.to_string())
            }
            Refusal::HostUnfit { host, .. } => {
                Self::new(StatusCode::CONFLICT, "host_unfit", detail).with("host", host.to_string())
            }
            Refusal::Changed { service, tag } => {
                let tag = tag.map(|tag| format!("\"s-{tag}\""));
                Self::new(StatusCode::PRECONDITION_FAILED, "changed", detail)
                    .with("service", service.to_string())
                    .with("tag", tag)
            }
            Refusal::BeyondLimit { service, limit } => {
                Self::new(StatusCode::CONFLICT, "beyond_limit", detail)
                    .with("service", service.to_string())
                    .with("whose", limit.whose.to_string())
                    .with("most", limit.most)
                    .with("asks", limit.asks)
            }
            Refusal::ViewersChangeNothing { .. } | Refusal::TokenNotAllowed { .. } => {
                Self::forbidden(detail)
            }
            Refusal::NoSuchToken { id } => {
                Self::new(StatusCode::NOT_FOUND, "token_not_found", detail)
                    .with("token", id.to_string())
            }
            Refusal::TooManyTokens { most, .. } => {
                Self::new(StatusCode::CONFLICT, "too_many_tokens", detail).with("most", most)
            }
            Refusal::TokenOver { at, now } => super::identity::expired(at, now),
            Refusal::TokenUsedUp { .. } => Self::new(StatusCode::CONFLICT, "token_used_up", detail),
            Refusal::HostJoined { host } => Self::new(StatusCode::CONFLICT, "host_joined", detail)
                .with("host", host.to_string()),
            Refusal::NotStored { .. } => Self::unavailable("not_stored", detail),
            _ => Self::new(StatusCode::CONFLICT, "refused", detail),
        }
    }
}

impl From<Unheard> for Refused {
    fn from(cause: Unheard) -> Self {
        let status = StatusCode::from_u16(cause.http_status())
            .expect("the core names statuses that HTTP has");
        let detail = cause.to_string();
        match cause {
            Unheard::SeatTaken { taken, address } => Self::new(status, "host_taken", detail)
                .with("host", taken.host.to_string())
                .with("address", address.map(|address| address.to_string()))
                .with("machine", taken.holder.machine)
                .with("for_ms", taken.for_ms)
                .with("silent_ms", taken.silent_ms),
            Unheard::UnknownReplica(_) => Self::new(status, "replica_not_found", detail),
            _ => Self::new(status, "bad_body", detail),
        }
    }
}

impl From<Refused> for Box<Problem> {
    fn from(refused: Refused) -> Self {
        refused.problem
    }
}

impl From<Unacknowledged> for Refused {
    fn from(cause: Unacknowledged) -> Self {
        match cause {
            Unacknowledged::NotStored(reason) => Self::unavailable(
                "not_stored",
                format!("the store refused the change: {reason}; send it again"),
            ),
            Unacknowledged::Stopping => Self::stopping(),
        }
    }
}

impl IntoResponse for Refused {
    /// The status and the headers; the envelope of all answers writes the problem, with the request's number.
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.problem.status)
            .expect("a problem is made from a status code");
        let headers = [
            (header::CONTENT_TYPE, Problem::MEDIA_TYPE),
            (header::CACHE_CONTROL, "no-store"),
        ];
        let mut response = (status, headers).into_response();
        response.extensions_mut().insert(self.problem);
        if let Some((name, value)) = self.header {
            response.headers_mut().insert(name, value);
        }
        response
    }
}
