//! Streams of changes over connections that break, dawdle or are many.
