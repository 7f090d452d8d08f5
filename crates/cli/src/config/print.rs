//! The configuration reference: every key with its default and its explanation, as a file.

use std::fmt::Write;

use super::keys::{Key, Reference, Value, sections};

/// Columns that an explanation fills.
const WIDTH: usize = 96;

/// Every key as TOML. It reads back to the defaults.
pub fn print() -> String {
    let mut text = String::new();
    comment(
        &mut text,
        "The configuration of Paceline. Every key is optional. The values below are the defaults.",
    );
    comment(
        &mut text,
        "A line that starts with `#` and no space is an example: remove the `#` to use it.",
    );
    comment(
        &mut text,
        "Spans are written like 250ms, 90s, 1h30m; rates like 2/s, 100/min, 5000/d, 3/5s; sizes like 64KiB, 10MiB.",
    );
    for section in sections() {
        print_section(&mut text, section);
    }
    text
}

fn print_section(text: &mut String, section: &Reference) {
    text.push('\n');
    comment(text, section.says);
    match section.example {
        Some(name) => line(text, format_args!("#[{}.{name}]", section.section)),
        None => line(text, format_args!("[{}]", section.section)),
    }
    for Key { name, value, says } in section.keys {
        let (mark, value) = match value {
            Value::Default(value) if section.example.is_none() => ("", value),
            Value::Default(value) | Value::Example(value) => ("#", value),
            Value::Unsupported => continue,
        };
        comment(text, says);
        line(text, format_args!("{mark}{name} = {value}"));
    }
}

fn comment(text: &mut String, says: &str) {
    let mut row = String::from("#");
    for word in says.split(' ') {
        if row.len() + 1 + word.len() > WIDTH {
            line(text, format_args!("{row}"));
            row = String::from("#");
        }
        row.push(' ');
        row.push_str(word);
    }
    line(text, format_args!("{row}"));
}

fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(text, "{line}").expect("a string takes everything");
}
