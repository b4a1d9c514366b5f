//! gzip (RFC 1952), one member or several in a row.

use flate2::{Decompress, FlushDecompress, Status};

use super::{Plain, broken};
use crate::error::Flaw;

/// zlib's largest window.
const WINDOW_BITS: u8 = 15;

#[derive(Default)]
pub(super) struct Gzip {
    /// Where the present member starts.
    member: usize,
    inflater: Option<Decompress>,
}

impl Gzip {
    /// Fills the room there is, up to the end of a piece; true at the end of the last member.
    pub fn step(&mut self, packed: &[u8], plain: &mut Plain) -> Result<bool, Flaw> {
        let inflater = self.inflater.get_or_insert_with(|| Decompress::new_gzip(WINDOW_BITS));
        let rest = &packed[self.member + inflater.total_in() as usize..];
        let before = inflater.total_out();
        let step = plain.step();
        let room = plain.room(1)?;
        let full = room.len().min(step);
        let room = &mut room[..full];
        let status = inflater.decompress(rest, room, FlushDecompress::None).map_err(|error| broken("gzip", error))?;
        let produced = (inflater.total_out() - before) as usize;
        let consumed = self.member + inflater.total_in() as usize;
        plain.produced(produced)?;
        if status == Status::StreamEnd {
            self.inflater = None;
            self.member = consumed;
            return Ok(consumed == packed.len());
        }
        // All input taken and room left: the stream wants bytes that are not there.
        if consumed == packed.len() && produced < full {
            return Err(broken("gzip", "the stream is cut off"));
        }
        Ok(false)
    }
}
