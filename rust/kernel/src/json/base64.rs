//! Base64, as Spark's JSON reader decodes it.

use crate::values::{OutOfMemory, reserve};

const INVALID: u8 = 0xff;

const VALUES: [u8; 256] = {
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut values = [INVALID; 256];
    let mut index = 0;
    while index < alphabet.len() {
        values[alphabet[index] as usize] = index as u8;
        index += 1;
    }
    values
};

/// Appends the bytes of groups of four characters, between which blanks are ignored; false if a group is none.
pub(super) fn decode_base64(text: &[u8], out: &mut Vec<u8>) -> Result<bool, OutOfMemory> {
    reserve(out, text.len())?;
    let mut rest = text;
    loop {
        while let [0..=b' ', after @ ..] = rest {
            rest = after;
        }
        if rest.is_empty() {
            return Ok(true);
        }
        let Some((group, after)) = rest.split_first_chunk::<4>() else { return Ok(false) };
        rest = after;
        let characters = match group {
            [_, _, b'=', b'='] => 2,
            [_, _, _, b'='] => 3,
            _ => 4,
        };
        let mut bits = 0u32;
        for (index, &character) in group.iter().enumerate() {
            let value = if index < characters { VALUES[character as usize] } else { 0 };
            if value == INVALID {
                return Ok(false);
            }
            bits = bits << 6 | u32::from(value);
        }
        out.extend_from_slice(&bits.to_be_bytes()[1..characters]);
    }
}
