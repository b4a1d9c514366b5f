//! Protobuf messages to Arrow columns of the wanted fields, by programs.
//!
//! A program has a table for each message type, which Python makes of descriptors; see
//! `pyspark_kafka_direct.payloads.protobuf.protobuf_values`. Fields are found by their tags. Messages are checked to their end, also
//! fields that are not wanted or not known. Their bytes are not trusted: lengths are limited by the rest of the message,
//! its depth is limited, and memory grows with the real output.

mod arrays;
mod decoder;
mod parse;
mod program;
mod put;
mod read;
mod reason;
mod wire;

pub use decoder::ProtobufDecoder;
