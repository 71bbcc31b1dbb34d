//! The folder of a site's profiles: `NAME.toml` is `site/NAME`.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use portreeve::identity::Label;
use portreeve::profile::{MAX_FILE, ProfileErrors, SiteProfiles, check_site_profile};

/// A folder whose files are read when somebody extends them, so that a change counts at once. It may be none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SiteFolder(Option<PathBuf>);

impl SiteFolder {
    /// The folder at this path, which need not be there; `None`: no profile can be extended.
    #[must_use]
    pub const fn at(path: Option<PathBuf>) -> Self {
        Self(path)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.0.as_deref()
    }

    /// What is wrong with each file, in the order of names; the others can be extended all the same.
    #[must_use]
    pub fn broken(&self) -> Vec<(Label, ProfileErrors)> {
        let checked = |name: Label| {
            let errors = check_site_profile(&name, self).err()?;
            Some((name, errors))
        };
        self.names().into_iter().filter_map(checked).collect()
    }
}

impl SiteProfiles for SiteFolder {
    fn read(&self, name: &Label) -> Result<Option<Cow<'_, [u8]>>, String> {
        let Some(folder) = &self.0 else {
            return Ok(None);
        };
        let path = folder.join(format!("{name}.toml"));
        // A pipe or a device would hold up whoever asks.
        match std::fs::metadata(&path) {
            Ok(about) if !about.is_file() => return Err("it is no file".to_owned()),
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(None),
            Ok(_) | Err(_) => {}
        }
        first_bytes(&path)
            .map(|bytes| Some(bytes.into()))
            .map_err(|cause| cause.to_string())
    }

    fn names(&self) -> Vec<Label> {
        let entries = self.0.as_ref().and_then(|folder| folder.read_dir().ok());
        let name = |entry: io::Result<std::fs::DirEntry>| {
            let name = entry.ok()?.file_name().into_string().ok()?;
            name.strip_suffix(".toml")?.parse().ok()
        };
        let mut names: Vec<Label> = entries.into_iter().flatten().filter_map(name).collect();
        names.sort_unstable();
        names
    }
}

/// A file as far as a profile may reach, and one byte more: it may be a device without an end.
///
/// # Errors
///
/// The system's.
pub fn first_bytes(file: &Path) -> io::Result<Vec<u8>> {
    first_bytes_of(File::open(file)?)
}

/// The same of what is open already, such as standard input.
///
/// # Errors
///
/// What the system says of the reading.
pub fn first_bytes_of(source: impl Read) -> io::Result<Vec<u8>> {
    let most = u64::try_from(MAX_FILE).unwrap_or(u64::MAX);
    let mut bytes = Vec::new();
    source
        .take(most.saturating_add(1))
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_as_they_are_now_and_only_by_their_names() {
        let folder = std::env::temp_dir().join(format!("portreeve-site-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("folder.toml")).unwrap();
        let site = SiteFolder::at(Some(folder.clone()));
        let name = |name: &str| name.parse::<Label>().unwrap();
        assert_eq!(site.read(&name("gpu")), Ok(None));
        for (file, text) in [
            ("gpu.toml", "replicas = 2"),
            ("Cpu.toml", ""),
            ("bad.toml", "x"),
        ] {
            std::fs::write(folder.join(file), text).unwrap();
        }
        assert_eq!(site.names(), [name("bad"), name("folder"), name("gpu")]);
        let read = |site: &SiteFolder| site.read(&name("gpu")).unwrap().unwrap().into_owned();
        assert_eq!(read(&site), b"replicas = 2");
        std::fs::write(folder.join("gpu.toml"), "replicas = 3").unwrap();
        assert_eq!(read(&site), b"replicas = 3");
        assert!(site.read(&name("folder")).is_err());
        let broken = site.broken();
        let broken: Vec<_> = broken.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(broken, ["bad", "folder"]);
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(site.names(), []);
        assert_eq!(SiteFolder::default().read(&name("gpu")), Ok(None));
    }
}
