//! Jobs of other schedulers at the agent's socket.

use std::io::BufRead as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use portreeve::registry::{HostFacts, Want};
use portreeve::supervision::{Final, State, Status};
use portreeve_agent::{Agent, Config, SocketPlace};
use portreeve_api::attach::{Again, Ask, FromAgent, Opening, ProfileForm};
use portreeve_api::body::DesiredReplica;
use portreeve_api::local::WorkerCommand;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use crate::controller::{Controller, PATIENCE};
use crate::house::{House, wanted};
use crate::worker::status;

pub(crate) fn socket(house: &House) -> PathBuf {
    house.state().with_file_name("agent.sock")
}

pub(crate) async fn agent(house: &House) -> Agent {
    let config = Config {
        socket: Some(SocketPlace::At(socket(house))),
        ..house.config()
    };
    house.agent_with(config).await
}

fn attached(incarnation: u32, want: Want) -> DesiredReplica {
    let mut replica = wanted(incarnation, want);
    replica.desired.attached = true;
    replica
}

fn ask() -> Opening {
    Opening::Attach(Box::new(Ask {
        profile: "kind = \"service\"".to_owned(),
        form: ProfileForm::Toml,
        set: Vec::new(),
        name: None,
        index: None,
        key: "k".to_owned(),
        job: None,
        folder: "/nowhere".into(),
    }))
}

fn again(token: &str) -> Opening {
    let desired = attached(0, Want::Run).desired;
    Opening::Again(Box::new(Again {
        service: desired.service,
        index: desired.index,
        incarnation: desired.incarnation,
        token: token.to_owned(),
        status: Some(status(3, State::Up)),
        folder: "/nowhere".into(),
    }))
}

/// A job as it speaks with the agent.
pub(crate) struct Job(BufReader<UnixStream>);

impl Job {
    pub(crate) async fn open(socket: &Path, opening: &Opening) -> Self {
        let mut job = Self(BufReader::new(UnixStream::connect(socket).await.unwrap()));
        job.say(opening).await;
        job
    }

    async fn say(&mut self, line: &impl serde::Serialize) {
        let mut text = serde_json::to_vec(line).unwrap();
        text.push(b'\n');
        self.0.write_all(&text).await.unwrap();
    }

    /// The next line; `None`: it was cut off.
    pub(crate) async fn hear(&mut self) -> Option<FromAgent> {
        let mut line = String::new();
        let read = tokio::time::timeout(PATIENCE, self.0.read_line(&mut line)).await;
        // Cut off with something unread is told as an error.
        let length = read.expect("the agent answers in time").unwrap_or(0);
        (length > 0).then(|| serde_json::from_str(&line).unwrap())
    }
}

fn reported(heard: &HostFacts) -> Option<&Status> {
    heard.replicas.first().map(|report| &report.status)
}

async fn until_told(controller: &Controller, what: &str, fits: impl Fn(&Status) -> bool) {
    let told = |heard: &crate::controller::Heard| {
        let mut reports = heard.reports.iter();
        reports.any(|report| reported(report).is_some_and(&fits))
    };
    controller.until(what, told).await;
}

#[tokio::test]
async fn a_job_s_ask_is_relayed_with_the_uid_that_the_kernel_tells() {
    let house = House::new();
    let controller = house.controller("first");
    let agent = agent(&house).await;
    controller.want(|set| set.grants = vec![attached(0, Want::Run)]);
    let mut job = Job::open(&socket(&house), &ask()).await;
    let Some(FromAgent::Granted { assignment, .. }) = job.hear().await else {
        panic!("nothing was granted");
    };
    assert!(assignment.desired.attached);
    assert_eq!(assignment.tokens.worker, "secret");
    let relayed = controller.heard().relayed.clone();
    assert_eq!(relayed.len(), 1);
    assert_eq!(relayed[0].uid, rustix::process::geteuid().as_raw());
    // What is wanted of it comes over the same connection, and no worker is started for it.
    controller.want(|set| set.replicas = vec![attached(0, Want::Stop)]);
    let stop = FromAgent::Order(WorkerCommand::Want {
        want: Want::Stop,
        restart_no: 0,
    });
    assert_eq!(job.hear().await, Some(stop));
    assert!(house.starts().is_empty());
    agent.stop().await;
    assert!(!socket(&house).exists());
}

