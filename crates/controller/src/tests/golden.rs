//! Stores as earlier formats left them: this and every later version reads each of them whole.
//!
//! A file here is never made anew. Whoever raises the format adds one of the new format: `PORTREEVE_GOLDEN=FOLDER` has
//! the last test leave it there, as this version writes it.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::Path;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use http::Method;
use portreeve::identity::Run;
use portreeve::port::Protocol;
use portreeve::port_pool::Foreign;
use portreeve::registry::{Answer, HostFacts, HostPorts, PortView, ServiceView};
use portreeve::supervision::{ExitStatus, Failure, Final, Reason, State, Status};
use portreeve::time::WallClock;
use portreeve_api::attach::{Ask, ProfileForm, Relayed};
use portreeve_api::body::{DesiredReplica, HostList, ServiceList};
use portreeve_api::paths;
use serde_json::json;

use crate::site::{FakeAgent, PATIENCE, Site, config, profile, put, status};
use crate::{Controller, RedbStore};

/// The formats that were released, each with a store that one life left.
const FORMATS: [u32; 2] = [1, 2];

fn file_of(format: u32) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests/golden");
    let packed = std::fs::File::open(folder.join(format!("format-{format}.redb.gz"))).unwrap();
    let mut bytes = Vec::new();
    GzDecoder::new(packed).read_to_end(&mut bytes).unwrap();
    bytes
}

/// What each service of the life is, by its label: each replica's incarnation, states and numbers.
fn told(services: &[ServiceView]) -> BTreeMap<String, String> {
    let told = services.iter().map(|service| {
        let replicas = service.replicas.iter().map(|replica| {
            let numbers = replica
                .ports
                .iter()
                .map(|(name, at)| format!("{name}={at}"));
            let numbers: Vec<_> = numbers.collect();
            format!(
                "{}.{} {} {} [{}] {}",
                replica.replica,
                replica.incarnation.0,
                replica.job_state,
                replica.state,
                numbers.join(" "),
                replica.restarts_total
            )
        });
        let replicas: Vec<_> = replicas.collect();
        (service.service.label().to_string(), replicas.join(", "))
    });
    told.collect()
}

/// What [`live`] leaves.
const TOLD: [(&str, &str); 12] = [
    ("block", "0.0 RUN not ready [rpc=20004-20007] 0"),
    ("done", "0.0 DONE completed [] 0"),
    ("first", "0.0 RUN starting [http=5000] 0"),
    ("gaveup", "0.0 EXIT gave up [] 0"),
    ("job", "0.0 RUN starting [http=20026 internal=20027] 0"),
    (
        "killed",
        "0.0 RUN starting [http=20014 internal=20015] 0, 1.0 EXIT killed [] 0",
    ),
    ("rests", "0.1 PEND resting [] 0"),
    (
        "rolls",
        "0.0 RUN ready [http=20022 internal=20023] 0, 1.0 RUN ready [http=20024 internal=20025] 0",
    ),
    ("second", "0.0 PEND pending [] 0"),
    ("stopped", "0.0 EXIT stopped [] 0"),
    ("stopping", "0.0 RUN stopping [http=20020 internal=20021] 0"),
    (
        "web",
        "0.0 RUN ready [http=20000 internal=20001] 2, 1.0 RUN ready [http=20002 internal=20003] 2",
    ),
];

/// What [`lose_and_drain`] leaves beside it, which format 1 knew nothing of.
const TOLD_SINCE_2: [(&str, &str); 3] = [
    ("keeps", "0.0 RUN ready [http=20000 internal=20001] 0"),
    ("lost", "0.1 PEND pending [] 0"),
    ("lostjob", "0.0 EXIT host lost [] 0"),
];

/// Its hosts after a start: each one's state, whether it is drained, and the numbers of each that are held.
const HOSTS_SINCE_2: [(&str, &str); 3] = [
    ("n1", "not reported"),
    (
        "n2",
        "lost; held 20000 stranded, 20001 stranded, 20002 stranded, 20003 stranded",
    ),
    ("n3", "not reported; drained by root; held 20000, 20001"),
];

