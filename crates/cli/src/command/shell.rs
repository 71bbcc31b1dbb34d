//! `completions` and `man`: what a shell and its reader want of the commands, made of the same tree as the help.

use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, Command, ValueEnum};
use clap_mangen::Man as Page;

use crate::exit::Failure;
use crate::output::{print, print_whole};

use super::teaching;

/// Print the completions of a shell: commands, options and their values.
///
/// Your shell reads them from a file of its own, once; a package of portreeve brings them along.
#[derive(Args, Debug)]
pub(crate) struct Completions {
    /// Which shell
    #[arg(value_enum)]
    shell: Shell,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

impl Completions {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let shell = match self.shell {
            Shell::Bash => clap_complete::Shell::Bash,
            Shell::Zsh => clap_complete::Shell::Zsh,
            Shell::Fish => clap_complete::Shell::Fish,
        };
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut for_people(), "portreeve", &mut text);
        print(&String::from_utf8_lossy(&text))
    }
}

/// The tree without the commands that only other parts of portreeve call: completions would offer them too.
pub(super) fn for_people() -> Command {
    let tree = teaching::tree();
    let shown = tree.get_subcommands().filter(|it| !it.is_hide_set());
    Command::new("portreeve")
        .version(env!("CARGO_PKG_VERSION"))
        .args(tree.get_arguments())
        .subcommands(shown)
}

/// Print the man page of portreeve, or write that of every command into a folder.
///
/// The pages say what --help says. Without a folder the program's own is printed.
#[derive(Args, Debug)]
pub(crate) struct Man {
    /// Where the pages go: portreeve.1, portreeve-submit.1, portreeve-host-drain.1 and so on; it is made where it is missing
    folder: Option<PathBuf>,
}

impl Man {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let Some(folder) = self.folder else {
            let mut text = Vec::new();
            Page::new(teaching::tree()).render(&mut text)?;
            return print_whole(&text);
        };
        let written = write(&folder).map_err(|cause| {
            Failure::plain(format!(
                "{}: {cause}; some pages may be missing there",
                folder.display()
            ))
        })?;
        print(&format!("{}: {written} pages\n", folder.display()))
    }
}

/// Writes the page of every command that people call; says how many.
fn write(folder: &Path) -> io::Result<u32> {
    std::fs::create_dir_all(folder)?;
    let mut tree = teaching::tree();
    tree.build();
    let mut written = 0;
    let mut left = vec![(tree, "portreeve".to_owned())];
    while let Some((command, name)) = left.pop() {
        let below = command.get_subcommands().filter(|it| !it.is_hide_set());
        // Each `help` says what these pages say.
        let below = below.filter(|it| it.get_name() != "help");
        left.extend(below.map(|it| (it.clone(), format!("{name}-{}", it.get_name()))));
        let mut page = Vec::new();
        // Read as `man portreeve-submit`, written as `portreeve submit` where it is used.
        let command = command.display_name(name.clone());
        Page::new(command).render(&mut page)?;
        std::fs::write(folder.join(format!("{name}.1")), page)?;
        written += 1;
    }
    Ok(written)
}
