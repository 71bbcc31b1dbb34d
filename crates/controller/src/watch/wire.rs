//! Bytes to a watcher: pieces that are shared stay shared.

use std::io::{self, IoSlice};

use tokio::io::{AsyncWrite, AsyncWriteExt};

/// Writes the pieces one after the other, in as few writes as the peer's buffer allows.
pub(crate) async fn write<W: AsyncWrite + Unpin>(
    wire: &mut W,
    pieces: [&[u8]; 4],
) -> io::Result<()> {
    let mut slices = pieces.map(IoSlice::new);
    let mut left = slices.as_mut_slice();
    // An empty piece in front would read as a write that made no progress.
    IoSlice::advance_slices(&mut left, 0);
    while !left.is_empty() {
        let written = wire.write_vectored(left).await?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        IoSlice::advance_slices(&mut left, written);
    }
    wire.flush().await
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    #[tokio::test]
    async fn pieces_arrive_whole_and_in_order_however_little_is_taken_at_once() {
        let (mut ours, mut theirs) = tokio::io::duplex(3);
        let reading = tokio::spawn(async move {
            let mut read = String::new();
            theirs.read_to_string(&mut read).await.unwrap();
            read
        });
        for pieces in [
            ["", "", "", ""],
            ["a", "b", "", "cdefg"],
            ["", "", "hijk", "l"],
        ] {
            write(&mut ours, pieces.map(str::as_bytes)).await.unwrap();
        }
        drop(ours);
        assert_eq!(reading.await.unwrap(), "abcdefghijkl");
    }
}
