//! Hosts, their agents and workers, and the endpoints that come of what they tell.

use http::{Method, StatusCode};
use portreeve::registry::{HostPorts, HostView, PortView, Want};
use portreeve::supervision::{ExitStatus, Failure, Final, Reason, State};
use portreeve::time::WallClock;
use portreeve_api::body::{
    AgentIdentity, DesiredReplica, DesiredSet, Endpoints, FitView, HostList, LOG_OFFSET_HEADER,
    Lease, LeaseAsk, ServiceList, WhoAmI,
};
use portreeve_api::{SENT_HEADER, paths};

use crate::site::{
    FakeAgent, OWNER, PATIENCE, STRANGER, Site, problem_of, profile, put, request, status,
};

#[tokio::test]
async fn a_submit_wakes_the_agent_and_a_ready_replica_is_resolved() {
    let site = Site::start().await;
    let agent = FakeAgent::join(&site).await;
    let empty = agent.desired_until(|set| !set.report_first).await;
    let web = profile("web", 1);
    let (set, _) = tokio::join!(agent.desired(Some(empty.revision)), site.submit(&web));
    assert!(set.revision > empty.revision);
    let replica = &set.replicas[0];
    let number = replica.desired.grant.ports[0].numbers.first().number();
    let client = site.client();
    let path = paths::resolve(&"web", None);
    let resolve = async |path: &str| {
        let reply = client
            .send(Method::GET, path, None, "", PATIENCE)
            .await
            .unwrap();
        String::from_utf8(reply.body.to_vec()).unwrap()
    };
    assert_eq!(resolve(&path).await, "", "known, but none is ready");
    let before: Endpoints = site.get(&paths::service_part(&"web", "endpoints")).await;
    let follow = format!(
        "{}?revision={}&wait=5m",
        paths::service_part(&"web", "endpoints"),
        before.revision
    );
    let up = status(1, State::Up, true);
    let (after, ()) = tokio::join!(
        client.get::<Endpoints>(&follow, PATIENCE),
        agent.tell(replica, &up),
    );
    let after = after.unwrap();
    assert_eq!((after.ready, after.desired), (1, 1));
    assert!(after.endpoints[0].conditions.ready);
    assert_eq!(
        after.endpoints[0].ports.len(),
        1,
        "only the published port is told"
    );
    let line = format!("127.0.0.1:{number}\n");
    assert_eq!(resolve(&path).await, line);
    assert_eq!(resolve(&paths::resolve(&"web", Some("http"))).await, line);
    assert_eq!(resolve(&format!("{path}?pick=one")).await, line);
    let unknown = paths::resolve(&"web", Some("internal"));
    let unknown = client.send(Method::GET, &unknown, None, "", PATIENCE).await;
    assert_eq!(problem_of(unknown).code, "port_not_found");
    // P25: an asker that has this answer gets no body.
    let path = paths::service_part(&"web", "endpoints");
    let own = nix::unistd::geteuid().as_raw();
    let first = site.as_user(own, request(Method::GET, &path)).await;
    let tag = first.headers["etag"].clone();
    let mut again = request(Method::GET, &path);
    again.headers_mut().insert("if-none-match", tag.clone());
    let again = site.as_user(own, again).await;
    assert_eq!(
        (again.status, again.body.len()),
        (StatusCode::NOT_MODIFIED, 0)
    );
    // Not ready: the endpoint leaves at once, and state=all says so.
    agent.tell(replica, &status(2, State::Backoff, false)).await;
    assert_eq!(resolve(&paths::resolve(&"web", None)).await, "");
    let all: Endpoints = site.get(&format!("{path}?state=all")).await;
    assert_eq!((all.ready, all.endpoints.len()), (0, 1));
}