#[tokio::test]
async fn a_controller_that_is_away_is_told_to_the_job_as_something_that_passes() {
    let house = House::new();
    let agent = agent(&house).await;
    let mut job = Job::open(&socket(&house), &ask()).await;
    let Some(FromAgent::Refused(problem)) = job.hear().await else {
        panic!("it was not refused");
    };
    assert!(problem.passes(), "{problem:?}");
    assert_eq!(problem.code, "controller_unreachable");
    agent.stop().await;
}

#[tokio::test]
async fn a_job_comes_back_to_the_next_agent_and_its_status_is_in_the_full_report() {
    let house = House::new();
    let controller = house.controller("first");
    let first = agent(&house).await;
    controller.want(|set| {
        set.grants = vec![attached(0, Want::Run)];
        set.replicas = vec![attached(0, Want::Run)];
    });
    let mut job = Job::open(&socket(&house), &ask()).await;
    assert!(matches!(job.hear().await, Some(FromAgent::Granted { .. })));
    drop(first);
    drop(job);
    let next = agent(&house).await;
    // This process has it by its record, whatever token it shows.
    let mut job = Job::open(&socket(&house), &again("forgotten")).await;
    assert_eq!(job.hear().await, Some(FromAgent::Known));
    job.say(&status(4, State::Up)).await;
    controller.stop().await;
    let controller = house.controller("second");
    // The agent may have told the first one everything just now.
    controller.want(|set| set.report_first = true);
    until_told(&controller, "the job's newest status", |it| it.seq == 4).await;
    next.stop().await;
}

#[tokio::test]
async fn a_job_whose_record_is_lost_is_known_by_its_token_and_no_other_is() {
    let house = House::new();
    let controller = house.controller("first");
    controller.want(|set| set.replicas = vec![attached(0, Want::Run)]);
    let agent = agent(&house).await;
    // The wanted set may be on its way still.
    let known = async {
        loop {
            let mut job = Job::open(&socket(&house), &again("secret")).await;
            match job.hear().await {
                Some(FromAgent::Known) => return job,
                Some(FromAgent::Refused(_)) => tokio::task::yield_now().await,
                other => panic!("{other:?}"),
            }
        }
    };
    let job = tokio::time::timeout(PATIENCE, known).await.unwrap();
    let stranger = Opening::Again(Box::new(match again("guessed") {
        Opening::Again(again) => Again { index: 7, ..*again },
        other => panic!("{other:?} is no job that comes back"),
    }));
    let mut stranger = Job::open(&socket(&house), &stranger).await;
    assert!(matches!(stranger.hear().await, Some(FromAgent::Refused(_))));
    drop(job);
    agent.stop().await;
}

#[tokio::test]
async fn an_end_that_a_killed_job_could_not_tell_is_told_by_the_agent_until_it_is_forgotten() {
    let house = House::new();
    let controller = house.controller("first");
    let agent = agent(&house).await;
    controller.want(|set| {
        set.grants = vec![attached(0, Want::Run)];
        set.replicas = vec![attached(0, Want::Run)];
    });
    // A process that speaks once and is then killed.
    let script = "import socket,sys,time\ns=socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\n\
         s.sendall(sys.argv[2].encode()+b'\\n')\ns.recv(65536)\nprint('granted',flush=True)\ntime.sleep(1000)";
    let mut run = Command::new("python3")
        .args(["-c", script])
        .arg(socket(&house))
        .arg(serde_json::to_string(&ask()).unwrap())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let out = run.stdout.take().unwrap();
    let read = tokio::task::spawn_blocking(move || {
        let mut line = String::new();
        std::io::BufReader::new(out).read_line(&mut line).unwrap();
        line
    });
    let line = tokio::time::timeout(PATIENCE, read).await;
    let line = line.unwrap().unwrap();
    let record = house.state().join("attached");
    let records = || std::fs::read_dir(&record).map_or(0, Iterator::count);
    assert_eq!((line.as_str(), records()), ("granted\n", 1));
    run.kill().unwrap();
    let reaped = tokio::task::spawn_blocking(move || run.wait());
    let is_end = |it: &Status| matches!(it.state, State::Final(Final::Failed(_)));
    until_told(&controller, "the end of the killed job", is_end).await;
    // The agent is of this process here, and may have reaped it first.
    _ = reaped.await.unwrap();
    controller.want(|set| set.replicas = vec![attached(0, Want::Forget)]);
    crate::house::until("its record is gone", || (records() == 0).then_some(())).await;
    agent.stop().await;
}

