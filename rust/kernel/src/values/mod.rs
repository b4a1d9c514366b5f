//! What decoders and encoders of values have in common: the size of a batch, memory that is reserved and reused, malformed
//! and invalid values, the numbers of programs, and parts of Arrow arrays.

mod arrays;
mod decoded_size;
mod encoded;
mod malformed;
mod memory;
mod program_numbers;

pub(crate) use arrays::{boolean_buffer, fits_column, null_buffer, remove_ends, replace_invalid, string_array};
pub(crate) use decoded_size::{DecodedSize, check_limit, element_width, width};
pub(crate) use encoded::{Invalid, Output, Written, encode_rows, write_varint};
pub use encoded::{InvalidReason, InvalidValue};
pub(crate) use malformed::MalformedRows;
pub use malformed::{DecodedValues, MalformedValues};
pub(crate) use memory::{MAX_RETAINED_BYTES, OutOfMemory, Spare, extend, push, push_rows, reserve, resize};
pub(crate) use program_numbers::{ProgramNumbers, invalid_program};
