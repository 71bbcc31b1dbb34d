//! The agent's Unix socket: jobs of this host ask for ports there and hear what is wanted of them.
//!
//! Everybody may connect; who it is, the kernel tells. What a job says is bounded in length and in time, and only
//! ever about the replica that its own process was granted.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};
use portreeve::residency::ReplicaName;
use portreeve::supervision::Status;
use portreeve_api::attach::{Again, Ask, Attached, FromAgent, Opening, Relayed};
use portreeve_api::local::ProcessIdentity;
use portreeve_api::{Client, ClientError, Problem, paths};
use tokio::io::BufReader;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tracing::{debug, info, warn};

use super::line::{IN_TIME, Room, line_of, read, read_long, say, unavailable};
use super::message::{Message, Mooring};
use crate::Config;
use crate::household::Renewal;
use crate::shutdown::Closer;
use crate::socket::Socket;

/// How many jobs may be connected at once; more are turned away at once.
const MAX_CONNECTIONS: usize = 2048;
/// How many of them one account may have.
const MAX_PER_USER: usize = 512;
/// How long the controller may take to grant.
const GRANTED_WITHIN: Duration = Duration::from_secs(20);
/// The rest after a connection could not be taken.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
/// The rest between two statuses of one job: the newest is what counts, and none may keep us busy.
const BETWEEN_STATUSES: Duration = Duration::from_millis(20);
/// Orders on their way to one job; one that does not read is cut off and comes back.
const ORDERS: usize = 16;

/// Who is at the other end.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(super) uid: u32,
    pub(super) run: ProcessIdentity,
}

/// Serves jobs for ever.
pub(crate) async fn serve(
    mut socket: Socket,
    config: Arc<Config>,
    client: Client,
    moorage: mpsc::Sender<Message>,
    closer: Closer,
) {
    let Some(listener) = socket.listener.take() else {
        return;
    };
    // Dropped with this task, and every connection with it.
    let mut connections: JoinSet<u32> = JoinSet::new();
    let all = Room::for_all();
    let mut of_user = BTreeMap::<u32, (usize, Room)>::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(ended) = connections.join_next() => {
                let uid = ended.expect("a conversation with a job does not panic");
                if let Some((count, _)) = of_user.get_mut(&uid) {
                    *count -= 1;
                    if *count == 0 {
                        of_user.remove(&uid);
                    }
                }
                continue;
            }
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(cause) => {
                warn!("a job's connection was not taken: {cause}");
                tokio::time::sleep(ACCEPT_AGAIN).await;
                continue;
            }
        };
        let job = match job_at(&stream) {
            Ok(job) => job,
            Err(Faceless::Gone) => continue,
            Err(Faceless::OutOfSight) => {
                turn_away(&stream, out_of_sight());
                continue;
            }
        };
        let of_user = of_user.entry(job.uid);
        let (count, room) = of_user.or_insert_with(|| (0, Room::of_user(&all)));
        if connections.len() >= MAX_CONNECTIONS || *count >= MAX_PER_USER {
            turn_away(
                &stream,
                unavailable(
                    "too_many_connections",
                    "the agent has as many jobs connected as it may have, of all or of you; ask again",
                ),
            );
            continue;
        }
        *count += 1;
        let room = room.clone();
        let (config, client, moorage) = (config.clone(), client.clone(), moorage.clone());
        let closer = closer.clone();
        connections.spawn(async move {
            let uid = job.uid;
            let conversed = converse(stream, job, room, (&config, &client), &moorage, closer).await;
            if let Err(cause) = conversed {
                debug!("a job's connection ended: {cause}");
            }
            uid
        });
    }
}

/// Why nobody knows whose connection it is.
enum Faceless {
    /// Its process has ended already.
    Gone,
    /// Its process has no number here.
    OutOfSight,
}

/// Whose connection it is. The process is named while it holds the connection, so that its number is its own.
fn job_at(stream: &UnixStream) -> Result<Job, Faceless> {
    let peer = stream.peer_cred().map_err(|_| Faceless::Gone)?;
    let pid = peer.pid().and_then(|pid| u32::try_from(pid).ok());
    // What is not in our namespace of processes, nor in one below it, has the number 0.
    let pid = pid.filter(|pid| *pid > 0).ok_or(Faceless::OutOfSight)?;
    Ok(Job {
        uid: peer.uid(),
        run: ProcessIdentity::of(pid).map_err(|_| Faceless::Gone)?,
    })
}

