//! Profiles that a seed draws, written as people write them, so that only valid ones come into a run.

use std::fmt::Write as _;
use std::ops::RangeInclusive;

use portreeve::profile::Profile;
use portreeve::time::Spelled;

use super::draw::Draw;

/// What profiles of one seed have in common.
#[derive(Clone, Debug)]
pub(super) struct Habits {
    /// How many hosts there are, named `n1` and on.
    pub(super) hosts: u32,
    /// Fixed numbers that services ask for: few, so that they meet.
    pub(super) fixed: RangeInclusive<u64>,
    /// The numbers that "any" draws from.
    pub(super) dynamic: RangeInclusive<u64>,
    /// The most replicas of one service.
    pub(super) most_replicas: u32,
}

/// The text of the profile of service `no`, and the profile.
pub(super) fn profile(draw: &mut Draw, no: usize, habits: &Habits) -> (String, Profile) {
    for _ in 0..ATTEMPTS {
        let text = Written::draw(draw, no, habits);
        if let Ok(checked) = Profile::from_toml(&text) {
            return (text, checked.profile);
        }
    }
    let text = format!("name = \"s{no}\"\ncommand = [\"serve\"]\n");
    let profile = Profile::from_toml(&text).expect("the least that runs is valid");
    (text, profile.profile)
}

/// Single rules that contradict each other are drawn again.
const ATTEMPTS: u32 = 20;

struct Written<'a> {
    draw: &'a mut Draw,
    habits: &'a Habits,
    text: String,
}

