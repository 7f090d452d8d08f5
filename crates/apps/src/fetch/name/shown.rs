//! Text from outside as a message may show it.

/// The most characters of foreign text in one message.
const MOST_SHOWN: usize = 120;

/// The text without characters that could control or deceive a terminal, cut to a length for
/// messages.
pub(crate) fn shown(text: &str) -> String {
    let mut shown = String::new();
    for (count, char) in text.chars().enumerate() {
        if count == MOST_SHOWN {
            shown.push('…');
            break;
        }
        if char.is_control() || is_invisible(char) {
            shown.extend(char.escape_unicode());
        } else {
            shown.push(char);
        }
    }
    shown
}

/// Whether the character has no width or turns the direction of others, so that a name with it
/// reads as another name.
pub(super) fn is_invisible(char: char) -> bool {
    matches!(char,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(shown(text), expected);
    }

    #[test]
    fn a_message_has_no_control_characters_and_a_bound() {
        check("Größe `x`", "Größe `x`");
        check("\u{1b}[2J\u{202e}a", "\\u{1b}[2J\\u{202e}a");
        check(&"é".repeat(120), &"é".repeat(120));
        check(&"é".repeat(121), &format!("{}…", "é".repeat(120)));
    }
}
