//! Requests of others, passed to the controller under a token of one's own.

use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue, Request, Response, Uri, Version};
use hyper::body::{Body, Frame, SizeHint};

use crate::client::{Client, ClientError, ON_BEHALF_HEADER};
use crate::flow::Flow;

/// What says who asks. Whoever passes a request on says that in its place.
static IDENTITY: [HeaderName; 4] = [
    header::AUTHORIZATION,
    HeaderName::from_static(ON_BEHALF_HEADER),
    HeaderName::from_static("x-consul-token"),
    HeaderName::from_static("x-nomad-token"),
];

/// What is of one connection and not of the next (RFC 9110, 7.6.1); lengths are told anew from the body itself.
static OF_A_CONNECTION: [HeaderName; 9] = [
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::EXPECT,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
];

impl Client {
    /// Asks what somebody else asked, as the bearer of this client's token and for the account `uid` of this machine.
    /// Nothing that the request says of who asks is left in it. `None`: it names no path, or this client bears no token.
    ///
    /// There is no bound on how long the answer may take: dropping the call ends the question.
    ///
    /// # Errors
    ///
    /// See [`ClientError`]; a refusal is an answer like others.
    pub async fn pass<B>(
        &self,
        uid: u32,
        request: Request<B>,
    ) -> Option<Result<Response<Passed>, ClientError>>
    where
        B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
    {
        let request = passed_on(&self.token()?, uid, request)?;
        let flow = Flow::begin(self, request).await;
        Some(flow.map(|mut flow| {
            let mut response = Response::new(());
            *response.status_mut() = flow.status;
            *response.headers_mut() = std::mem::take(&mut flow.headers);
            strip_named_by_connection(response.headers_mut());
            // The length stays: an answer to HEAD has it without a body.
            for name in OF_A_CONNECTION
                .iter()
                .filter(|it| *it != header::CONTENT_LENGTH)
            {
                response.headers_mut().remove(name);
            }
            response.map(|()| Passed(flow))
        }))
    }
}

/// The request as it goes on: the path, method, body and plain headers of whoever asked, and of identity only what is
/// said here.
pub(crate) fn passed_on<B>(token: &str, uid: u32, request: Request<B>) -> Option<Request<B>> {
    let mut bearer = HeaderValue::try_from(format!("Bearer {token}")).ok()?;
    bearer.set_sensitive(true);
    let (mut parts, body) = request.into_parts();
    let path = parts.uri.path_and_query()?.clone();
    parts.uri = Uri::from(path);
    parts.version = Version::HTTP_11;
    // Another request may come, but not over this connection.
    strip_named_by_connection(&mut parts.headers);
    for name in IDENTITY.iter().chain(&OF_A_CONNECTION) {
        parts.headers.remove(name);
    }
    parts.headers.insert(header::AUTHORIZATION, bearer);
    parts
        .headers
        .insert(ON_BEHALF_HEADER, HeaderValue::from(uid));
    let host = HeaderValue::from_static("portreeve");
    parts.headers.insert(header::HOST, host);
    Some(Request::from_parts(parts, body))
}

/// Headers that `Connection` names are of that connection too.
fn strip_named_by_connection(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named {
        headers.remove(name);
    }
}

/// The body of an answer on its way through. Dropped, its connection to the controller is closed.
pub struct Passed(Flow);

impl Body for Passed {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut self.0).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}
