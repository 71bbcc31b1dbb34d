//! Launchers that set what Slurm, LSF and PBS set, with several tasks at once.

use std::process::Child;

use serde_json::Value;

use crate::world::{PORTREEVE, eventually};

use super::{POOL, Site, hello};

/// Starts all its tasks at once, each with variables of its own, and ends when they have.
struct Launcher<'a> {
    site: &'a Site,
    child: Child,
    name: String,
}

impl<'a> Launcher<'a> {
    /// `common` are the job's variables; each of `tasks` is one task with its own.
    fn start(site: &'a Site, name: &str, common: &str, tasks: &[&str]) -> Self {
        let mut script = format!("{common}\npids=\n");
        for (nth, variables) in tasks.iter().enumerate() {
            let err = site.world.path(&format!("{name}.{nth}.err"));
            script.push_str(&format!(
                "env {variables} \"$@\" 2>{} & pids=\"$pids $!\"\n",
                err.display()
            ));
        }
        script.push_str("trap 'kill -TERM $pids' TERM\nfor pid in $pids; do wait $pid; done\n");
        script.push_str("code=0\nfor pid in $pids; do wait $pid || code=$?; done\nexit $code\n");
        let file = site.world.profile(&format!("{name}.sh"), &script);
        let mut command = site.world.command("sh");
        command
            .arg(&file)
            .args([PORTREEVE, "run"])
            .args(hello(&[]))
            .env("PORTREEVE_AGENT", site.socket());
        for variable in [
            "SLURM_JOB_ID",
            "SLURM_PROCID",
            "SLURM_NTASKS",
            "SLURM_STEP_NUM_TASKS",
            "SLURM_ARRAY_JOB_ID",
            "SLURM_ARRAY_TASK_ID",
            "LSB_JOBID",
            "PBS_JOBID",
        ] {
            command.env_remove(variable);
        }
        Self {
            site,
            child: command.spawn().unwrap(),
            name: name.to_owned(),
        }
    }

    /// What a task said.
    fn told(&self, task: usize) -> String {
        let file = self.site.world.path(&format!("{}.{task}.err", self.name));
        std::fs::read_to_string(file).unwrap_or_default()
    }

    /// TERM to the launcher, which hands it to its tasks; all end well.
    fn end(mut self) {
        crate::world::kill(self.child.id().cast_signed(), "TERM");
        let mut code = None;
        let ended = eventually(|| {
            code = self.child.try_wait().unwrap();
            code.is_some()
        });
        assert!(ended, "the launcher goes on: {}", self.told(0));
        assert_eq!(code.and_then(|it| it.code()), Some(0), "{}", self.told(0));
    }
}

impl Drop for Launcher<'_> {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Which replicas live, with their jobs.
fn living(site: &Site) -> Vec<(u64, String)> {
    let shown = site.world.run(&["service", "web", "-o", "json"]);
    let shown: Value = serde_json::from_str(&shown.stdout).unwrap_or_default();
    let all = shown["replicas"].as_array().cloned().unwrap_or_default();
    let ready = all.iter().filter(|it| it["ready"] == true);
    let who = |it: &Value| {
        let job = it["job"].as_str().unwrap_or_default().to_owned();
        (it["replica"].as_u64().unwrap(), job)
    };
    ready.map(who).collect()
}

fn grow_to(site: &Site, wanted: &[(u64, &str)], launchers: &[&Launcher<'_>]) {
    let wanted: Vec<_> = wanted
        .iter()
        .map(|(index, job)| (*index, (*job).to_owned()))
        .collect();
    let met = eventually(|| living(site) == wanted);
    let told: Vec<_> = launchers.iter().map(|it| it.told(0)).collect();
    assert!(met, "{:?} and not {wanted:?}: {told:?}", living(site));
    // Every one has a number of its own.
    let lines = site.world.ok(&["endpoints", "web"]);
    let mut lines: Vec<_> = lines.lines().collect();
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines.len(), wanted.len());
}

#[test]
fn the_tasks_of_a_slurm_step_are_the_replicas_of_their_numbers() {
    let Some(site) = Site::new(POOL) else { return };
    let common = "export SLURM_JOB_ID=4711 SLURM_NTASKS=4 SLURM_STEP_NUM_TASKS=4";
    let tasks = [
        "SLURM_PROCID=3",
        "SLURM_PROCID=0",
        "SLURM_PROCID=2",
        "SLURM_PROCID=1",
    ];
    let step = Launcher::start(&site, "step", common, &tasks);
    let job = "slurm 4711";
    grow_to(&site, &[(0, job), (1, job), (2, job), (3, job)], &[&step]);
    step.end();
    assert_eq!(site.held(), 0);
}

