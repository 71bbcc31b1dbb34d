//! Every sample profile is valid, and the page about profiles knows every field.
#![expect(
    clippy::disallowed_methods,
    reason = "the test reads the samples and the page; the core itself reads no file"
)]
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot read its files has failed"
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use portreeve::identity::Label;
use portreeve::profile::{Body, Layer, Profile, Written, known_fields};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

/// The sample profiles: each file's name and text.
fn samples() -> Vec<(String, String)> {
    let files = std::fs::read_dir(root().join("profiles")).unwrap();
    let mut samples: Vec<_> = files
        .map(|file| {
            let path = file.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, std::fs::read_to_string(&path).unwrap())
        })
        .collect();
    samples.sort();
    samples
}

#[test]
fn every_sample_profile_is_valid_and_reads_back_from_its_json() {
    let samples = samples();
    assert!(samples.len() >= 30, "only {} samples", samples.len());
    for (file, text) in samples {
        let checked = Profile::from_toml(&text);
        let checked = checked.unwrap_or_else(|errors| panic!("{}", errors.in_file(&file)));
        let profile = checked.profile;
        assert_eq!(format!("{}.toml", profile.name), file);
        let json = serde_json::to_string(&profile).unwrap();
        assert_eq!(
            serde_json::from_str::<Profile>(&json).unwrap(),
            profile,
            "{file}"
        );
        assert!(
            text.contains("\n# Run: "),
            "{file} does not say how to run it"
        );
    }
}

#[test]
fn a_sample_over_itself_or_under_nothing_is_the_same_profile() {
    for (file, text) in samples() {
        let alone = Profile::from_toml(&text).unwrap().profile;
        let site = BTreeMap::from([("base".parse::<Label>().unwrap(), text.clone())]);
        let read = |text: &str, flags: &[String]| {
            let body = Body::Toml(text.as_bytes());
            let checked = Profile::from_layers(Written { body, flags }, &site);
            checked.unwrap_or_else(|errors| panic!("{}", errors.in_file(&file)))
        };
        let extends = "extends = \"site/base\"\n";
        let over_itself = read(&format!("{extends}{text}"), &[]);
        assert_eq!(over_itself.profile, alone, "{file}");
        let nothing = read(extends, &[]);
        assert_eq!(nothing.profile, alone, "{file}");
        let of_site = nothing
            .values
            .iter()
            .filter(|it| it.layer != Layer::Default);
        let name = Label::clone(&nothing.extends[0]);
        assert!(of_site.clone().count() >= 2, "{file}");
        for value in of_site {
            assert_eq!(
                value.layer,
                Layer::Site(name.clone()),
                "{file}: {}",
                value.field
            );
        }
        let flagged = read(&text, &["labels.only-here=x".to_owned()]);
        assert_eq!(flagged.profile.labels["only-here"], "x", "{file}");
    }
}

#[test]
fn the_page_about_profiles_names_every_field() {
    let page = std::fs::read_to_string(root().join("docs/profile.md")).unwrap();
    let rows: Vec<_> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `"))
        .collect();
    for field in known_fields() {
        let named = |row: &&str| row.split_once('`').is_some_and(|(name, _)| name == field);
        assert_eq!(
            rows.iter().filter(|row| named(row)).count(),
            1,
            "{field} needs one row"
        );
    }
    for row in rows {
        let (name, _) = row.split_once('`').unwrap();
        let known = known_fields().any(|field| field == name);
        assert!(known, "{name} has a row but is no field");
    }
}

#[test]
fn every_example_of_the_page_is_a_valid_profile() {
    let page = std::fs::read_to_string(root().join("docs/profile.md")).unwrap();
    let blocks: Vec<_> = page.split("```toml\n").skip(1).collect();
    assert!(blocks.len() >= 3);
    for block in blocks {
        let (text, _) = block.split_once("```").unwrap();
        let checked = Profile::from_toml(text);
        checked
            .unwrap_or_else(|errors| panic!("{}\nin\n{text}", errors.in_file("docs/profile.md")));
    }
}