#[tokio::test]
async fn an_equal_status_moves_nothing_and_writes_nothing() {
    let site = Site::start().await;
    let agent = FakeAgent::join(&site).await;
    site.submit(&profile("web", 1)).await;
    let set = agent.desired_until(|set| !set.replicas.is_empty()).await;
    let up = status(3, State::Up, true);
    agent.tell(&set.replicas[0], &up).await;
    let revision = site.service("web").await.revision;
    let before = site.commits_at_rest().await;
    for _ in 0..10 {
        agent.tell(&set.replicas[0], &up).await;
        // An older one that comes late says nothing either.
        agent
            .tell(&set.replicas[0], &status(1, State::Starting, false))
            .await;
    }
    assert_eq!(site.commits_at_rest().await, before);
    assert_eq!(site.service("web").await.revision, revision);
}

#[tokio::test]
async fn a_final_report_is_durable_before_it_is_acknowledged() {
    let site = Site::start().await;
    let agent = FakeAgent::join(&site).await;
    let once = format!("{}[restart]\npolicy = \"never\"\n", profile("web", 1));
    site.submit(&once).await;
    let set = agent.desired_until(|set| !set.replicas.is_empty()).await;
    agent
        .tell(&set.replicas[0], &status(1, State::Up, true))
        .await;
    let ended = status(2, State::Final(Final::Succeeded), false);
    agent.tell(&set.replicas[0], &ended).await;
    let site = site.killed_and_started().await;
    assert_eq!(site.service("web").await.replicas[0].job_state, "DONE");
}

#[tokio::test]
async fn a_worker_speaks_for_its_incarnation_and_its_job_reads_as_its_owner() {
    let site = Site::start().await;
    let agent = FakeAgent::join(&site).await;
    for (owner, name) in [(OWNER, "web"), (STRANGER, "other")] {
        let asked = put(&paths::service(&name), "application/toml", profile(name, 1));
        assert_eq!(site.as_user(owner, asked).await.status, StatusCode::OK);
    }
    let set = agent.desired_until(|set| set.replicas.len() == 2).await;
    let of = |name: &str| {
        let mut replicas = set.replicas.iter();
        replicas
            .find(|r| r.desired.service.label().as_str() == name)
            .unwrap()
    };
    let client = site.client().with_token(Some(of("web").tokens.job.clone()));
    let me: WhoAmI = client.get(&paths::whoami(), PATIENCE).await.unwrap();
    assert_eq!(
        (me.user, me.method.as_str(), me.admin),
        (OWNER.to_string(), "replica token", false)
    );
    let path = paths::resolve(&"web", None);
    assert!(
        client
            .send(Method::GET, &path, None, "", PATIENCE)
            .await
            .is_ok()
    );
    let path = paths::service(&format!("other.{STRANGER}"));
    let hidden = client.send(Method::GET, &path, None, "", PATIENCE).await;
    assert_eq!(problem_of(hidden).status, 404);
    let stop = paths::service_part(&"web", "stop");
    let refused = client.send(Method::POST, &stop, None, "", PATIENCE).await;
    assert_eq!(problem_of(refused).status, 403);
    let mut forged = of("web").clone();
    forged.tokens = of("other").tokens.clone();
    let refused = agent.try_tell(&forged, &status(1, State::Up, true)).await;
    assert_eq!(problem_of(refused).status, 403);
    forged.tokens.worker.push('0');
    let refused = agent.try_tell(&forged, &status(1, State::Up, true)).await;
    assert_eq!(problem_of(refused).status, 401);
    // A job that told its own end would free ports that it still has.
    forged.tokens.worker = of("web").tokens.job.clone();
    let end = status(1, State::Final(Final::Stopped), false);
    let refused = agent.try_tell(&forged, &end).await;
    assert_eq!(problem_of(refused).status, 403);
    let worker = site.client();
    let worker = worker.with_token(Some(of("web").tokens.worker.clone()));
    let me = worker.get::<WhoAmI>(&paths::whoami(), PATIENCE).await;
    assert_eq!(problem_of(me).status, 403);
}

