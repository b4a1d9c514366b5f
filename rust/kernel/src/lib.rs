//! Kafka record batches (message format 2) to Arrow columns, and back.
//!
//! [`Decoder`] is fed the record bytes of fetch responses of one partition and hands out Arrow record batches with
//! exactly the wanted columns and the offsets of one range. [`Encoder`] is given Arrow record batches with the rows of one
//! topic and hands out Kafka's as they fill. There is no I/O here, no policy, and no Python.
//!
//! The bytes come from a broker and are not trusted: every length is checked before it is followed, memory grows with
//! what was really produced and never with what a length field claims, and no code here is `unsafe`.

#![forbid(unsafe_code)]

mod aborted;
mod batch;
mod batch_writer;
mod codecs;
mod columns;
mod decoder;
mod encoder;
mod error;
mod format;
mod murmur2;
mod record;
mod rows;
mod sent;
mod varint;

pub use aborted::AbortedTransaction;
pub use batch::{Scan, scan, scan_with};
pub use decoder::{Counts, Decoder, Limits, Range};
pub use encoder::{EncodeError, EncodedBatch, Encoder, EncoderSettings};
pub use error::{DecodeError, ErrorKind};
pub use format::HEADER as HEADER_BYTES;
pub use sent::{Stamp, no_batch, split, stamp};
