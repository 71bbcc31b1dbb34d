//! The replicas of a service as readers see them: a list by index whose copies share what did not change.

use std::ops::Index;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::ReplicaView;
use super::roster::{Named, Roster};

/// Replicas by index, ascending, each once; on the wire a plain list. Cheap to copy, also with thousands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicaList(Roster<ReplicaView>);

impl ReplicaList {
    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Every replica, by index.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &ReplicaView> + Clone {
        self.0.values().map(Arc::as_ref)
    }

    /// The replica of this index. Cost: two binary searches.
    #[must_use]
    pub fn of(&self, index: u32) -> Option<&ReplicaView> {
        self.0.get(&index).map(Arc::as_ref)
    }

    /// The one of the lowest index.
    #[must_use]
    pub fn first(&self) -> Option<&ReplicaView> {
        self.iter().next()
    }

    /// Every replica, to be changed in place but for its index. Cost: a copy of each.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut ReplicaView> {
        self.0.values_mut()
    }

    /// Puts a replica in the place of the one of its index. Cost: that of a page, whatever there is beside it.
    pub(super) fn put(&mut self, replica: ReplicaView) {
        self.0.insert(Arc::new(replica));
    }
}

impl Named for ReplicaView {
    type Name = u32;

    fn name(&self) -> &u32 {
        &self.replica
    }
}

impl FromIterator<ReplicaView> for ReplicaList {
    fn from_iter<I: IntoIterator<Item = ReplicaView>>(replicas: I) -> Self {
        Self(replicas.into_iter().map(Arc::new).collect())
    }
}

impl From<Vec<ReplicaView>> for ReplicaList {
    fn from(replicas: Vec<ReplicaView>) -> Self {
        replicas.into_iter().collect()
    }
}

impl Index<usize> for ReplicaList {
    type Output = ReplicaView;

    /// # Panics
    ///
    /// If there are not so many.
    fn index(&self, place: usize) -> &ReplicaView {
        self.0.nth(place).expect("the caller counted them")
    }
}

impl<'a> IntoIterator for &'a ReplicaList {
    type Item = &'a ReplicaView;
    type IntoIter = Box<dyn Iterator<Item = &'a ReplicaView> + 'a>;

    fn into_iter(self) -> Self::IntoIter {
        Box::new(self.iter())
    }
}

impl<'a> IntoIterator for &'a mut ReplicaList {
    type Item = &'a mut ReplicaView;
    type IntoIter = Box<dyn Iterator<Item = &'a mut ReplicaView> + 'a>;

    fn into_iter(self) -> Self::IntoIter {
        Box::new(self.iter_mut())
    }
}

impl Serialize for ReplicaList {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.iter())
    }
}

impl<'de> Deserialize<'de> for ReplicaList {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Vec::<ReplicaView>::deserialize(from).map(Self::from)
    }
}
