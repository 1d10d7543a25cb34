//! The rooms of the sources of engine, views, solver, runtime, simulator and server. A file uses its own
//! room and the rooms below it, never a room above.
//!
//! Read from the source alone. A file uses another where it names the other's path, or calls a
//! method that the other defines in an `impl` block. A method on `State` belongs to the room of the
//! file that holds it. Methods are known by name, so a call counts as an arrow up only where every
//! method of that name is defined above the caller. Names that the standard library has too are
//! left out. Rooms above `changes` add no methods to `State`.
//!
//! A file may have parts, `room/file/part.rs`, where they share its private fields. They count as
//! the file.
//!
//! A file names another by its path from the crate, so that a reader sees the room.

#![expect(clippy::expect_used, reason = "a test may panic")]

mod houses;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::rooms::houses::{ENGINE, HOUSES, House};

/// Arrows up, circles and long files that are still there. Take a line out with the code that
/// needed it; add none.
const KNOWN: &[&str] = &[];

/// Methods that types of the standard library have too.
const NAMES_OF_STD: &[&str] =
    &["add", "default", "first", "fmt", "get", "is_empty", "new", "remove", "take"];

const MAX_LINES: usize = 450;

/// Source texts by their paths: `room/file`, without the ending.
type Sources = BTreeMap<String, String>;

#[test]
fn a_room_uses_the_rooms_below_it_alone() {
    let found: BTreeSet<String> =
        HOUSES.iter().flat_map(|house| offences(house, &sources(house))).collect();
    let known: BTreeSet<String> = KNOWN.iter().map(|line| (*line).to_owned()).collect();
    let new: Vec<&String> = found.difference(&known).collect();
    let gone: Vec<&String> = known.difference(&found).collect();
    assert!(new.is_empty(), "new, and not allowed:\n{new:#?}");
    assert!(gone.is_empty(), "gone; take these lines out of KNOWN:\n{gone:#?}");
}

#[test]
fn a_rooms_page_says_which_rooms_it_uses() {
    for house in &HOUSES {
        pages_say_what_is_used(house);
    }
}

fn pages_say_what_is_used(house: &House) {
    let sources = sources(house);
    let codes: Sources = sources.iter().map(|(path, text)| (path.clone(), code(text))).collect();
    let (arrows, _) = arrows(house, &codes);
    let root = source_of(house);
    for (number, room) in house.rooms.iter().enumerate() {
        let page = fs::read_to_string(root.join(room).join("mod.rs")).expect("a room has a page");
        let text = page.lines().take_while(|line| line.starts_with("//!"));
        let text = text.map(|line| line.trim_start_matches("//!").trim());
        let text = text.collect::<Vec<_>>().join(" ");
        let may_use = text.split("May use: ").nth(1).expect("a page says what the room may use");
        let mut told: BTreeSet<&str> = may_use.split('`').skip(1).step_by(2).collect();
        if may_use.contains("every room") {
            told.extend(&house.rooms[..number]);
        }
        told.remove("saturn-core");
        let of_room = arrows.iter().filter(|(path, _)| room_of(path) == *room);
        let used: BTreeSet<&str> =
            of_room.flat_map(|(_, used)| used).map(|one| room_of(one)).collect();
        let untold: Vec<&&str> =
            used.iter().filter(|one| *one != room && !told.contains(*one)).collect();
        assert!(untold.is_empty(), "{room}/mod.rs does not say that the room uses {untold:?}");
        let is_code = |line: &&str| {
            let is_door = ["//", "mod ", "pub mod ", "pub(crate) mod "];
            !line.is_empty() && !is_door.iter().any(|start| line.starts_with(start))
        };
        let code: Vec<&str> = page.lines().filter(is_code).collect();
        assert!(code.is_empty(), "{room}/mod.rs holds more than its page and its files: {code:?}");
    }
}