fn failure() -> Failure {
    Failure {
        reason: Reason::Liveness { failures: 3 },
        exit: Some(ExitStatus::Signal {
            signal: 9,
            core: true,
            oom: true,
        }),
        run: Run(1),
        at: WallClock::from_unix_millis(1_700_000_000_000),
        probe_output: Some("503".into()),
    }
}

async fn placed(agent: &FakeAgent, name: &str, replicas: usize) -> Vec<DesiredReplica> {
    let is = |one: &&DesiredReplica| one.desired.service.label().as_str() == name;
    let set = agent
        .desired_until(|set| set.replicas.iter().filter(is).count() == replicas)
        .await;
    set.replicas.iter().filter(is).cloned().collect()
}

async fn ask(site: &Site, method: Method, path: &str) {
    let asked = site
        .client()
        .call::<Answer>(method, path, &(), PATIENCE)
        .await;
    asked.unwrap();
}

async fn end(agent: &FakeAgent, replica: &DesiredReplica, how: Final) {
    agent
        .tell(replica, &status(9, State::Final(how), false))
        .await;
}

/// Has a site hold something in every table, and replicas in every phase.
async fn live(site: &Site) {
    let agent = FakeAgent::join(site).await;
    let mut facts = agent.facts();
    facts.reserved = "22,80-81".parse().unwrap();
    facts.labels.insert("gpu".into(), "h100".into());
    facts.foreign = vec![Foreign {
        port: 20050.try_into().unwrap(),
        protocol: Protocol::Tcp,
        pid: Some(811),
        comm: Some("nc".into()),
    }];
    agent.report(&facts).await;
    // Ready, after restarts.
    site.submit(&profile("web", 2)).await;
    for replica in placed(&agent, "web", 2).await {
        let restarted = Status {
            run: Run(3),
            restarts: 2,
            user_restarts: 1,
            first_failure: Some(failure()),
            last_failure: Some(failure()),
            ..status(4, State::Up, true)
        };
        agent.tell(&replica, &restarted).await;
    }
    // Not ready, and with a block.
    let block = "kind = \"service\"\nname = \"block\"\ncommand = [\"x\"]\nenv_secret = [\"KEY\"]\nlabels = { model = \"m1\" }\n\
        [ports]\nrpc = { any = 4, protocol = \"tcp+udp\" }\n";
    site.submit(block).await;
    let [block] = &placed(&agent, "block", 1).await[..] else {
        panic!("it has one replica")
    };
    let mut waiting = status(2, State::Up, false);
    waiting.not_ready_reason = Some("listens on 127.0.0.1 only".into());
    agent.tell(block, &waiting).await;
    // One has the number, the other waits for it.
    for name in ["first", "second"] {
        let fixed = format!(
            "kind = \"service\"\nname = \"{name}\"\ncommand = [\"x\"]\n[ports]\nhttp = 5000\n"
        );
        site.submit(&fixed).await;
    }
    // Ended in each way.
    let policy = |name: &str, policy: &str| format!("{}[restart]\n{policy}\n", profile(name, 1));
    site.submit(&policy("done", "policy = \"never\"")).await;
    end(
        &agent,
        &placed(&agent, "done", 1).await[0],
        Final::Succeeded,
    )
    .await;
    let gave_up = || Final::GaveUp {
        reason: Reason::Exit(ExitStatus::Code(3)),
        count: 10,
    };
    site.submit(&profile("gaveup", 1)).await;
    end(&agent, &placed(&agent, "gaveup", 1).await[0], gave_up()).await;
    site.submit(&policy(
        "rests",
        "give_up = { then = \"requeue\", rest = \"1h\" }",
    ))
    .await;
    end(&agent, &placed(&agent, "rests", 1).await[0], gave_up()).await;
    site.submit(&profile("killed", 2)).await;
    let both = placed(&agent, "killed", 2).await;
    ask(
        site,
        Method::POST,
        &paths::service_part(&"killed", "replicas/1/kill"),
    )
    .await;
    end(&agent, &both[1], Final::Stopped).await;
    site.submit(&profile("stopped", 1)).await;
    let one = placed(&agent, "stopped", 1).await;
    ask(site, Method::POST, &paths::service_part(&"stopped", "stop")).await;
    end(&agent, &one[0], Final::Stopped).await;
    // On their way.
    site.submit(&profile("stopping", 1)).await;
    let one = placed(&agent, "stopping", 1).await;
    agent.tell(&one[0], &status(2, State::Up, true)).await;
    ask(
        site,
        Method::POST,
        &paths::service_part(&"stopping", "stop"),
    )
    .await;
    site.submit(&profile("rolls", 2)).await;
    for replica in placed(&agent, "rolls", 2).await {
        agent.tell(&replica, &status(2, State::Up, true)).await;
    }
    ask(
        site,
        Method::POST,
        &paths::service_part(&"rolls", "restart"),
    )
    .await;
    // Gone.
    site.submit(&profile("gone", 0)).await;
    ask(site, Method::DELETE, &paths::service(&"gone")).await;
    // Brought along by a job.
    let attach = Relayed {
        uid: nix::unistd::geteuid().as_raw(),
        ask: Ask {
            profile: profile("job", 1),
            form: ProfileForm::Toml,
            set: Vec::new(),
            name: None,
            index: None,
            key: "a1b2".into(),
            job: Some("slurm 4711".into()),
            folder: "/tmp/portreeve-run-1".into(),
        },
    };
    let path = paths::host_part(&agent.host, "attach");
    let mut request = put(
        &path,
        "application/json",
        serde_json::to_vec(&attach).unwrap(),
    );
    *request.method_mut() = Method::POST;
    let seen = site.as_user(attach.uid, request).await;
    assert!(seen.status.is_success(), "{}", seen.text());
    lose_and_drain(site).await;
    site.commits_at_rest().await;
}

