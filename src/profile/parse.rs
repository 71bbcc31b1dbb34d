//! The ways in and out of a [`Profile`]: TOML, JSON, and what is stored.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::port_pool::PortRequest;

use super::Profile;
use super::document::Node;
use super::error::{Place, ProfileError, ProfileErrors, Warning};
use super::lines::Lines;
use super::read::{Note, Reader, TABLES};
use super::syntax::{self, Lost};

/// Begins every variable of ours unless a site sets its own prefix.
pub const PREFIX: &str = "PORTREEVE_";

/// The longest profile in bytes of TOML.
pub const MAX_FILE: usize = 262_144;

/// The longest profile in bytes of JSON, which writes every default out.
pub const MAX_JSON: usize = 1_048_576;

/// A valid profile and what to know of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Checked {
    /// The effective profile.
    pub profile: Profile,
    /// Nothing is wrong, but the author should know.
    pub warnings: Vec<Warning>,
}

impl Profile {
    /// Reads a profile written in TOML.
    ///
    /// # Errors
    ///
    /// [`ProfileErrors`] with everything that is wrong, each with line, column, field and what is allowed.
    pub fn from_toml(text: &str) -> Result<Checked, ProfileErrors> {
        Self::from_toml_with(text, PREFIX)
    }

    /// Reads the bytes of a TOML file, whatever they are; no more than [`MAX_FILE`] and one need be there.
    ///
    /// # Errors
    ///
    /// As [`Profile::from_toml`], and the place of the first byte that is not UTF-8.
    pub fn from_toml_bytes(bytes: &[u8]) -> Result<Checked, ProfileErrors> {
        Self::from_toml(utf8(bytes, MAX_FILE)?)
    }

    /// [`Profile::from_toml`] where variables begin with another prefix.
    ///
    /// # Errors
    ///
    /// As [`Profile::from_toml`].
    pub fn from_toml_with(text: &str, prefix: &str) -> Result<Checked, ProfileErrors> {
        within_bounds(text.as_bytes(), MAX_FILE)?;
        let lines = Lines::of(text);
        let (document, broken, lost) = syntax::read(text);
        let mut reader = Reader::new(Some(prefix), &lost);
        let profile = reader.profile(&document);
        reader.errors.splice(0..0, broken);
        finish(profile, reader, Some(&lines))
    }

    /// Reads a profile in JSON, with the same fields and rules; errors name the field.
    ///
    /// Ports come in the order of their names, which is all that a [`serde_json::Value`] keeps; see
    /// [`Profile::from_json_text`] for the order written.
    ///
    /// # Errors
    ///
    /// [`ProfileErrors`] with everything that is wrong.
    pub fn from_json(json: &serde_json::Value) -> Result<Checked, ProfileErrors> {
        let Some(document) = Node::from_json(json) else {
            return Err(whole(
                "it is nested too deeply",
                "no field is deeper than four levels",
            ));
        };
        from_document(&document, Some(PREFIX))
    }

    /// Reads bytes in JSON, whatever they are, as [`Profile::from_json_text`] does.
    ///
    /// # Errors
    ///
    /// As [`Profile::from_json_text`], and the place of the first byte that is not UTF-8.
    pub fn from_json_bytes(bytes: &[u8]) -> Result<Checked, ProfileErrors> {
        Self::from_json_text(utf8(bytes, MAX_JSON)?)
    }

    /// Reads the text of a profile in JSON, ports in the order written.
    ///
    /// # Errors
    ///
    /// [`ProfileErrors`]: broken JSON with line and column, else as [`Profile::from_json`].
    pub fn from_json_text(text: &str) -> Result<Checked, ProfileErrors> {
        within_bounds(text.as_bytes(), MAX_JSON)?;
        let document: Node = serde_json::from_str(text).map_err(|error| {
            // Its column is 0 before the first character.
            let number = |n: usize| u32::try_from(n.max(1)).unwrap_or(u32::MAX);
            let place = Place {
                line: number(error.line()),
                column: number(error.column()),
            };
            let words = error.to_string();
            let its_place = format!(" at line {} column {}", error.line(), error.column());
            let words = words.strip_suffix(&its_place).unwrap_or(&words);
            at_place(place, format!("broken JSON: {words}"), "")
        })?;
        from_document(&document, Some(PREFIX))
    }

