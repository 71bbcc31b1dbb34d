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
use portreeve::registry::{Answer, ServiceView};
use portreeve::supervision::{ExitStatus, Failure, Final, Reason, State, Status};
use portreeve::time::WallClock;
use portreeve_api::attach::{Ask, ProfileForm, Relayed};
use portreeve_api::body::{DesiredReplica, ServiceList};
use portreeve_api::paths;

use crate::site::{FakeAgent, PATIENCE, Site, config, profile, put, status};
use crate::{Controller, RedbStore};

/// The formats that were released, each with a store that one life left.
const FILES: [(u32, &[u8]); 2] = [
    (1, include_bytes!("golden/format-1.redb.gz")),
    (2, include_bytes!("golden/format-2.redb.gz")),
];

fn unpacked(packed: &[u8]) -> Vec<u8> {
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
    site.commits_at_rest().await;
}

fn expected() -> BTreeMap<String, String> {
    TOLD.map(|(name, told)| (name.to_owned(), told.to_owned()))
        .into()
}

#[tokio::test]
async fn a_store_of_every_format_is_read_whole_and_goes_on() {
    for (format, packed) in FILES {
        let folder = tempfile::tempdir().unwrap();
        let config = config(&folder);
        std::fs::create_dir_all(&config.data).unwrap();
        std::fs::write(config.data.join(RedbStore::FILE), unpacked(packed)).unwrap();
        let controller = Controller::start(config).await.unwrap();
        let site = Site { folder, controller };
        for round in ["migrated", "started again"] {
            let list: ServiceList = site.get(&paths::services()).await;
            assert_eq!(told(&list.services), expected(), "format {format}, {round}");
        }
    }
}

#[tokio::test]
async fn this_version_leaves_what_the_golden_file_of_its_format_holds() {
    let site = Site::start().await;
    live(&site).await;
    let list: ServiceList = site.get(&paths::services()).await;
    assert_eq!(told(&list.services), expected());
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
