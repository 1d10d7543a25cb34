//! How people who share a run fare, as data and as a table.

use saturn_core::names::escape_terminal;
use saturn_engine::{State, Uid};
use serde::{Deserialize, Serialize};

use crate::facts::expect::Expected;
use crate::layout::paint::Paint;
use crate::layout::text::{Align, Table};
use crate::layout::units::{clock, number};
use crate::status::data::{Status, TaskStatus};

/// Seconds of an hour.
const HOUR_S: f64 = 3600.0;

/// A person who shares a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PersonStatus {
    /// The login name.
    pub name: String,
    /// The person's number on the machine; null for the person whose process drives the run.
    pub uid: Uid,
    /// The part of the devices, out of 1, that is this person's share now; null for a person without
    /// tasks that may train.
    pub share: Option<f64>,
    /// Devices that the person's tasks hold, for training and trials.
    pub devices: usize,
    /// How many devices the person's tasks may hold at once; null for all.
    pub quota: Option<u32>,
    /// The person's tasks that may train and have not ended.
    pub tasks: u32,
    /// Device-seconds of training. Those of long ago count less.
    pub used_s: f64,
    /// When the last of these tasks is expected to end.
    pub expected_end_s: Option<f64>,
    /// By when the person can count on the end of the last of these tasks.
    pub guaranteed_s: Option<f64>,
    /// How many of these tasks are expected to end later than the person can count on.
    pub late: usize,
}

impl PersonStatus {
    /// Devices that the person's tasks hold: `3`, or with a quota `3 of 4`.
    pub(crate) fn devices_in_words(&self) -> String {
        let of = self.quota.map(|quota| format!(" of {quota}")).unwrap_or_default();
        format!("{}{of}", self.devices)
    }
}

impl Status {
    /// Whose a task of a shared run is; `None` if the run is one person's.
    pub(crate) fn owner_of<'a>(&'a self, task: &'a TaskStatus) -> Option<&'a str> {
        // Tasks of the person whose process drives the run name no owner.
        let host = || self.people.iter().find(|person| person.uid.is_none());
        task.owner.as_deref().or_else(|| host().map(|person| person.name.as_str()))
    }
}

/// The people who share a run, by name; none if the run is one person's.
pub(crate) fn people(state: &State, expected: &Expected) -> Vec<PersonStatus> {
    let Some(sharing) = &state.config.policy.sharing else { return Vec::new() };
    let shares = state.shares(sharing);
    let used_s = state.used_s(sharing, expected.now_s);
    let of_person = |uid: &Uid| {
        let open = state.task_ids().filter(|task| !state.has_ended(*task));
        let open: Vec<_> = open.filter(|task| state.task(*task).uid() == *uid).collect();
        let ends = open.iter().map(|task| expected.times(*task).map(|(_, end_s)| end_s));
        let guaranteed = open.iter().map(|task| state.task(*task).guaranteed_s());
        let both = ends.clone().zip(guaranteed.clone());
        let is_late = |(end_s, by_s): &(Option<f64>, Option<f64>)| {
            end_s.zip(*by_s).is_some_and(|(end_s, by_s)| end_s > by_s)
        };
        PersonStatus {
            name: state.login(sharing, *uid).to_owned(),
            uid: *uid,
            share: shares.get(uid).copied(),
            devices: state.held_by(*uid) as usize,
            quota: state.quota(*uid),
            tasks: state.person(*uid).map_or(0, saturn_engine::Person::num_ready),
            used_s: used_s.get(uid).copied().unwrap_or(0.0),
            expected_end_s: ends.clone().flatten().reduce(f64::max),
            guaranteed_s: guaranteed.clone().flatten().reduce(f64::max),
            late: both.filter(is_late).count(),
        }
    };
    let mut people: Vec<PersonStatus> = state.people().map(of_person).collect();
    people.sort_by(|a, b| a.name.cmp(&b.name).then(a.uid.cmp(&b.uid)));
    people
}

/// A line for each person, below a line of headings.
pub(crate) fn table(people: &[PersonStatus], width: usize, paint: Paint) -> Vec<String> {
    let columns = [
        ("person", Align::Left),
        ("share", Align::Right),
        ("devices", Align::Right),
        ("tasks", Align::Right),
        ("device-hours used", Align::Right),
        ("end", Align::Right),
        ("at the latest", Align::Right),
        ("late", Align::Right),
    ];
    let mut table = Table::new(columns.to_vec());
    let time = |at_s: Option<f64>| at_s.map(clock).unwrap_or_default();
    for one in people {
        // Of several tasks some may be late though the last of them is not.
        let late = if one.late > 0 { one.late.to_string() } else { String::new() };
        table.push(vec![
            escape_terminal(&one.name),
            one.share.map(|share| format!("{:.0}%", 100.0 * share)).unwrap_or_default(),
            one.devices_in_words(),
            one.tasks.to_string(),
            number(one.used_s / HOUR_S),
            time(one.expected_end_s),
            time(one.guaranteed_s),
            late,
        ]);
    }
    table.without_empty_columns().lines(width, paint, |_, _, cell| cell.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_late_tasks_stands_beside_the_end_that_a_person_can_count_on() {
        let person = |name: &str, late: usize| PersonStatus {
            name: name.to_owned(),
            uid: None,
            share: Some(0.5),
            devices: 1,
            quota: None,
            tasks: 3,
            used_s: 7200.0,
            expected_end_s: Some(500.0),
            guaranteed_s: Some(530.0),
            late,
        };
        let lines = table(&[person("lena", 2), person("tomas", 0)], 100, Paint::PLAIN);
        let lines: Vec<&str> = lines.iter().map(|line| line.trim_end()).collect();
        assert!(lines[0].ends_with("end  at the latest  late"), "{lines:#?}");
        assert!(lines[2].ends_with("8:20           8:50     2"), "{lines:#?}");
        assert!(lines[3].ends_with("8:20           8:50"), "{lines:#?}");
    }
}
