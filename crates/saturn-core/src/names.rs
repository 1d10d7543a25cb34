//! Names from users: safe to print on a terminal, and what is said of a name that nothing has.

/// The most names that are offered or listed.
const MOST_NEAR: usize = 3;
const MOST_LISTED: usize = 12;

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

/// What is said where a run has no task of this name: the nearest names, or those that there are.
pub fn unknown_task(name: &str, known: &[&str]) -> String {
    let there = if known.is_empty() {
        "the run has no tasks yet".to_owned()
    } else {
        let near = nearest(name, known);
        if near.is_empty() { format!("there are {}", listed(known)) } else { did_you_mean(&near) }
    };
    format!("there is no task `{name}`; {there}")
}

fn did_you_mean(near: &[&str]) -> String {
    let quoted: Vec<String> = near.iter().map(|name| format!("`{name}`")).collect();
    let (last, others) = quoted.split_last().map_or(("", &[][..]), |(last, all)| (last, all));
    let all = if others.is_empty() { String::new() } else { others.join(", ") + " or " };
    format!("did you mean {all}{last}?")
}

fn listed(known: &[&str]) -> String {
    let shown = known.iter().take(MOST_LISTED).map(|name| format!("`{name}`"));
    let mut shown: Vec<String> = shown.collect();
    let num_left = known.len() - shown.len();
    shown.extend((num_left > 0).then(|| format!("and {num_left} more")));
    shown.join(", ")
}

/// The known names that may have been meant, the nearest first: those that `name` is a part of, or
/// that differ from it in a quarter of its letters.
fn nearest<'a>(name: &str, known: &[&'a str]) -> Vec<&'a str> {
    let asked = name.to_lowercase();
    let num_asked = asked.chars().count();
    // Of names of one or two letters, any would be near.
    let at_most = (num_asked + 1) / 4;
    let distance = |other: &str| {
        let other = other.to_lowercase();
        if num_asked > 1 && other.contains(&asked) {
            return Some(1);
        }
        // Long names that differ in length are far apart: no need to count the edits.
        let is_possible = other.chars().count().abs_diff(num_asked) <= at_most;
        // Letters that are put in, left out, changed, or swapped with the next.
        let edits = || strsim::osa_distance(&asked, &other);
        is_possible.then(edits).filter(|edits| *edits <= at_most)
    };
    let mut near: Vec<(usize, &str)> =
        known.iter().filter_map(|one| Some((distance(one)?, *one))).collect();
    near.sort_by_key(|(distance, _)| *distance);
    let best = near.first().map_or(0, |(distance, _)| *distance);
    near.into_iter()
        .take_while(|(distance, _)| *distance <= best + 1)
        .take(MOST_NEAR)
        .map(|(_, name)| name)
        .collect()
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

    #[test]
    fn a_name_that_nothing_has_is_told_with_the_nearest_names() {
        let known = ["width64-lr0.01", "width256-lr0.01", "width256-lr0.001", "teacher"];
        for (name, told) in [
            ("width256-lr0.1", "did you mean `width256-lr0.01` or `width256-lr0.001`?"),
            ("taecher", "did you mean `teacher`?"),
            ("TEACHER", "did you mean `teacher`?"),
            ("width64", "did you mean `width64-lr0.01`?"),
            ("lr0.01", "did you mean `width64-lr0.01` or `width256-lr0.01`?"),
            ("gpt", "there are `width64-lr0.01`, `width256-lr0.01`, `width256-lr0.001`, `teacher`"),
        ] {
            assert_eq!(unknown_task(name, &known), format!("there is no task `{name}`; {told}"));
        }
        assert_eq!(unknown_task("x", &[]), "there is no task `x`; the run has no tasks yet");
        let many: Vec<String> = (10..40).map(|number| format!("task-{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(unknown_task("gpt", &many).ends_with("`task-21`, and 18 more"));
        assert_eq!(
            unknown_task("task-9", &many).split_once("; ").unwrap().1,
            "did you mean `task-19`, `task-29` or `task-39`?"
        );
    }
}
