//! Tokens are told once, to whom they are for, and stand nowhere else: no log at its finest, no audit log, no store.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::read::GzDecoder;
use http::Method;
use parking_lot::Mutex;
use portreeve_api::paths;
use serde_json::json;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Event, Metadata, Subscriber};

use super::ask::forms;
use super::table::rows;
use super::world::{OWNER, World, made};
use crate::site::request;

/// Everything that is logged, with every field.
#[derive(Clone, Debug, Default)]
struct Heard {
    text: Arc<Mutex<String>>,
    spans: Arc<AtomicU64>,
}

impl Visit for Heard {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let told = format!(" {field}={value:?}");
        self.text.lock().push_str(&told);
    }
}

impl Subscriber for Heard {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        span.record(&mut self.clone());
        Id::from_u64(1 + self.spans.fetch_add(1, Ordering::Relaxed))
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        values.record(&mut self.clone());
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
        self.text.lock().push('\n');
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn no_log_and_nothing_stored_has_a_secret() {
    let heard = Heard::default();
    let dispatch = Dispatch::new(heard.clone());
    let _here = tracing::dispatcher::set_default(&dispatch);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .on_thread_start(move || {
            // For as long as the thread is.
            std::mem::forget(tracing::dispatcher::set_default(&dispatch));
        })
        .build()
        .unwrap();
    runtime.block_on(told_nowhere(&heard));
}

async fn told_nowhere(heard: &Heard) {
    let world = World::start().await;
    let site = &world.site;
    let mut secrets: Vec<String> = world.secrets().map(str::to_owned).collect();
    let secret = |token: &str| token.rsplit('.').next().unwrap().to_owned();
    let made = made(site, OWNER, &json!({"kind": "user"})).await;
    secrets.push(secret(&made.token));
    let rotate = request(Method::POST, &paths::rotate_token(&made.id));
    let renewed: portreeve_api::body::TokenMade = site.as_user(OWNER, rotate).await.json();
    secrets.push(secret(&renewed.token));
    // Each row once by everybody: what is refused is logged too.
    for row in rows() {
        let form = forms(&row).swap_remove(0);
        for who in world.people.iter().filter(|_| !form.is_stream) {
            world.make_ready(&row).await;
            let answer = world.ask(who, &world.concrete(&row, &form)).await;
            world.settle(&row, &answer).await;
        }
    }
    let mut stored = Vec::new();
    for with_secrets in [false, true] {
        let path = paths::backup(with_secrets);
        let backup = site.as_user(0, request(Method::GET, &path)).await;
        GzDecoder::new(&backup.body[..])
            .read_to_end(&mut stored)
            .unwrap();
    }
    stored.extend(std::fs::read(&site.controller.app.store_file).unwrap());
    let audit = site.folder.path().join("audit.log");
    let deadline = std::time::Instant::now() + crate::site::PATIENCE;
    let audited = loop {
        let text = std::fs::read_to_string(&audit).unwrap();
        if text.contains("\"event\":\"change\"") && text.contains("\"event\":\"refusal\"") {
            break text;
        }
        assert!(std::time::Instant::now() < deadline, "{text}");
        tokio::task::yield_now().await;
    };
    let logged = heard.text.lock().clone();
    assert!(logged.contains("tokens changed"), "nothing was heard");
    let stored = String::from_utf8_lossy(&stored);
    assert!(secrets.len() > 15, "{}", secrets.len());
    for secret in &secrets {
        for (place, text) in [
            ("a log", &*logged),
            ("the audit log", &*audited),
            ("the store", &*stored),
        ] {
            let at = text.find(secret.as_str());
            let around = at.map(|at| &text[text.floor_char_boundary(at.saturating_sub(200))..at]);
            assert!(at.is_none(), "{place} has a secret after {around:?}");
        }
    }
    println!(
        "secrets: {} are in none of {} bytes of logs at trace, {} of the audit log, {} stored",
        secrets.len(),
        logged.len(),
        audited.len(),
        stored.len()
    );
}
