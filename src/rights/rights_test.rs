//! The decision, as a table of cases and as promises about whatever rights there are.

use proptest::prelude::*;

use crate::identity::{Audience, Visibility};

use super::{Caller, Holding, Rights, Role, Scope};

fn groups(names: &[&str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

fn caller(user: &str, names: &[&str]) -> Caller {
    Caller::new(user.into(), None, groups(names), Rights::USER)
}

fn admin() -> Caller {
    caller("root", &[]).with_rights(Rights::ADMIN)
}

fn chem() -> Audience {
    Audience::Group("chem".into())
}

fn bob() -> Audience {
    Audience::User("bob".into())
}

/// Alice's service, who is in no group.
const fn of_alice(visibility: &Visibility) -> Holding<'_> {
    Holding {
        owner: "alice",
        groups: &[],
        visibility,
    }
}

#[test]
fn only_the_owner_the_named_and_the_admin_see_and_manage() {
    let listed = Visibility::Listed;
    // Of alice's service: (caller, visibility, sees, manages).
    let table = [
        (caller("alice", &[]), Visibility::Private, true, true),
        (caller("bob", &["chem"]), Visibility::Private, false, false),
        (admin(), Visibility::Private, true, true),
        (caller("bob", &[]), Visibility::Cluster, true, false),
        (admin(), Visibility::Cluster, true, true),
        (caller("bob", &[]), listed(vec![bob()]), true, false),
        (caller("carol", &[]), listed(vec![bob()]), false, false),
        (
            caller("carol", &["chem"]),
            listed(vec![chem()]),
            true,
            false,
        ),
        (caller("chem", &[]), listed(vec![chem()]), false, false),
        (caller("carol", &["bob"]), listed(vec![bob()]), false, false),
        (
            caller("carol", &["chem"]),
            listed(vec![bob(), chem()]),
            true,
            false,
        ),
        (caller("bob", &[]), listed(vec![]), false, false),
        (caller("alice", &[]), listed(vec![bob()]), true, true),
        (caller("Alice", &[]), Visibility::Private, false, false),
    ];
    for (caller, visibility, sees, manages) in table {
        let case = format!("{} under {visibility:?}", caller.user);
        assert_eq!(caller.may_see(of_alice(&visibility)), sees, "see: {case}");
        assert_eq!(
            caller.may_manage(of_alice(&visibility)),
            manages,
            "manage: {case}"
        );
    }
}

#[test]
fn being_seen_does_not_open_the_logs() {
    let (logs, it) = ([chem()], of_alice(&Visibility::Cluster));
    assert!(caller("alice", &[]).may_read_logs(it, &[]));
    assert!(admin().may_read_logs(it, &[]));
    assert!(!caller("bob", &["chem"]).may_read_logs(it, &[]));
    assert!(caller("bob", &["chem"]).may_read_logs(it, &logs));
    assert!(!caller("bob", &["bio"]).may_read_logs(it, &logs));
    let onlooker = caller("bob", &[]).with_rights(Rights::of_role(Role::Operator));
    assert!(onlooker.may_see(of_alice(&Visibility::Private)));
    assert!(
        !onlooker.may_read_logs(it, &[]),
        "to see all does not open them either"
    );
}

#[test]
fn a_namespace_is_the_account_or_one_of_its_groups() {
    let user = caller("SITE\\alice", &["chem"]);
    assert_eq!(user.namespace().unwrap().as_str(), "SITE+alice");
    for (namespace, allowed) in [("SITE+alice", true), ("chem", true), ("bob", false)] {
        let namespace = namespace.parse().unwrap();
        assert_eq!(user.may_submit_into(&namespace), allowed, "{namespace}");
        let viewer = user.clone().with_rights(Rights::VIEWER);
        assert!(!viewer.may_submit_into(&namespace), "{namespace}");
    }
    let group = |namespace: &str| user.group_of(&namespace.parse().unwrap());
    assert_eq!(group("chem"), Some("chem"));
    assert_eq!((group("SITE+alice"), group("bob")), (None, None));
    assert_eq!(
        caller("chem", &["chem"]).group_of(&"chem".parse().unwrap()),
        None
    );
    assert!(admin().may_submit_into(&"bob".parse().unwrap()));
    assert!(caller("a b", &[]).namespace().is_err());
}

#[test]
fn a_viewer_manages_nothing_and_not_its_own() {
    let viewer = caller("alice", &["chem"]).with_rights(Rights {
        role: Role::Viewer,
        view: Scope::All,
        manage: Scope::All,
    });
    let it = of_alice(&Visibility::Private);
    assert!(viewer.may_see(it) && !viewer.may_manage(it) && !viewer.may_change());
    assert!(!viewer.may_read_logs(it, &[]));
    assert!(viewer.may_read_logs(it, &[chem()]), "the profile lets it");
}

#[test]
fn group_reaches_through_every_group_but_the_common_ones() {
    let own = groups(&["users", "chem"]);
    let it = Holding {
        owner: "alice",
        groups: &own,
        visibility: &Visibility::Private,
    };
    let sees = |names: &[&str], scope: &str| {
        let rights = Rights {
            view: scope.parse().unwrap(),
            ..Rights::USER
        };
        let caller = caller("bob", names).with_rights(rights);
        caller.but_for_common(|group| group == "users").may_see(it)
    };
    assert!(sees(&["chem"], "group"));
    assert!(!sees(&["users"], "group"), "everybody is in it");
    assert!(!sees(&["users", "bio"], "group"));
    assert!(sees(&[], "group:chem"), "a named one needs no membership");
    assert!(sees(&[], "group:users"), "who names a common one means it");
    assert!(!sees(&["chem"], "group:bio"));
    assert!(!sees(&["chem"], "own"));
    assert!(sees(&[], "all"));
}

#[test]
fn scopes_read_as_they_are_written() {
    for text in [
        "own",
        "group",
        "group:chem",
        "all",
        "group:bio,group:chem",
        "group,group:chem",
    ] {
        assert_eq!(text.parse::<Scope>().unwrap().to_string(), text);
    }
    assert_eq!("own, all".parse::<Scope>().unwrap(), Scope::All);
    for text in [
        "",
        "group:",
        "groups",
        "own,",
        "All",
        "group: chem",
        "group:a\nb",
    ] {
        let refused = text.parse::<Scope>().unwrap_err().to_string();
        assert!(refused.contains("group:NAME"), "{text:?}: {refused}");
    }
    assert!(
        "root"
            .parse::<Role>()
            .unwrap_err()
            .to_string()
            .contains("operator")
    );
    for role in Role::ALL {
        assert_eq!(role.to_string().parse(), Ok(role));
    }
}

#[test]
fn what_is_handed_on_is_wider_in_nothing() {
    let rights = |role, view: &str, manage: &str| Rights {
        role,
        view: view.parse().unwrap(),
        manage: manage.parse().unwrap(),
    };
    let chem = groups(&["chem"]);
    let own = rights(Role::User, "group", "own");
    // (what is asked for, whether somebody in chem with view group may hand it on)
    for (asked, may) in [
        (rights(Role::User, "own", "own"), true),
        (rights(Role::User, "group", "own"), true),
        (rights(Role::User, "group:chem", "own"), true),
        (rights(Role::User, "group:bio", "own"), false),
        (rights(Role::User, "all", "own"), false),
        (rights(Role::User, "own", "group:chem"), false),
        (rights(Role::Viewer, "group:chem", "all"), true),
        (rights(Role::Operator, "own", "own"), false),
        (Rights::ADMIN, false),
    ] {
        assert_eq!(asked.is_within(&own, &chem), may, "{asked:?}");
        assert!(
            asked.is_within(&Rights::ADMIN, &[]),
            "an admin hands on anything: {asked:?}"
        );
    }
    assert!(!Rights::USER.is_within(&Rights::VIEWER, &[]));
}

#[test]
fn an_owner_is_stored_as_the_caller_of_earlier_versions_was() {
    let stored = r#"{"user":"alice","uid":1000,"groups":["chem"],"admin":false}"#;
    let owner = super::Owner {
        user: "alice".into(),
        uid: Some(1000),
        groups: groups(&["chem"]),
        admin: false,
    };
    assert_eq!(serde_json::to_string(&owner).unwrap(), stored);
    assert_eq!(serde_json::from_str::<super::Owner>(stored).unwrap(), owner);
}

const NAMES: [&str; 4] = ["alice", "bob", "chem", "bio"];

fn some_groups() -> impl Strategy<Value = Vec<String>> {
    proptest::sample::subsequence(&["chem", "bio", "users"][..], 0..=3).prop_map(|it| groups(&it))
}

fn some_scope() -> impl Strategy<Value = Scope> {
    proptest::sample::select(vec![
        "own",
        "group",
        "group:chem",
        "group:bio",
        "group,group:bio",
        "all",
    ])
    .prop_map(|text| text.parse().unwrap())
}

fn some_rights() -> impl Strategy<Value = Rights> {
    let role = proptest::sample::select(&Role::ALL[..]);
    (role, some_scope(), some_scope()).prop_map(|(role, view, manage)| Rights {
        role,
        view,
        manage,
    })
}

fn some_caller() -> impl Strategy<Value = Caller> {
    (
        proptest::sample::select(&NAMES[..]),
        some_groups(),
        some_rights(),
    )
        .prop_map(|(user, groups, rights)| {
            Caller::new(user.into(), None, groups, rights).but_for_common(|it| it == "users")
        })
}

fn some_audiences() -> impl Strategy<Value = Vec<Audience>> {
    let all = vec![chem(), bob(), Audience::Group("users".into())];
    proptest::sample::subsequence(all, 0..=3)
}

fn some_visibility() -> impl Strategy<Value = Visibility> {
    prop_oneof![
        Just(Visibility::Private),
        Just(Visibility::Cluster),
        some_audiences().prop_map(Visibility::Listed),
    ]
}

proptest! {
    #[test]
    fn wider_rights_never_see_or_manage_less(
        caller in some_caller(),
        more in some_rights(),
        owner in proptest::sample::select(&NAMES[..]),
        groups in some_groups(),
        visibility in some_visibility(),
        readers in some_audiences(),
    ) {
        let it = Holding { owner, groups: &groups, visibility: &visibility };
        let wider = caller.clone().with_rights(caller.rights.or(&more));
        let narrower = caller.clone().with_rights(caller.rights.within(&more, &caller.sharing));
        for (less, more) in [(&caller, &wider), (&narrower, &caller)] {
            prop_assert!(!less.may_see(it) || more.may_see(it));
            prop_assert!(!less.may_manage(it) || more.may_manage(it));
            prop_assert!(!less.may_read_logs(it, &readers) || more.may_read_logs(it, &readers));
        }
        prop_assert!(narrower.rights.is_within(&caller.rights, &caller.sharing));
        prop_assert!(narrower.rights.is_within(&more, &caller.sharing));
    }

    #[test]
    fn what_is_managed_is_seen_and_what_is_seen_is_not_for_that_managed(
        caller in some_caller(),
        view in some_scope(),
        owner in proptest::sample::select(&NAMES[..]),
        groups in some_groups(),
        visibility in some_visibility(),
        other in some_visibility(),
    ) {
        let it = Holding { owner, groups: &groups, visibility: &visibility };
        prop_assert!(!caller.may_manage(it) || caller.may_see(it));
        // Neither the scope of view nor the profile decides what is managed.
        let otherwise = Rights { view, ..caller.rights.clone() };
        let other = Holding { visibility: &other, ..it };
        let managed = caller.may_manage(it);
        prop_assert_eq!(managed, caller.with_rights(otherwise).may_manage(other));
    }
}
