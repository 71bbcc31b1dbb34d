//! Who may make, renew, revoke and trade tokens, and what is left of them.

use std::time::Duration;

use crate::rights::{Caller, Rights, Role};
use crate::time::WallClock;

use super::rig::{Rig, alice, caller};
use super::{
    Answer, Command, HostVerb, Joining, NewToken, Refusal, SecretHash, Through, Token, TokenBearer,
    TokenId, TokenOrder, TokenVerb,
};

const HOUR: Duration = Duration::from_secs(3600);

fn root() -> Caller {
    caller("root").with_rights(Rights::ADMIN)
}

const fn hash(of: u8) -> SecretHash {
    SecretHash([of; 32])
}

fn user(name: &str, rights: Rights) -> TokenBearer {
    TokenBearer::User {
        user: name.into(),
        uid: Some(1000),
        rights,
    }
}

fn token(id: u64, bearer: TokenBearer, expires: Option<WallClock>) -> TokenVerb {
    TokenVerb::Create(Box::new(NewToken {
        id: TokenId(id),
        hash: hash(1),
        bearer,
        expires,
        label: None,
    }))
}

fn order(
    rig: &mut Rig,
    by: &Caller,
    through: Option<u64>,
    verb: TokenVerb,
) -> Result<Answer, Refusal> {
    // Those of people have this secret here, those of hosts the other.
    let through = through.map(|id| Through::Token {
        id: TokenId(id),
        hash: hash(if (10..20).contains(&id) { 2 } else { 1 }),
    });
    order_through(rig, by, through, verb)
}

fn order_through(
    rig: &mut Rig,
    by: &Caller,
    through: Option<Through>,
    verb: TokenVerb,
) -> Result<Answer, Refusal> {
    rig.ask_as(by, Command::Token(Box::new(TokenOrder { through, verb })))
}

fn made(rig: &mut Rig, by: &Caller, id: u64, bearer: TokenBearer) {
    order(rig, by, None, token(id, bearer, None)).unwrap();
}

fn shown(rig: &Rig) -> Vec<u64> {
    rig.registry.view().tokens.keys().map(|id| id.0).collect()
}

fn of(rig: &Rig, id: u64) -> Token {
    Token::clone(&rig.registry.view().tokens[&TokenId(id)])
}

fn joining(id: u64, host: &str, machine: &str, replace: bool) -> TokenVerb {
    TokenVerb::Join(Box::new(Joining {
        join: TokenId(1),
        join_hash: hash(1),
        id: TokenId(id),
        hash: hash(2),
        host: host.parse().unwrap(),
        machine: machine.into(),
        replace,
    }))
}

fn machine_joins(rig: &mut Rig, verb: TokenVerb) -> Result<Answer, Refusal> {
    let nobody = caller("nobody").with_rights(Rights::VIEWER);
    order(rig, &nobody, None, verb)
}

fn join_token(uses_left: u32) -> TokenBearer {
    TokenBearer::Join {
        uses_left,
        relay: true,
    }
}

#[test]
fn everybody_makes_tokens_for_itself_that_may_no_more_than_it() {
    let mut rig = Rig::new();
    made(&mut rig, &alice(), 1, user("alice", Rights::USER));
    made(&mut rig, &alice(), 2, user("alice", Rights::VIEWER));
    assert_eq!(of(&rig, 1).by, alice().owner());
    let before = rig.everything();
    let viewer = alice().with_rights(Rights::VIEWER);
    for (by, bearer, says) in [
        (alice(), user("bob", Rights::USER), "another account"),
        (alice(), user("alice", Rights::ADMIN), "more than they may"),
        (
            alice(),
            user("alice", Rights::of_role(Role::Operator)),
            "more than they may",
        ),
        (alice(), join_token(1), "for admins"),
        (viewer, user("alice", Rights::VIEWER), "changes nothing"),
        (root(), join_token(0), "1 to 10000"),
        (
            root(),
            TokenBearer::Host {
                host: "n1".parse().unwrap(),
                machine: "m".into(),
                relay: false,
            },
            "when it joins",
        ),
    ] {
        let refused = order(&mut rig, &by, None, token(9, bearer, None)).unwrap_err();
        assert!(refused.to_string().contains(says), "{refused}");
    }
    assert_eq!(rig.everything(), before, "refused means unchanged");
    made(
        &mut rig,
        &root(),
        3,
        user("bob", Rights::of_role(Role::Operator)),
    );
    assert_eq!(shown(&rig), [1, 2, 3]);
}

