//! Names from users, safe to print on a terminal.

/// `name` with control characters, and characters that reorder text, made visible. So printing it
/// cannot move the cursor or colour the screen, and it cannot look like another name.
pub fn escape_terminal(name: &str) -> String {
    let mut escaped = String::with_capacity(name.len());
    for character in name.chars() {
        let reorders = matches!(character,
            '\u{061c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}');
        if character.is_control() || reorders {
            escaped.extend(character.escape_unicode());
        } else {
            escaped.push(character);
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_escapes_are_shown_not_obeyed() {
        assert_eq!(escape_terminal("a\u{1b}[31mb"), "a\\u{1b}[31mb");
        assert_eq!(escape_terminal("a\u{202e}b\n"), "a\\u{202e}b\\u{a}");
        assert_eq!(escape_terminal("naïve 模型"), "naïve 模型");
    }
}
