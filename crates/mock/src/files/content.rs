//! Bytes computed from a name, so that a test need not store the bytes that it expects.

use std::sync::Arc;

/// The bytes that [`super::Files::generate`] serves at `path`: the same each time, and different
/// for different paths.
///
/// The bytes of a smaller size are a prefix of those of a larger one.
pub fn content(path: &str, size: usize) -> Vec<u8> {
    Content::named(path, size as u64).piece(0, size)
}

/// The bytes of a file, stored or computed while they are sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Kept(Arc<[u8]>),
    Made { seed: u64, size: u64 },
}

impl Content {
    pub(crate) fn named(name: &str, size: u64) -> Content {
        // FNV-1a: names that differ in one letter get different seeds.
        let fold = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        Content::Made { seed: name.bytes().fold(0xcbf2_9ce4_8422_2325, fold), size }
    }

    /// More bytes than any test reads.
    pub(crate) fn endless() -> Content {
        Content::Made { seed: 0, size: u64::MAX }
    }

    pub(crate) fn size(&self) -> u64 {
        match self {
            Content::Kept(bytes) => bytes.len() as u64,
            Content::Made { size, .. } => *size,
        }
    }

    /// At most `most` bytes from `first` on.
    pub(crate) fn piece(&self, first: u64, most: usize) -> Vec<u8> {
        let size = usize::try_from(self.size().saturating_sub(first)).unwrap_or(usize::MAX);
        let size = size.min(most);
        match self {
            Content::Kept(bytes) => bytes[first as usize..][..size].to_vec(),
            Content::Made { seed, .. } => made(*seed, first, size),
        }
    }
}

/// Eight bytes of each counter value, so that any offset of an endless file is reached in one step.
fn made(seed: u64, first: u64, size: usize) -> Vec<u8> {
    let skipped = (first % 8) as usize;
    let words = (skipped + size).div_ceil(8) as u64;
    let mut bytes: Vec<u8> = (first / 8..first / 8 + words)
        .flat_map(|counter| mixed(seed.wrapping_add(counter)).to_le_bytes())
        .collect();
    bytes.drain(..skipped);
    bytes.truncate(size);
    bytes
}

/// The finalizer of `SplitMix64`.
fn mixed(counter: u64) -> u64 {
    let z = counter.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_and_sizes_determine_the_bytes() {
        assert_eq!(content("/f/1", 9), content("/f/1", 9));
        assert_ne!(content("/f/1", 9), content("/f/2", 9));
        assert_eq!(content("/f/1", 100)[..9], content("/f/1", 9));
        assert_eq!(content("/f/1", 0), b"");
    }

    proptest! {
        #[test]
        fn a_piece_is_cut_from_the_whole(size in 0..100usize, first in 0..120u64, most in 0..50usize) {
            let whole = content("/x", size);
            let from = (first as usize).min(size);
            let expected = &whole[from..size.min(from + most)];
            let made = Content::named("/x", size as u64);
            prop_assert_eq!(made.piece(from as u64, most), expected);
            let kept = Content::Kept(whole.clone().into());
            prop_assert_eq!(kept.piece(from as u64, most), expected);
        }
    }
}