#[test]
fn arrows_up_and_circles_are_seen() {
    let source = |path: &str, text: &str| (path.to_owned(), text.to_owned());
    let sources = Sources::from([
        source("facts/a", "use crate::state::b::B;\nfn f() { crate::state::c::f() }\n"),
        source("state/b", "impl B {\n    pub(crate) fn far(&self) {}\n}\n// crate::engine::d\n"),
        source("state/c", "use crate::state::b::B;\nfn f(b: B) { b.high(); b.far(); b.get() }\n"),
        source("engine/d", "use crate::state::{b::B};\nimpl B {\n    fn high(&self) {}\n}\n"),
        source("health/e", "impl State {\n    fn own(&self) {}\n}\n"),
        source("planning/x", "use crate::planning::y::Y;\n"),
        source(
            "planning/y",
            "use crate::planning::z::Z;\n#[cfg(test)]\nmod tests {\n    use crate::engine::d;\n}\n",
        ),
        source("planning/z", "use crate::planning::x::X;\nimpl Z {\n    fn get(&self) {}\n}\n"),
        source("planning/z/part", "use crate::engine::d;\nuse super::Z;\nimpl Ledger {\n}\n"),
    ]);
    let found: Vec<String> = offences(&ENGINE, &sources).into_iter().collect();
    assert_eq!(
        found,
        [
            "circle: planning/x planning/y planning/z",
            "engine/d names `crate::state::{`, which is no file of a room",
            "facts/a → state/b",
            "facts/a → state/c",
            "health/e has methods of State",
            "planning/z → engine/d",
            "planning/z/part has methods of Ledger",
            "planning/z/part names a file by `super::`, which hides its room",
            "state/c → engine/d",
        ]
    );
}

fn source_of(house: &House) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name(house.name).join("src")
}

fn sources(house: &House) -> Sources {
    let root = source_of(house);
    let mut sources = Sources::new();
    for entry in fs::read_dir(&root).expect("the source is there") {
        let path = entry.expect("an entry").path();
        let name = stem(&path);
        if name == "bin" {
            continue;
        }
        if path.is_dir() {
            assert!(house.rooms.contains(&name.as_str()), "{name} is no room");
            add_files(&mut sources, &path, &name);
        } else {
            assert_eq!(name, "lib", "a file outside of the rooms");
        }
    }
    sources
}

/// Adds the files of a folder, and of the folders in it, each as `within/file`.
fn add_files(sources: &mut Sources, folder: &Path, within: &str) {
    for file in fs::read_dir(folder).expect("a room can be read") {
        let file = file.expect("a file").path();
        let name = format!("{within}/{}", stem(&file));
        let is_source = file.extension().is_some_and(|ending| ending == "rs");
        if file.is_dir() {
            add_files(sources, &file, &name);
        } else if is_source && !matches!(stem(&file).as_str(), "mod" | "tests") {
            sources.insert(name, fs::read_to_string(&file).expect("a source is text"));
        }
    }
}

fn stem(path: &Path) -> String {
    path.file_stem().expect("a name").to_string_lossy().into_owned()
}

/// The files that each file uses, and paths that lead to no file of a room.
fn arrows<'a>(
    house: &House,
    codes: &'a Sources,
) -> (BTreeMap<&'a str, BTreeSet<&'a str>>, BTreeSet<String>) {
    let mut definers: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for (path, code) in codes {
        for name in methods(code) {
            definers.entry(name).or_default().insert(path);
        }
    }
    let (mut arrows, mut strays) = (BTreeMap::new(), BTreeSet::new());
    for (path, code) in codes {
        let used: &mut BTreeSet<&str> = arrows.entry(file_of(path)).or_default();
        for named in paths(code) {
            if let Some((other, _)) = codes.get_key_value(&named) {
                used.insert(other);
            } else {
                let named = named.replace('/', "::");
                strays.insert(format!("{path} names `crate::{named}`, which is no file of a room"));
            }
        }
        for name in called(code).into_iter().filter(|_| house.follows_calls) {
            let files = definers.get(&name).filter(|files| !files.contains(path.as_str()));
            // Of several methods of that name, the lowest is the kindest guess.
            used.extend(
                files.into_iter().flatten().min_by_key(|file| (floor(house, file), **file)),
            );
        }
        used.remove(file_of(path));
    }
    (arrows, strays)
}

/// Each arrow up as `file → file`, each circle of more than two files of a room as its files, each
/// file that is too long.
fn offences(house: &House, sources: &Sources) -> BTreeSet<String> {
    let codes: Sources = sources.iter().map(|(path, text)| (path.clone(), code(text))).collect();
    let (arrows, mut found) = arrows(house, &codes);
    for (path, code) in &codes {
        for (owner, highest) in house.methods_up_to {
            let has_methods = code.lines().any(|line| line == format!("impl {owner} {{"));
            if has_methods && floor(house, path) > floor(house, highest) {
                found.insert(format!("{path} has methods of {owner}"));
            }
        }
        if code.contains("super::") {
            found.insert(format!("{path} names a file by `super::`, which hides its room"));
        }
    }
    let mut within: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (path, used) in arrows {
        for other in used {
            if floor(house, other) > floor(house, path) {
                found.insert(format!("{path} → {other}"));
            } else if floor(house, other) == floor(house, path) {
                within.entry(path).or_default().insert(other);
            }
        }
    }
    found.extend(circles(&within));
    let long = sources.iter().filter(|(_, text)| text.lines().count() > MAX_LINES);
    found.extend(long.map(|(path, _)| format!("long: {path}")));
    found
}