impl Written<'_> {
    fn draw(draw: &mut Draw, no: usize, habits: &Habits) -> String {
        let mut written = Written {
            draw,
            habits,
            text: format!("name = \"s{no}\"\ncommand = [\"serve\"]\n"),
        };
        written.head();
        let ports = written.ports();
        written.restart();
        written.probes(ports);
        written.stop();
        written.placement();
        written.text
    }

    fn line(&mut self, words: std::fmt::Arguments<'_>) {
        self.text.write_fmt(words).expect("a text takes everything");
        self.text.push('\n');
    }

    fn span(&mut self, ms: RangeInclusive<u64>) -> String {
        format!("\"{}\"", Spelled(self.draw.span(ms)))
    }

    fn head(&mut self) {
        if self.draw.once_in(8) {
            self.line(format_args!("replicas = \"per-host\""));
        } else {
            let replicas = self.draw.count(0..=self.habits.most_replicas);
            self.line(format_args!("replicas = {replicas}"));
        }
        if self.draw.once_in(8) {
            self.line(format_args!("pre_exec = [\"stage\"]"));
        }
        if self.draw.once_in(4) {
            self.line(format_args!("rerunnable = false"));
        }
        if self.draw.once_in(3) {
            self.line(format_args!("on_cut_off = \"stop\""));
        }
        if self.draw.once_in(4) {
            let min_up = self.span(100..=5_000);
            self.line(format_args!("min_up = {min_up}"));
        }
        if self.draw.once_in(4) {
            self.line(format_args!("visibility = \"cluster\""));
        }
    }

    /// Returns whether there is a published TCP port.
    fn ports(&mut self) -> bool {
        let count = self.draw.one_of(&[0, 1, 1, 1, 2, 3]);
        if count == 0 {
            return false;
        }
        let mut published = false;
        self.line(format_args!("[ports]"));
        for port in 0..count {
            let mut fields = Vec::new();
            match self.draw.within(0..=9) {
                0..=3 => fields.push("any = 1".to_owned()),
                4 | 5 => {
                    let block = self.draw.within(2..=4);
                    fields.push(format!("any = {block}"));
                }
                6 => {
                    let from = self.draw.within(self.habits.dynamic.clone());
                    let to = (from + self.draw.within(0..=5)).min(65_535);
                    fields.push(format!("any = 1, range = \"{from}-{to}\""));
                }
                _ => {
                    let fixed = self.draw.within(self.habits.fixed.clone());
                    fields.push(format!("fixed = {fixed}"));
                }
            }
            let protocol = self.draw.one_of(&["tcp", "tcp", "tcp", "udp", "tcp+udp"]);
            fields.push(format!("protocol = \"{protocol}\""));
            let hidden = self.draw.once_in(5);
            if hidden {
                fields.push("publish = false".to_owned());
            }
            let owner = self.draw.one_of(&["run", "run", "run", "user", "any"]);
            fields.push(format!("owner = \"{owner}\""));
            published |= !hidden && protocol != "udp";
            self.line(format_args!("p{port} = {{ {} }}", fields.join(", ")));
        }
        published
    }

    fn restart(&mut self) {
        let policy = self
            .draw
            .one_of(&["always", "always", "on-failure", "never"]);
        self.line(format_args!("[restart]\npolicy = \"{policy}\""));
        let initial = self.span(100..=5_000);
        let max = self.span(5_000..=20_000);
        let reset_after = self.span(1_000..=60_000);
        let jitter = self.draw.one_of(&["0.0", "0.1", "1.0"]);
        self.line(format_args!(
            "backoff = {{ initial = {initial}, max = {max}, jitter = {jitter}, reset_after = {reset_after} }}"
        ));
        match self.draw.within(0..=3) {
            0 => {}
            1 => self.line(format_args!("give_up = \"never\"")),
            _ => {
                let most = self.draw.within(0..=5);
                let mut fields = vec![format!("max_restarts = {most}")];
                match self.draw.within(0..=3) {
                    0 => fields.push("window = \"lifetime\"".to_owned()),
                    1 => {
                        let window = self.span(60_000..=600_000);
                        fields.push(format!("window = {window}"));
                    }
                    _ => {}
                }
                if self.draw.once_in(2) {
                    let rest = self.span(1_000..=20_000);
                    let times = self.draw.within(0..=3);
                    fields.push(format!(
                        "then = \"requeue\", rest = {rest}, max_requeues = {times}"
                    ));
                }
                self.line(format_args!("give_up = {{ {} }}", fields.join(", ")));
            }
        }
        if self.draw.once_in(4) {
            self.line(format_args!("success_exit = [0, 3]"));
        }
        if self.draw.once_in(4) {
            self.line(format_args!("no_restart_exit = [78]"));
        }
    }

    fn probes(&mut self, published: bool) {
        for probe in ["startup", "liveness", "readiness"] {
            if self.draw.once_in(2) {
                continue;
            }
            self.line(format_args!("[{probe}]"));
            let form = match self.draw.within(0..=3) {
                0 if published => "listening = true",
                1 if published => "http = { port = \"p0\" }",
                2 if published => "tcp = { port = \"p0\" }",
                _ => "command = [\"check\"]",
            };
            let interval = self.span(1_000..=20_000);
            self.line(format_args!("{form}\ninterval = {interval}"));
            if self.draw.once_in(2) {
                let timeout = self.span(100..=1_000);
                self.line(format_args!("timeout = {timeout}"));
            }
            if probe != "startup" && self.draw.once_in(3) {
                let delay = self.span(0..=10_000);
                self.line(format_args!("initial_delay = {delay}"));
            }
            if probe == "startup" && self.draw.once_in(2) {
                let within = self.span(20_000..=90_000);
                self.line(format_args!("within = {within}"));
            } else {
                let failures = self.draw.within(1..=4);
                self.line(format_args!("failure_threshold = {failures}"));
            }
            if probe == "readiness" {
                let successes = self.draw.one_of(&[1, 1, 1, 2, 3]);
                self.line(format_args!("success_threshold = {successes}"));
            }
        }
    }

    fn stop(&mut self) {
        let drain = if self.draw.once_in(3) {
            self.span(100..=8_000)
        } else {
            "\"0s\"".to_owned()
        };
        let grace = self.span(0..=10_000);
        let unkillable_after = self.span(1_000..=60_000);
        self.line(format_args!(
            "[stop]\ndrain = {drain}\ngrace = {grace}\nunkillable_after = {unkillable_after}"
        ));
    }

    fn placement(&mut self) {
        let (hosts, draw) = (self.habits.hosts, &mut *self.draw);
        let rule = match draw.within(0..=7) {
            0 => format!("labels = {{ zone = \"{}\" }}", draw.one_of(&["a", "b"])),
            1 => format!("exclude = \"n{}\"", draw.count(1..=hosts)),
            2 => {
                let from = draw.count(1..=hosts);
                let to = draw.count(from..=hosts);
                format!("hosts = \"n[{from}-{to}]\"")
            }
            _ => return,
        };
        self.line(format_args!("[placement]\n{rule}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearly_every_text_that_is_drawn_is_a_valid_profile() {
        let habits = Habits {
            hosts: 4,
            fixed: 8_000..=8_003,
            dynamic: 30_000..=30_009,
            most_replicas: 6,
        };
        let mut draw = Draw::new(1, "profiles");
        let mut refused = Vec::new();
        for no in 0..1_000 {
            let text = Written::draw(&mut draw, no, &habits);
            if let Err(errors) = Profile::from_toml(&text) {
                refused.push(format!("{errors}\n{text}"));
            }
        }
        assert!(
            refused.len() < 150,
            "{}: {}",
            refused.len(),
            refused[..3].join("\n")
        );
    }
}