#[tokio::test]
async fn only_root_and_the_controllers_account_speak_for_a_host() {
    let site = Site::start().await;
    let agent = FakeAgent::join(&site).await;
    let report = serde_json::to_vec(&agent.facts()).unwrap();
    let part = |part: &str| paths::host_part(&agent.host, part);
    for asked in [
        put(&part("report"), "application/json", report),
        request(Method::POST, &part("lease")),
        request(Method::GET, &part("desired")),
        put(
            &paths::log_piece(&agent.host, 0),
            "application/octet-stream",
            "",
        ),
    ] {
        let what = asked.uri().clone();
        assert_eq!(
            site.as_user(STRANGER, asked).await.status,
            StatusCode::FORBIDDEN,
            "{what}"
        );
    }
}

#[tokio::test]
async fn a_host_shows_its_numbers_and_only_visible_holders() {
    let site = Site::start().await;
    let agent = FakeAgent::join(&site).await;
    let mine = put(
        &paths::service(&"web"),
        "application/toml",
        profile("web", 1),
    );
    site.as_user(OWNER, mine).await;
    agent.desired_until(|set| !set.replicas.is_empty()).await;
    let hosts: HostList = site.get(&paths::hosts()).await;
    assert_eq!(hosts.hosts[0].host, agent.host);
    let host: HostView = site.get(&paths::host(&agent.host)).await;
    assert_eq!(host.state, "up");
    let path = paths::host_part(&agent.host, "ports");
    let seen = async |uid| -> Vec<PortView> {
        let seen = site.as_user(uid, request(Method::GET, &path)).await;
        seen.json::<HostPorts>().ports
    };
    let (own, strange) = (seen(OWNER).await, seen(STRANGER).await);
    let held = |ports: &[PortView]| ports.iter().filter(|port| port.state == "held").count();
    assert_eq!((held(&own), held(&strange)), (2, 2));
    assert!(own.iter().all(|port| port.service.is_some()));
    assert!(
        strange
            .iter()
            .all(|port| port.service.is_none() && port.replica.is_none() && port.name.is_none())
    );
    let unknown = paths::host_part(&"n9".parse().unwrap(), "ports");
    let unknown = site.as_user(OWNER, request(Method::GET, &unknown)).await;
    assert_eq!(unknown.problem().code, "host_not_found");
}

#[tokio::test]
async fn explain_answers_for_a_profile_and_for_what_waits_by_the_readers_rights() {
    let site = Site::start().await;
    let agent = FakeAgent::join(&site).await;
    let fixed =
        |name: &str| profile(name, 1).replace("internal = { any = 1", "internal = { fixed = 8888");
    for (owner, name) in [(OWNER, "web"), (STRANGER, "late")] {
        let submit = put(&paths::service(&name), "application/toml", fixed(name));
        assert_eq!(site.as_user(owner, submit).await.status, StatusCode::OK);
    }
    agent.desired_until(|set| !set.replicas.is_empty()).await;
    let ask = async |uid, profile: String| {
        let mut asked = put(&paths::explain(), "application/toml", profile);
        *asked.method_mut() = Method::POST;
        site.as_user(uid, asked).await
    };
    let fit: FitView = ask(OWNER, fixed("new")).await.json();
    assert_eq!(fit.sentence, "0 of 1 host fits; 1 HELD");
    let reason = &fit.hosts[0].reasons[0];
    assert_eq!(
        (reason.code.as_str(), reason.code_number),
        ("HELD", Some(1))
    );
    assert!(reason.holder.is_some());
    let unseen: FitView = ask(STRANGER, fixed("new")).await.json();
    assert_eq!(unseen.hosts[0].reasons[0].holder, None);
    assert!(
        ask(STRANGER, fixed("new"))
            .await
            .text()
            .find("web")
            .is_none()
    );
    // Of what waits: only who may read its reasons.
    let path = paths::service_part(&format!("late.{STRANGER}"), "explain");
    let own = site.as_user(STRANGER, request(Method::GET, &path)).await;
    assert_eq!(own.json::<FitView>().replica, Some(0));
    let hidden = site.as_user(OWNER, request(Method::GET, &path)).await;
    assert_eq!(hidden.problem().code, "service_not_found");
    let admin: FitView = site.get(&path).await;
    assert!(admin.hosts[0].reasons[0].holder.is_some());
    let list: ServiceList = site.get(&paths::services()).await;
    let late = list
        .services
        .iter()
        .find(|it| it.service.label().as_str() == "late");
    let late = late.unwrap();
    let waits = late.waits_for.as_deref().unwrap();
    assert!(
        waits.contains(&format!("8888/tcp HELD by web.{OWNER}/0")),
        "{waits}"
    );
    // Its owner does not see that.
    let seen = paths::service(&format!("late.{STRANGER}"));
    let seen = site.as_user(STRANGER, request(Method::GET, &seen)).await;
    assert!(
        !seen.text().contains(&format!("web.{OWNER}")),
        "{}",
        seen.text()
    );
    for (path, code) in [
        (format!("{path}?replica=7"), "replica_not_found"),
        (format!("{path}?replica=x"), "bad_parameter"),
    ] {
        let refused = site.as_user(STRANGER, request(Method::GET, &path)).await;
        assert_eq!(refused.problem().code, code);
    }
    let bad = ask(OWNER, "name = \"x\"\n".to_owned()).await;
    assert_eq!(bad.problem().code, "profile_invalid");
    assert_eq!(site.service(&format!("web.{OWNER}")).await.desired, 1);
}