    /// What a replica asks of its host.
    #[must_use]
    pub fn request(&self) -> PortRequest {
        let wanted = self.ports.iter().map(super::DeclaredPort::wanted);
        PortRequest::new(wanted.collect())
            .expect("the ports of a profile were asked for together when it was read")
    }
}

/// Every field of the schema, such as `restart.backoff.max`; `NAME` stands for a port's own name. For
/// documentation that must not fall behind.
pub fn known_fields() -> impl Iterator<Item = String> {
    TABLES.iter().flat_map(|(table, keys)| {
        keys.iter().map(move |key| match *table {
            "" => (*key).to_owned(),
            table => format!("{table}.{key}"),
        })
    })
}

impl Serialize for Profile {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.written().serialize(serializer)
    }
}

/// Reads what was written by [`Serialize`]; the prefix, which may have changed since, is not asked again.
impl<'de> Deserialize<'de> for Profile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let document = Node::deserialize(deserializer)?;
        let checked = from_document(&document, None).map_err(serde::de::Error::custom)?;
        Ok(checked.profile)
    }
}

fn from_document(document: &Node, prefix: Option<&str>) -> Result<Checked, ProfileErrors> {
    let lost = Lost::default();
    let mut reader = Reader::new(prefix, &lost);
    let profile = reader.profile(document);
    finish(profile, reader, None)
}

fn finish(
    profile: Option<Profile>,
    reader: Reader<'_>,
    lines: Option<&Lines<'_>>,
) -> Result<Checked, ProfileErrors> {
    // Places are known only in a text; a missing field stands where its table begins.
    let place = |note: &Note| lines.map(|lines| lines.place(note.at.unwrap_or(0)));
    let (mut notes, mut warnings) = (reader.errors, reader.warnings);
    notes.sort_by_key(|note| note.at);
    warnings.sort_by_key(|note| note.at);
    match profile {
        Some(profile) if notes.is_empty() => {
            let warning = |note: Note| Warning {
                place: place(&note),
                field: note.field,
                text: note.text,
            };
            let warnings = warnings.into_iter().map(warning).collect();
            Ok(Checked { profile, warnings })
        }
        _ => {
            let untold = notes.len().saturating_sub(ProfileErrors::MOST);
            let further = reader.further + untold;
            notes.truncate(ProfileErrors::MOST);
            let error = |note: Note| ProfileError {
                place: place(&note),
                field: note.field,
                problem: note.text,
                allowed: note.allowed,
            };
            let errors = notes.into_iter().map(error).collect();
            Err(ProfileErrors { errors, further })
        }
    }
}

/// A file may be read no further than needed to tell, so its whole size is not told.
fn within_bounds(bytes: &[u8], most: usize) -> Result<(), ProfileErrors> {
    if bytes.len() <= most {
        return Ok(());
    }
    let allowed = format!("write at most {most} bytes");
    Err(whole("the profile is too long", &allowed))
}

fn utf8(bytes: &[u8], most: usize) -> Result<&str, ProfileErrors> {
    // First, so that no character is cut by a reader that stops there.
    within_bounds(bytes, most)?;
    std::str::from_utf8(bytes).map_err(|error| {
        let (sound, rest) = bytes.split_at(error.valid_up_to());
        let sound = String::from_utf8_lossy(sound);
        let byte = rest.first().copied().unwrap_or_default();
        let place = Lines::of(&sound).place(sound.len());
        let problem = format!("the byte 0x{byte:02x} is not UTF-8");
        at_place(place, problem, "write the file in UTF-8")
    })
}

fn at_place(place: Place, problem: String, allowed: &str) -> ProfileErrors {
    ProfileErrors::one(ProfileError {
        field: String::new(),
        place: Some(place),
        problem,
        allowed: allowed.to_owned(),
    })
}

fn whole(problem: &str, allowed: &str) -> ProfileErrors {
    ProfileErrors::one(ProfileError {
        field: String::new(),
        place: None,
        problem: problem.to_owned(),
        allowed: allowed.to_owned(),
    })
}
