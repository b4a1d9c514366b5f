//! Dates and times: `yyyy-MM-dd` and `yyyy-MM-dd'T'HH:mm:ss[.SSS][XXX]`, as Spark writes them by default.

use arrow_schema::ArrowError;

use super::UtcOffsets;

/// The zone in which a timestamp is written.
pub(super) enum Zone<'a> {
    /// A timestamp without a zone.
    Local,
    /// The offsets, and the UTC second from which each applies.
    Offsets(&'a [(i64, i32)]),
}

impl<'a> Zone<'a> {
    pub fn named(name: &str, zones: &'a UtcOffsets) -> Result<Zone<'a>, ArrowError> {
        let offsets = zones.get(name).filter(|offsets| !offsets.is_empty());
        let offsets = offsets.ok_or_else(|| ArrowError::SchemaError(format!("the time zone {name:?} is unknown")))?;
        Ok(Zone::Offsets(offsets))
    }

    /// The offset in seconds at a UTC second; none without a zone.
    fn offset_at(&self, second: i64) -> Option<i32> {
        match self {
            Zone::Local => None,
            Zone::Offsets(offsets) => {
                // The calendar repeats after 400 years, and with it the rules of daylight saving time.
                let beyond = if offsets.len() == 1 { 0 } else { (second - offsets[offsets.len() - 1].0).max(0) };
                let second = second - (beyond + CYCLE_SECONDS - 1) / CYCLE_SECONDS * CYCLE_SECONDS;
                let after = offsets.partition_point(|&(start, _)| start <= second);
                Some(offsets[after.saturating_sub(1)].1)
            }
        }
    }
}

const DAY_SECONDS: i64 = 86_400;
const CYCLE_DAYS: i64 = 146_097; // 400 years
const CYCLE_SECONDS: i64 = CYCLE_DAYS * DAY_SECONDS;

pub(super) fn write_timestamp(micros: i64, zone: &Zone<'_>, out: &mut Vec<u8>) {
    let offset = zone.offset_at(micros.div_euclid(1_000_000));
    let millis = micros.div_euclid(1000) + i64::from(offset.unwrap_or(0)) * 1000;
    let (second, millis) = (millis.div_euclid(1000), millis.rem_euclid(1000));
    out.push(b'"');
    write_date(second.div_euclid(DAY_SECONDS), out);
    let of_day = second.rem_euclid(DAY_SECONDS);
    out.push(b'T');
    write_two_digits(of_day / 3600, out);
    out.push(b':');
    write_two_digits(of_day / 60 % 60, out);
    out.push(b':');
    write_two_digits(of_day % 60, out);
    out.push(b'.');
    out.push(b'0' + (millis / 100) as u8);
    write_two_digits(millis % 100, out);
    match offset {
        None => {}
        Some(0) => out.push(b'Z'),
        Some(offset) => {
            out.push(if offset < 0 { b'-' } else { b'+' });
            let seconds = i64::from(offset.unsigned_abs());
            write_two_digits(seconds / 3600, out);
            out.push(b':');
            write_two_digits(seconds / 60 % 60, out);
            if seconds % 60 != 0 {
                out.push(b':');
                write_two_digits(seconds % 60, out); // before zones had standard times
            }
        }
    }
    out.push(b'"');
}

/// Writes a date of the proleptic Gregorian calendar, given in days since 1970.
pub(super) fn write_date(days: i64, out: &mut Vec<u8>) {
    // Years begin in March, so that the leap day is the last one.
    let days = days + 719_468;
    let (cycle, day) = (days.div_euclid(CYCLE_DAYS), days.rem_euclid(CYCLE_DAYS));
    let year = (day - day / 1460 + day / 36_524 - day / (CYCLE_DAYS - 1)) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, next_year) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    write_year(year + cycle * 400 + next_year, out);
    out.push(b'-');
    write_two_digits(month, out);
    out.push(b'-');
    write_two_digits(day_of_month, out);
}

/// Writes at least four digits; a sign if there are more, or if the year is negative.
fn write_year(year: i64, out: &mut Vec<u8>) {
    let magnitude = year.unsigned_abs();
    if year < 0 {
        out.push(b'-');
    } else if magnitude > 9999 {
        out.push(b'+');
    }
    out.extend_from_slice(format!("{magnitude:04}").as_bytes());
}

fn write_two_digits(number: i64, out: &mut Vec<u8>) {
    out.push(b'0' + (number / 10) as u8);
    out.push(b'0' + (number % 10) as u8);
}
