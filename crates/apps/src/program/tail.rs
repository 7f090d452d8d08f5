//! The last part of a program's output.

/// Bytes that are kept.
pub const LONGEST_TAIL: usize = 64 << 10;

/// The last bytes of a stream of any length.
#[derive(Clone, Debug, Default)]
pub(super) struct Tail {
    bytes: Vec<u8>,
}

impl Tail {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        // Room for twice as much, so that each byte is moved about once.
        if self.bytes.len() > 2 * LONGEST_TAIL {
            self.cut();
        }
    }

    fn cut(&mut self) {
        let over = self.bytes.len().saturating_sub(LONGEST_TAIL);
        self.bytes.drain(..over);
    }

    /// The bytes that are kept.
    pub(super) fn bytes(&mut self) -> &[u8] {
        self.cut();
        &self.bytes
    }

    /// The last line that is not blank, cleaned for use in a message.
    pub(super) fn last_line(&self) -> Option<String> {
        const LONGEST: usize = 160;
        let end = &self.bytes[self.bytes.len().saturating_sub(4 * LONGEST)..];
        let text = String::from_utf8_lossy(end);
        let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty())?;
        Some(line.chars().filter(|c| !c.is_control()).take(LONGEST).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_last_line_is_short_and_printable_whatever_was_said() {
        let line = |bytes: &[u8]| {
            let mut tail = Tail::default();
            tail.push(bytes);
            tail.last_line()
        };
        assert_eq!(line(b"one\ntwo\n\n"), Some("two".to_string()));
        assert_eq!(
            line(b"\xff\xfe \xf0\x9f\xa6\x96\x1b[31m"),
            Some("\u{fffd}\u{fffd} 🦖[31m".to_string())
        );
        assert_eq!(line(b"\n \n"), None);
        assert_eq!(line(&[b'x'; 10_000]).map(|line| line.len()), Some(160));
    }

    proptest! {
        #[test]
        fn what_is_kept_is_the_end_of_what_was_said(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40_000), 0..12),
        ) {
            let mut tail = Tail::default();
            for piece in &pieces {
                tail.push(piece);
            }
            let all = pieces.concat();
            let kept = tail.bytes();
            prop_assert_eq!(kept.len(), all.len().min(LONGEST_TAIL));
            prop_assert!(all.ends_with(kept));
        }
    }
}
