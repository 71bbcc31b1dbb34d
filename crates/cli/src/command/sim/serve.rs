//! `sim --serve`: a real controller over hosts that do not exist, for clients that do.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use portreeve::commit::Speaker;
use portreeve::registry::View;
use portreeve::time::{Monotonic, Now, Spelled, WallClock};
use portreeve_api::body::Lease as Acknowledged;
use portreeve_api::{Problem, Target};
use portreeve_controller::{Config, Controller, Door, Wanted};
use portreeve_sim::{Asker, Fleet, Lease, PersonNo, Question, Reply, Said, Scenario, WantedOfHost};
use tokio::sync::mpsc;

use crate::command::logging::log_by;
use crate::command::told::Told;
use crate::exit::Failure;
use crate::output::print;
use crate::places;

/// Where it answers.
pub(super) struct Place {
    pub(super) run_dir: PathBuf,
    pub(super) listen: Vec<SocketAddr>,
}

/// Plays the hosts and people of a scenario by the real clock, beside a controller that anybody may use, until told to
/// stop.
pub(super) async fn serve(scenario: &Scenario, place: Place) -> Result<(), Failure> {
    let told = Told::listen()?;
    portreeve_controller::raise_open_files();
    log_by("warn", std::io::stderr);
    let home = tempfile::Builder::new()
        .prefix("portreeve-sim-")
        .tempdir()?;
    let clock = Clock(Instant::now());
    let fleet = Fleet::new(scenario, clock.now());
    let site = fleet.config();
    let controller = Controller::start(Config {
        data: home.path().join("controller"),
        socket: places::socket(&place.run_dir),
        listen: place.listen,
        tls: None,
        insecure: false,
        audit: None,
        single_host: false,
        cooling: site.cooling,
        coalesce: site.coalesce,
        silence: site.silence.unwrap_or_default(),
        new_epoch: false,
        networks: site.networks.clone(),
        site_profiles: places::site_profiles(None),
        max_connections: None,
        max_streams: None,
        requests_per_second: None,
        limits: None,
        rights: None,
        jwt: None,
    });
    let controller = controller
        .await
        .map_err(|cause| Failure::plain(cause.to_string()))?;
    controller.door().limit(site.limits.clone()).await;
    let lived = match say_where(controller.addresses(), fleet.len()) {
        Ok(()) => live(controller.door(), fleet, clock, told).await,
        Err(failure) => Err(failure),
    };
    controller.stop().await;
    home.close()?;
    lived
}

fn say_where(addresses: &[Target], hosts: usize) -> Result<(), Failure> {
    let hosts = match hosts {
        1 => "1 host that does not exist".to_owned(),
        many => format!("{many} hosts that do not exist"),
    };
    let mut text = format!("{hosts}, behind a controller that answers at\n");
    for address in addresses {
        text.push_str(&format!("  {address}\n"));
    }
    if let [Target::Unix(socket), ..] = addresses {
        let socket = socket.display();
        text.push_str(&format!(
            "portreeve --controller unix:{socket} services\nCtrl-C ends it.\n"
        ));
    }
    print(&text)
}

/// What came back, for whom.
enum Back {
    Reply(Asker, Reply),
    Answer(
        PersonNo,
        Option<Result<portreeve::registry::Answer, portreeve::registry::Refusal>>,
    ),
}