#[test]
fn a_token_is_shown_once_it_is_durable_and_stays_over_a_restart() {
    let mut rig = Rig::new();
    let (access, revision) = (rig.registry.view().access, rig.registry.revision());
    rig.slow = true;
    let verb = token(1, user("alice", Rights::USER), None);
    let through = None;
    rig.ask_later(
        &alice(),
        Command::Token(Box::new(TokenOrder { through, verb })),
    );
    rig.settle();
    assert!(
        shown(&rig).is_empty(),
        "it would speak for alice after a power loss that forgot it"
    );
    rig.slow = false;
    rig.land();
    assert_eq!(shown(&rig), [1]);
    assert!(rig.registry.view().access > access);
    assert_eq!(
        rig.registry.revision(),
        revision,
        "who lists services learns nothing of it"
    );
    let before = of(&rig, 1);
    let rig = rig.restart();
    assert_eq!(of(&rig, 1), before);
}

#[test]
fn what_a_token_made_never_outlives_it() {
    let mut rig = Rig::new();
    let now = rig.now.wall;
    let soon = Some(now.after(HOUR));
    let own = || user("alice", Rights::USER);
    order(&mut rig, &alice(), None, token(1, own(), soon)).unwrap();
    for expires in [None, Some(now.after(2 * HOUR))] {
        let refused = order(&mut rig, &alice(), Some(1), token(2, own(), expires)).unwrap_err();
        assert!(refused.to_string().contains("outlives"), "{refused}");
    }
    order(&mut rig, &alice(), Some(1), token(2, own(), soon)).unwrap();
    order(&mut rig, &alice(), Some(2), token(3, own(), soon)).unwrap();
    made(&mut rig, &alice(), 4, own());
    // Who found the first cannot take the last for itself, nor end it.
    for verb in [
        TokenVerb::Rotate {
            id: TokenId(4),
            hash: hash(9),
        },
        TokenVerb::Revoke { id: TokenId(4) },
    ] {
        let refused = order(&mut rig, &alice(), Some(1), verb).unwrap_err();
        assert!(refused.to_string().contains("over the socket"), "{refused}");
    }
    let revoke = TokenVerb::Revoke { id: TokenId(1) };
    let answer = order(&mut rig, &alice(), Some(1), revoke).unwrap();
    assert_eq!(
        answer.notes[0],
        "revoked token 0000000000000001, and 2 more that were made through it"
    );
    assert_eq!(shown(&rig), [4]);
    let gone = order(&mut rig, &alice(), Some(1), token(5, own(), soon)).unwrap_err();
    assert!(gone.to_string().contains("is revoked"), "{gone}");
}

#[test]
fn anothers_token_is_as_one_that_is_not_there() {
    let mut rig = Rig::new();
    made(&mut rig, &alice(), 1, user("alice", Rights::USER));
    let bob = caller("bob");
    for id in [1, 2] {
        let id = TokenId(id);
        let hash = hash(9);
        for verb in [TokenVerb::Revoke { id }, TokenVerb::Rotate { id, hash }] {
            let refused = order(&mut rig, &bob, None, verb);
            assert_eq!(refused, Err(Refusal::NoSuchToken { id }));
        }
    }
    let revoke = TokenVerb::Revoke { id: TokenId(1) };
    order(&mut rig, &root(), None, revoke).unwrap();
    assert!(shown(&rig).is_empty());
}

