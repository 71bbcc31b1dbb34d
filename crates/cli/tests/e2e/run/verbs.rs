//! What owners and administrators do meanwhile: stop and run again, delete, submit, lose the controller.

use crate::stranger::Stranger;
use crate::world::{PORTREEVE, World, eventually, kill};

use super::{POOL, Site, controller, hello, port, shell, standing};

#[test]
fn after_a_stop_the_next_job_is_the_next_incarnation_and_every_number_is_free_again() {
    let Some(site) = Site::new("20000-20001") else {
        return;
    };
    for incarnation in 0..3 {
        let mut job = site.job("a", &hello(&[]));
        let replica = site.replica_when("web", 0, "ready anew", |it| {
            it["ready"] == true && it["incarnation"] == incarnation
        });
        assert_eq!(site.held(), 1, "{replica:#}");
        site.world.ok(&["stop", "web"]);
        assert_eq!(job.ended(), Some(0), "{}", job.stderr());
        assert!(eventually(|| site.held() == 0));
    }
    // A number freed twice would be given twice.
    let two = [site.job("b", &hello(&[])), site.job("c", &hello(&[]))];
    let (first, second) = (site.ready("web", 0), site.ready("web", 1));
    assert_ne!(port(&first), port(&second));
    assert_eq!(site.held(), 2);
    drop(two);
}

#[test]
fn a_service_with_living_jobs_is_not_deleted_and_then_its_name_is_free_for_another_kind() {
    let Some(site) = Site::new(POOL) else { return };
    let mut job = site.job("a", &hello(&[]));
    site.ready("web", 0);
    let refused = site.world.run(&["delete", "web"]);
    assert!(
        refused.stderr.contains("portreeve stop web.root"),
        "{refused:?}"
    );
    site.ready("web", 0);
    site.world.ok(&["stop", "web"]);
    assert_eq!(job.ended(), Some(0), "{}", job.stderr());
    assert!(eventually(|| site.held() == 0));
    site.world.ok(&["delete", "web"]);
    // Now a submitted one has the name, and no job takes it.
    let text = crate::world::hello("web", 1, "", crate::world::USUAL);
    let file = site.world.profile("web.toml", &text);
    site.world.ok(&["submit", &file]);
    let before = site.ready("web", 0);
    let mut job = site.job("b", &hello(&[]));
    assert_eq!(job.ended(), Some(125));
    assert!(job.stderr().contains("--name"), "{}", job.stderr());
    assert_eq!(standing(&site.ready("web", 0)), standing(&before));
}

#[test]
fn a_controller_that_is_away_at_the_ask_is_waited_for() {
    let Some(site) = Site::new(POOL) else {
        return;
    };
    site.controller.take().unwrap().end("KILL");
    let mut late = site.job("late", &hello(&["--port-wait", "1s"]));
    assert_eq!(late.ended(), Some(75), "{}", late.stderr());
    assert!(late.stderr().contains("controller"), "{}", late.stderr());
    let job = site.job("a", &hello(&[]));
    assert!(eventually(|| job.stderr().contains("waits:")));
    site.controller.replace(Some(controller(&site.world)));
    site.ready("web", 0);
    assert_eq!(site.held(), 1);
    drop(job);
}

#[test]
fn a_controller_with_empty_data_leaves_a_job_alone_and_its_numbers_with_it() {
    let Some(site) = Site::new("20000-20001") else {
        return;
    };
    let mut job = site.job("a", &hello(&[]));
    let before = site.ready("web", 0);
    site.controller.take().unwrap().end("KILL");
    std::fs::rename(site.world.path("controller"), site.world.path("old")).unwrap();
    site.controller.replace(Some(controller(&site.world)));
    let up = || site.world.json(&["hosts"])["hosts"][0]["state"] == "up";
    assert!(eventually(up));
    let address = format!("http://127.0.0.1:{}/", port(&before));
    assert!(site.world.curl(&[&address]).contains("hello"));
    // Who looks is told that something runs there that this controller does not know.
    let shown = || {
        site.world
            .ok(&["host", "n1"])
            .contains("not known to this controller")
    };
    assert!(eventually(shown));
    // The same name again is another copy with another number, and the first is not touched.
    let next = site.job("b", &hello(&[]));
    let mut other = serde_json::Value::Null;
    let ready = eventually(|| {
        let service = site.world.run(&["service", "web", "-o", "json"]);
        let service: serde_json::Value = serde_json::from_str(&service.stdout).unwrap_or_default();
        let all = service["replicas"].as_array().cloned().unwrap_or_default();
        let found = all
            .into_iter()
            .find(|it| it["ready"] == true && port(it) != port(&before));
        other = found.unwrap_or_default();
        other.is_object()
    });
    assert!(ready, "{}", next.stderr());
    assert!(site.world.curl(&[&address]).contains("hello"));
    job.signal("TERM");
    assert_eq!(job.ended(), Some(0), "{}", job.stderr());
    let address = format!("http://127.0.0.1:{}/", port(&other));
    assert!(site.world.curl(&[&address]).contains("hello"));
    drop(next);
}