/// Has a host be lost with what ran there, and one be drained that keeps its replica.
async fn lose_and_drain(site: &Site) {
    let order = async |host: &FakeAgent, verb: &str, body: serde_json::Value| {
        let path = paths::host_part(&host.host, verb);
        let ordered = site
            .client()
            .call::<Answer>(Method::POST, &path, &body, PATIENCE)
            .await;
        ordered.unwrap();
    };
    let join = async |host: &str, address: &str| {
        let agent = FakeAgent::named(site, host);
        let facts = HostFacts {
            published: Some(address.parse().unwrap()),
            // What waits for the number of another goes on waiting.
            reserved: "5000".parse().unwrap(),
            ..agent.facts()
        };
        agent.report(&facts).await;
        agent
    };
    let on = async |agent: &FakeAgent, name: &str, more: &str| {
        let profile = format!(
            "{more}{}[placement]\nhosts = \"{}\"\n",
            profile(name, 1),
            agent.host
        );
        site.submit(&profile).await;
        let one = placed(agent, name, 1).await;
        agent.tell(&one[0], &status(2, State::Up, true)).await;
    };
    let lost = join("n2", "127.0.0.2").await;
    on(&lost, "lost", "").await;
    on(&lost, "lostjob", "rerunnable = false\n").await;
    order(&lost, "down", json!({})).await;
    let drained = join("n3", "127.0.0.3").await;
    on(&drained, "keeps", "").await;
    order(&drained, "drain", json!({})).await;
}