/// A process that cannot be seen could be neither watched nor ended.
fn out_of_sight() -> Box<Problem> {
    Box::new(Problem::new(
        StatusCode::FORBIDDEN,
        "not_allowed",
        "this agent is in a process namespace (a container) that the job is not in, so it cannot see the job; run the agent in the host's own",
    ))
}

fn turn_away(stream: &UnixStream, problem: Box<Problem>) {
    // A fresh socket's buffer takes it at once.
    _ = stream.try_write(&line_of(&FromAgent::Refused(problem)));
}

async fn converse(
    stream: UnixStream,
    job: Job,
    room: Room,
    (config, client): (&Config, &Client),
    moorage: &mpsc::Sender<Message>,
    closer: Closer,
) -> io::Result<()> {
    let (reader, mut writer) = stream.into_split();
    if let Some(problem) = not_served(job.uid) {
        return say(&mut writer, &FromAgent::Refused(problem)).await;
    }
    let mut reader = BufReader::new(reader);
    let opening = tokio::time::timeout(IN_TIME, read_long::<Opening>(&mut reader, &room)).await;
    let (orders, to_job) = mpsc::channel(ORDERS);
    let name = match opening.map_err(|_| io::ErrorKind::TimedOut)?? {
        None => return Ok(()),
        Some((Opening::Shutdown, _place)) => return shut_down(writer, &job, moorage, closer).await,
        Some((Opening::RenewWorkers, _place)) => return renew_workers(writer, &job, config).await,
        Some((Opening::Attach(ask), _place)) => {
            match attach(&job, *ask, orders, config, client, moorage).await {
                Ok((name, granted)) => {
                    say(&mut writer, &granted).await?;
                    name
                }
                Err(problem) => return say(&mut writer, &FromAgent::Refused(problem)).await,
            }
        }
        Some((Opening::Again(again), _place)) => {
            match come_back(&job, *again, orders, moorage).await {
                Ok(name) => {
                    say(&mut writer, &FromAgent::Known).await?;
                    name
                }
                Err(problem) => return say(&mut writer, &FromAgent::Refused(problem)).await,
            }
        }
    };
    follow(name, reader, writer, to_job, moorage).await
}

/// Why this account's jobs are not served here: what a killed one leaves could be neither seen nor ended.
fn not_served(uid: u32) -> Option<Box<Problem>> {
    let own = rustix::process::geteuid().as_raw();
    if own == 0 || own == uid {
        return None;
    }
    let reason = format!(
        "this host's agent runs as uid {own} and serves jobs of that account only, not of uid {uid}; run the agent as root"
    );
    Some(Box::new(Problem::new(
        StatusCode::FORBIDDEN,
        "not_allowed",
        reason,
    )))
}

/// Ends everything that was placed here, and tells how far that is until nothing is left or the asker is gone; the
/// shutdown goes on without it.
async fn shut_down(
    mut writer: OwnedWriteHalf,
    job: &Job,
    moorage: &mpsc::Sender<Message>,
    mut closer: Closer,
) -> io::Result<()> {
    if let Some(problem) = not_the_hosts(job, "shut this host down") {
        return say(&mut writer, &FromAgent::Refused(problem)).await;
    }
    closer.begin().await;
    loop {
        let (reply, attached) = oneshot::channel();
        // Both fail only while the agent is being stopped.
        _ = moorage.send(Message::Living(reply)).await;
        let attached = attached.await.unwrap_or_default();
        let now = closer.now(attached);
        if let Some(now) = now {
            say(&mut writer, &FromAgent::Closing(now)).await?;
        }
        if now.is_some_and(|now| now.is_done()) || !closer.changed().await {
            return Ok(());
        }
    }
}

/// Any account may connect, and its jobs are its own; the services of this host are not.
fn not_the_hosts(job: &Job, what: &str) -> Option<Box<Problem>> {
    if job.uid == 0 || job.uid == rustix::process::geteuid().as_raw() {
        return None;
    }
    let reason = format!("only root and the agent's own account may {what}");
    let problem = Problem::new(StatusCode::FORBIDDEN, "not_allowed", reason);
    Some(Box::new(problem))
}