/// The file whose part a path is, or the path itself.
fn file_of(path: &str) -> &str {
    path.match_indices('/').nth(1).map_or(path, |(end, _)| &path[..end])
}

fn room_of(path: &str) -> &str {
    path.split('/').next().unwrap_or_default()
}

fn floor(house: &House, path: &str) -> Option<usize> {
    house.rooms.iter().position(|one| *one == room_of(path))
}

/// Without comments and tests; tests stand at a file's end.
fn code(text: &str) -> String {
    let doors = ["mod tests {", "pub(super) mod tests {", "pub(crate) mod tests {"];
    let starts = doors.iter().filter_map(|door| text.find(&format!("#[cfg(test)]\n{door}")));
    let text = &text[..starts.min().unwrap_or(text.len())];
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

/// The files that a file names, as `room/file`.
fn paths(code: &str) -> BTreeSet<String> {
    let named = code.split("crate::").skip(1).map(|rest| {
        let mut segments = rest.split("::");
        let mut next = || segments.next().unwrap_or_default();
        let (room, file) = (next(), next());
        let end = file.find(|one: char| !is_of_name(one)).unwrap_or(file.len());
        format!(
            "{room}/{}",
            if end == 0 { file.get(..1).unwrap_or_default() } else { &file[..end] }
        )
    });
    named.collect()
}

/// The methods that a file's `impl` blocks define. Source is as rustfmt writes it.
fn methods(code: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut is_inside = false;
    for line in code.lines() {
        if line.starts_with("impl") {
            is_inside = true;
        } else if line.starts_with('}') {
            is_inside = false;
        }
        let Some(item) = line.strip_prefix("    ").filter(|_| is_inside) else { continue };
        let item = item.trim_start_matches("pub(crate) ").trim_start_matches("pub ");
        let Some(name) = item.trim_start_matches("const ").strip_prefix("fn ") else { continue };
        let name: String = name.chars().take_while(|one| is_of_name(*one)).collect();
        if !NAMES_OF_STD.contains(&name.as_str()) {
            names.insert(name);
        }
    }
    names
}

/// The methods that a file calls, or names as a path such as `State::method`.
fn called(code: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (at, _) in code.match_indices(['.', ':']) {
        let (before, rest) = (&code[..at], &code[at + 1..]);
        let end = rest.find(|one: char| !is_of_name(one)).unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        // `State::method`, not `crate::room::file`.
        let is_path = code[at..].starts_with(':')
            && before.strip_suffix(':').is_some_and(|before| {
                let is_end = |one: char| !is_of_name(one);
                let owner = before.rsplit(is_end).next().unwrap_or_default();
                owner.starts_with(|one: char| one.is_ascii_uppercase())
            });
        let is_call =
            code[at..].starts_with('.') && (after.starts_with('(') || after.starts_with("::<"));
        if !name.is_empty() && (is_path || is_call) {
            names.insert(name.to_owned());
        }
    }
    names
}

fn is_of_name(one: char) -> bool {
    one == '_' || one.is_ascii_alphanumeric()
}

/// Sets of more than two files that all reach one another.
fn circles(within: &BTreeMap<&str, BTreeSet<&str>>) -> BTreeSet<String> {
    let reached = |from: &str| {
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        let mut open: Vec<&str> = within.get(from).into_iter().flatten().copied().collect();
        while let Some(file) = open.pop() {
            if seen.insert(file) {
                open.extend(within.get(file).into_iter().flatten());
            }
        }
        seen
    };
    let reach: BTreeMap<&str, BTreeSet<&str>> =
        within.keys().map(|file| (*file, reached(file))).collect();
    let mut found = BTreeSet::new();
    for (file, seen) in &reach {
        let is_back = |other: &&&str| reach.get(**other).is_some_and(|back| back.contains(file));
        let circle: Vec<&str> = seen.iter().filter(is_back).copied().collect();
        if circle.len() > 2 {
            found.insert(format!("circle: {}", circle.join(" ")));
        }
    }
    found
}