#[test]
fn a_renewed_token_has_another_secret_and_no_more_rights() {
    let mut rig = Rig::new();
    let operator = alice().with_rights(Rights::of_role(Role::Operator));
    made(
        &mut rig,
        &operator,
        1,
        user("alice", operator.rights.clone()),
    );
    let rotate = |of| TokenVerb::Rotate {
        id: TokenId(1),
        hash: hash(of),
    };
    let refused = order(&mut rig, &alice(), None, rotate(7)).unwrap_err();
    assert!(
        refused.to_string().contains("more than they may now"),
        "{refused}"
    );
    order(&mut rig, &operator, None, rotate(8)).unwrap();
    assert_eq!(of(&rig, 1).hash, hash(8));
}

#[test]
fn who_found_a_token_keeps_nothing_of_it_once_it_is_renewed() {
    // A token was read by somebody, who made another with it; its owner renewed it, and the other one lived on.
    let mut rig = Rig::new();
    let own = || user("alice", Rights::USER);
    made(&mut rig, &alice(), 1, own());
    order(&mut rig, &alice(), Some(1), token(2, own(), None)).unwrap();
    order(&mut rig, &alice(), Some(2), token(3, own(), None)).unwrap();
    made(&mut rig, &alice(), 4, own());
    let rotate = |id, of| TokenVerb::Rotate {
        id: TokenId(id),
        hash: hash(of),
    };
    let answer = order(&mut rig, &alice(), None, rotate(1, 8)).unwrap();
    assert!(answer.notes[0].ends_with("nor are 2 more that were made through it"));
    assert_eq!(shown(&rig), [1, 4]);
    // Nor does a request that began before: it shows the former secret.
    let before = rig.everything();
    for verb in [
        token(5, own(), None),
        rotate(1, 9),
        TokenVerb::Revoke { id: TokenId(1) },
    ] {
        let refused = order(&mut rig, &alice(), Some(1), verb).unwrap_err();
        assert!(refused.to_string().contains("is revoked"), "{refused}");
    }
    assert_eq!(rig.everything(), before);
}

#[test]
fn what_a_host_has_made_for_its_people_goes_with_the_host() {
    let mut rig = Rig::new();
    let own = || user("alice", Rights::USER);
    made(&mut rig, &root(), 1, join_token(5));
    made(&mut rig, &alice(), 3, own());
    rig.join("n1");
    machine_joins(&mut rig, joining(11, "n1", "m1", false)).unwrap();
    order(&mut rig, &alice(), Some(11), token(4, own(), None)).unwrap();
    // What was made elsewhere does not become the host's: renewed there, it would know the secret.
    let rotate = |id| TokenVerb::Rotate {
        id: TokenId(id),
        hash: hash(1),
    };
    let refused = order(&mut rig, &alice(), Some(11), rotate(3)).unwrap_err();
    assert!(refused.to_string().contains("over the socket"), "{refused}");
    order(&mut rig, &alice(), Some(11), rotate(4)).unwrap();
    // The same machine joins anew: nothing changes for its people.
    machine_joins(&mut rig, joining(12, "n1", "m1", false)).unwrap();
    assert_eq!(of(&rig, 4).parent, Some(TokenId(12)));
    order(&mut rig, &alice(), Some(12), rotate(4)).unwrap();
    // Ending one's own is always right.
    let revoke = |id| TokenVerb::Revoke { id: TokenId(id) };
    order(&mut rig, &alice(), Some(12), revoke(3)).unwrap();
    let mut taken = rig.restart();
    machine_joins(&mut taken, joining(13, "n1", "m2", true)).unwrap();
    assert_eq!(shown(&taken), [1, 13], "another machine is another host");
    order(&mut taken, &alice(), Some(13), token(5, own(), None)).unwrap();
    taken.pass(Duration::from_secs(60));
    let host = "n1".parse().unwrap();
    let verb = HostVerb::Remove;
    taken.ask_as(&root(), Command::Host { host, verb }).unwrap();
    assert_eq!(shown(&taken), [1]);
}