#[tokio::test]
async fn a_log_piece_goes_from_the_agent_to_the_reader() {
    let site = Site::start().await;
    let agent = FakeAgent::join(&site).await;
    site.submit(&profile("web", 1)).await;
    let set = agent.desired_until(|set| !set.replicas.is_empty()).await;
    let client = site.client();
    let path = format!(
        "{}?stream=stderr&offset=7&max=100",
        paths::replica_part(&"web", 0, "logs")
    );
    let answering = async {
        let mut since = set.revision;
        loop {
            let set = agent.desired(Some(since)).await;
            since = set.revision;
            let Some(read) = set.reads.first() else {
                continue;
            };
            assert_eq!(
                (read.stream.as_str(), read.offset, read.max),
                ("stderr", Some(7), 100)
            );
            let path = paths::log_piece(&agent.host, read.read);
            let mut piece = put(&path, "application/octet-stream", "hello");
            piece
                .headers_mut()
                .insert(LOG_OFFSET_HEADER, "7".parse().unwrap());
            return site.as_user(0, piece).await.status;
        }
    };
    let (reply, put) = tokio::join!(
        client.send(Method::GET, &path, None, "", PATIENCE),
        answering
    );
    let reply = reply.unwrap();
    assert_eq!(put, StatusCode::OK);
    assert_eq!(
        (reply.headers[LOG_OFFSET_HEADER].as_bytes(), &reply.body[..]),
        (&b"7"[..], &b"hello"[..])
    );
    let path = paths::replica_part(&"web", 9, "logs");
    let unknown = client.send(Method::GET, &path, None, "", PATIENCE).await;
    assert_eq!(problem_of(unknown).code, "replica_not_found");
}

#[tokio::test]
async fn a_read_that_nobody_waits_for_is_refused() {
    let site = Site::start().await;
    let mut piece = put("/api/v1/hosts/n1/reads/9", "application/octet-stream", "x");
    piece
        .headers_mut()
        .insert(LOG_OFFSET_HEADER, "0".parse().unwrap());
    assert_eq!(
        site.as_user(0, piece).await.problem().code,
        "read_not_found"
    );
}

