//! Streams that are cut and come back: whatever was told, and wherever it ended, nothing is missed.

use std::time::Duration;

use portreeve::endpoints::{Change, ServiceUpdate};
use portreeve::registry::Want;
use portreeve::supervision::Final;
use portreeve_api::body::DesiredReplica;

use super::*;

/// Shows `desired` replicas of each of these services, all in one batch.
fn in_one_batch(site: &Site, services: &[ServiceName], desired: u32) {
    let table = &site.controller.app.shown.table;
    let updates = services.iter().map(|service| ServiceUpdate {
        service: service.clone(),
        desired,
        change: Change::Whole(Vec::new()),
    });
    assert!(table.publish(table.revision() + 1, updates.collect(), &[]));
}

/// What a watcher is told that has only the first of its events, and comes back with its id.
fn cut_after_one(site: &Site, watcher: &mut Told, query: &str) -> (String, Vec<String>) {
    let event = watcher.follower.next(&site.controller.app).unwrap();
    let epoch = site.controller.app.shown.table.epoch();
    let mut back = Told::of(
        site,
        OWNER,
        query,
        Some(&format!("{epoch}.{}", event.revision)),
    );
    (format!("{:?}", event.kind), back.now(site))
}

// endpoints 35: several services change with one revision.
#[tokio::test]
async fn a_stream_that_is_cut_within_a_batch_goes_on_with_the_rest_of_it() {
    let site = Site::start().await;
    let names = ["a", "b", "c"];
    for name in names {
        submit(&site, OWNER, &profile(name, 1)).await;
    }
    let services = names.map(|name| format!("{name}.{OWNER}").parse().unwrap());
    for query in [
        "prefix=",
        "service=a&service=b&service=c",
        "prefix=&delta=1",
    ] {
        let mut watcher = Told::of(&site, OWNER, query, None);
        watcher.now(&site);
        let desired = u32::try_from(query.len()).unwrap();
        in_one_batch(&site, &services, desired);
        let (_, rest) = cut_after_one(&site, &mut watcher, query);
        let rest = rest.join(", ");
        assert!(
            rest.contains(" b 0, ") && rest.contains(" c 0, "),
            "{query}: {rest}"
        );
        // Who is told of a stop within it is not told that it has everything.
        let (left_at, newest) = (
            watcher.follower.position(),
            site.controller.app.shown.table.revision(),
        );
        assert!(left_at < newest, "{left_at} of {newest}");
        watcher.now(&site);
        assert_eq!(watcher.follower.position(), newest);
    }
}

#[tokio::test]
async fn a_stream_that_is_cut_between_removals_is_told_of_each() {
    let site = Site::start().await;
    for name in ["a", "b", "c"] {
        submit(&site, OWNER, &profile(name, 1)).await;
    }
    let mut watcher = Told::of(&site, OWNER, "prefix=", None);
    watcher.now(&site);
    for name in ["a", "b"] {
        let stop = paths::service_part(&name, "stop");
        act(&site, OWNER, Method::POST, &stop).await;
        act(&site, OWNER, Method::DELETE, &paths::service(&name)).await;
    }
    submit(&site, OWNER, &profile("c", 2)).await;
    let (first, rest) = cut_after_one(&site, &mut watcher, "prefix=");
    assert!(first.contains("Removed"), "{first}");
    assert!(rest.contains(&"removed b".to_owned()), "{rest:?}");
    assert!(rest.contains(&"endpoints c 0".to_owned()), "{rest:?}");
}

#[tokio::test]
async fn what_comes_into_sight_is_told_whole_however_the_watcher_came() {
    let site = Site::start().await;
    submit(&site, OWNER, &open("web")).await;
    let shown = &site.controller.app.shown;
    let came = |at: u64| format!("{}.{at}", shown.table.epoch());
    for query in [
        "prefix=&delta=1".to_owned(),
        format!("service=web.{OWNER}&delta=1"),
    ] {
        // Something else moves the number past the newest change of rights.
        submit(
            &site,
            OWNER,
            &profile("other", u32::try_from(query.len()).unwrap()),
        )
        .await;
        let now = shown.table.revision();
        let mut back = Told::of(&site, STRANGER, &query, Some(&came(now)));
        assert_eq!(back.now(&site), ["bookmark"], "it has it");
        submit(&site, OWNER, &profile("web", 1)).await;
        assert_eq!(back.now(&site), ["removed web"]);
        let away = shown.table.revision();
        submit(&site, OWNER, &open("web")).await;
        assert_eq!(
            back.now(&site),
            ["endpoints web 0"],
            "{query}: changes alone of nothing are nothing"
        );
        if query.starts_with("service") {
            // Hidden when it left, visible when it comes back.
            let mut back = Told::of(&site, STRANGER, &query, Some(&came(away)));
            assert_eq!(back.now(&site), ["endpoints web 0", "bookmark"]);
        }
    }
    let chem = format!("visibility = [\"group:chem\"]\n{}", profile("web", 1));
    submit(&site, OWNER, &chem).await;
    submit(&site, OWNER, &profile("other", 1)).await;
    // In the group since it left, or while it is here: no revision tells.
    let now = shown.table.revision();
    let mut joins = Told::of(&site, STRANGER, "prefix=", Some(&came(now)));
    assert_eq!(joins.now(&site), ["bookmark"]);
    joins.joins(&["chem"]);
    assert_eq!(joins.now(&site), ["endpoints web 0"]);
    let mut joined = Told::of(&site, STRANGER, "prefix=", Some(&came(now)));
    joined.follower.caller.groups = vec!["chem".into()];
    assert_eq!(joined.now(&site), ["endpoints web 0", "bookmark"]);
}

