//! gzip (RFC 1952), one member or several in a row.

use flate2::{Decompress, FlushDecompress, Status};

use super::{DecompressedBuffer, decompress_error};
use crate::error::KernelError;

/// zlib's largest window.
const WINDOW_BITS: u8 = 15;

#[derive(Default)]
pub(super) struct Gzip {
    /// Where the current member starts.
    member: usize,
    inflater: Option<Decompress>,
}

impl Gzip {
    /// Decompresses up to the end of a chunk; true at the end of the last member.
    pub fn step(&mut self, compressed: &[u8], decompressed: &mut DecompressedBuffer) -> Result<bool, KernelError> {
        let inflater = self.inflater.get_or_insert_with(|| Decompress::new_gzip(WINDOW_BITS));
        let rest = &compressed[self.member + inflater.total_in() as usize..];
        let before = inflater.total_out();
        let read_size = decompressed.next_read_size();
        let space = decompressed.space(1)?;
        let limit = space.len().min(read_size);
        let space = &mut space[..limit];
        let status =
            inflater.decompress(rest, space, FlushDecompress::None).map_err(|error| decompress_error("gzip", error))?;
        let produced = (inflater.total_out() - before) as usize;
        let consumed = self.member + inflater.total_in() as usize;
        decompressed.advance(produced)?;
        if status == Status::StreamEnd {
            self.inflater = None;
            self.member = consumed;
            return Ok(consumed == compressed.len());
        }
        // All input is used and space is left: the stream is truncated.
        if consumed == compressed.len() && produced < limit {
            return Err(decompress_error("gzip", "the stream is truncated"));
        }
        Ok(false)
    }
}
