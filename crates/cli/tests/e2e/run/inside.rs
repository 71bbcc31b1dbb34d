//! What a service sees inside a job, and what a job may run.

use crate::world::{PORTREEVE, kill};

use super::{POOL, Site, shell};

#[test]
fn output_and_environment_are_the_jobs_own() {
    let Some(site) = Site::new(POOL) else { return };
    let script = "echo out $JOBS_OWN $PORT $PORTREEVE_PORT_HTTP ${port.http} $PORTREEVE_LEFT; \
         pwd; echo err >&2; head -c 3000000 /dev/zero | tr '\\0' x; echo; cat \"$PORTREEVE_TOKEN_FILE\" | head -c 4";
    let options = ["--name", "web", "--port", "http", "--restart", "never"];
    let variables = [
        ("JOBS_OWN", "mine"),
        ("PORT", "1"),
        ("PORTREEVE_LEFT", "outer"),
    ];
    let mut job = site.job_in("a", &shell(&options, script), &variables);
    assert_eq!(job.ended(), Some(0), "{}", job.stderr());
    let out = job.stdout();
    let mut lines = out.lines();
    assert_eq!(lines.next(), Some("out mine 20000 20000 20000"));
    let here = std::env::current_dir().unwrap();
    assert_eq!(lines.next(), here.to_str());
    assert_eq!(lines.next().map(str::len), Some(3_000_000));
    assert_eq!(lines.next(), Some("pj1."));
    assert!(job.stderr().contains("err\n"), "{}", job.stderr());
}

#[test]
fn a_profile_s_own_port_variable_is_kept_and_standard_input_is_empty() {
    use std::os::unix::fs::PermissionsExt;
    let Some(site) = Site::new(POOL) else { return };
    let variables = site.world.profile("web.env", "FROM_FILE=file\nBOTH=file\n");
    std::fs::set_permissions(&variables, PermissionsExt::from_mode(0o600)).unwrap();
    let text = format!(
        "kind = \"service\"\nname = \"web\"\nenv_file = \"{variables}\"\n\
         env = {{ PORT = \"7\", BOTH = \"profile\" }}\n\
         command = \"echo $$PORT $$FROM_FILE $$BOTH $$JOBS_OWN; cat; echo read\"\n\
         [restart]\npolicy = \"never\"\n[ports]\nhttp = \"any\"\n"
    );
    let file = site.world.profile("web.toml", &text);
    let mut job = site.job_with("a", &[&file], |command| {
        command
            .envs([("JOBS_OWN", "mine"), ("BOTH", "job"), ("PORT", "1")])
            // What a script feeds its job is not the service's.
            .stdin(std::fs::File::open(&variables).unwrap());
    });
    assert_eq!(job.ended(), Some(0), "{}", job.stderr());
    assert_eq!(job.stdout(), "7 file profile mine\nread\n");
}

#[test]
fn a_profile_is_run_as_well_and_a_bad_one_is_refused() {
    let Some(site) = Site::new(POOL) else { return };
    let text = crate::world::hello("web", 3, "", crate::world::USUAL);
    let file = site.world.profile("web.toml", &text);
    let mut job = site.job("a", &[&file]);
    site.ready("web", 0);
    assert_eq!(site.world.json(&["service", "web"])["desired"], 1);
    // The name is theirs as long as they live.
    let refused = site.world.run(&["submit", &file]);
    assert!(refused.stderr.contains("portreeve run"), "{refused:?}");
    job.signal("TERM");
    assert_eq!(job.ended(), Some(0), "{}", job.stderr());
    let bad = site.world.profile(
        "bad.toml",
        "kind = \"service\"\nname = \"x\"\ncomand = \"y\"\n",
    );
    let mut job = site.job("b", &[&bad]);
    assert_eq!(job.ended(), Some(125));
    assert!(job.stderr().contains("comand"), "{}", job.stderr());
    let elsewhere = shell(&["--name", "web.nobody"], "true");
    let mut job = site.job("c", &elsewhere);
    assert_eq!(job.ended(), Some(125));
    assert!(
        job.stderr().contains("may not attach to web.nobody"),
        "{}",
        job.stderr()
    );
}

#[test]
fn a_job_of_another_account_is_that_accounts_and_nobody_elses() {
    use std::os::unix::fs::PermissionsExt;
    let Some(site) = Site::new(POOL) else { return };
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: needs root to become another account");
        return;
    }
    // Everything on its way is open to that account, the binary too.
    let open = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    };
    open(&site.world.path(""), 0o755);
    let program = site.world.path("portreeve");
    std::fs::copy(PORTREEVE, &program).unwrap();
    let theirs = site.world.path("theirs");
    std::fs::create_dir(&theirs).unwrap();
    open(&theirs, 0o777);
    let nobody = |arguments: &[&str]| {
        let mut command = site.world.command("setpriv");
        command
            .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
            .arg(&program)
            .args(arguments)
            .env("PORTREEVE_AGENT", site.socket())
            .env("TMPDIR", &theirs)
            .current_dir(&theirs);
        command
    };
    let output = nobody(&["run", "--name", "web.root", "--", "true"]).output();
    let output = output.unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(said.contains("nobody may not attach to web.root"), "{said}");
    let script = "setsid sleep 4321 & exec sleep 1234";
    let mut run = nobody(&["run", "--name", "web", "--", "sh", "-c", script])
        .spawn()
        .unwrap();
    let replica = site.replica_when("web.nobody", 0, "up", |it| it["ready"] == true);
    let service = site.world.json(&["service", "web.nobody"]);
    assert_eq!(service["owner"], "nobody", "{replica:#}");
    kill(run.id().cast_signed(), "KILL");
    run.wait().unwrap();
    site.replica_when("web.nobody", 0, "ended", |it| it["job_state"] == "EXIT");
    assert_eq!(site.others(), Vec::<String>::new());
}