/// Replaces workers of an older program, and tells after each how far that is.
async fn renew_workers(mut writer: OwnedWriteHalf, job: &Job, config: &Config) -> io::Result<()> {
    if let Some(problem) = not_the_hosts(job, "renew the workers of this host") {
        return say(&mut writer, &FromAgent::Refused(problem)).await;
    }
    let place = config.clone();
    let found = tokio::task::spawn_blocking(move || Renewal::find(&place));
    let mut renewal = found.await.expect("looking for workers does not panic")?;
    loop {
        let now = renewal.now();
        say(&mut writer, &FromAgent::Renewing(now)).await?;
        if now.left == 0 {
            return Ok(());
        }
        if let Err(cause) = renewal.next().await {
            warn!("{cause}");
            let problem = unavailable("worker_not_renewed", cause.to_string());
            return say(&mut writer, &FromAgent::Refused(problem)).await;
        }
    }
}

/// Passes statuses one way and orders the other until either side ends.
async fn follow(
    name: ReplicaName,
    mut reader: BufReader<OwnedReadHalf>,
    mut writer: OwnedWriteHalf,
    mut to_job: mpsc::Receiver<FromAgent>,
    moorage: &mpsc::Sender<Message>,
) -> io::Result<()> {
    let hear = async {
        while let Some(status) = read::<Status>(&mut reader).await? {
            let name = name.clone();
            let status = Box::new(status);
            // Fails only while the agent is being stopped.
            _ = moorage.send(Message::Told { name, status }).await;
            tokio::time::sleep(BETWEEN_STATUSES).await;
        }
        Ok(())
    };
    let tell = async {
        while let Some(line) = to_job.recv().await {
            say(&mut writer, &line).await?;
        }
        Ok(())
    };
    tokio::select! {
        heard = hear => heard,
        told = tell => told,
    }
}

/// Asks the controller for the job, and has what it grants written down before the job hears of it.
async fn attach(
    job: &Job,
    ask: Ask,
    orders: mpsc::Sender<FromAgent>,
    config: &Config,
    client: &Client,
    moorage: &mpsc::Sender<Message>,
) -> Result<(ReplicaName, FromAgent), Box<Problem>> {
    let stopping = || unavailable("stopping", "the agent is going down; ask again");
    let (reply, has_room) = oneshot::channel();
    let asked = moorage.send(Message::Room {
        uid: job.uid,
        reply,
    });
    asked.await.map_err(|_| stopping())?;
    has_room.await.map_err(|_| stopping())??;
    let folder = ask.folder.clone();
    let relayed = Relayed { uid: job.uid, ask };
    let path = paths::host_part(&config.host, "attach");
    let granted: Result<Attached, ClientError> = client
        .call(Method::POST, &path, &relayed, GRANTED_WITHIN)
        .await;
    let attached = granted.map_err(|cause| match cause {
        ClientError::Refused(problem) => problem,
        cause => unavailable(Problem::CONTROLLER_UNREACHABLE, cause.to_string()),
    })?;
    let name = attached.replica.desired.name();
    info!("{name} is attached, a job of uid {}", job.uid);
    let (reply, moored) = oneshot::channel();
    let mooring = Mooring {
        replica: attached.replica,
        job: job.clone(),
        folder,
        orders,
        reply,
    };
    let sent = moorage.send(Message::Moor(Box::new(mooring))).await;
    sent.map_err(|_| stopping())?;
    let assignment = moored.await.map_err(|_| stopping())??;
    let granted = FromAgent::Granted {
        assignment,
        notes: attached.notes,
    };
    Ok((name, granted))
}

async fn come_back(
    job: &Job,
    again: Again,
    orders: mpsc::Sender<FromAgent>,
    moorage: &mpsc::Sender<Message>,
) -> Result<ReplicaName, Box<Problem>> {
    let name = ReplicaName {
        service: again.service,
        index: again.index,
        incarnation: again.incarnation,
    };
    let (reply, known) = oneshot::channel();
    let message = Message::Back {
        name: name.clone(),
        job: job.clone(),
        folder: again.folder,
        token: again.token,
        status: again.status.map(Box::new),
        orders,
        reply,
    };
    // Both fail only while the agent is being stopped.
    _ = moorage.send(message).await;
    match known.await {
        Ok(true) => Ok(name),
        _ => Err(unavailable(
            Problem::REPLICA_UNKNOWN,
            format!("this agent does not know {name}, or not as this process; come back later"),
        )),
    }
}
