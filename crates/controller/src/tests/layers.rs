//! Submitted profiles over those of the site: what is stored, what a change of the site's means, what is refused.

use http::{Method, StatusCode};
use portreeve::registry::Answer;
use portreeve_api::body::Checked;
use portreeve_api::paths;

use crate::site::{OWNER, Site, put};

const WEB: &str = "name = \"web\"\nextends = \"site/small\"\ncommand = [\"sleep\", \"9\"]\n";

fn write(site: &Site, name: &str, text: &str) {
    let folder = site.folder.path().join("profiles");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join(format!("{name}.toml")), text).unwrap();
}

async fn submit(site: &Site, parameters: &[(&str, &str)], text: &str) -> crate::site::Seen {
    let path = paths::with_parameters(&paths::service(&"web"), parameters);
    let text = text.to_owned();
    site.as_user(OWNER, put(&path, "application/toml", text))
        .await
}

#[tokio::test]
async fn what_runs_is_the_effective_profile_of_the_day_it_was_submitted() {
    let site = Site::start().await;
    write(&site, "small", "replicas = 2\n[stop]\ngrace = \"20s\"\n");
    let submitted: Answer = submit(&site, &[], WEB).await.json();
    assert!(submitted.changed);
    let name = submitted.subject();
    let shown = site.service(&name).await;
    assert_eq!(shown.desired, 2);
    assert_eq!(shown.profile.supervision.stop.grace.as_secs(), 20);
    write(&site, "small", "replicas = 2\n[stop]\ngrace = \"40s\"\n");
    let site = site.killed_and_started().await;
    let shown = site.service(&name).await;
    assert_eq!(shown.profile.supervision.stop.grace.as_secs(), 20);
    // The same text is another effective profile now.
    let differs = submit(&site, &[], WEB).await.problem();
    assert_eq!(differs.code, "profile_differs");
    assert!(differs.detail.contains("stop"), "{}", differs.detail);
    let replaced: Answer = submit(&site, &[("replace", "1")], WEB).await.json();
    assert!(replaced.changed);
    let shown = site.service(&name).await;
    assert_eq!(shown.profile.supervision.stop.grace.as_secs(), 40);
    let again: Answer = submit(&site, &[], WEB).await.json();
    assert!(!again.changed);
}

#[tokio::test]
async fn a_broken_profile_of_the_site_refuses_those_that_extend_it_and_no_other() {
    let site = Site::start().await;
    write(&site, "small", "replicas = 1\n[stop]\ngrace = 20\n");
    write(&site, "good", "replicas = 3\n");
    let refused = submit(&site, &[], WEB).await;
    assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY);
    let problem = refused.problem();
    let error = &problem.more["errors"][0];
    assert_eq!(
        (error["layer"].as_str(), error["line"].as_u64()),
        (Some("site/small"), Some(3))
    );
    assert_eq!(error["field"], "stop.grace");
    let good = WEB.replace("site/small", "site/good");
    let submitted: Answer = submit(&site, &[], &good).await.json();
    assert!(submitted.changed);
    // Mended, it is read as it is now.
    write(&site, "small", "replicas = 1\n[stop]\ngrace = \"20s\"\n");
    let replaced: Answer = submit(&site, &[("replace", "1")], WEB).await.json();
    assert!(replaced.changed);
    let unknown = submit(&site, &[], &WEB.replace("small", "smoll"))
        .await
        .problem();
    assert!(
        unknown.detail.contains("did you mean \"site/small\"?"),
        "{}",
        unknown.detail
    );
}

#[tokio::test]
async fn flags_stand_over_the_profile_and_check_answers_as_submit_does() {
    let site = Site::start().await;
    write(&site, "small", "replicas = 1\n");
    let flags = [("set", "replicas=4"), ("set", "env.A=x & y=z")];
    let submitted: Answer = submit(&site, &flags, WEB).await.json();
    let shown = site.service(&submitted.subject()).await;
    assert_eq!(shown.desired, 4);
    assert_eq!(shown.profile.env["A"].to_string(), "x & y=z");
    for (flags, status) in [
        (&[("set", "replicas=4")][..], StatusCode::OK),
        (&[("set", "replicas=x")], StatusCode::UNPROCESSABLE_ENTITY),
        (&[("ste", "replicas=4")], StatusCode::BAD_REQUEST),
    ] {
        let mut asked = put(
            &paths::with_parameters(&paths::check(), flags),
            "application/toml",
            WEB,
        );
        *asked.method_mut() = Method::POST;
        let seen = site.as_user(OWNER, asked).await;
        assert_eq!(seen.status, status, "{flags:?}");
        match status {
            StatusCode::OK => assert_eq!(seen.json::<Checked>().name, "web"),
            StatusCode::UNPROCESSABLE_ENTITY => {
                assert_eq!(seen.problem().more["errors"][0]["layer"], "--set replicas");
            }
            _ => {}
        }
    }
}