#[tokio::test]
async fn a_clock_that_is_off_is_shown_and_warned_of_and_small_changes_of_it_are_no_news() {
    let site = Site::start().await;
    let agent = FakeAgent::join(&site).await;
    let client = site.client();
    let path = paths::host_part(&agent.host, "lease");
    let lease = async |skew_ms: Option<i64>| -> Lease {
        let ask = LeaseAsk {
            agent: None,
            skew_ms,
        };
        let asked = client.call(Method::POST, &path, &ask, PATIENCE);
        asked.await.unwrap()
    };
    let shown = async || -> HostView { site.get(&paths::host(&agent.host)).await };
    assert!(lease(None).await.now.is_some());
    assert_eq!(shown().await.clock_skew_ms, None);
    lease(Some(400)).await;
    assert_eq!(shown().await.clock_skew_ms, Some(400));
    assert!(shown().await.warnings.is_empty());
    lease(Some(-3_200)).await;
    let warned = shown().await.warnings;
    assert!(
        warned[0].starts_with("its clock is 3.2 s behind the controller's"),
        "{warned:?}"
    );
    let revision = site.get::<ServiceList>(&paths::services()).await.revision;
    let commits = site.commits_at_rest().await;
    for skew in [-3_100, -3_300, -3_650] {
        lease(Some(skew)).await;
        assert_eq!(shown().await.clock_skew_ms, Some(-3_200));
    }
    let now = site.get::<ServiceList>(&paths::services()).await.revision;
    assert_eq!(now, revision);
    assert_eq!(site.commits_at_rest().await, commits);
    // An agent of before, which sends an empty object, keeps its lease.
    let empty = serde_json::Map::new();
    let old = client.call::<Lease>(Method::POST, &path, &empty, PATIENCE);
    old.await.unwrap();
}

#[tokio::test]
async fn of_two_agents_of_a_name_the_second_is_told_nothing_and_changes_nothing() {
    let site = Site::start().await;
    let identity = |text: &str| Some(text.parse::<AgentIdentity>().unwrap());
    let agent = FakeAgent::join(&site).await;
    let mut facts = agent.facts();
    facts.agent = identity("machine-1/boot-1/folder-1");
    agent.report(&facts).await;
    site.submit(&profile("web", 1)).await;

    let client = site.client();
    let mut other = facts.clone();
    other.agent = identity("machine-2/boot-2/folder-2");
    other.boot_id = "boot-2".to_owned();
    let report = paths::host_part(&agent.host, "report");
    let lease = paths::host_part(&agent.host, "lease");
    let ask = LeaseAsk {
        agent: other.agent.clone(),
        skew_ms: None,
    };
    let desired = paths::host_part(&agent.host, "desired");
    let desired = paths::with_parameters(&desired, &[("agent", "machine-2/boot-2/folder-2")]);
    let refused = async |site: &Site| {
        let client = site.client();
        let report = client.call::<Lease>(Method::PUT, &report, &other, PATIENCE);
        let lease = client.call::<Lease>(Method::POST, &lease, &ask, PATIENCE);
        let desired = client.get::<DesiredSet>(&desired, PATIENCE);
        [
            problem_of(report.await),
            problem_of(lease.await),
            problem_of(desired.await),
        ]
    };
    for problem in refused(&site).await {
        assert_eq!((problem.status, problem.code.as_str()), (409, "host_taken"));
        assert!(
            problem.detail.contains("on machine machine-1 for"),
            "{}",
            problem.detail
        );
        assert!(
            problem.detail.contains("another --host"),
            "{}",
            problem.detail
        );
        assert!(
            problem.detail.ends_with("it is at 127.0.0.1"),
            "{}",
            problem.detail
        );
    }
    let shown: HostView = client
        .get(&paths::host(&agent.host), PATIENCE)
        .await
        .unwrap();
    assert_eq!(
        (shown.boot_id.as_str(), &shown.agent),
        ("boot-1", &facts.agent)
    );
    // After a start the first one still has the name, though it has not been heard of.
    site.commits_at_rest().await;
    let site = site.killed_and_started().await;
    for problem in refused(&site).await {
        assert_eq!(problem.code, "host_taken");
    }
    // The same agent is let in at once; an identity that is none is refused as such.
    let again = site.client();
    let told = again.call::<Lease>(Method::PUT, &report, &facts, PATIENCE);
    told.await.unwrap();
    let garbled = paths::host_part(&agent.host, "desired?agent=x");
    let problem = problem_of(again.get::<DesiredSet>(&garbled, PATIENCE).await);
    assert_eq!(problem.code, "bad_parameter");
}

