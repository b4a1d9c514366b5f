//! Avro datums to Arrow columns of the wanted fields, by programs.
//!
//! A program is the result of Avro's schema resolution for one writer schema, which Python makes; see
//! `pyspark_kafka_direct.payloads.avro.avro_values`. All programs of a decoder fill the same columns. Datums are checked to their
//! end, skipped fields included. Their bytes are not trusted: counts and lengths are limited by the rest of the datum,
//! nothing here recurses deeper than the program, and memory grows with the real output.

pub(crate) mod arrays;
pub(crate) mod columns;
mod decoder;
mod parse;
mod program;
mod read;
pub(crate) mod reason;

pub use decoder::AvroDecoder;
