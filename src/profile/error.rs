//! What is wrong with a profile: all of it at once, each with its place.

use std::fmt;

use serde::Serialize;

/// Everything that is wrong with one profile, by place. Never empty; nothing was stored or changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProfileErrors {
    pub(super) errors: Vec<ProfileError>,
    /// How many more there are than [`ProfileErrors::MOST`].
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) further: usize,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProfileError {
    /// The field, such as `ports.http` or `command[2]`; empty for the profile as a whole.
    pub field: String,
    /// Which layer it stands in, such as `site/gpu-service` or `--set replicas`; `None`: the submitted profile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layer: Option<String>,
    /// Where it stands in that layer, if that came as a text.
    #[serde(flatten)]
    pub place: Option<Place>,
    /// What is wrong, with the value.
    pub problem: String,
    /// What is allowed instead.
    pub allowed: String,
}

/// A place in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Place {
    /// From 1.
    pub line: u32,
    /// In characters, from 1.
    pub column: u32,
}

/// Something to know although nothing is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Warning {
    /// The field it is about.
    pub field: String,
    /// Which layer it stands in; `None`: the submitted profile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layer: Option<String>,
    /// Where it stands in that layer, if that came as a text.
    #[serde(flatten)]
    pub place: Option<Place>,
    /// One sentence: what happens, and what to write instead.
    pub text: String,
}

impl ProfileErrors {
    /// The most errors told of one profile; what follows is counted.
    pub const MOST: usize = 100;

    /// The errors, by place.
    #[must_use]
    pub fn as_slice(&self) -> &[ProfileError] {
        &self.errors
    }

    /// How many more there are than those told.
    #[must_use]
    pub const fn further(&self) -> usize {
        self.further
    }

    /// The errors as lines `file:line:column: field: problem; allowed`; what stands in another layer begins
    /// with that one's name.
    pub fn in_file<'a>(&'a self, file: &'a str) -> impl fmt::Display + 'a {
        fmt::from_fn(move |f| self.lines(Some(file), f))
    }

    fn lines(&self, file: Option<&str>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, error) in self.errors.iter().enumerate() {
            if nth > 0 {
                f.write_str("\n")?;
            }
            match (error.layer.as_deref().or(file), error.place) {
                (Some(file), Some(place)) => write!(f, "{file}:{place}: ")?,
                (Some(file), None) => write!(f, "{file}: ")?,
                (None, Some(place)) => write!(f, "{place}: ")?,
                (None, None) => {}
            }
            write!(f, "{error}")?;
        }
        if self.further > 0 {
            write!(f, "\nand {} more", self.further)?;
        }
        Ok(())
    }

    pub(super) fn one(error: ProfileError) -> Self {
        Self {
            errors: vec![error],
            further: 0,
        }
    }
}

impl Warning {
    /// The warning as a line `file:line:column: warning: field: text`; one in another layer begins with
    /// that one's name.
    pub fn in_file<'a>(&'a self, file: &'a str) -> impl fmt::Display + 'a {
        fmt::from_fn(move |f| {
            f.write_str(self.layer.as_deref().unwrap_or(file))?;
            if let Some(place) = self.place {
                write!(f, ":{place}")?;
            }
            f.write_str(": warning: ")?;
            self.without_place(f)
        })
    }

    fn without_place(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.text)
    }
}

impl fmt::Display for ProfileErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines(None, f)
    }
}

impl std::error::Error for ProfileErrors {}

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.problem)?;
        if !self.allowed.is_empty() {
            write!(f, "; {}", self.allowed)?;
        }
        Ok(())
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(layer) = &self.layer {
            write!(f, "{layer}: ")?;
        }
        if let Some(place) = self.place {
            write!(f, "line {}: ", place.line)?;
        }
        self.without_place(f)
    }
}

// serde hands the field over by reference.
#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature is serde's"
)]
const fn is_zero(number: &usize) -> bool {
    *number == 0
}
