//! Numbers as Java writes them: `Long.toString`, `Double.toString` (since JDK 19), `BigDecimal.toString`.

use std::fmt::{LowerExp, Write};
use std::str::FromStr;

pub(super) fn write_integer(value: i64, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut rest = value.unsigned_abs();
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if value < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(&digits[at..]);
}

pub(super) fn write_double(value: f64, out: &mut Vec<u8>) {
    if value.is_finite() && value != 0.0 {
        write_finite(value, value.is_sign_negative(), value.is_normal(), f64::DIGITS as usize, out);
    } else {
        write_special(value, out);
    }
}

pub(super) fn write_float(value: f32, out: &mut Vec<u8>) {
    if value.is_finite() && value != 0.0 {
        write_finite(value, value.is_sign_negative(), value.is_normal(), f32::DIGITS as usize, out);
    } else {
        write_special(f64::from(value), out);
    }
}

fn write_special(value: f64, out: &mut Vec<u8>) {
    out.extend_from_slice(match (value == 0.0, value.is_nan(), value.is_sign_negative()) {
        (true, _, false) => b"0.0",
        (true, _, true) => b"-0.0",
        (_, true, _) => b"\"NaN\"",
        (_, _, false) => b"\"Infinity\"",
        (_, _, true) => b"\"-Infinity\"",
    });
}

fn write_finite<T: LowerExp + FromStr + PartialEq>(
    value: T,
    is_negative: bool,
    is_normal: bool,
    unique_digits: usize, // no two decimals with so few digits are the same normal number
    out: &mut Vec<u8>,
) {
    let mut text = Buffer::default();
    let _ = write!(text, "{value:e}");
    let digits = text.as_bytes().iter().take_while(|&&byte| byte != b'e').filter(|byte| byte.is_ascii_digit()).count();
    if !(2..=unique_digits).contains(&digits) || !is_normal {
        // Of the shortest decimals, and at least of those with two digits, Java writes the nearest one.
        let mut nearest = Buffer::default();
        let _ = write!(nearest, "{value:.*e}", digits.max(2) - 1);
        if std::str::from_utf8(nearest.as_bytes()).ok().and_then(|text| text.parse().ok()) == Some(value) {
            text = nearest;
        }
    }
    let text = text.as_bytes();
    let exponent_at = text.iter().position(|&byte| byte == b'e').unwrap_or(text.len());
    let exponent = std::str::from_utf8(&text[exponent_at + 1..]).ok().and_then(|text| i32::from_str(text).ok());
    let exponent = exponent.unwrap_or_default();
    let unsigned = &text[usize::from(is_negative)..exponent_at];
    // The first digit, and the digits after the point, of which there is at least one.
    let (first, rest) = (unsigned[0], unsigned.get(2..).unwrap_or(b"0"));
    if is_negative {
        out.push(b'-');
    }
    if !(-3..7).contains(&exponent) {
        out.push(first);
        out.push(b'.');
        out.extend_from_slice(rest);
        out.push(b'E');
        write_integer(i64::from(exponent), out);
        return;
    }
    if exponent < 0 {
        out.extend_from_slice(b"0.");
        out.resize(out.len() + (-exponent - 1) as usize, b'0');
        out.push(first);
        out.extend_from_slice(if rest == b"0" { b"" } else { rest });
        return;
    }
    let before_point = exponent as usize;
    out.push(first);
    out.extend_from_slice(&rest[..before_point.min(rest.len())]);
    out.resize(out.len() + before_point.saturating_sub(rest.len()), b'0');
    out.push(b'.');
    out.extend_from_slice(rest.get(before_point..).filter(|digits| !digits.is_empty()).unwrap_or(b"0"));
}

pub(super) fn write_decimal(unscaled: i128, scale: i8, out: &mut Vec<u8>) {
    let mut text = Buffer::default();
    let _ = write!(text, "{}", unscaled.unsigned_abs());
    let digits = text.as_bytes();
    if unscaled < 0 {
        out.push(b'-');
    }
    let scale = i32::from(scale);
    let exponent = digits.len() as i32 - 1 - scale;
    if scale == 0 {
        out.extend_from_slice(digits);
    } else if scale > 0 && exponent >= -6 {
        let before_point = digits.len().saturating_sub(scale as usize);
        if before_point == 0 {
            out.extend_from_slice(b"0.");
            out.resize(out.len() + scale as usize - digits.len(), b'0');
        } else {
            out.extend_from_slice(&digits[..before_point]);
            out.push(b'.');
        }
        out.extend_from_slice(&digits[before_point..]);
    } else {
        out.push(digits[0]);
        if digits.len() > 1 {
            out.push(b'.');
            out.extend_from_slice(&digits[1..]);
        }
        out.push(b'E');
        if exponent > 0 {
            out.push(b'+');
        }
        write_integer(i64::from(exponent), out);
    }
}

/// A number as text, without an allocation.
struct Buffer {
    bytes: [u8; 48],
    length: usize,
}

impl Default for Buffer {
    fn default() -> Self {
        Buffer { bytes: [0; 48], length: 0 }
    }
}

impl Buffer {
    fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl Write for Buffer {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let end = self.length + text.len();
        let target = self.bytes.get_mut(self.length..end).ok_or(std::fmt::Error)?;
        target.copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}