#[test]
fn a_token_of_the_issuer_makes_none_that_outlives_it() {
    let mut rig = Rig::new();
    let now = rig.now.wall;
    let own = || user("alice", Rights::USER);
    let until = now.after(HOUR);
    let with = Some(Through::Issued { until });
    for expires in [None, Some(now.after(2 * HOUR))] {
        let refused = order_through(&mut rig, &alice(), with, token(2, own(), expires));
        let refused = refused.unwrap_err();
        assert!(refused.to_string().contains("outlives"), "{refused}");
    }
    made(&mut rig, &alice(), 3, own());
    order_through(&mut rig, &alice(), with, token(4, own(), Some(until))).unwrap();
    let rotate = |id| TokenVerb::Rotate {
        id: TokenId(id),
        hash: hash(9),
    };
    assert!(order_through(&mut rig, &alice(), with, rotate(3)).is_err());
    order_through(&mut rig, &alice(), with, rotate(4)).unwrap();
    let revoke = TokenVerb::Revoke { id: TokenId(3) };
    order_through(&mut rig, &alice(), with, revoke).unwrap();
    assert_eq!(shown(&rig), [4]);
}

#[test]
fn a_used_up_token_takes_no_host_by_the_number_of_its_machine() {
    // The number stands in a file that everybody on the machine reads.
    let mut rig = Rig::new();
    made(&mut rig, &root(), 1, join_token(1));
    machine_joins(&mut rig, joining(11, "n1", "m1", false)).unwrap();
    rig.pass(HOUR);
    let refused = machine_joins(&mut rig, joining(12, "n1", "m1", false)).unwrap_err();
    assert!(matches!(refused, Refusal::TokenUsedUp { .. }), "{refused}");
    assert_eq!(shown(&rig), [1, 11]);
}

#[test]
fn a_viewer_may_end_what_speaks_for_it() {
    let mut rig = Rig::new();
    made(&mut rig, &root(), 1, user("alice", Rights::VIEWER));
    let viewer = alice().with_rights(Rights::VIEWER);
    let id = TokenId(1);
    order(&mut rig, &viewer, Some(1), TokenVerb::Revoke { id }).unwrap();
    assert!(shown(&rig).is_empty());
}

#[test]
fn a_machine_trades_a_token_to_join_for_its_own() {
    let mut rig = Rig::new();
    made(&mut rig, &root(), 1, join_token(2));
    machine_joins(&mut rig, joining(11, "n1", "m1", false)).unwrap();
    // The answer was lost.
    machine_joins(&mut rig, joining(12, "n1", "m1", false)).unwrap();
    assert_eq!(shown(&rig), [1, 12], "one machine has one token");
    let taken = machine_joins(&mut rig, joining(13, "n1", "m2", false)).unwrap_err();
    assert!(taken.to_string().contains("--replace"), "{taken}");
    machine_joins(&mut rig, joining(14, "n1", "m2", true)).unwrap();
    assert_eq!(shown(&rig), [1, 14]);
    let used_up = machine_joins(&mut rig, joining(15, "n2", "m3", false)).unwrap_err();
    assert!(matches!(used_up, Refusal::TokenUsedUp { .. }), "{used_up}");
    let TokenBearer::Host { relay, .. } = of(&rig, 14).bearer else {
        panic!("it is a host's");
    };
    assert!(relay);
}

#[test]
fn only_the_newest_secret_of_a_token_to_join_lets_a_machine_in() {
    let mut rig = Rig::new();
    made(&mut rig, &alice(), 2, user("alice", Rights::USER));
    made(&mut rig, &root(), 1, join_token(5));
    let rotate = TokenVerb::Rotate {
        id: TokenId(1),
        hash: hash(3),
    };
    order(&mut rig, &root(), None, rotate).unwrap();
    let refused = machine_joins(&mut rig, joining(11, "n1", "m1", false));
    assert_eq!(refused, Err(Refusal::NoSuchToken { id: TokenId(1) }));
    let TokenVerb::Join(mut with_other) = joining(11, "n1", "m1", false) else {
        panic!("it joins");
    };
    with_other.join = TokenId(2);
    let refused = machine_joins(&mut rig, TokenVerb::Join(with_other));
    assert_eq!(refused, Err(Refusal::NoSuchToken { id: TokenId(2) }));
}

