//! Which service a name that is not there was meant to be.

use std::time::Duration;

use portreeve_api::body::ServiceList;
use portreeve_api::{Client, paths};

/// An answer that is only a courtesy may take so long, and look through so many services.
const PATIENCE: Duration = Duration::from_secs(2);
const LOOKED_AT: &str = "1000";

/// The visible service that is most like `asked`, which is not there: its full name, if one is like it at all.
///
/// One question, for those that begin with the same letter. Without an answer there is nothing to say.
pub(crate) async fn meant(client: &Client, asked: &str) -> Option<String> {
    let first = asked.get(..1)?;
    let parameters = [("prefix", first), ("limit", LOOKED_AT)];
    let path = paths::with_parameters(&paths::services(), &parameters);
    let list = client.get::<ServiceList>(&path, PATIENCE).await.ok()?;
    let names = list.services.iter().map(|it| it.service.to_string());
    nearest(asked, names)
}

/// The name of which the least was mistyped: a namespace is forgotten rather than misspelled, so that the same
/// service of somebody else is near.
fn nearest(asked: &str, names: impl Iterator<Item = String>) -> Option<String> {
    let (label, namespace) = halves(asked);
    let near = names.filter_map(|name| {
        let (its_label, its_namespace) = halves(&name);
        let typed = strsim::osa_distance(label, its_label);
        // A third of the letters and one more, as for the words of a profile.
        let near = typed <= 1 + label.len().min(its_label.len()) / 3;
        let elsewhere = namespace != its_namespace;
        near.then_some((typed, elsewhere, name))
    });
    near.min().map(|(_, _, name)| name)
}

fn halves(name: &str) -> (&str, &str) {
    name.split_once('.').unwrap_or((name, ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_like_one_with_few_other_letters_and_first_of_all_ones_own() {
        let there = ["hello.alice", "hello.bob", "help-desk.alice", "web.alice"];
        let near = |asked| nearest(asked, there.iter().map(|it| (*it).to_owned()));
        for (asked, meant) in [
            ("helo.bob", Some("hello.bob")),
            ("hello.carol", Some("hello.alice")),
            ("helpdesk.alice", Some("help-desk.alice")),
            ("helo", Some("hello.alice")),
            ("wbe.alice", Some("web.alice")),
            ("database.alice", None),
            ("", None),
        ] {
            assert_eq!(near(asked).as_deref(), meant, "{asked}");
        }
    }
}