#[tokio::test]
async fn moments_are_as_old_as_told_however_far_the_hosts_clock_is_off() {
    let site = Site::start().await;
    let agent = FakeAgent::join(&site).await;
    site.submit(&profile("web", 1)).await;
    let set = agent.desired_until(|set| !set.replicas.is_empty()).await;
    let replica = &set.replicas[0];
    let now = crate::clock::wall().as_unix_millis();
    // The host's clock is an hour ahead; the failure was 30 s ago.
    let sent = now + 3_600_000;
    let mut failed = status(1, State::Backoff, false);
    failed.last_failure = Some(Failure {
        reason: Reason::Exit(ExitStatus::Code(1)),
        exit: None,
        run: failed.run,
        at: WallClock::from_unix_millis(sent - 30_000),
        probe_output: None,
    });
    let client = site
        .client()
        .with_token(Some(replica.tokens.worker.clone()));
    let desired = &replica.desired;
    let path = paths::status(&desired.service, desired.index, desired.incarnation);
    let mut headers = http::HeaderMap::new();
    headers.insert(SENT_HEADER, sent.into());
    let body = serde_json::to_vec(&failed).unwrap().into();
    let told = client.send_with(
        Method::PUT,
        &path,
        headers,
        Some(body),
        "application/json",
        PATIENCE,
    );
    told.await.unwrap();
    let shown = site.service("web").await.replicas[0].clone();
    let at = shown.last_failure_detail.unwrap().at.as_unix_millis();
    assert!(
        at.abs_diff(now - 30_000) < 20_000,
        "shown {at}, it was at {}",
        now - 30_000
    );
}

// Its end frees its numbers, or lets what took its place begin; the agent does not tell it while its worker lives.
#[tokio::test]
async fn the_worker_of_a_replica_whose_place_another_took_is_heard_to_the_end() {
    let site = Site::start().await;
    let agent = FakeAgent::join(&site).await;
    let submit = put(
        &paths::service(&"web"),
        "application/toml",
        profile("web", 1),
    );
    assert_eq!(site.as_user(OWNER, submit).await.status, StatusCode::OK);
    let set = agent.desired_until(|set| !set.replicas.is_empty()).await;
    let old = set.replicas[0].clone();
    let mut facts = agent.facts();
    facts.boot_id = "boot-2".into();
    agent.report(&facts).await;
    let incarnation = |one: &DesiredReplica| one.desired.incarnation;
    let renewed = |set: &DesiredSet| {
        let mut all = set.replicas.iter();
        all.any(|one| incarnation(one) > incarnation(&old))
    };
    agent.desired_until(renewed).await;
    // It lives all the same.
    facts.replicas = vec![portreeve::registry::ReplicaReport {
        host: facts.host.clone(),
        service: old.desired.service.clone(),
        index: 0,
        incarnation: incarnation(&old),
        service_id: None,
        grant: None,
        status: status(1, State::Up, true),
    }];
    agent.report(&facts).await;
    let wants = |set: &DesiredSet, want: Want| {
        let mut all = set.replicas.iter();
        all.any(|one| incarnation(one) == incarnation(&old) && one.desired.want == want)
    };
    agent.desired_until(|set| wants(set, Want::Stop)).await;
    let end = status(2, State::Final(Final::Stopped), false);
    agent.tell(&old, &end).await;
    agent.desired_until(|set| wants(set, Want::Forget)).await;
}
