//! Dates and timestamps in strings, with the formats that Spark's `from_json` reads by default.

const DAY_SECONDS: i64 = 86_400;
const CYCLE_DAYS: i64 = 146_097; // 400 years
const CYCLE_SECONDS: i64 = CYCLE_DAYS * DAY_SECONDS;
const FIRST_GREGORIAN_DAY: i64 = -141_427; // 1582-10-15
const MAX_OFFSET: i64 = 18 * 3600;

/// The time zone of times without an offset. Without an entry, it is UTC.
#[derive(Default)]
pub(super) struct TimeZone {
    /// The local second from which each offset but the first one applies.
    starts: Vec<i64>,
    offsets: Vec<i32>,
    /// The local second after which the offsets of the 400 years before repeat.
    end: i64,
}

impl TimeZone {
    /// From UTC seconds and the offset from then on; the last entry is the end of the table.
    pub fn new(table: &[(i64, i32)]) -> TimeZone {
        let starts = table.windows(2).map(|pair| pair[1].0 + i64::from(pair[0].1.max(pair[1].1))).collect();
        let end = match table {
            [.., (start, offset)] if table.len() > 1 => start + i64::from(*offset),
            _ => i64::MAX,
        };
        TimeZone { starts, offsets: table.iter().map(|&(_, offset)| offset).collect(), end }
    }

    /// Of a time that occurs twice, this is the first one. A time that is skipped is read with the offset before.
    fn utc_second(&self, local: i64) -> i64 {
        let beyond = local.saturating_sub(self.end).max(0);
        let within = local - (beyond + CYCLE_SECONDS - 1) / CYCLE_SECONDS * CYCLE_SECONDS;
        let index = self.starts.partition_point(|&start| start <= within);
        local - self.offsets.get(index).map_or(0, |&offset| i64::from(offset))
    }
}

/// The days from 1970 to the date in a string.
pub(super) fn date(text: &[u8]) -> Option<i32> {
    days(text).or_else(|| days(&without_gmt(text)?)).or_else(|| i32::try_from(days_of_julian(integer(text)?)?).ok())
}

/// The microseconds from 1970 to the time in a string.
pub(super) fn timestamp(text: &[u8], zone: &TimeZone) -> Option<i64> {
    instant(text, zone).or_else(|| instant(&without_gmt(text)?, zone))
}

/// The same for a time that may not have an offset.
pub(super) fn timestamp_without_zone(text: &[u8]) -> Option<i64> {
    let local = local_time(text).filter(|local| local.zone.is_empty())?;
    micros(local.second, local.micros)
}

fn instant(text: &[u8], zone: &TimeZone) -> Option<i64> {
    let local = local_time(text)?;
    let second =
        if local.zone.is_empty() { zone.utc_second(local.second) } else { local.second - zone_offset(local.zone)? };
    micros(second, local.micros)
}

fn micros(second: i64, micros: i64) -> Option<i64> {
    i64::try_from(i128::from(second) * 1_000_000 + i128::from(micros)).ok()
}

struct LocalTime<'a> {
    /// From 1970 on, without regard to a zone.
    second: i64,
    micros: i64,
    zone: &'a [u8],
}

/// Reads `yyyy[-m[-d[ h[:m[:s[.fraction][zone]]]]]]`.
fn local_time(text: &[u8]) -> Option<LocalTime<'_>> {
    let mut rest = Rest(trim(text, |byte| byte <= b' ' || byte == 0x7f));
    let year = rest.year(6)?;
    let month = rest.part(b"-", 1)?;
    let day = rest.part(b"-", 1)?;
    let hour = rest.part(b" T", 0)?;
    let minute = rest.part(b":", 0)?;
    let (mut second, mut micros) = (0, 0);
    if !rest.0.is_empty() {
        rest.one_of(b":")?;
        second = rest.digits(1, 2)?;
        if rest.one_of(b".").is_some() {
            micros = rest.micros();
        }
    }
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let second = days_of_civil(year, month, day)? * DAY_SECONDS + (hour * 60 + minute) * 60 + second;
    Some(LocalTime { second, micros, zone: rest.0 })
}

/// Reads `yyyy[-m[-d[ or T and anything]]]`.
fn days(text: &[u8]) -> Option<i32> {
    let mut rest = Rest(trim(text, |byte| byte <= b' ' || byte == 0x7f));
    let year = rest.year(7)?;
    let month = rest.part(b"-", 1)?;
    let day = rest.part(b"-", 1)?;
    if !matches!(rest.0, [] | [b' ' | b'T', ..]) {
        return None;
    }
    i32::try_from(days_of_civil(year, month, day)?).ok()
}

