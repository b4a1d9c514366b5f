//! Zstandard (RFC 8878), one frame or several in a row.

use zstd_safe::{DCtx, InBuffer, OutBuffer, get_error_name};

use super::{KEPT_BYTES, Plain, broken};
use crate::error::Flaw;

/// What zstd says where `malloc` fails.
const NO_MEMORY: &str = "Allocation error : not enough memory";

/// A context is worth keeping: making one costs as much as decompressing some 16 KiB.
#[derive(Default)]
pub(super) struct Zstd {
    context: Option<DCtx<'static>>,
    at: usize,
}

impl Zstd {
    pub fn begin(&mut self) -> Result<(), Flaw> {
        self.at = 0;
        self.context.take_if(|context| context.sizeof() > KEPT_BYTES);
        self.context()?.init().map_err(failed)?;
        Ok(())
    }

    /// Fills the room there is, up to the end of a piece; true at the end of the last frame.
    ///
    /// Streams, so that `plain` grows with what is produced whatever the frame claims. zstd itself sizes its window by
    /// the frame header, but refuses more than 128 MiB, and touches no more of it than is produced.
    pub fn step(&mut self, packed: &[u8], plain: &mut Plain) -> Result<bool, Flaw> {
        let mut input = InBuffer { src: packed, pos: self.at };
        let step = plain.step();
        let room = plain.room(1)?;
        let full = room.len().min(step);
        let room = &mut room[..full];
        let mut output = OutBuffer::around(room);
        let wanted = self.context()?.decompress_stream(&mut output, &mut input).map_err(failed)?;
        let produced = output.pos();
        self.at = input.pos();
        plain.produced(produced)?;
        if self.at < packed.len() {
            return Ok(false);
        }
        // All input taken and room left: the frame wants bytes that are not there.
        if wanted > 0 && produced < full {
            return Err(broken("zstd", "the frame is cut off"));
        }
        Ok(wanted == 0)
    }

    fn context(&mut self) -> Result<&mut DCtx<'static>, Flaw> {
        if self.context.is_none() {
            self.context = Some(DCtx::try_create().ok_or_else(Flaw::no_memory)?);
        }
        self.context.as_mut().ok_or_else(Flaw::no_memory)
    }
}

fn failed(code: zstd_safe::ErrorCode) -> Flaw {
    match get_error_name(code) {
        NO_MEMORY => Flaw::no_memory(),
        name => broken("zstd", name),
    }
}
