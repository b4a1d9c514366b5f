//! Zstandard (RFC 8878), one frame or several in a row.

use zstd_safe::{DCtx, InBuffer, OutBuffer, get_error_name};

use super::{Plain, broken, guess};
use crate::error::Flaw;

/// A context is worth keeping: making one costs as much as decompressing some 16 KiB.
#[derive(Default)]
pub(super) struct Zstd {
    context: Option<DCtx<'static>>,
}

impl Zstd {
    /// Streams, so that `plain` grows with what is produced whatever the frame claims. zstd itself sizes its window by
    /// the frame header, but refuses more than 128 MiB, and touches no more of it than is produced.
    pub(super) fn decompress(&mut self, packed: &[u8], plain: &mut Plain) -> Result<(), Flaw> {
        let context = self.context.get_or_insert_with(DCtx::create);
        context.init().map_err(failed)?;
        plain.room(guess(packed))?;
        let mut input = InBuffer::around(packed);
        loop {
            let room = plain.room(1)?;
            let full = room.len();
            let mut output = OutBuffer::around(room);
            let wanted = context.decompress_stream(&mut output, &mut input).map_err(failed)?;
            let produced = output.pos();
            plain.length += produced;
            if input.pos() == packed.len() {
                if wanted == 0 {
                    return Ok(());
                }
                // All input taken and room left: the frame wants bytes that are not there.
                if produced < full {
                    return Err(broken("zstd", "the frame is cut off"));
                }
            }
        }
    }
}

fn failed(code: zstd_safe::ErrorCode) -> Flaw {
    broken("zstd", get_error_name(code))
}
