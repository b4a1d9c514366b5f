//! Strings with escapes, and bytes in base64.

const HEX: &[u8; 16] = b"0123456789ABCDEF";
const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Writes a string. What is not UTF-8 becomes U+FFFD, as in Java.
#[inline(always)]
pub(super) fn write_string(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    if text.iter().all(|&byte| is_plain(byte) && byte.is_ascii()) {
        out.extend_from_slice(text);
    } else {
        write_escaped(text, out);
    }
    out.push(b'"');
}

fn is_plain(byte: u8) -> bool {
    byte >= b' ' && byte != b'"' && byte != b'\\'
}

#[inline(never)]
fn write_escaped(text: &[u8], out: &mut Vec<u8>) {
    for &byte in String::from_utf8_lossy(text).as_bytes() {
        if is_plain(byte) {
            out.push(byte);
            continue;
        }
        out.push(b'\\');
        match byte {
            8 => out.push(b'b'),
            9 => out.push(b't'),
            10 => out.push(b'n'),
            12 => out.push(b'f'),
            13 => out.push(b'r'),
            b'"' | b'\\' => out.push(byte),
            _ => out.extend_from_slice(&[b'u', b'0', b'0', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]),
        }
    }
}

pub(super) fn write_base64(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for chunk in bytes.chunks(3) {
        let mut word = [0; 3];
        word[..chunk.len()].copy_from_slice(chunk);
        let bits = u32::from(word[0]) << 16 | u32::from(word[1]) << 8 | u32::from(word[2]);
        let digits = [18, 12, 6, 0].map(|shift| BASE64[(bits >> shift & 63) as usize]);
        out.extend_from_slice(&digits[..=chunk.len()]);
        out.extend_from_slice(&b"=="[..3 - chunk.len()]);
    }
    out.push(b'"');
}