#[test]
fn elements_of_a_slurm_array_that_run_at_once_do_not_share_a_number() {
    let Some(site) = Site::new(POOL) else { return };
    // Two elements of two tasks each; the second has a job number of its own, as Slurm gives it.
    let element = |id: u32, array: u32| {
        format!(
            "export SLURM_JOB_ID={id} SLURM_ARRAY_JOB_ID=4711 SLURM_ARRAY_TASK_ID={array} SLURM_NTASKS=2"
        )
    };
    let tasks = ["SLURM_PROCID=0", "SLURM_PROCID=1"];
    let one = Launcher::start(&site, "one", &element(4711, 0), &tasks);
    let two = Launcher::start(&site, "two", &element(4712, 1), &tasks);
    let (first, second) = ("slurm 4711_0", "slurm 4711_1");
    grow_to(
        &site,
        &[(0, first), (1, first), (2, second), (3, second)],
        &[&one, &two],
    );
    two.end();
    grow_to(&site, &[(0, first), (1, first)], &[&one]);
    one.end();
}

#[test]
fn a_step_of_more_tasks_than_its_job_says_counts_by_the_step() {
    let Some(site) = Site::new(POOL) else { return };
    // `srun --ntasks=2` in an array whose elements were submitted with one task each.
    let element = |id: u32, array: u32| {
        format!(
            "export SLURM_JOB_ID={id} SLURM_ARRAY_JOB_ID=4711 SLURM_ARRAY_TASK_ID={array} \
             SLURM_NTASKS=1 SLURM_STEP_NUM_TASKS=2"
        )
    };
    let tasks = ["SLURM_PROCID=0", "SLURM_PROCID=1"];
    let one = Launcher::start(&site, "one", &element(4711, 0), &tasks);
    let two = Launcher::start(&site, "two", &element(4712, 1), &tasks);
    let (first, second) = ("slurm 4711_0", "slurm 4711_1");
    grow_to(
        &site,
        &[(0, first), (1, first), (2, second), (3, second)],
        &[&one, &two],
    );
    one.end();
    two.end();
}

#[test]
fn arrays_of_lsf_and_pbs_are_numbered_by_their_elements() {
    let Some(site) = Site::new(POOL) else { return };
    let elements = ["LSB_JOBINDEX=2", "LSB_JOBINDEX=1", "LSB_JOBINDEX=3"];
    let lsf = Launcher::start(&site, "lsf", "export LSB_JOBID=815", &elements);
    let wanted = [(1, "lsf 815[1]"), (2, "lsf 815[2]"), (3, "lsf 815[3]")];
    grow_to(&site, &wanted, &[&lsf]);
    lsf.end();
    let elements = [
        "PBS_JOBID=9[4].head PBS_ARRAY_INDEX=4",
        "PBS_JOBID=9[5].head PBS_ARRAYID=5",
    ];
    let pbs = Launcher::start(&site, "pbs", ":", &elements);
    grow_to(
        &site,
        &[(4, "pbs 9[4].head"), (5, "pbs 9[5].head")],
        &[&pbs],
    );
    pbs.end();
}

#[test]
fn tasks_of_two_steps_with_the_same_numbers_are_replicas_beside_each_other() {
    let Some(site) = Site::new(POOL) else { return };
    let common = "export SLURM_JOB_ID=4711 SLURM_NTASKS=2";
    let tasks = ["SLURM_PROCID=0", "SLURM_PROCID=1"];
    let job = "slurm 4711";
    let one = Launcher::start(&site, "one", common, &tasks);
    grow_to(&site, &[(0, job), (1, job)], &[&one]);
    let two = Launcher::start(&site, "two", common, &tasks);
    grow_to(
        &site,
        &[(0, job), (1, job), (2, job), (3, job)],
        &[&one, &two],
    );
    one.end();
    two.end();
}

#[test]
fn a_stop_that_takes_longer_than_the_scheduler_waits_is_warned_of() {
    let Some(site) = Site::new(POOL) else { return };
    let quick = ["--name", "quick", "--restart", "never", "--set"];
    for (name, variable, drain, words) in [
        (
            "slurm",
            ("SLURM_JOB_ID", "1"),
            "25s",
            Some("kills 30s after TERM"),
        ),
        ("short", ("SLURM_JOB_ID", "2"), "1s", None),
        (
            "lsf",
            ("LSB_JOBID", "3"),
            "1s",
            Some("kills 10s after TERM"),
        ),
        (
            "pbs",
            ("PBS_JOBID", "4.head"),
            "1s",
            Some("kills 10s after TERM"),
        ),
    ] {
        let drain = format!("stop.drain={drain}");
        let arguments = [&quick[..], &[&drain, "--", "true"]].concat();
        let mut job = site.job_in(name, &arguments, &[variable]);
        assert_eq!(job.ended(), Some(0), "{name}: {}", job.stderr());
        let told = job.stderr();
        let warned = told.contains("warning: a stop takes up to");
        assert_eq!(warned, words.is_some(), "{name}: {told}");
        assert!(told.contains(words.unwrap_or("")), "{name}: {told}");
    }
}
