//! Why something stands where it stands, by what the controller shows of it: a sentence, its cause, the next step.

use portreeve_api::body::{ReplicaView, ServiceView};
use serde::Serialize;

/// Why it stands where it stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Standing {
    /// Its state as a word.
    pub(super) state: String,
    /// One sentence.
    pub(super) sentence: String,
    /// What made it so, where that is more than the sentence says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cause: Option<String>,
    /// What to do, or what follows by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) next: Option<String>,
    /// Its worker decided it, and knows by which rule.
    #[serde(skip)]
    pub(super) is_of_worker: bool,
    /// Its host is silent, and so cannot be asked for the worker's record.
    #[serde(skip)]
    pub(super) is_unknown: bool,
}

/// The service as a whole.
pub(super) fn of_service(service: &ServiceView) -> Standing {
    let name = &service.service;
    let ready = format!("{} of {} ready", service.ready, service.desired);
    let kept = "it is forgotten 7 days after its end";
    let (sentence, next) = match service.state.as_str() {
        "stopped" => (
            "stopped by its owner, and kept until it is deleted".to_owned(),
            Some(format!("`portreeve start {name}` runs it again")),
        ),
        "ended" if service.attached => (
            "every job that ran it ended".to_owned(),
            Some(format!("start such a job again; {kept}")),
        ),
        "ended" => (
            "every replica ended and none follows by itself".to_owned(),
            Some(format!(
                "`portreeve start {name}` runs it again with a fresh budget; {kept}"
            )),
        ),
        _ if service.desired == 0 && service.attached => {
            ("no job runs it now".to_owned(), Some(kept.to_owned()))
        }
        _ if service.desired == 0 => (
            "scaled to no replica".to_owned(),
            Some(format!("`portreeve scale {name} 1` runs one")),
        ),
        state => (format!("{state}, {ready}"), None),
    };
    Standing {
        state: service.state.clone(),
        sentence,
        cause: service
            .under_way
            .clone()
            .or_else(|| service.waits_for.clone()),
        next,
        is_of_worker: false,
        is_unknown: false,
    }
}

/// One replica of it.
pub(super) fn of_replica(service: &ServiceView, replica: &ReplicaView) -> Standing {
    let state = replica.state.as_str();
    let reason = replica.reason.clone();
    let sentence = match (&reason, replica.ready) {
        (Some(reason), _) if reason.starts_with(state) => reason.clone(),
        (Some(reason), _) => format!("{state}: {reason}"),
        (None, true) => match &replica.host {
            Some(host) => format!("ready on host {host}, and listed"),
            None => "ready, and listed".to_owned(),
        },
        (None, false) => state.to_owned(),
    };
    let by_worker = [
        "starting",
        "ready",
        "not ready",
        "backoff",
        "stuck",
        "gave up",
        "failed",
        "completed",
    ];
    // Lost sight of, listed or not: what the worker last recorded is not what counts.
    let is_unknown = reason
        .as_ref()
        .is_some_and(|it| it.contains("unknown since"));
    let has_address = !reason
        .as_ref()
        .is_some_and(|it| it.contains("has no address"));
    Standing {
        state: state.to_owned(),
        sentence,
        cause: cause(replica),
        next: next(service, replica, is_unknown),
        is_of_worker: by_worker.contains(&state) && !is_unknown && has_address,
        is_unknown,
    }
}

/// What failed last, where the sentence is about something else.
fn cause(replica: &ReplicaView) -> Option<String> {
    let failure = replica.last_failure.as_ref()?;
    let told = replica
        .reason
        .as_ref()
        .is_some_and(|it| it.contains(failure.as_str()));
    let restarts = match replica.restarts {
        0 => String::new(),
        1 => ", 1 restart".to_owned(),
        many => format!(", {many} restarts"),
    };
    (!told && !replica.ready).then(|| format!("its last failure: {failure}{restarts}"))
}

