//! Decimals of at most 38 digits, with the rounding of Spark's `from_json`.

use arrow_schema::ArrowError;

use super::error::{Parsed, Reason};
use super::number::{NumberKind, number};
use super::skip::{Input, State, quoted};

/// What a 128-bit integer can have.
const MAX_PRECISION: u32 = 38;

#[derive(Clone, Copy)]
pub(super) struct DecimalType {
    pub precision: u8,
    pub scale: i8,
}

impl DecimalType {
    pub fn new(precision: u8, scale: i8) -> Result<DecimalType, ArrowError> {
        if u32::from(precision) > MAX_PRECISION || scale < 0 {
            return Err(ArrowError::SchemaError(format!("JSON cannot be decoded to decimal({precision}, {scale})")));
        }
        Ok(DecimalType { precision, scale })
    }

    /// An unscaled value and the position after it, or why the value at `at` is none.
    #[inline(never)]
    pub fn decode(
        self,
        input: Input<'_>,
        state: &mut State,
        at: usize,
        first: u8,
    ) -> Parsed<Result<(i128, usize), Reason>> {
        if let Some(text) = quoted(input, state, at, first)? {
            return Ok(decimal(text.bytes(state), self).map(|value| (value, text.end)));
        }
        if matches!(first, b'{' | b'[' | b't' | b'f') {
            return Ok(Err(Reason::Type));
        }
        let number = number(input.bytes, input.end, at)?;
        if let NumberKind::NonFinite(_) = number.kind {
            return Ok(Err(Reason::Type));
        }
        Ok(decimal(&input.bytes[at..number.end], self).map(|value| (value, number.end)))
    }
}

/// The unscaled value of a number of Java's `BigDecimal`, rounded half up. Commas are ignored, as in Spark.
fn decimal(text: &[u8], DecimalType { precision, scale }: DecimalType) -> Result<i128, Reason> {
    let digits = Digits::scan(text)?;
    if digits.significant == 0 {
        return Ok(0);
    }
    // How many of the significant digits, and of zeros after them, remain.
    let kept = digits.significant - digits.scale + i64::from(scale);
    if kept > i64::from(MAX_PRECISION) {
        return Err(Reason::Range);
    }
    if kept < 0 {
        return Ok(0);
    }
    let stored = digits.significant.min(i64::from(MAX_PRECISION));
    let rounded = if kept > stored {
        digits.leading * power_of_ten(kept - stored)
    } else if kept == stored {
        digits.leading + u128::from(digits.next >= 5)
    } else {
        let next = digits.leading / power_of_ten(stored - kept - 1);
        next / 10 + u128::from(next % 10 >= 5)
    };
    if rounded >= power_of_ten(i64::from(precision)) {
        return Err(Reason::Range);
    }
    let value = rounded as i128; // below 10^38
    Ok(if digits.negative { -value } else { value })
}

/// A number is its significant digits divided by `10^scale`.
#[derive(Default)]
struct Digits {
    negative: bool,
    /// The first 38 significant digits.
    leading: u128,
    /// The digit after them.
    next: u8,
    /// The count of digits without leading zeros.
    significant: i64,
    scale: i64,
}

impl Digits {
    fn scan(text: &[u8]) -> Result<Digits, Reason> {
        let mut bytes = text.iter().copied().filter(|&byte| byte != b',').peekable();
        let mut digits = Digits::default();
        if let Some(sign) = bytes.next_if(|&byte| matches!(byte, b'+' | b'-')) {
            digits.negative = sign == b'-';
        }
        let mut count = 0u64;
        let mut has_point = false;
        while let Some(byte) = bytes.next_if(|&byte| byte.is_ascii_digit() || (byte == b'.' && !has_point)) {
            if byte == b'.' {
                has_point = true;
                continue;
            }
            count += 1;
            digits.scale += i64::from(has_point);
            digits.push(byte - b'0');
        }
        if count == 0 {
            return Err(Reason::Type);
        }
        if bytes.next_if(|&byte| byte | 0x20 == b'e').is_some() {
            digits.scale -= exponent(&mut bytes)?;
        }
        if bytes.next().is_some() {
            return Err(Reason::Type);
        }
        // As in Java, the scale has 32 bits.
        if i32::try_from(digits.scale).is_ok() { Ok(digits) } else { Err(Reason::Range) }
    }

    fn push(&mut self, digit: u8) {
        if digit == 0 && self.significant == 0 {
            return;
        }
        if self.significant < i64::from(MAX_PRECISION) {
            self.leading = self.leading * 10 + u128::from(digit);
        } else if self.significant == i64::from(MAX_PRECISION) {
            self.next = digit;
        }
        self.significant += 1;
    }
}

fn exponent(bytes: &mut std::iter::Peekable<impl Iterator<Item = u8>>) -> Result<i64, Reason> {
    let negative = bytes.next_if(|&byte| matches!(byte, b'+' | b'-')) == Some(b'-');
    let (mut exponent, mut count) = (0i64, 0u64);
    while let Some(digit) = bytes.next_if(u8::is_ascii_digit) {
        exponent = (exponent * 10 + i64::from(digit - b'0')).min(1 << 32);
        count += 1;
    }
    if count == 0 {
        return Err(Reason::Type);
    }
    let exponent = if negative { -exponent } else { exponent };
    if i32::try_from(exponent).is_ok() { Ok(exponent) } else { Err(Reason::Range) }
}

/// `exponent` is at most 38.
fn power_of_ten(exponent: i64) -> u128 {
    10u128.pow(exponent as u32)
}