#[tokio::test]
async fn a_prefix_does_not_find_out_what_others_hid_and_removed() {
    let site = Site::start().await;
    submit(&site, OWNER, &profile("secret", 1)).await;
    let table = &site.controller.app.shown.table;
    let left_at = format!("{}.{}", table.epoch(), table.revision());
    act(
        &site,
        OWNER,
        Method::POST,
        &paths::service_part(&"secret", "stop"),
    )
    .await;
    act(&site, OWNER, Method::DELETE, &paths::service(&"secret")).await;
    let come_back = |prefix: &str| {
        let query = format!("prefix={prefix}");
        Told::of(&site, STRANGER, &query, Some(&left_at)).now(&site)
    };
    assert_eq!(come_back("sec"), come_back("zzz"));
}

/// What a client makes of the events that it got: by service the endpoints, by replica.
#[derive(Default)]
struct Client {
    has: BTreeMap<String, BTreeMap<u64, Value>>,
    /// The id of the newest event.
    last: Option<String>,
    /// What it was told, for who has to find out why it is wrong.
    story: Vec<String>,
}

impl Client {
    fn take(&mut self, event: &Event, epoch: &str) {
        self.last = Some(format!("{epoch}.{}", event.revision));
        let text = event.text(Format::Lines, epoch).pieces().concat();
        let event: Value = serde_json::from_slice(&text).unwrap();
        let service = event["data"]["service"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let (kind, id, previous) = (&event["event"], &event["id"], &event["data"]["previous"]);
        self.story
            .push(format!("{kind} {service} {id} after {previous}"));
        match event["event"].as_str() {
            Some("reset") => self.has.clear(),
            Some("removed") => {
                self.has.remove(&service);
            }
            Some("changes") => {
                let set = self.has.get_mut(&service);
                let before = self.story.len().saturating_sub(20);
                let set = set.unwrap_or_else(|| panic!("{:#?}", &self.story[before..]));
                apply(set, &event);
            }
            Some("endpoints") => apply(self.has.entry(service).or_default(), &event),
            _ => {}
        }
    }
}

/// Numbers that look random and are the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        usize::try_from(self.0 >> 33).unwrap() % bound
    }
}

const CHURNED: [&str; 3] = ["a", "b", "c"];
const REPLICAS: u32 = 3;

/// Three services whose replicas flip, and which are hidden, shown, deleted and made anew.
struct Churn {
    site: Site,
    agent: FakeAgent,
    replicas: Vec<DesiredReplica>,
    seq: u64,
    dice: Dice,
}

impl Churn {
    async fn start(seed: u64) -> Self {
        let site = Site::start().await;
        let agent = FakeAgent::join(&site).await;
        let mut facts = agent.facts();
        facts.dynamic = "20000-29999".parse().unwrap();
        agent.report(&facts).await;
        for name in CHURNED {
            submit(&site, OWNER, &profile(name, REPLICAS)).await;
        }
        let dice = Dice(seed);
        let mut churn = Self {
            site,
            agent,
            replicas: Vec::new(),
            seq: 0,
            dice,
        };
        churn.settle().await;
        churn
    }