#[tokio::test]
async fn what_is_no_line_of_ours_only_ends_its_own_connection() {
    let house = House::new();
    let controller = house.controller("first");
    let agent = agent(&house).await;
    let path = socket(&house);
    for bytes in [
        &b"\n"[..],
        b"{}\n",
        b"{\"attach\":1}\n",
        b"half",
        &[0xff; 4096],
    ] {
        let mut stream = UnixStream::connect(&path).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = Vec::new();
        let read = stream.read_to_end(&mut answer);
        // Cut off with something unread is told as an error.
        _ = tokio::time::timeout(PATIENCE, read).await.unwrap();
        assert!(answer.is_empty());
    }
    controller.want(|set| set.grants = vec![attached(0, Want::Run)]);
    let mut job = Job::open(&path, &ask()).await;
    assert!(matches!(job.hear().await, Some(FromAgent::Granted { .. })));
    agent.stop().await;
}

#[tokio::test]
async fn a_record_of_an_earlier_boot_is_removed_and_is_nobody_s() {
    let house = House::new();
    let controller = house.controller("first");
    let before = agent(&house).await;
    controller.want(|set| set.grants = vec![attached(0, Want::Run)]);
    let mut job = Job::open(&socket(&house), &ask()).await;
    assert!(matches!(job.hear().await, Some(FromAgent::Granted { .. })));
    before.stop().await;
    let records = house.state().join("attached");
    let record = std::fs::read_dir(&records).unwrap().next();
    let record = record.unwrap().unwrap().path();
    let text = std::fs::read_to_string(&record).unwrap();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let old = text.replace(boot.trim(), "00000000-0000-0000-0000-000000000000");
    assert_ne!(old, text);
    std::fs::write(&record, old).unwrap();
    // The process number lives, but it is another's since the boot.
    let after = agent(&house).await;
    assert!(!record.exists());
    let mut job = Job::open(&socket(&house), &again("secret")).await;
    assert!(matches!(job.hear().await, Some(FromAgent::Refused(_))));
    after.stop().await;
}

#[tokio::test]
async fn a_granted_ask_is_of_one_process_and_its_repetition_by_another_is_refused() {
    let house = House::new();
    let controller = house.controller("first");
    let agent = agent(&house).await;
    let again = || controller.want(|set| set.grants = vec![attached(0, Want::Run)]);
    again();
    let mut job = Job::open(&socket(&house), &ask()).await;
    assert!(matches!(job.hear().await, Some(FromAgent::Granted { .. })));
    // The answer was lost.
    again();
    let mut same = Job::open(&socket(&house), &ask()).await;
    assert!(matches!(same.hear().await, Some(FromAgent::Granted { .. })));
    // Somebody who learned the key.
    again();
    let script = "import socket,sys\ns=socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\n\
         s.sendall(sys.argv[2].encode()+b'\\n')\nprint(s.recv(65536).decode())";
    let mut other = Command::new("python3");
    other
        .args(["-c", script])
        .arg(socket(&house))
        .arg(serde_json::to_string(&ask()).unwrap());
    let other = tokio::task::spawn_blocking(move || other.output());
    let said = String::from_utf8(other.await.unwrap().unwrap().stdout).unwrap();
    assert!(said.contains("another process"), "{said}");
    // Orders go to the connection that came last.
    controller.want(|set| set.replicas = vec![attached(0, Want::Stop)]);
    assert!(matches!(same.hear().await, Some(FromAgent::Order(_))));
    agent.stop().await;
}
