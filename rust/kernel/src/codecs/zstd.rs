//! Zstandard (RFC 8878), one frame or several in a row.

use zstd_safe::{DCtx, InBuffer, OutBuffer, get_error_name};

use super::{DecompressedBuffer, MAX_RETAINED_BYTES, decompress_error};
use crate::error::KernelError;

/// zstd's message if `malloc` failed.
const NO_MEMORY: &str = "Allocation error : not enough memory";

/// The context is reused: creating one costs as much as decompressing some 16 KiB.
#[derive(Default)]
pub(super) struct Zstd {
    context: Option<DCtx<'static>>,
    at: usize,
}

impl Zstd {
    pub fn begin(&mut self) -> Result<(), KernelError> {
        self.at = 0;
        self.context.take_if(|context| context.sizeof() > MAX_RETAINED_BYTES);
        self.context()?.init().map_err(failed)?;
        Ok(())
    }

    /// Decompresses up to the end of a chunk; true at the end of the last frame.
    ///
    /// It streams, so that the buffer grows with the output, not with the size in the frame. zstd itself sizes its
    /// window by the frame header, but rejects more than 128 MiB, and touches no more of it than the output needs.
    pub fn step(&mut self, compressed: &[u8], decompressed: &mut DecompressedBuffer) -> Result<bool, KernelError> {
        let mut input = InBuffer { src: compressed, pos: self.at };
        let read_size = decompressed.next_read_size();
        let space = decompressed.space(1)?;
        let limit = space.len().min(read_size);
        let space = &mut space[..limit];
        let mut output = OutBuffer::around(space);
        let wanted = self.context()?.decompress_stream(&mut output, &mut input).map_err(failed)?;
        let produced = output.pos();
        self.at = input.pos();
        decompressed.advance(produced)?;
        if self.at < compressed.len() {
            return Ok(false);
        }
        // All input is used and space is left: the frame is truncated.
        if wanted > 0 && produced < limit {
            return Err(decompress_error("zstd", "the frame is truncated"));
        }
        Ok(wanted == 0)
    }

    fn context(&mut self) -> Result<&mut DCtx<'static>, KernelError> {
        if self.context.is_none() {
            self.context = Some(DCtx::try_create().ok_or_else(KernelError::no_memory)?);
        }
        self.context.as_mut().ok_or_else(KernelError::no_memory)
    }
}

fn failed(code: zstd_safe::ErrorCode) -> KernelError {
    match get_error_name(code) {
        NO_MEMORY => KernelError::no_memory(),
        name => decompress_error("zstd", name),
    }
}
