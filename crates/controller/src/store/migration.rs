//! From the formats of earlier versions to this one's, a step for each.
//!
//! All steps are one transaction, so that there is no store between two formats. What a step does never changes once
//! it was released: a store of its format is kept in `tests/golden`, and read by every later version.

use redb::{Database, Durability, WriteTransaction};

use super::{RedbStore, write_format};

/// The oldest format that is read.
pub(super) const OLDEST: u32 = 1;

type Step = fn(&WriteTransaction) -> Result<(), redb::Error>;

/// What makes each format from the one before it, from [`OLDEST`] on.
const STEPS: [Step; (RedbStore::FORMAT - OLDEST) as usize] = [to_2];

/// Format 2 has tables whose records hold numbers that an older version would give away, and records whose hosts it
/// would take for others. What format 1 held means the same.
const fn to_2(_: &WriteTransaction) -> Result<(), redb::Error> {
    Ok(())
}

/// Brings the database from this format to [`RedbStore::FORMAT`], or leaves it as it is.
pub(super) fn migrate(database: &Database, from: u32) -> Result<(), redb::Error> {
    let mut transaction = database.begin_write()?;
    transaction.set_durability(Durability::Immediate)?;
    let done = from.saturating_sub(OLDEST) as usize;
    for step in STEPS.iter().skip(done) {
        step(&transaction)?;
    }
    write_format(&transaction, RedbStore::FORMAT)?;
    Ok(transaction.commit()?)
}
