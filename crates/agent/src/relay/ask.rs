//! One person's request, and what is answered where the controller does not.

use std::convert::Infallible;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use portreeve::identity::HostName;
use portreeve_api::{Client, Passed, Problem};

use crate::membership::Refusals;

/// The way to the controller.
pub(super) struct Door {
    pub(super) host: HostName,
    pub(super) client: Client,
    pub(super) refusals: Refusals,
}

type Answer = Response<Either<Passed, Full<Bytes>>>;

impl Door {
    /// Asks the controller what the account asks, and gives what it says.
    pub(super) async fn ask(
        &self,
        uid: u32,
        request: Request<Incoming>,
    ) -> Result<Answer, Infallible> {
        if request.uri().path_and_query().is_none() {
            let words = "write the path of what is asked for";
            return Ok(said(StatusCode::BAD_REQUEST, "invalid_request", words));
        }
        let Some(passed) = self.client.pass(uid, request).await else {
            return Ok(self.away("this host has not joined yet; its agent's log says why"));
        };
        Ok(match passed {
            Ok(response) if response.status() == StatusCode::UNAUTHORIZED => {
                // Of the host, not of the person, whom nobody asked for a token.
                self.refusals.tell();
                self.away("the controller does not know this host's token any more; its agent's log says more")
            }
            Ok(response) => response.map(Either::Left),
            Err(cause) => self.away(&cause.to_string()),
        })
    }

    /// What clients take for a controller that does not answer.
    fn away(&self, why: &str) -> Answer {
        let words = format!("the agent of {} asks for you: {why}", self.host);
        said(
            StatusCode::BAD_GATEWAY,
            Problem::CONTROLLER_UNREACHABLE,
            &words,
        )
    }
}

fn said(status: StatusCode, code: &str, words: &str) -> Answer {
    let problem = Problem::new(status, code, words);
    let body = serde_json::to_vec(&problem).expect("plain data is written as JSON");
    let mut response = Response::new(Either::Right(Full::new(body.into())));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static(Problem::MEDIA_TYPE);
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// The whole answer to who is one too many.
pub(super) fn too_many_connections() -> Vec<u8> {
    let words = "the agent asks for as many people at once as it may, of all or of you; ask again";
    let status = StatusCode::SERVICE_UNAVAILABLE;
    let problem = Problem::new(status, "too_many_connections", words);
    let body = serde_json::to_string(&problem).expect("plain data is written as JSON");
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {}\r\ncontent-length: {}\r\nretry-after: 1\r\nconnection: close\r\n\r\n",
        Problem::MEDIA_TYPE,
        body.len()
    );
    (head + &body).into_bytes()
}