fn next(service: &ServiceView, replica: &ReplicaView, is_unknown: bool) -> Option<String> {
    let name = &service.service;
    let index = replica.replica;
    let host = replica.host.as_ref();
    if is_unknown {
        let host = host?;
        return Some(format!(
            "`portreeve host {host}` says since when it is silent; nothing changes until its grace is over"
        ));
    }
    if replica
        .reason
        .as_ref()
        .is_some_and(|it| it.contains("has no address"))
    {
        let host = host?;
        return Some(format!(
            "`portreeve host {host}` shows its addresses; name one with `agent --address`"
        ));
    }
    let told = match (replica.job_state.as_str(), replica.state.as_str()) {
        ("PEND", "resting") => "it gets a place by itself when it has rested".to_owned(),
        ("PEND", _) => return Some(waits(service, replica)),
        (_, "ready" | "starting") => return None,
        (_, "not ready") => {
            format!(
                "`portreeve logs {name}/{index}` shows what it wrote; it is listed when its readiness probe passes"
            )
        }
        (_, "backoff") => format!(
            "it is started again by itself; `portreeve logs {name}/{index}` shows what it wrote"
        ),
        (_, "stopping") => "it ends within its drain and grace".to_owned(),
        (_, "stuck") => {
            let host = host?;
            format!(
                "look on host {host} at what keeps its processes; its ports stay held until they are gone"
            )
        }
        ("EXIT" | "DONE", _) if replica.attached => {
            "only a new job of its scheduler can run it again".to_owned()
        }
        ("EXIT", "gave up" | "failed") => format!(
            "`portreeve logs {name}/{index}` shows what it wrote; `portreeve start {name}` begins anew with a fresh budget"
        ),
        ("EXIT" | "DONE", _) => format!("`portreeve start {name}` runs it again"),
        _ => return None,
    };
    Some(told)
}

