//! JSON values to Arrow columns of the wanted fields.
//!
//! The result is that of Spark's `from_json` in mode PERMISSIVE, except for what docs/typed-json.md lists. Values are
//! checked to their end, skipped fields included. The bytes are not trusted: nesting is bounded, nothing here recurses
//! deeper than the schema, and memory grows with the real output.

mod arrays;
mod base64;
mod column;
mod decimal;
mod decoder;
mod error;
mod number;
mod object_keys;
mod prediction;
mod scalars;
mod scan;
mod skip;
mod text;
mod time;
mod variant;
mod variant_bytes;
mod variant_decoder;
mod variant_keys;

pub use decoder::JsonDecoder;
pub use error::Reason;
pub use variant_decoder::VariantDecoder;
