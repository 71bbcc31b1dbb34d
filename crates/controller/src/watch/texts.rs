//! Events as text, written once for all who watch the same.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use portreeve::identity::ServiceName;

use crate::rest::endpoints::view::EndpointsView;

/// The newest text of each view that is watched. Bounded: what does not fit is written anew by each watcher.
#[derive(Debug, Default)]
pub(crate) struct Texts(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    bytes: usize,
    texts: BTreeMap<Subject, (Version, Arc<[u8]>)>,
}

/// What a text is of: two watchers with equal subjects get the same text at the same version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Subject {
    pub(crate) service: ServiceName,
    pub(crate) view: EndpointsView,
    /// What the answer says of what the watcher may see.
    pub(crate) scope: Cow<'static, str>,
    /// Whether it tells why a replica is not ready.
    pub(crate) reasons: bool,
}

/// Which version of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) revision: u64,
    pub(crate) stale: bool,
    /// For a text of changes alone: since when.
    pub(crate) since: Option<u64>,
}

impl Texts {
    /// All texts together.
    const MOST_BYTES: usize = 4 << 20;
    /// How many.
    const MOST: usize = 256;

    /// The text of this version; `write` makes it where nobody has.
    ///
    /// Nobody waits for one who writes: two that begin at the same time both write.
    pub(crate) fn text(
        &self,
        subject: Subject,
        version: Version,
        write: impl FnOnce() -> Vec<u8>,
    ) -> Arc<[u8]> {
        if let Some((kept, text)) = self.0.lock().texts.get(&subject)
            && *kept == version
        {
            return Arc::clone(text);
        }
        let text: Arc<[u8]> = write().into();
        if text.len() <= Self::MOST_BYTES {
            self.0.lock().keep(subject, version, Arc::clone(&text));
        }
        text
    }
}

impl Kept {
    fn keep(&mut self, subject: Subject, version: Version, text: Arc<[u8]>) {
        if let Some((_, before)) = self.texts.remove(&subject) {
            self.bytes -= before.len();
        }
        if self.texts.len() >= Texts::MOST || self.bytes + text.len() > Texts::MOST_BYTES {
            // Whoever still needs one of them writes it again; those of views that nobody watches go.
            *self = Self::default();
        }
        self.bytes += text.len();
        self.texts.insert(subject, (version, text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(service: &str) -> Subject {
        Subject {
            service: service.parse().unwrap(),
            view: EndpointsView::ready(None),
            scope: "all".into(),
            reasons: false,
        }
    }

    fn version(revision: u64) -> Version {
        Version {
            revision,
            stale: false,
            since: None,
        }
    }

    #[test]
    fn a_version_is_written_once_and_the_next_takes_its_place() {
        let texts = Texts::default();
        let mut written = 0;
        for revision in [1, 1, 2, 2, 2] {
            texts.text(subject("web.alice"), version(revision), || {
                written += 1;
                vec![0; 100]
            });
        }
        assert_eq!(written, 2);
        assert_eq!(texts.0.lock().bytes, 100);
        let stale = Version {
            stale: true,
            ..version(2)
        };
        let text = texts.text(subject("web.alice"), stale, || b"stale".to_vec());
        assert_eq!(*text, *b"stale");
    }

    #[test]
    fn what_is_kept_is_bounded_in_bytes_and_number() {
        let texts = Texts::default();
        for number in 0..1_000 {
            let service = format!("s{number}.alice");
            texts.text(subject(&service), version(1), || vec![0; 100_000]);
            let kept = texts.0.lock();
            assert!(kept.bytes <= Texts::MOST_BYTES && kept.texts.len() <= Texts::MOST);
        }
        let huge = texts.text(subject("web.alice"), version(1), || {
            vec![0; Texts::MOST_BYTES + 1]
        });
        assert!(huge.len() > Texts::MOST_BYTES);
        assert!(texts.0.lock().bytes <= Texts::MOST_BYTES);
    }
}
