//! Names from users: as path components, and on a terminal.

/// The longest name that may become a path component.
const MAX_PATH_NAME: usize = 128;

/// Whether `name` matches `[A-Za-z0-9][A-Za-z0-9._=+-]{0,127}`, so that it can be a path component
/// unchanged.
pub fn is_path_safe(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphanumeric())
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"._=+-".contains(&byte))
        && name.len() <= MAX_PATH_NAME
}

/// The path component for the task called `name` at `index` of its workload: the name itself if it
/// is safe, else a generated id.
///
/// Generated ids start with an underscore, which no safe name does. So different tasks of one
/// workload get different slugs, whatever their names.
pub fn slug(name: &str, index: usize) -> String {
    if is_path_safe(name) { name.to_owned() } else { format!("_task-{index}") }
}

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
    fn safe_names_stand_for_themselves() {
        for name in ["a", "gpt2-lr1e-5", "A.b_c=d+e-f", "9", &"x".repeat(128)] {
            assert!(is_path_safe(name), "{name}");
            assert_eq!(slug(name, 3), name);
        }
    }

    #[test]
    fn other_names_become_ids_that_no_safe_name_can_be() {
        for name in
            ["", ".", "..", "a/b", "-rf", "_task-3", "naïve", "a b", "a\0", &"x".repeat(129)]
        {
            assert!(!is_path_safe(name), "{name}");
            assert_eq!(slug(name, 3), "_task-3");
        }
    }

    #[test]
    fn terminal_escapes_are_shown_not_obeyed() {
        assert_eq!(escape_terminal("a\u{1b}[31mb"), "a\\u{1b}[31mb");
        assert_eq!(escape_terminal("a\u{202e}b\n"), "a\\u{202e}b\\u{a}");
        assert_eq!(escape_terminal("naïve 模型"), "naïve 模型");
    }
}
