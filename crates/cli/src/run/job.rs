//! What another scheduler tells a job about itself, in its environment.

use std::time::Duration;

/// The job around us; all empty where there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Job {
    /// In its scheduler's words.
    pub(crate) name: Option<String>,
    /// Which of its tasks this is.
    pub(crate) index: Option<u32>,
    /// How long its scheduler waits between TERM and KILL, as it comes out of the box.
    pub(crate) kill_wait: Option<Duration>,
}

impl Job {
    /// Reads it from variables.
    pub(crate) fn from_variables(read: impl Fn(&str) -> Option<String>) -> Self {
        let number = |name: &str| read(name).and_then(|text| text.trim().parse::<u32>().ok());
        if let Some(id) = read("SLURM_JOB_ID") {
            let array = number("SLURM_ARRAY_TASK_ID");
            // Those of the step: `srun --ntasks` may start more than the job was submitted with.
            let tasks = number("SLURM_STEP_NUM_TASKS").or_else(|| number("SLURM_NTASKS"));
            let tasks = tasks.unwrap_or(1).max(1);
            let task = number("SLURM_PROCID");
            let name = match (read("SLURM_ARRAY_JOB_ID"), array) {
                (Some(first), Some(array)) => format!("slurm {first}_{array}"),
                _ => format!("slurm {id}"),
            };
            return Self {
                name: bounded(name),
                // Each element of an array counts its tasks from 0 again.
                index: match (array, task) {
                    (Some(array), Some(task)) if tasks > 1 => {
                        array.checked_mul(tasks).and_then(|it| it.checked_add(task))
                    }
                    (Some(array), _) => Some(array),
                    (None, task) => task,
                },
                // KillWait of slurm.conf.
                kill_wait: Some(Duration::from_secs(30)),
            };
        }
        if let Some(id) = read("LSB_JOBID") {
            // 0 says that the job is no array.
            let index = number("LSB_JOBINDEX").filter(|index| *index > 0);
            return Self {
                name: bounded(match index {
                    Some(index) => format!("lsf {id}[{index}]"),
                    None => format!("lsf {id}"),
                }),
                index,
                // JOB_TERMINATE_INTERVAL of lsb.params.
                kill_wait: Some(Duration::from_secs(10)),
            };
        }
        if let Some(id) = read("PBS_JOBID") {
            return Self {
                name: bounded(format!("pbs {id}")),
                index: number("PBS_ARRAY_INDEX").or_else(|| number("PBS_ARRAYID")),
                // kill_delay of a queue.
                kill_wait: Some(Duration::from_secs(10)),
            };
        }
        Self::default()
    }
}

/// It is shown to people; a strange one is not worth a refusal.
fn bounded(name: String) -> Option<String> {
    (name.len() <= 64 && !name.chars().any(char::is_control)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(variables: &[(&str, &str)]) -> Job {
        Job::from_variables(|name| {
            let mut all = variables.iter();
            all.find(|(known, _)| *known == name)
                .map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn each_scheduler_names_the_job_and_its_task() {
        type Variables = &'static [(&'static str, &'static str)];
        let table: [(Variables, &str, Option<u32>); 9] = [
            (
                &[("SLURM_JOB_ID", "7"), ("SLURM_PROCID", "3")],
                "slurm 7",
                Some(3),
            ),
            (
                &[
                    ("SLURM_JOB_ID", "9"),
                    ("SLURM_ARRAY_JOB_ID", "7"),
                    ("SLURM_ARRAY_TASK_ID", "4"),
                    ("SLURM_PROCID", "0"),
                ],
                "slurm 7_4",
                Some(4),
            ),
            (
                &[
                    ("SLURM_JOB_ID", "9"),
                    ("SLURM_ARRAY_JOB_ID", "7"),
                    ("SLURM_ARRAY_TASK_ID", "4"),
                    ("SLURM_NTASKS", "2"),
                    ("SLURM_PROCID", "1"),
                ],
                "slurm 7_4",
                Some(9),
            ),
            (
                &[
                    ("SLURM_JOB_ID", "9"),
                    ("SLURM_ARRAY_JOB_ID", "7"),
                    ("SLURM_ARRAY_TASK_ID", "4"),
                    ("SLURM_NTASKS", "1"),
                    ("SLURM_STEP_NUM_TASKS", "3"),
                    ("SLURM_PROCID", "1"),
                ],
                "slurm 7_4",
                Some(13),
            ),
            (&[("SLURM_JOB_ID", "7")], "slurm 7", None),
            (&[("LSB_JOBID", "7"), ("LSB_JOBINDEX", "0")], "lsf 7", None),
            (
                &[("LSB_JOBID", "7"), ("LSB_JOBINDEX", "2")],
                "lsf 7[2]",
                Some(2),
            ),
            (
                &[("PBS_JOBID", "7.head"), ("PBS_ARRAY_INDEX", "2")],
                "pbs 7.head",
                Some(2),
            ),
            (
                &[("PBS_JOBID", "7.head"), ("PBS_ARRAYID", "x")],
                "pbs 7.head",
                None,
            ),
        ];
        for (variables, name, index) in table {
            let job = job(variables);
            assert_eq!(job.name.as_deref(), Some(name), "{variables:?}");
            assert_eq!(job.index, index, "{variables:?}");
            let wait = if name.starts_with("slurm") { 30 } else { 10 };
            assert_eq!(job.kill_wait, Some(Duration::from_secs(wait)));
        }
        assert_eq!(job(&[("SLURM_PROCID", "3")]), Job::default());
    }

    #[test]
    fn numbers_out_of_bounds_and_strange_names_are_no_job_but_no_panic_either() {
        let far = [
            ("SLURM_JOB_ID", "a\nb"),
            ("SLURM_ARRAY_TASK_ID", "4294967295"),
            ("SLURM_NTASKS", "4294967295"),
            ("SLURM_PROCID", "4294967295"),
        ];
        let job = job(&far);
        assert_eq!((job.name, job.index), (None, None));
    }
}