async fn live(door: Door, mut fleet: Fleet, clock: Clock, mut told: Told) -> Result<(), Failure> {
    /// So many turns of hosts before answers are looked at.
    const TURNS: usize = 1_000;
    // Bounded by what asks: an agent or a worker has one question of a kind under way.
    let (sender, mut back) = mpsc::unbounded_channel();
    let mut said = VecDeque::new();
    let mut account = Account::default();
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    loop {
        for _ in 0..TURNS {
            let now = clock.now();
            if fleet.next_deadline().is_none_or(|due| due > now.mono) {
                break;
            }
            fleet.on_deadline(now, &door.view(), &mut said);
        }
        for one in said.drain(..) {
            let (door, sender) = (door.clone(), sender.clone());
            tokio::spawn(async move {
                // Who would hear of it is gone only when all ends.
                _ = sender.send(carry(&door, one).await);
            });
        }
        let next = fleet.next_deadline();
        let due = async {
            match next {
                Some(due) => tokio::time::sleep(due.since(clock.now().mono)).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            Some(came) = back.recv() => {
                let mut next = Some(came);
                while let Some(came) = next {
                    match came {
                        Back::Reply(to, reply) => fleet.hear(clock.now(), &to, reply, &mut said),
                        Back::Answer(person, answer) => {
                            if let Some(words) = fleet.answer(clock.now(), person, answer) {
                                account.answered(&clock, &words)?;
                            }
                        }
                    }
                    next = back.try_recv().ok();
                }
            }
            () = due => {}
            _ = tick.tick() => account.of(&clock, &door.view())?,
            () = told.stop() => return Ok(()),
        }
    }
}

/// What is shown of the whole: a line when it changes, and what became of orders.
#[derive(Default)]
struct Account {
    last: String,
    /// Answers since the last look at the whole.
    answers: usize,
}

impl Account {
    /// So many answers are told one by one, until the next look at the whole.
    const FEW: usize = 3;

    fn answered(&mut self, clock: &Clock, words: &str) -> Result<(), Failure> {
        self.answers += 1;
        if self.answers > Self::FEW {
            return Ok(());
        }
        self.tell(clock, words)
    }

    fn of(&mut self, clock: &Clock, view: &View) -> Result<(), Failure> {
        let more = std::mem::take(&mut self.answers).saturating_sub(Self::FEW);
        if more > 0 {
            self.tell(clock, &format!("and {more} more answers to orders"))?;
        }
        let services = view.services.values();
        let (ready, desired) = services.fold((0_u64, 0_u64), |(ready, desired), service| {
            (
                ready + u64::from(service.ready),
                desired + u64::from(service.desired),
            )
        });
        let up = view.hosts.values().filter(|host| host.state == "up");
        let line = format!(
            "{ready} of {desired} replicas ready; services: {}; hosts up: {} of {}",
            view.services.len(),
            up.count(),
            view.hosts.len()
        );
        if line == self.last {
            return Ok(());
        }
        self.last.clone_from(&line);
        self.tell(clock, &line)
    }

    #[expect(clippy::unused_self, reason = "it is told as part of the account")]
    fn tell(&self, clock: &Clock, words: &str) -> Result<(), Failure> {
        let since = Duration::from_secs(clock.0.elapsed().as_secs());
        print(&format!("{:>8}  {words}\n", Spelled(since).to_string()))
    }
}

async fn carry(door: &Door, said: Said) -> Back {
    match said {
        Said::Question {
            from,
            question,
            sent,
        } => {
            let reply = ask(door, question, sent).await;
            Back::Reply(from, reply.unwrap_or_else(|problem| refused(*problem)))
        }
        Said::Order {
            person,
            by,
            command,
        } => Back::Answer(person, door.command(by, *command).await),
    }
}

async fn ask(door: &Door, question: Question, sent: WallClock) -> Result<Reply, Box<Problem>> {
    let sent = Some(sent);
    let lease = match question {
        Question::Report(facts) => {
            let host = facts.host.clone();
            door.report(&host, *facts, sent).await
        }
        Question::Lease {
            host,
            agent,
            skew_ms,
        } => door.lease(host, Some(&agent), skew_ms).await,
        Question::Shutdown { host, agent } => door.shutdown(host, Some(&agent)).await,
        Question::Status {
            name,
            service_id,
            status,
        } => {
            let speaker = Speaker { name, service_id };
            door.status(speaker, *status, sent).await
        }
        Question::Wanted { host, agent, since } => {
            let wanted = door.desired(&host, Some(&agent), since).await?;
            return Ok(Reply::Wanted(Arc::new(as_wire(wanted))));
        }
    };
    lease.map(acknowledged)
}

fn as_wire(wanted: Wanted) -> WantedOfHost {
    let Wanted { instance, handout } = wanted;
    WantedOfHost {
        instance: instance.into(),
        revision: handout.revision(),
        report_first: handout.report_first(),
        replicas: handout.shared_replicas(),
    }
}

fn acknowledged(lease: Acknowledged) -> Reply {
    let span = |ms: Option<u64>| Duration::from_millis(ms.unwrap_or_default());
    Reply::Lease(Lease {
        instance: lease.instance.into(),
        now: lease.now.unwrap_or_default(),
        host_grace: span(lease.host_grace_ms),
        period: span(lease.period_ms),
    })
}

fn refused(problem: Problem) -> Reply {
    Reply::Refused {
        status: problem.status,
        reason: problem.detail,
    }
}

/// Time since the start, and the time for people.
#[derive(Clone, Copy)]
struct Clock(Instant);

impl Clock {
    fn now(&self) -> Now {
        let ms = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        let wall = SystemTime::now().duration_since(UNIX_EPOCH);
        Now {
            mono: Monotonic::from_millis(ms(self.0.elapsed())),
            wall: WallClock::from_unix_millis(ms(wall.unwrap_or_default())),
        }
    }
}
