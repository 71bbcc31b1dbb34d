//! Tokens of an issuer: which are believed, and which are not.

use jsonwebtoken::{EncodingKey, Header, encode};
use serde_json::json;

use super::*;

// Made for these tests with `openssl genpkey` and `openssl ecparam`; they protect nothing.
const ED: [&str; 2] = [
    "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIGrRMHXwEV/TRBdY/bsqnGcY5t0oX8SRHuUTHJ7ztbMJ\n-----END PRIVATE KEY-----\n",
    "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAF1jNyNDVUFJsESYoBRT6d+BXft16lldP+ZNnZQ8jCQE=\n-----END PUBLIC KEY-----\n",
];
const EC: [&str; 2] = [
    "-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgJmH8W+bTgTR23iRu\nlD3Jm/5ygL7R0gBOr6G26G+2/5ShRANCAAQNphqMMs7K2ObaXQW0otuP/dXCi+7s\nO9gO8hJ+rqyUgMrq9t/zcXdRQbedz/IGQNatHJ1278uV/97AX4GSfI/X\n-----END PRIVATE KEY-----\n",
    "-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEDaYajDLOytjm2l0FtKLbj/3Vwovu\n7DvYDvISfq6slIDK6vbf83F3UUG3nc/yBkDWrRyddu/Llf/ewF+BknyP1w==\n-----END PUBLIC KEY-----\n",
];

const NOW: u64 = 1_790_000_000;

fn now() -> WallClock {
    WallClock::from_unix_millis(NOW * 1_000)
}

fn jwt(algorithm: &str, key: &str) -> Jwt {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key.pem");
    std::fs::write(&path, key).unwrap();
    let config = JwtConfig {
        issuer: "https://login.site".into(),
        audience: "portreeve".into(),
        algorithm: algorithm.parse().unwrap(),
        key: path,
        user_claim: "preferred_username".into(),
        groups_claim: "groups".into(),
    };
    Jwt::open(config).unwrap().0
}

fn claims() -> Value {
    json!({
        "iss": "https://login.site", "aud": "portreeve", "exp": NOW + 600, "nbf": NOW,
        "preferred_username": "alice", "groups": ["chem", "bio"], "sub": "4711",
    })
}

fn ed(claims: &Value) -> String {
    let key = EncodingKey::from_ed_pem(ED[0].as_bytes()).unwrap();
    encode(&Header::new(Algorithm::EdDSA), claims, &key).unwrap()
}

fn changed(name: &str, value: Value) -> Value {
    let mut claims = claims();
    claims[name] = value;
    claims
}

fn without(name: &str) -> Value {
    let mut claims = claims();
    claims.as_object_mut().unwrap().remove(name);
    claims
}

#[test]
fn a_token_of_the_issuer_names_its_account_and_groups() {
    let jwt = jwt("EdDSA", ED[1]);
    let read = jwt.verify(&ed(&claims()), now()).unwrap();
    assert_eq!(
        (read.user.as_str(), &read.groups[..]),
        ("alice", &["chem", "bio"].map(str::to_owned)[..])
    );
    assert_eq!(read.until.as_unix_millis(), (NOW + 600) * 1_000);
    let one = jwt
        .verify(&ed(&changed("groups", json!("chem"))), now())
        .unwrap();
    assert_eq!(one.groups, ["chem"]);
    let none = jwt.verify(&ed(&without("groups")), now()).unwrap();
    assert!(none.groups.is_empty());
    let several = changed("aud", json!(["other", "portreeve"]));
    assert!(jwt.verify(&ed(&several), now()).is_some());
}

#[test]
fn what_is_not_for_this_controller_or_names_nobody_is_not_believed() {
    let jwt = jwt("EdDSA", ED[1]);
    for wrong in [
        changed("iss", json!("https://evil.site")),
        changed("aud", json!("other")),
        without("iss"),
        without("aud"),
        without("exp"),
        without("preferred_username"),
        changed("preferred_username", json!("")),
        changed("preferred_username", json!("al\nice")),
        changed("preferred_username", json!(0)),
        changed("preferred_username", json!("a".repeat(300))),
        changed("nbf", json!(NOW + 61)),
        changed("exp", json!("soon")),
        changed("exp", json!(-1)),
    ] {
        assert_eq!(jwt.verify(&ed(&wrong), now()), None, "{wrong}");
    }
    let text = ed(&claims());
    let (head, _) = text.rsplit_once('.').unwrap();
    for bent in [
        head.to_owned(),
        format!("{head}."),
        text.replacen("ey", "eY", 1),
        format!("{text}A"),
    ] {
        assert_eq!(jwt.verify(&bent, now()), None, "{bent}");
    }
    assert_eq!(
        jwt.verify(&format!("ey{}", "a".repeat(MOST_BYTES)), now()),
        None
    );
}

#[test]
fn how_it_is_signed_is_not_for_the_token_to_say() {
    let by_ec = {
        let key = EncodingKey::from_ec_pem(EC[0].as_bytes()).unwrap();
        encode(&Header::new(Algorithm::ES256), &claims(), &key).unwrap()
    };
    assert!(jwt("ES256", EC[1]).verify(&by_ec, now()).is_some());
    assert_eq!(jwt("EdDSA", ED[1]).verify(&by_ec, now()), None);
    // The public key as a shared secret: what everybody can sign.
    let secret = EncodingKey::from_secret(ED[1].as_bytes()).unwrap();
    let shared = encode(&Header::new(Algorithm::HS256), &claims(), &secret).unwrap();
    assert_eq!(jwt("EdDSA", ED[1]).verify(&shared, now()), None);
    for word in ["HS256", "none", "", "rs256"] {
        assert!(word.parse::<JwtAlgorithm>().is_err(), "{word:?}");
    }
}

#[test]
fn a_token_is_over_a_minute_after_its_time() {
    let jwt = jwt("EdDSA", ED[1]);
    let read = jwt.verify(&ed(&claims()), now()).unwrap();
    assert!(!read.is_over(read.until.after(Duration::from_secs(60))));
    assert!(read.is_over(read.until.after(Duration::from_secs(61))));
}

#[test]
fn a_file_without_a_public_key_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key.pem");
    std::fs::write(&path, "no key").unwrap();
    let config = JwtConfig {
        key: path,
        ..jwt("EdDSA", ED[1]).config
    };
    let refused = Jwt::open(config).unwrap_err().to_string();
    assert!(
        refused.contains("key.pem") && refused.contains("PEM"),
        "{refused}"
    );
}
