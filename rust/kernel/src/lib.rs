//! Kafka record batches (message format 2) to Arrow columns.
//!
//! [`Decoder`] is fed the record bytes of fetch responses of one partition and hands out Arrow record batches with
//! exactly the wanted columns and the offsets of one range. There is no I/O here, no policy, and no Python.
//!
//! The bytes come from a broker and are not trusted: every length is checked before it is followed, memory grows with
//! what was really produced and never with what a length field claims, and no code here is `unsafe`.

#![forbid(unsafe_code)]

mod aborted;
mod batch;
mod codecs;
mod columns;
mod decoder;
mod error;
mod format;
mod record;
mod varint;

pub use aborted::AbortedTransaction;
pub use batch::{Scan, scan, scan_with};
pub use decoder::{Counts, Decoder, Limits, Range};
pub use error::{DecodeError, ErrorKind};
