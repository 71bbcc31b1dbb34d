//! The ways in and out of a [`Profile`]: TOML, JSON, and what is stored.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::identity::Label;
use crate::port_pool::PortRequest;
use crate::supervision::{Forecast, ProbeForm, ProbeForms};

use super::document::Node;
use super::error::{Place, ProfileError, ProfileErrors, Warning};
use super::layers::{Body, Layer, SiteProfiles, Stack, Written};
use super::lines::Lines;
use super::origin::{self, EffectiveValue};
use super::read::{Note, Reader, TABLES};
use super::syntax::Lost;
use super::{Command, Probe, Profile};

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
    /// The effective profile value by value, each with the layer that set it.
    pub values: Vec<EffectiveValue>,
    /// The site's profiles it stands on, the nearest first.
    pub extends: Vec<Label>,
}

impl Profile {
    /// Reads a profile written in TOML that stands on nothing.
    ///
    /// # Errors
    ///
    /// [`ProfileErrors`] with everything that is wrong, each with line, column, field and what is allowed;
    /// also where it extends a profile of the site, which only [`Profile::from_layers`] has.
    pub fn from_toml(text: &str) -> Result<Checked, ProfileErrors> {
        Self::from_toml_bytes(text.as_bytes())
    }

    /// Reads the bytes of a TOML file, whatever they are; no more than [`MAX_FILE`] and one need be there.
    ///
    /// # Errors
    ///
    /// As [`Profile::from_toml`], and the place of the first byte that is not UTF-8.
    pub fn from_toml_bytes(bytes: &[u8]) -> Result<Checked, ProfileErrors> {
        let flags = &[];
        let body = Body::Toml(bytes);
        Self::from_layers(Written { body, flags }, &no_site())
    }

    /// [`Profile::from_toml`] where variables begin with another prefix.
    ///
    /// # Errors
    ///
    /// As [`Profile::from_toml`].
    pub fn from_toml_with(text: &str, prefix: &str) -> Result<Checked, ProfileErrors> {
        let body = Body::Toml(text.as_bytes());
        let written = Written { body, flags: &[] };
        read(Stack::of(written, &no_site())?, Some(prefix))
    }

    /// Reads a profile with everything it stands on and everything set over it: the effective profile, with
    /// the layer that set each value. Layers are put together field by field; a list replaces a list; `env`,
    /// labels and ports are put together by name; the form of a probe replaces another form.
    ///
    /// # Errors
    ///
    /// [`ProfileErrors`] with everything that is wrong in any of the layers, each with its layer, line, column,
    /// field and what is allowed. An `extends` that is unknown, comes back to itself or goes deeper than
    /// [`MAX_LAYERS`](super::MAX_LAYERS) is one of them.
    pub fn from_layers(
        written: Written<'_>,
        site: &dyn SiteProfiles,
    ) -> Result<Checked, ProfileErrors> {
        read(Stack::of(written, site)?, Some(PREFIX))
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
        read(Stack::alone(document), Some(PREFIX))
    }

    /// Reads bytes in JSON, whatever they are, as [`Profile::from_json_text`] does.
    ///
    /// # Errors
    ///
    /// As [`Profile::from_json_text`], and the place of the first byte that is not UTF-8.
    pub fn from_json_bytes(bytes: &[u8]) -> Result<Checked, ProfileErrors> {
        read(Stack::alone(json_document(bytes)?), Some(PREFIX))
    }

    /// Reads a profile in JSON; its ports keep the order in which the text has them.
    ///
    /// # Errors
    ///
    /// [`ProfileErrors`]: broken JSON with line and column, else as [`Profile::from_json`].
    pub fn from_json_text(text: &str) -> Result<Checked, ProfileErrors> {
        Self::from_json_bytes(text.as_bytes())
    }

    /// What a replica asks of its host.
    #[must_use]
    pub fn request(&self) -> PortRequest {
        let wanted = self.ports.iter().map(super::DeclaredPort::wanted);
        PortRequest::new(wanted.collect())
            .expect("the ports of a profile were asked for together when it was read")
    }

    /// What its rules will do in time.
    #[must_use]
    pub fn forecast(&self) -> Forecast {
        // What `listening` looks up: one number of each of these.
        let mut looked_up = 0;
        for port in &self.ports {
            looked_up += u32::from(port.publish && port.protocol.has_tcp());
        }
        let form = |probe: &Probe| match probe {
            Probe::Http(_) => ProbeForm::Http,
            Probe::Tcp { .. } => ProbeForm::Tcp,
            Probe::Command(Command::Argv(_)) => ProbeForm::Command,
            Probe::Command(Command::Shell(_)) => ProbeForm::Shell,
            Probe::Listening => ProbeForm::Listening { ports: looked_up },
        };
        let forms = ProbeForms {
            liveness: self.liveness.as_ref().map(form),
            readiness: self.readiness.as_ref().map(form),
        };
        Forecast::of(&self.supervision, &forms)
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
        let checked = read(Stack::alone(document), None).map_err(serde::de::Error::custom)?;
        Ok(checked.profile)
    }
}