#[test]
fn a_token_is_over_a_minute_after_its_time_and_listed_for_a_month() {
    let mut rig = Rig::new();
    let end = rig.now.wall.after(HOUR);
    order(&mut rig, &root(), None, token(1, join_token(5), Some(end))).unwrap();
    rig.pass(HOUR + Duration::from_secs(59));
    machine_joins(&mut rig, joining(11, "n1", "m1", false)).unwrap();
    rig.pass(Duration::from_secs(2));
    let over = machine_joins(&mut rig, joining(12, "n2", "m2", false)).unwrap_err();
    assert!(
        matches!(over, Refusal::TokenOver { at, .. } if at == end),
        "{over}"
    );
    let id = TokenId(1);
    let hash = hash(4);
    let over = order(&mut rig, &root(), None, TokenVerb::Rotate { id, hash }).unwrap_err();
    assert!(over.to_string().contains("make another"), "{over}");
    rig.pass(29 * 24 * HOUR);
    assert_eq!(shown(&rig), [1, 11]);
    rig.pass(2 * 24 * HOUR);
    assert_eq!(shown(&rig), [11]);
}

#[test]
fn a_host_that_is_removed_has_no_token_any_more() {
    let mut rig = Rig::new();
    made(&mut rig, &root(), 1, join_token(5));
    rig.join("n1");
    machine_joins(&mut rig, joining(11, "n1", "m1", false)).unwrap();
    machine_joins(&mut rig, joining(12, "n2", "m2", false)).unwrap();
    rig.pass(Duration::from_secs(60));
    let host = "n1".parse().unwrap();
    let verb = HostVerb::Remove;
    rig.ask_as(&root(), Command::Host { host, verb }).unwrap();
    assert_eq!(shown(&rig), [1, 12]);
}

#[test]
fn an_account_has_a_hundred_tokens_and_those_that_are_over_make_room() {
    let mut rig = Rig::new();
    let end = rig.now.wall.after(HOUR);
    let own = || user("alice", Rights::USER);
    for id in 1..=100 {
        let expires = (id <= 2).then_some(end);
        order(&mut rig, &alice(), None, token(id, own(), expires)).unwrap();
    }
    let full = order(&mut rig, &alice(), None, token(101, own(), None)).unwrap_err();
    assert!(full.to_string().contains("alice has 100 tokens"), "{full}");
    made(&mut rig, &caller("bob"), 200, user("bob", Rights::USER));
    rig.pass(2 * HOUR);
    made(&mut rig, &alice(), 101, own());
    assert_eq!(shown(&rig).len(), 100, "two went, one came, and bob's");
}

#[test]
fn a_damaged_token_is_named_and_none_is_believed() {
    let mut rig = Rig::new();
    made(
        &mut rig,
        &alice(),
        1,
        user("alice", Rights::ADMIN.within(&Rights::USER, &[])),
    );
    let records = rig.store_table(super::tables::TOKENS);
    let key = records.keys().next().unwrap().clone();
    assert_eq!(key, "0000000000000001");
    let text = String::from_utf8(records[&key].clone()).unwrap();
    records.insert(key, text.replace("\"own\"", "\"everything\"").into_bytes());
    let stored = rig.store.stored().clone();
    let refused = super::Registry::load(super::Config::default(), &stored, "e".into(), rig.now);
    let refused = refused.unwrap_err().to_string();
    assert!(
        refused.contains("table tokens") && refused.contains("everything"),
        "{refused}"
    );
}

#[test]
fn ids_and_hashes_read_as_they_are_written_and_nothing_else_does() {
    let id = TokenId(0x1f);
    assert_eq!(id.to_string(), "000000000000001f");
    assert_eq!(id.to_string().parse(), Ok(id));
    for bad in [
        "",
        "1f",
        "000000000000001F",
        "00000000000000 1f",
        "ééééééééé",
        "000000000000001f0",
    ] {
        assert!(bad.parse::<TokenId>().is_err(), "{bad:?}");
    }
    let written = String::from(hash(0xa5));
    assert_eq!(SecretHash::try_from(written), Ok(hash(0xa5)));
    assert!(SecretHash::try_from("a5".to_owned()).is_err());
    assert!(!format!("{:?}", hash(0xa5)).contains("a5"), "no log has it");
}