    /// Waits until every replica has its place; those that are to stop do.
    async fn settle(&mut self) {
        let settled = async {
            let there = self.site.controller.app.shown.view.borrow().services.len();
            loop {
                let set = self.agent.desired(None).await;
                let (runs, goes): (Vec<_>, Vec<_>) = set
                    .replicas
                    .into_iter()
                    .partition(|it| it.desired.want == Want::Run);
                for replica in goes.iter().filter(|it| it.desired.want == Want::Stop) {
                    self.seq += 1;
                    let told = status(self.seq, State::Final(Final::Stopped), false);
                    // It may be forgotten by now.
                    let _ = self.agent.try_tell(replica, &told).await;
                }
                if runs.len() == there * REPLICAS as usize {
                    return runs;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let settled = tokio::time::timeout(crate::site::PATIENCE, settled).await;
        self.replicas = settled.expect("not all replicas are placed");
    }

    async fn step(&mut self) {
        let name = CHURNED[self.dice.below(3)];
        match self.dice.below(40) {
            0 => submit(&self.site, OWNER, &open_wide(name)).await,
            1 => submit(&self.site, OWNER, &profile(name, REPLICAS)).await,
            2 if self.is_there(name) => {
                let stop = paths::service_part(&name, "stop");
                act(&self.site, OWNER, Method::POST, &stop).await;
                let of = |it: &&DesiredReplica| it.desired.service.label().as_str() == name;
                for replica in self.agent.desired(None).await.replicas.iter().filter(of) {
                    self.seq += 1;
                    let told = status(self.seq, State::Final(Final::Stopped), false);
                    let _ = self.agent.try_tell(replica, &told).await;
                }
                act(&self.site, OWNER, Method::DELETE, &paths::service(&name)).await;
                // Now and then somebody looks while it is gone.
                if self.dice.below(2) == 0 {
                    self.settle_anew(name).await;
                }
            }
            _ => {
                let nth = self.dice.below(self.replicas.len());
                self.seq += 1;
                let told = status(self.seq, State::Up, self.dice.below(2) == 0);
                let _ = self.agent.try_tell(&self.replicas[nth], &told).await;
            }
        }
    }

    async fn settle_anew(&mut self, name: &str) {
        submit(&self.site, OWNER, &profile(name, REPLICAS)).await;
        self.settle().await;
    }

    fn is_there(&self, name: &str) -> bool {
        let service = format!("{name}.{OWNER}").parse().unwrap();
        let view = self.site.controller.app.shown.view.borrow();
        view.services.contains_key(&service)
    }

    /// Those that are gone are made again.
    async fn complete(&mut self) {
        for name in CHURNED {
            if !self.is_there(name) {
                self.settle_anew(name).await;
            }
        }
    }
}

fn open_wide(name: &str) -> String {
    format!("visibility = \"cluster\"\n{}", profile(name, REPLICAS))
}

// endpoints 35, P24: deltas and whole sets, views of a part, with rights that come and go.
#[tokio::test]
async fn whoever_is_cut_anywhere_in_any_churn_ends_with_what_a_new_watcher_sees() {
    let seeds = if std::env::var_os("PORTREEVE_LONG").is_some() {
        200
    } else {
        5
    };
    for seed in 0..seeds {
        churned(20_261_130 + seed).await;
    }
}

async fn churned(seed: u64) {
    let mut churn = Churn::start(seed).await;
    let epoch = churn.site.controller.app.shown.table.epoch().to_owned();
    let [a, b, c] = CHURNED.map(|name| format!("service={name}.{OWNER}"));
    let queries = [
        "prefix=".to_owned(),
        "prefix=&delta=1".to_owned(),
        format!("{a}&delta=1"),
        format!("{a}&{b}&{c}&delta=1"),
        format!("{a}&prefix=b&state=all&delta=1"),
        "prefix=&state=serving&port=http&delta=1".to_owned(),
        "prefix=&host=n1&delta=1".to_owned(),
        "prefix=&host=n2&delta=1".to_owned(),
    ];
    let asked: Vec<_> = queries
        .iter()
        .flat_map(|query| [(OWNER, query), (STRANGER, query)])
        .collect();
    let new = |churn: &Churn, nth: usize, last: Option<&str>| {
        let (uid, query) = asked[nth];
        Told::of(&churn.site, uid, query, last)
    };
    let mut watchers: Vec<_> = (0..asked.len())
        .map(|nth| (new(&churn, nth, None), Client::default()))
        .collect();
    let (mut cuts, mut events) = (0, 0);
    for step in 0..200 {
        churn.step().await;
        let compare = step % 20 == 19;
        for (nth, (told, client)) in watchers.iter_mut().enumerate() {
            let takes = if compare {
                usize::MAX
            } else {
                churn.dice.below(4)
            };
            for _ in 0..takes {
                let Some(event) = told.follower.next(&churn.site.controller.app) else {
                    break;
                };
                client.take(&event, &epoch);
                events += 1;
            }
            if compare {
                let mut fresh = Client::default();
                let mut all = new(&churn, nth, None);
                while let Some(event) = all.follower.next(&churn.site.controller.app) {
                    fresh.take(&event, &epoch);
                }
                assert_eq!(
                    client.has, fresh.has,
                    "seed {seed}, step {step}, {:?}",
                    asked[nth]
                );
            } else if churn.dice.below(3) == 0 {
                client.story.push("cut".to_owned());
                *told = new(&churn, nth, client.last.as_deref());
                cuts += 1;
            }
        }
        if step % 5 == 4 {
            churn.complete().await;
        }
    }
    assert!(cuts > 500 && events > 500, "{cuts} cuts, {events} events");
}
