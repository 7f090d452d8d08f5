//! Suggestions for mistyped words.

/// Longer words are not compared.
const LONGEST_WORD: usize = 40;
/// The most words that are compared; a file may define any number of groups.
const MOST_WORDS: usize = 200;

/// The known word nearest to `wrong`, if one is near.
pub(crate) fn nearest<'a>(
    wrong: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let wrong: Vec<char> = wrong.chars().take(LONGEST_WORD + 1).collect();
    if wrong.len() > LONGEST_WORD {
        return None;
    }
    let near = (wrong.len() / 3).max(1);
    let distances = known.into_iter().take(MOST_WORDS).map(|word| (distance(&wrong, word), word));
    distances.filter(|&(distance, _)| distance <= near).min().map(|(_, word)| word)
}

/// The number of letters to add, drop, change or swap with their neighbour.
fn distance(from: &[char], to: &str) -> usize {
    let to: Vec<char> = to.chars().take(LONGEST_WORD).collect();
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=to.len()).collect();
    for (i, letter) in from.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, other) in to.iter().enumerate() {
            let change = last[j] + usize::from(letter != other);
            let mut best = change.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *letter == to[j - 1] && from[i - 1] == *other {
                best = best.min(before[j - 1] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(wrong: &str, expected: Option<&str>) {
        let known = ["every", "limits", "in_flight", "timeout", "group"];
        assert_eq!(nearest(wrong, known), expected, "{wrong}");
    }

    #[test]
    fn a_slip_finds_its_word() {
        check("evry", Some("every"));
        check("evrey", Some("every"));
        check("limit", Some("limits"));
        check("inflight", Some("in_flight"));
        check("in-flight", Some("in_flight"));
        check("tiemout", Some("timeout"));
        check("colour", None);
        check("", None);
    }

    proptest! {
        #[test]
        fn any_word_has_a_distance(a in ".{0,50}", b in ".{0,50}") {
            let letters: Vec<char> = a.chars().collect();
            let far = distance(&letters, &b);
            prop_assert!(far <= letters.len().max(b.chars().count()));
            prop_assert_eq!(distance(&letters, &a) == 0, letters.len() <= LONGEST_WORD);
        }
    }
}
