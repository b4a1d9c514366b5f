//! gzip (RFC 1952), one member or several in a row.

use flate2::{Decompress, FlushDecompress, Status};

use super::{Plain, broken, guess};
use crate::error::Flaw;

/// zlib's largest window.
const WINDOW_BITS: u8 = 15;

pub(super) fn decompress(packed: &[u8], plain: &mut Plain) -> Result<(), Flaw> {
    plain.room(guess(packed))?;
    let mut rest = member(packed, plain)?;
    while !rest.is_empty() {
        rest = member(rest, plain)?;
    }
    Ok(())
}

/// Decompresses one member and returns what follows it.
fn member<'a>(packed: &'a [u8], plain: &mut Plain) -> Result<&'a [u8], Flaw> {
    let mut inflater = Decompress::new_gzip(WINDOW_BITS);
    let start = plain.length;
    loop {
        let rest = &packed[inflater.total_in() as usize..];
        let before = plain.length;
        let room = plain.room(1)?;
        let full = room.len();
        let status = inflater.decompress(rest, room, FlushDecompress::None).map_err(|error| broken("gzip", error))?;
        plain.length = start + inflater.total_out() as usize;
        let consumed = inflater.total_in() as usize;
        if status == Status::StreamEnd {
            return Ok(&packed[consumed..]);
        }
        // All input taken and room left: the stream wants bytes that are not there.
        if consumed == packed.len() && plain.length - before < full {
            return Err(broken("gzip", "the stream is cut off"));
        }
    }
}
