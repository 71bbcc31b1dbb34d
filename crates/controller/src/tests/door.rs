use http::Method;
use portreeve::commit::{Handout, Speaker};
use portreeve::identity::HostName;
use portreeve::supervision::{ExitStatus, Final, Reason, State};
use portreeve_api::body::LogRead;
use portreeve_api::paths;

use crate::Door;
use crate::site::{Site, facts, profile, request, status};

#[tokio::test]
async fn a_host_of_this_process_joins_runs_and_ends_as_one_over_rest() {
    let site = Site::start().await;
    let door = site.controller.door();
    let n1: HostName = "n1".parse().unwrap();
    let first = door.desired(&n1, None, None).await.unwrap();
    assert!(first.handout.report_first(), "nobody heard of it");
    let lease = door.report(&n1, facts(&n1), None).await.unwrap();
    assert_eq!(lease.instance, first.instance);
    site.submit(&profile("web", 1)).await;
    let handout = placed(&door).await;
    let desired = &handout.replicas()[0];
    let speaker = Speaker {
        name: desired.name(),
        service_id: desired.service_id,
    };
    let up = status(1, State::Up, true);
    door.status(speaker.clone(), up, None).await.unwrap();
    let shown = site.service("web").await;
    assert_eq!((shown.ready, shown.desired), (1, 1));
    let end = State::Final(Final::Failed(Reason::Exit(ExitStatus::Code(1))));
    let end = status(2, end, false);
    door.status(speaker.clone(), end, None).await.unwrap();
    assert_eq!(site.service("web").await.replicas[0].job_state, "EXIT");
    let mut unknown = speaker;
    unknown.service_id.0 += 1;
    let up = status(3, State::Up, true);
    let refused = door.status(unknown, up, None).await.unwrap_err();
    assert_eq!((refused.status, &*refused.code), (404, "replica_not_found"));
}

#[tokio::test]
async fn a_second_agent_is_refused_at_the_door_and_a_log_there_is_empty_at_once() {
    let site = Site::start().await;
    let door = site.controller.door();
    let n1: HostName = "n1".parse().unwrap();
    let first = "m1/b/f".parse().unwrap();
    let second = "m2/b/f".parse().unwrap();
    door.report(&n1, facts(&n1), None).await.unwrap();
    door.lease(n1.clone(), Some(&first), None).await.unwrap();
    let refused = door.lease(n1.clone(), Some(&second), None).await;
    let refused = refused.unwrap_err();
    assert_eq!((refused.status, &*refused.code), (409, "host_taken"));
    site.submit(&profile("web", 1)).await;
    let mut since = Some(placed(&door).await.revision());
    let path = paths::replica_part(&"web", 0, "logs");
    let read = site.as_user(0, request(Method::GET, &path));
    let mut read = std::pin::pin!(read);
    loop {
        tokio::select! {
            read = &mut read => {
                assert_eq!((read.status.as_u16(), &*read.body), (200, &b""[..]));
                return;
            }
            wanted = door.desired(&n1, None, since) => {
                since = Some(wanted.unwrap().handout.revision());
            }
        }
    }
}

/// What is wanted of n1 once that is anything.
async fn placed(door: &Door) -> Handout<LogRead> {
    let n1 = "n1".parse().unwrap();
    let mut since = None;
    loop {
        let handout = door.desired(&n1, None, since).await.unwrap().handout;
        if !handout.replicas().is_empty() {
            return handout;
        }
        since = Some(handout.revision());
    }
}