/// Checks a profile of the site by itself, with what it extends: whatever is wrong in it is wrong under every
/// profile that extends it. What it leaves out may stand in those.
///
/// # Errors
///
/// [`ProfileErrors`] with everything that is wrong, each with its layer.
pub fn check_site_profile(name: &Label, site: &dyn SiteProfiles) -> Result<(), ProfileErrors> {
    let extends = serde_json::json!({ "extends": Layer::Site(name.clone()) });
    let document = Node::from_json(&extends).expect("one entry is not nested");
    let mut stack = Stack::of_tree(document, site);
    let mut errors = stack.take_errors();
    let further = read_parts(&stack, Some(PREFIX), &mut errors);
    if errors.is_empty() {
        return Ok(());
    }
    Err(refused(errors, further, &stack))
}

fn no_site() -> BTreeMap<Label, String> {
    BTreeMap::new()
}

fn read(mut stack: Stack, prefix: Option<&str>) -> Result<Checked, ProfileErrors> {
    let mut errors = stack.take_errors();
    let merged = stack.merged();
    let mut reader = Reader::new(prefix, &stack.lost);
    let profile = reader.profile(&merged);
    let Reader {
        errors: noted,
        mut warnings,
        mut further,
        ..
    } = reader;
    errors.extend(noted);
    further += read_parts(&stack, prefix, &mut errors);
    let Some(profile) = profile.filter(|_| errors.is_empty()) else {
        return Err(refused(errors, further, &stack));
    };
    warnings.sort_by_key(|note| note.at);
    let places = stack.places();
    let warning = |note: Note| {
        let (layer, place) = places.of(note.at);
        Warning {
            field: note.field,
            layer,
            place,
            text: note.text,
        }
    };
    let warnings = warnings.into_iter().map(warning).collect();
    // What was stored is read again at every start, and nobody asks then who set what.
    let values = prefix.map(|_| origin::values(&profile, &merged, &stack));
    let extends = stack.of_site().map(|(name, _)| name.clone()).collect();
    Ok(Checked {
        profile,
        warnings,
        values: values.unwrap_or_default(),
        extends,
    })
}

/// Reads each layer of the site by itself: what a profile above it hides is wrong all the same. Says how many
/// errors there are beside those noted.
fn read_parts(stack: &Stack, prefix: Option<&str>, errors: &mut Vec<Note>) -> usize {
    let mut lost = Lost::default();
    lost.everything();
    let mut further = 0;
    for (_, layer) in stack.of_site() {
        let mut reader = Reader::of_part(prefix, &lost);
        reader.profile(&layer.tree);
        further += reader.further;
        for note in reader.errors {
            let told = |other: &Note| other.at == note.at && other.text == note.text;
            if !errors.iter().any(told) {
                errors.push(note);
            }
        }
    }
    further
}

fn refused(mut notes: Vec<Note>, further: usize, stack: &Stack) -> ProfileErrors {
    notes.sort_by_key(|note| note.at);
    let untold = notes.len().saturating_sub(ProfileErrors::MOST);
    let further = further + untold;
    notes.truncate(ProfileErrors::MOST);
    let places = stack.places();
    let error = |note: Note| {
        let (layer, place) = places.of(note.at);
        ProfileError {
            field: note.field,
            layer,
            place,
            problem: note.text,
            allowed: note.allowed,
        }
    };
    let errors = notes.into_iter().map(error).collect();
    ProfileErrors { errors, further }
}

pub(super) fn json_document(bytes: &[u8]) -> Result<Node, ProfileErrors> {
    let text = utf8(bytes, MAX_JSON)?;
    serde_json::from_str(text).map_err(|error| {
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
    })
}

/// A file may be read no further than needed to tell, so its whole size is not told.
fn within_bounds(bytes: &[u8], most: usize) -> Result<(), ProfileErrors> {
    if bytes.len() <= most {
        return Ok(());
    }
    let allowed = format!("write at most {most} bytes");
    Err(whole("the profile is too long", &allowed))
}

pub(super) fn utf8(bytes: &[u8], most: usize) -> Result<&str, ProfileErrors> {
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
        layer: None,
        place: Some(place),
        problem,
        allowed: allowed.to_owned(),
    })
}

fn whole(problem: &str, allowed: &str) -> ProfileErrors {
    ProfileErrors::one(ProfileError {
        field: String::new(),
        layer: None,
        place: None,
        problem: problem.to_owned(),
        allowed: allowed.to_owned(),
    })
}