/// What is not read yet.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn year(&mut self, most: usize) -> Option<i64> {
        let negative = self.0.first() == Some(&b'-');
        self.one_of(b"+-");
        let year = self.digits(4, most)?;
        Some(if negative { -year } else { year })
    }

    /// One or two digits after a separator; `default` at the end.
    fn part(&mut self, separators: &[u8], default: i64) -> Option<i64> {
        if self.0.is_empty() {
            return Some(default);
        }
        self.one_of(separators)?;
        self.digits(1, 2)
    }

    fn one_of(&mut self, characters: &[u8]) -> Option<()> {
        let (first, rest) = self.0.split_first()?;
        if !characters.contains(first) {
            return None;
        }
        self.0 = rest;
        Some(())
    }

    fn digits(&mut self, least: usize, most: usize) -> Option<i64> {
        let count = self.digit_count();
        if count < least || count > most {
            return None;
        }
        let (digits, rest) = self.0.split_at(count);
        self.0 = rest;
        Some(digits.iter().fold(0, |value, digit| value * 10 + i64::from(digit - b'0')))
    }

    /// Any number of digits, of which the first six count.
    fn micros(&mut self) -> i64 {
        let (digits, rest) = self.0.split_at(self.digit_count());
        self.0 = rest;
        (0..6).fold(0, |value, index| value * 10 + digits.get(index).map_or(0, |digit| i64::from(digit - b'0')))
    }

    fn digit_count(&self) -> usize {
        self.0.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(self.0.len())
    }
}

/// The offset of a zone in seconds; none of a region.
fn zone_offset(text: &[u8]) -> Option<i64> {
    let zone = trim(text, |byte| byte <= b' ');
    let (zone, is_prefix) = match [&b"UTC"[..], b"GMT", b"UT"].iter().find_map(|prefix| zone.strip_prefix(*prefix)) {
        Some(rest) => (rest, true),
        None => (zone, false),
    };
    let hours = match (zone, is_prefix) {
        (b"", true) | (b"Z", false) => return Some(0),
        // Java's ids without daylight saving.
        (b"EST", false) => -5,
        (b"MST", false) => -7,
        (b"HST", false) => -10,
        _ => return numeric_offset(zone),
    };
    Some(hours * 3600)
}

/// Reads `+h`, `+h:mm`, `+h:m`, `+hh`, `+hh:m`, `+hhmm`, `+hh:mm`, `+hhmmss`, `+hh:mm:ss` and `+h:mm:ss`.
fn numeric_offset(zone: &[u8]) -> Option<i64> {
    let mut rest = Rest(zone);
    rest.one_of(b"+-")?;
    let count = rest.digit_count();
    let (hours, mut minutes, mut seconds);
    if count <= 2 {
        hours = rest.digits(1, 2)?;
        (minutes, seconds) = (0, 0);
        if rest.one_of(b":").is_some() {
            let least = if rest.0.len() == 1 { 1 } else { 2 };
            minutes = rest.digits(least, 2)?;
            if rest.one_of(b":").is_some() {
                seconds = rest.digits(2, 2)?;
            }
        }
    } else {
        let number = rest.digits(4, 6).filter(|_| count != 5)?;
        (hours, minutes) =
            if count == 4 { (number / 100, number % 100) } else { (number / 10_000, number / 100 % 100) };
        seconds = if count == 4 { 0 } else { number % 100 };
    }
    let offset = (hours * 60 + minutes) * 60 + seconds;
    if !rest.0.is_empty() || minutes > 59 || seconds > 59 || offset > MAX_OFFSET {
        return None;
    }
    Some(if zone[0] == b'-' { -offset } else { offset })
}

/// The string without `GMT`, as Spark reads it if it has no date otherwise.
#[cold]
fn without_gmt(text: &[u8]) -> Option<Vec<u8>> {
    const GMT: &[u8] = b"GMT";
    if !text.windows(GMT.len()).any(|word| word == GMT) {
        return None;
    }
    let (mut rest, mut without) = (text, Vec::new());
    while let [first, after @ ..] = rest {
        rest = rest.strip_prefix(GMT).unwrap_or_else(|| {
            without.push(*first);
            after
        });
    }
    Some(without)
}

fn trim(text: &[u8], is_trimmed: impl Fn(u8) -> bool) -> &[u8] {
    let start = text.iter().position(|&byte| !is_trimmed(byte)).unwrap_or(text.len());
    let end = text.iter().rposition(|&byte| !is_trimmed(byte)).map_or(start, |last| last + 1);
    &text[start..end]
}

/// An integer of 32 bits.
fn integer(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse::<i32>().ok().map(i64::from)
}

/// The days from 1970 to a date of the proleptic Gregorian calendar.
fn days_of_civil(year: i64, month: i64, day: i64) -> Option<i64> {
    let is_leap_year = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let length = match month {
        2 => 28 + i64::from(is_leap_year),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=length).contains(&day) {
        return None;
    }
    // Years begin in March, so that the leap day is the last one.
    let year = year - i64::from(month < 3);
    let (cycle, of_cycle) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    Some(cycle * CYCLE_DAYS + of_cycle * 365 + of_cycle / 4 - of_cycle / 100 + of_year - 719_468)
}

/// The day that has the same year, month and day as a day before 1582-10-15 of the Julian calendar.
fn days_of_julian(days: i64) -> Option<i64> {
    if days >= FIRST_GREGORIAN_DAY {
        return Some(days);
    }
    let since_march = days + 719_470; // of the year 0
    let (cycle, of_cycle) = (since_march.div_euclid(1461), since_march.rem_euclid(1461));
    let year = (of_cycle / 365).min(3);
    let of_year = of_cycle - year * 365;
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5;
    let (month, next_year) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    Some(days_of_civil(year + cycle * 4 + next_year, month, 1)? + day)
}
