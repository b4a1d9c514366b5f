//! The hash by which the Java client chooses a key's partition (`Utils.murmur2` in Kafka).

const SEED: u32 = 0x9747_b28c;
const MULTIPLIER: u32 = 0x5bd1_e995;
const SHIFT: u32 = 24;

/// The partition that the Java client would choose for a key.
#[inline]
pub(crate) fn partition_for_key(key: &[u8], partitions: i32) -> i32 {
    (murmur2(key) & 0x7fff_ffff) as i32 % partitions
}

fn murmur2(data: &[u8]) -> u32 {
    let mut value = SEED ^ data.len() as u32;
    let (words, rest) = data.as_chunks::<4>();
    for &word in words {
        let word = u32::from_le_bytes(word).wrapping_mul(MULTIPLIER);
        value = value.wrapping_mul(MULTIPLIER) ^ (word ^ word >> SHIFT).wrapping_mul(MULTIPLIER);
    }
    if !rest.is_empty() {
        let last_word = rest.iter().rev().fold(0, |last_word, &byte| last_word << 8 | u32::from(byte));
        value = (value ^ last_word).wrapping_mul(MULTIPLIER);
    }
    value = (value ^ value >> 13).wrapping_mul(MULTIPLIER);
    value ^ value >> 15
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From `UtilsTest.testMurmur2` in Kafka.
    #[test]
    fn matches_kafkas_test_vectors() {
        for (data, expected) in [
            ("21", -973932308),
            ("foobar", -790332482),
            ("a-little-bit-long-string", -985981536),
            ("a-little-bit-longer-string", -1486304829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
            ("abc", 479470107),
        ] {
            assert_eq!(murmur2(data.as_bytes()) as i32, expected);
        }
        assert_eq!(partition_for_key(b"", 1000), 681);
    }
}