#[test]
fn a_job_is_heard_of_by_a_controller_that_lost_its_secret() {
    let Some(site) = Site::new(POOL) else { return };
    let job = site.job("a", &hello(&[]));
    site.ready("web", 0);
    // News is written with the next truth.
    let quiet = "kind = \"service\"\nname = \"quiet\"\nreplicas = 0\ncommand = \"x\"\n";
    let quiet = site.world.profile("quiet.toml", quiet);
    site.world.ok(&["submit", &quiet]);
    site.controller.take().unwrap().end("KILL");
    std::fs::remove_file(site.world.path("controller/secret")).unwrap();
    site.controller.replace(Some(controller(&site.world)));
    let before = site.ready("web", 0);
    kill(
        i32::try_from(before["pid"].as_i64().unwrap()).unwrap(),
        "KILL",
    );
    let after = site.replica_when("web", 0, "told of its restart", |it| {
        it["restarts"] == 1 && it["ready"] == true
    });
    assert_eq!(after["incarnation"], before["incarnation"]);
    drop(job);
}

#[test]
fn strangers_at_every_number_are_given_up_on_after_six_in_ten_minutes() {
    let Some(site) = Site::new("20000-20019") else {
        return;
    };
    let go = site.world.path("go").display().to_string();
    let script = format!(
        "while [ ! -e {go}-$PORTREEVE_INCARNATION ]; do sleep 0.05; done; exec {PORTREEVE} hello --port ${{port.http}}"
    );
    let options = ["--name", "web", "--port", "http", "--ready", "http:/"];
    let mut job = site.job("a", &shell(&options, &script));
    let mut strangers = Vec::new();
    for incarnation in 0..6 {
        let replica = site.replica_when("web", 0, "up", |it| {
            it["pid"].is_number() && it["incarnation"] == incarnation
        });
        let taken = u16::try_from(port(&replica)).unwrap();
        strangers.push(Stranger::new(&site.world, "0.0.0.0", taken));
        std::fs::write(format!("{go}-{incarnation}"), "").unwrap();
    }
    assert_eq!(job.ended(), Some(75), "{}", job.stderr());
    let said = job.stderr();
    assert_eq!(said.matches("asks for other numbers").count(), 5, "{said}");
    let ended = site.replica_when("web", 0, "ended", |it| it["job_state"] == "EXIT");
    assert_eq!(ended["incarnation"], 5, "{ended:#}");
    assert!(eventually(|| site.held() == 0));
    for stranger in strangers {
        stranger.leave();
    }
}

#[test]
fn many_jobs_at_once_get_a_number_each_and_leave_nothing() {
    const JOBS: u64 = 40;
    let Some(site) = Site::new("20000-20099") else {
        return;
    };
    let options = [
        "--name",
        "crowd",
        "--port",
        "http",
        "--set",
        "readiness={ command = \"true\" }",
    ];
    let arguments = shell(&options, "echo $PORTREEVE_PORT_HTTP; exec sleep 1000");
    let mut jobs: Vec<_> = (0..JOBS)
        .map(|number| site.job(&format!("job-{number}"), &arguments))
        .collect();
    let ready = |world: &World| world.json(&["service", "crowd"])["ready"] == JOBS;
    assert!(eventually(
        || site.world.run(&["service", "crowd"]).code == Some(0)
    ));
    assert!(eventually(|| ready(&site.world)));
    let mut numbers: Vec<String> = jobs.iter().map(super::Job::stdout).collect();
    numbers.sort();
    numbers.dedup();
    assert_eq!((numbers.len() as u64, site.held()), (JOBS, JOBS));
    // All of them killed in the same moment.
    for job in &jobs {
        job.signal("KILL");
    }
    jobs.iter_mut().for_each(|job| _ = job.ended());
    assert!(eventually(|| site.held() == 0));
    assert_eq!(site.others(), Vec::<String>::new());
}