/// What a replica without a place waits for, and who can do something about it: by what is against most hosts.
fn waits(service: &ServiceView, replica: &ReplicaView) -> String {
    let name = &service.service;
    let sums = replica.reason_sums.as_ref();
    let most = sums.and_then(|sums| sums.causes.first());
    let every = format!("`portreeve explain {name}` lists every host");
    let limited = replica
        .reason
        .as_ref()
        .is_some_and(|it| it.contains("LIMIT"));
    let told = match most.map(|cause| cause.code.as_str()) {
        _ if limited => {
            "it gets a place when others of the same account or group end, or the site raises the limit"
        }
        Some("HELD" | "RELEASING" | "AWAITED") => {
            "it gets the number when its holder ends; or ask for another one, or for \"any\""
        }
        Some("COOLING") => "it gets the number by itself when that has rested",
        Some("FOREIGN") => "end the process that listens there, or ask for another number",
        Some("RESERVED" | "NOT IN POOL") => {
            "ask for a number that the hosts offer, or have the site offer it (`agent --ports`)"
        }
        Some("TOO FEW FREE" | "NO BLOCK") => {
            "it gets a place when others end, or a host with room joins"
        }
        Some("ONE PER HOST") => "it gets a place when a host joins; a fixed port fits once on each",
        Some("OTHER OWNER") => {
            "it gets a place when a host joins whose ports this controller gives (`agent --owner controller`)"
        }
        Some("HOST DRAINED") => {
            "it gets a place when a host is undrained (`portreeve host undrain`) or joins"
        }
        Some("HOST SUSPECT" | "HOST LOST" | "HOST NOT REPORTED") => {
            "it gets a place when a host reports again; `portreeve hosts` shows when each was last heard of"
        }
        Some("NO ADDRESS") => "give a host an address that others reach (`agent --address`)",
        _ if sums.is_some_and(|sums| sums.hosts == 0) => {
            "it gets a place when a host joins that its placement allows"
        }
        _ => return every,
    };
    format!("{told}; {every}")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn service(state: &str, desired: u32) -> ServiceView {
        let profile = "kind = \"service\"\nname = \"web\"\ncommand = [\"serve\"]\n";
        let profile = portreeve::profile::Profile::from_toml(profile)
            .unwrap()
            .profile;
        serde_json::from_value(json!({
            "service": "web.alice", "owner": "alice", "state": state, "desired": desired, "ready": 0,
            "submitted": 1, "changed": 1, "revision": 1, "replicas": [], "profile": profile, "id": 1,
        }))
        .unwrap()
    }

    fn replica(job_state: &str, state: &str, more: &Value) -> ReplicaView {
        let mut view = json!({
            "replica": 0, "incarnation": 0, "job_state": job_state, "state": state, "ready": false, "reason": null,
            "restarts": 0, "restarts_total": 0, "user_restarts": 0, "last_failure": null, "last_failure_detail": null,
            "host": null, "address": null, "ports": {}, "pid": null, "since": 1,
        });
        for (name, value) in more.as_object().unwrap() {
            view[name] = value.clone();
        }
        serde_json::from_value(view).unwrap()
    }

    #[test]
    fn every_standing_of_a_replica_has_a_sentence_and_where_something_can_be_done_the_next_step() {
        let sums = |code: &str| json!({"known": 3, "hosts": 3, "asked": 3, "fitting": 0, "causes": [{"code": code, "hosts": 3}]});
        let cases = [
            (
                "PEND",
                "pending",
                json!({"reason": "8888/tcp HELD on n1", "reason_sums": sums("HELD")}),
                "pending: 8888/tcp HELD on n1",
                "when its holder ends",
            ),
            (
                "PEND",
                "pending",
                json!({"reason": "3 HOST DRAINED", "reason_sums": sums("HOST DRAINED")}),
                "pending: 3 HOST DRAINED",
                "host undrain",
            ),
            (
                "PEND",
                "pending",
                json!({"reason": "LIMIT: alice holds 5 of 5 ports"}),
                "pending: LIMIT: alice holds 5 of 5 ports",
                "raises the limit",
            ),
            ("PEND", "pending", json!({}), "pending", "explain web.alice"),
            (
                "PEND",
                "resting",
                json!({"reason": "gave up after 3 restarts: exit 1; rests 1m"}),
                "resting: gave up after 3 restarts: exit 1; rests 1m",
                "by itself",
            ),
            (
                "RUN",
                "ready",
                json!({"ready": true, "host": "n1"}),
                "ready on host n1, and listed",
                "",
            ),
            (
                "RUN",
                "ready",
                json!({"ready": true, "host": "n1", "reason": "unknown since 12:00"}),
                "ready: unknown since 12:00",
                "portreeve host n1",
            ),
            (
                "RUN",
                "not ready",
                json!({"host": "n1", "reason": "its host has no address to publish"}),
                "not ready: its host has no address to publish",
                "agent --address",
            ),
            (
                "RUN",
                "backoff",
                json!({"host": "n1", "last_failure": "exit 1", "restarts": 4}),
                "backoff",
                "by itself",
            ),
            (
                "EXIT",
                "gave up",
                json!({"reason": "gave up after 3 restarts: exit 1"}),
                "gave up after 3 restarts: exit 1",
                "fresh budget",
            ),
            (
                "EXIT",
                "host lost",
                json!({"reason": "host n1 lost, last contact 12:00"}),
                "host lost: host n1 lost, last contact 12:00",
                "portreeve start",
            ),
            (
                "EXIT",
                "killed",
                json!({"reason": "killed by bob", "attached": true}),
                "killed by bob",
                "only a new job",
            ),
        ];
        for (job_state, state, more, sentence, next) in cases {
            let told = of_replica(&service("running", 1), &replica(job_state, state, &more));
            assert_eq!(told.sentence, sentence);
            let said = told.next.unwrap_or_default();
            assert!(
                said.contains(next) && said.is_empty() == next.is_empty(),
                "{state}: {said}"
            );
        }
        let backoff = replica(
            "RUN",
            "backoff",
            &json!({"host": "n1", "last_failure": "exit 1", "restarts": 4}),
        );
        let told = of_replica(&service("running", 1), &backoff);
        assert_eq!(
            told.cause.as_deref(),
            Some("its last failure: exit 1, 4 restarts")
        );
    }

    #[test]
    fn a_service_says_whether_anything_follows_and_how_long_it_is_kept() {
        let next = |state, desired| {
            of_service(&service(state, desired))
                .next
                .unwrap_or_default()
        };
        assert!(next("stopped", 1).contains("portreeve start web.alice"));
        assert!(next("ended", 1).contains("7 days"));
        assert!(next("running", 0).contains("portreeve scale web.alice 1"));
        assert_eq!(next("running", 2), "");
        assert_eq!(
            of_service(&service("running", 2)).sentence,
            "running, 0 of 2 ready"
        );
    }
}