/// Each host as [`HOSTS_SINCE_2`] has it.
async fn told_of_hosts(site: &Site) -> BTreeMap<String, String> {
    let list: HostList = site.get(&paths::hosts()).await;
    let mut told = BTreeMap::new();
    for host in list.hosts {
        let ports: HostPorts = site.get(&paths::host_part(&host.host, "ports")).await;
        let mut text = host.state;
        if let Some(drain) = host.drain {
            text.push_str(&format!("; drained by {}", drain.by));
        }
        if host.host.as_str() != "n1" {
            let held = ports.ports.iter().filter(|it| it.state == "held");
            let stranded = |it: &PortView| it.stranded.as_ref().map_or("", |_| " stranded");
            let numbers = held.map(|it| format!("{}{}", it.numbers, stranded(it)));
            let numbers: Vec<_> = numbers.collect();
            text.push_str(&format!("; held {}", numbers.join(", ")));
        }
        told.insert(host.host.to_string(), text);
    }
    told
}

fn expected(format: u32) -> BTreeMap<String, String> {
    let since_2 = TOLD_SINCE_2.iter().filter(|_| format >= 2);
    let all = TOLD.iter().chain(since_2);
    all.map(|(name, told)| ((*name).to_owned(), (*told).to_owned()))
        .collect()
}

/// The file was put where it was not made: what waited may have got its place since, so it waits as another incarnation,
/// the second `begun` at which it was put there.
fn of_a_copy(mut told: BTreeMap<String, String>, begun: u64) -> BTreeMap<String, String> {
    let anew = format!("0.{begun} PEND");
    for (service, text) in &mut told {
        match service.as_str() {
            "rests" | "lost" => *text = text.replace("0.1 PEND", &anew),
            "second" => *text = text.replace("0.0 PEND", &anew),
            _ => {}
        }
    }
    told
}

/// The incarnation of the only replica of a service that waits.
fn incarnation(told: &str) -> u64 {
    let number = told.strip_prefix("0.").and_then(|it| it.split(' ').next());
    number.unwrap().parse().unwrap()
}

fn unix_seconds() -> u64 {
    let now = std::time::SystemTime::now();
    let since = now.duration_since(std::time::UNIX_EPOCH).unwrap();
    since.as_secs()
}

#[tokio::test]
async fn a_store_of_every_format_is_read_whole_and_goes_on() {
    for format in FORMATS {
        let folder = tempfile::tempdir().unwrap();
        let config = config(&folder);
        std::fs::create_dir_all(&config.data).unwrap();
        std::fs::write(config.data.join(RedbStore::FILE), file_of(format)).unwrap();
        let before = unix_seconds();
        let controller = Controller::start(config).await.unwrap();
        let put_there = before..=unix_seconds();
        let site = Site { folder, controller };
        for round in ["migrated", "started again"] {
            let list: ServiceList = site.get(&paths::services()).await;
            let told = told(&list.services);
            let begun = incarnation(&told["rests"]);
            assert!(put_there.contains(&begun), "{begun} of {put_there:?}");
            assert_eq!(
                told,
                of_a_copy(expected(format), begun),
                "format {format}, {round}"
            );
            if format >= 2 {
                let hosts = HOSTS_SINCE_2.map(|(host, told)| (host.to_owned(), told.to_owned()));
                assert_eq!(told_of_hosts(&site).await, hosts.into(), "{round}");
            }
        }
    }
}

#[tokio::test]
async fn this_version_leaves_what_the_golden_file_of_its_format_holds() {
    let site = Site::start().await;
    live(&site).await;
    let list: ServiceList = site.get(&paths::services()).await;
    assert_eq!(told(&list.services), expected(RedbStore::FORMAT));
    let Site { folder, controller } = site;
    controller.stop().await;
    if let Some(leave) = std::env::var_os("PORTREEVE_GOLDEN") {
        let bytes = std::fs::read(config(&folder).data.join(RedbStore::FILE)).unwrap();
        let name = format!("format-{}.redb.gz", RedbStore::FORMAT);
        let file = std::fs::File::create(Path::new(&leave).join(name)).unwrap();
        let mut packed = GzEncoder::new(file, Compression::best());
        packed.write_all(&bytes).unwrap();
        packed.finish().unwrap();
    }
}
