//! Everybody at every route in every form, against one table of what they may.
//!
//! The routes and their forms are those of the description, which another test holds against what is routed: a route
//! that nobody wrote a row for fails here. What is hidden is looked for in every byte of every answer.

mod ask;
mod beside;
mod hidden;
mod secrets;
mod table;
mod watches;
mod who;
mod world;

use std::collections::{BTreeMap, BTreeSet};

use ask::{Answer, forms};
use table::{Class, Row, expected, rows};
use world::{LOGS, MARKER, World};

/// Each row belongs to a route, each route with each of its methods has a row.
#[test]
fn every_route_has_a_row_and_every_row_a_route() {
    let document = crate::rest::openapi::document();
    let mut routed = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            routed.insert(format!("{} {path}", method.to_uppercase()));
        }
    }
    let rows: Vec<_> = rows().iter().map(Row::to_string).collect();
    let told: BTreeSet<_> = rows.iter().cloned().collect();
    assert_eq!(told.len(), rows.len(), "a route has two rows");
    assert_eq!(told, routed);
}

/// The whole matrix: what everybody is answered, and that none of it tells what is hidden from them.
#[tokio::test]
async fn everybody_is_answered_as_the_table_says_and_told_nothing_that_is_hidden() {
    let world = World::start().await;
    let mut cells = 0;
    let mut counts = BTreeMap::new();
    let mut wrong = Vec::new();
    for row in rows() {
        for form in forms(&row) {
            for who in &world.people {
                world.make_ready(&row).await;
                let ask = world.concrete(&row, &form);
                let answer = world.ask(who, &ask).await;
                let expected = expected(who.name, row.room);
                let cell = format!("{} {row} as {}", who.name, form.name);
                cells += 1;
                *counts.entry(expected).or_insert(0) += 1;
                if let Err(why) = fits(&answer, expected, &row, form.is_stream) {
                    wrong.push(format!("{cell}: {why}"));
                }
                if let Some(told) = leaks(&world, who, &row, &answer, expected) {
                    wrong.push(format!("{cell}: tells {told}"));
                }
                world.settle(&row, &answer).await;
            }
        }
    }
    println!(
        "matrix: {} identities, {} routes and methods, {cells} cells: {counts:?}",
        world.people.len(),
        rows().len()
    );
    assert!(
        wrong.is_empty(),
        "{} cells:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// Whether the answer is of this class.
fn fits(answer: &Answer, expected: Class, row: &Row, is_stream: bool) -> Result<(), String> {
    let fits = match expected {
        Class::Served => answer.is_success() || row.good.contains(&answer.status),
        // A stream over what is not there, or hidden, is held.
        Class::Hidden if is_stream => answer.is_success(),
        Class::Hidden => answer.is_refusal(404, &["service_not_found", "token_not_found"]),
        Class::Unknown => answer.is_refusal(401, &["unauthenticated"]),
        Class::Expired => answer.is_refusal(401, &["token_expired"]),
        Class::Forbidden => answer.is_refusal(403, &["not_allowed"]),
    };
    if fits {
        return Ok(());
    }
    Err(format!("{expected:?} was expected, not {}", answer.brief()))
}

/// What the answer tells that it should not, if anything.
fn leaks(
    world: &World,
    who: &who::Who,
    row: &Row,
    answer: &Answer,
    expected: Class,
) -> Option<String> {
    let text = answer.text();
    let secret = world.secrets().find(|secret| text.contains(*secret));
    // Whoever asks for a token is told it; an agent gets those of the replicas of its host.
    if let Some(secret) = secret {
        return Some(format!("the secret {secret}"));
    }
    let sees = table::expected(who.name, "see") == Class::Served;
    let reads = table::expected(who.name, "logs") == Class::Served;
    // A backup is for admins, and has everything.
    let is_whole = row.room == "backup" && expected == Class::Served;
    if !sees && !is_whole {
        // The name that was asked for is the asker's word.
        let told = text.replace(world::HIDDEN, "");
        let told = told.replace("into the namespace zqxalice;", "");
        if let Some(at) = told.find(MARKER) {
            return Some(around(&told, at));
        }
    }
    if !reads
        && !is_whole
        && let Some(at) = text.find(LOGS)
    {
        return Some(around(&text, at));
    }
    None
}

fn around(text: &str, at: usize) -> String {
    let begin = (0..=at.saturating_sub(60))
        .rev()
        .find(|at| text.is_char_boundary(*at));
    text[begin.unwrap_or(0)..].chars().take(140).collect()
}
