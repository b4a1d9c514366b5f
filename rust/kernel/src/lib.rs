//! Kafka record batches (message formats 0 to 2) to Arrow columns, and back.
//!
//! [`Decoder`] is fed the record bytes of fetch responses of one partition and returns Arrow record batches with exactly
//! the wanted columns and the offsets of one range. [`Encoder`] is given Arrow record batches with the rows of one topic
//! and returns Kafka record batches as they fill. There is no I/O here, no policy, and no Python.
//!
//! The bytes come from a broker and are not trusted: every length is checked before it is used, memory grows with the
//! real output and never with the claim of a length field, and no code here is `unsafe`.

#![forbid(unsafe_code)]

mod aborted;
mod avro;
mod avro_encoder;
mod batch;
mod batch_writer;
mod codecs;
mod columns;
mod control;
mod decoder;
mod encoder;
mod error;
mod format;
mod json;
mod json_encoder;
mod legacy;
mod murmur2;
mod producer_state;
mod protobuf;
mod protobuf_encoder;
mod record;
mod rows;
mod values;
mod varint;

pub use aborted::AbortedTransaction;
pub use avro::AvroDecoder;
pub use avro_encoder::AvroEncoder;
pub use batch::{Scan, ScannedBatch, is_valid_batch, scan, scan_with};
pub use control::is_abort_marker;
pub use decoder::{Counts, Decoder, Limits, OffsetRange};
pub use encoder::{EncodeError, EncodedBatch, Encoder, EncoderSettings};
pub use error::{DecodeError, ErrorKind};
pub use format::HEADER as HEADER_BYTES;
pub use json::{JsonDecoder, Reason, VariantDecoder};
pub use json_encoder::{UtcOffsets, encode_json};
pub use producer_state::{ProducerState, not_a_batch, set_producer_state, split_batch};
pub use protobuf::ProtobufDecoder;
pub use protobuf_encoder::ProtobufEncoder;
pub use values::{DecodedValues, InvalidReason, InvalidValue, MalformedValues};
