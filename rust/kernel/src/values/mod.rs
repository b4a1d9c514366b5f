//! What decoders of values have in common: memory that is reused, malformed values, and parts of Arrow arrays.

mod arrays;
mod malformed;
mod memory;

pub(crate) use arrays::{null_buffer, string_array};
pub(crate) use malformed::MalformedRows;
pub use malformed::{DecodedValues, MalformedValues};
pub(crate) use memory::{MAX_RETAINED_BYTES, Spare};
