//! What Linux shows of a process in its directory in `/proc`.

use std::path::Path;

/// The value of a variable in the environment of a process, as the process began. `None` also if the
/// environment can't be read, and for a zombie.
pub(crate) fn variable_of(process: &Path, name: &str) -> Option<String> {
    let environment = std::fs::read(process.join("environ")).ok()?;
    let prefix = format!("{name}=");
    let mut variables = environment.split(|byte| *byte == 0);
    variables
        .find_map(|one| std::str::from_utf8(one).ok()?.strip_prefix(&prefix))
        .map(str::to_owned)
}

/// What a process is, by `stat`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) is_zombie: bool,
    pub(crate) parent: i32,
    pub(crate) group: i32,
}

/// What a process is; `None` if it has ended.
pub(crate) fn stat_of(process: &Path) -> Option<Stat> {
    let stat = std::fs::read_to_string(process.join("stat")).ok()?;
    // The format is `pid (name) state parent group …`, and the name may contain any character.
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ');
    let is_zombie = fields.next()? == "Z";
    let mut number = || fields.next()?.parse().ok();
    Some(Stat { is_zombie, parent: number()?, group: number()? })
}
