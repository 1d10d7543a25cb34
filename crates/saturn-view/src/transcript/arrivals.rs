//! Lines for a run that begins or resumes, and for tasks and nodes that come or go.
//!
//! Such records come in bursts: all nodes and tasks at the beginning, all changes of the pool at a
//! resume. Each burst is gathered and reported in a few lines.

use std::collections::BTreeSet;

use saturn_core::Node;
use saturn_core::names::escape_terminal;
use saturn_engine::{NodeId, Purpose, Record, State, TaskId};

use crate::facts::counts::TrialCounts;
use crate::facts::history::History;
use crate::facts::past::PoolEvent;
use crate::layout::units::count;
use crate::phrases::events;
use crate::phrases::tasks::wishes;
use crate::phrases::words;
use crate::phrases::words::listed;
use crate::transcript::gathered::{Arrivals, Standing};
use crate::transcript::writer::{MAX_LISTED, Transcript, more, waits_for_tasks};

impl Transcript {
    /// Gathers a record of an arrival or departure. Returns `false` for other records.
    pub(super) fn arrive(
        &mut self,
        state: &State,
        history: &History,
        record: &Record,
        now_s: f64,
    ) -> bool {
        let is_of_burst = matches!(
            record,
            Record::Began { .. }
                | Record::Resumed { .. }
                | Record::NodeJoined { .. }
                | Record::NodeLeft { .. }
                | Record::TaskAdded { .. }
        ) || matches!(record, Record::Closed) && self.arrivals.is_some();
        if !is_of_burst {
            return false;
        }
        let arrivals = self
            .arrivals
            .get_or_insert_with(|| Arrivals { at_s: (now_s, now_s), ..Arrivals::default() });
        arrivals.at_s.1 = now_s;
        match record {
            Record::Began { .. } => arrivals.began = true,
            Record::Resumed { adopted, .. } => {
                arrivals.resumed = Some(Standing::of(state, adopted.len()));
            }
            Record::Closed => arrivals.closed = true,
            Record::TaskAdded { task, .. } => arrivals.tasks.push(*task),
            Record::NodeJoined { node, .. } => {
                arrivals.joined.push((*node, spec_before(history, *node)));
            }
            Record::NodeLeft { node, reason } => arrivals.left.push((*node, reason.clone())),
            _ => {}
        }
        if arrivals.resumed.is_some() {
            self.show_plan = !state.tasks.is_empty();
        }
        true
    }

    /// The lines for what was gathered.
    pub(super) fn arrived(&mut self, state: &State, history: &History) -> Vec<String> {
        let Some(arrivals) = self.arrivals.take() else { return Vec::new() };
        let now_s = arrivals.at_s.0;
        if arrivals.began {
            return self.began(state, now_s);
        }
        let mut lines = Vec::new();
        if let Some(standing) = &arrivals.resumed {
            lines.extend(self.resumed(state, history, (&arrivals, standing), now_s));
        } else {
            lines.extend(self.nodes_changed(state, &arrivals, now_s));
        }
        if !arrivals.tasks.is_empty() {
            lines.extend(self.added(state, &arrivals.tasks, now_s));
        }
        if arrivals.closed {
            lines.push(self.line(now_s, "close", events::CLOSED));
        }
        lines
    }

    fn began(&self, state: &State, now_s: f64) -> Vec<String> {
        let config = &state.config;
        let techniques: Vec<String> =
            config.techniques.iter().map(|technique| escape_terminal(&technique.name)).collect();
        let open = if state.is_closed { "" } else { "; more may come" };
        let workload = format!(
            "{} on {}; {}: {}{open}",
            count(state.tasks.len(), "task"),
            words::pool_of(state),
            if techniques.len() == 1 { "technique" } else { "techniques" },
            techniques.join(", "),
        );
        let mut lines = vec![self.line(now_s, &self.paint.bold("begin"), &workload)];
        // Some of the trials may have run before these lines appear.
        let (_, num_to_run) = TrialCounts::of(state).progress();
        lines.extend(to_measure(state, num_to_run).map(|text| more(&text)));
        lines
    }

    fn added(&self, state: &State, tasks: &[TaskId], now_s: f64) -> Vec<String> {
        let names: Vec<String> =
            tasks.iter().map(|task| escape_terminal(state.name(*task))).collect();
        let number =
            if tasks.len() > 1 { format!("{} tasks: ", tasks.len()) } else { String::new() };
        let wishes = match tasks {
            [task] => wishes(state, *task),
            _ => String::new(),
        };
        let wishes = if wishes.is_empty() { wishes } else { format!(", {wishes}") };
        let groups: BTreeSet<usize> = tasks.iter().map(|task| state.task(*task).group).collect();
        let trials = groups.iter().flat_map(|group| state.groups[*group].trials.values());
        let num_unknown = trials.filter(|trial| trial.outcome.is_none()).count();
        let measured = if num_unknown > 0 {
            format!("{} to run", count(num_unknown, "trial"))
        } else {
            "measured already".to_owned()
        };
        let text = format!("{number}{}{wishes}; {measured}", listed(&names, MAX_LISTED));
        vec![self.line(now_s, "add", &text)]
    }

    fn resumed(
        &self,
        state: &State,
        history: &History,
        (arrivals, standing): (&Arrivals, &Standing),
        now_s: f64,
    ) -> Vec<String> {
        let Standing { ended, adopted, from_checkpoint, from_start, paused } = standing;
        let adopted = if *adopted > 0 { format!("{adopted} trained on, ") } else { String::new() };
        let paused = if *paused > 0 { format!(", {paused} of them paused") } else { String::new() };
        let text = format!(
            "{ended} of {} ended; {adopted}{from_checkpoint} from a checkpoint, {from_start} from \
             the start{paused}",
            count(state.tasks.len(), "task"),
        );
        let mut lines = vec![self.line(now_s, &self.paint.bold("resume"), &text)];
        let changes = pool_changes(state, arrivals);
        if changes.is_empty() {
            lines.push(more(&format!("on {}, as before", words::pool_of(state))));
        } else {
            let now = format!("other hardware than before: now {}", words::pool_of(state));
            lines.push(more(&self.paint.warn(&now)));
            lines.extend(listed_lines(&changes).iter().map(|change| more(change)));
            lines.push(more(&what_holds(state)));
        }
        let has_trained = history.attempts.values().any(|one| one.purpose == Purpose::Train);
        let trials = TrialCounts::of(state);
        if changes.is_empty() && (trials.open > 0 || !has_trained) {
            let num_to_run = trials.open + trials.running;
            lines.extend(to_measure(state, num_to_run).map(|text| more(&text)));
        }
        lines.extend(waits_for_tasks(state));
        lines
    }

    fn nodes_changed(&self, state: &State, arrivals: &Arrivals, now_s: f64) -> Vec<String> {
        let changes = pool_changes(state, arrivals);
        let Some((first, others)) = changes.split_first() else { return Vec::new() };
        let mut lines = vec![self.line(now_s, &self.paint.warn("pool"), first)];
        lines.extend(listed_lines(others).iter().map(|change| more(change)));
        lines.push(more(&format!("now {}; {}", words::pool_of(state), what_holds(state))));
        lines
    }
}

/// A node's specification before it last joined; `None` if the node is new.
fn spec_before(history: &History, node: NodeId) -> Option<Node> {
    let mut specs = history.pool.iter().rev().filter(|change| change.node == node);
    let mut specs = specs.by_ref().filter_map(|change| match &change.what {
        PoolEvent::Joined(spec) => Some(spec.clone()),
        _ => None,
    });
    specs.nth(1)
}

/// A line for each node that has changed.
fn pool_changes(state: &State, arrivals: &Arrivals) -> Vec<String> {
    let mut changes = Vec::new();
    let name = |node: NodeId| {
        escape_terminal(state.cluster.nodes.get(node.0).map_or("?", |spec| spec.name.as_str()))
    };
    let devices = |spec: &Node| words::devices_of(state.config.device_kind, spec);
    for (node, reason) in &arrivals.left {
        if arrivals.joined.iter().any(|(joined, _)| joined == node) {
            continue;
        }
        let spec = state.cluster.nodes.get(node.0).map(devices).unwrap_or_default();
        changes.push(format!("node {} with {spec} {}", name(*node), events::left(reason)));
    }
    for (node, before) in &arrivals.joined {
        let Some(spec) = state.cluster.nodes.get(node.0) else { continue };
        match before {
            Some(before) if before == spec => {
                changes.push(format!("node {} with {} is back", name(*node), devices(spec)));
            }
            Some(before) => changes.push(format!(
                "node {} has {} now, and had {}",
                name(*node),
                devices(spec),
                devices(before)
            )),
            None => changes.push(format!("node {} with {} has come", name(*node), devices(spec))),
        }
    }
    changes
}

/// The first of these lines.
fn listed_lines(lines: &[String]) -> Vec<String> {
    /// The most lines shown.
    const MAX_LINES: usize = 8;
    let mut shown: Vec<String> = lines.iter().take(MAX_LINES).cloned().collect();
    let num_more = lines.len().saturating_sub(MAX_LINES);
    shown.extend((num_more > 0).then(|| format!("and {num_more} more nodes")));
    shown
}

/// How many measurements are valid on the present pool, and how many trials are to run.
fn what_holds(state: &State) -> String {
    let is_there =
        |gpu_type: &str| state.present_nodes().any(|one| state.gpu_type(one) == gpu_type);
    let (mut num_holding, mut num_elsewhere) = (0, 0);
    for group in state.groups.iter().filter(|group| group.num_open > 0) {
        for (key, trial) in &group.trials {
            if trial.outcome.is_some() {
                *(if is_there(&key.gpu_type) { &mut num_holding } else { &mut num_elsewhere }) += 1;
            }
        }
    }
    let elsewhere = if num_elsewhere > 0 {
        format!(", {num_elsewhere} for absent types of device are kept")
    } else {
        String::new()
    };
    let num_open = state.num_open_trials();
    let hold = if num_holding == 1 { "holds" } else { "hold" };
    format!("{} still {hold}{elsewhere}; {num_open} to run", count(num_holding, "trial"))
}

/// `28 trials to run: 4 tasks are measured for all 12`. Without a number of trials until
/// inspections have found what can be tried. `None` if nothing is to be measured.
fn to_measure(state: &State, num_to_run: usize) -> Option<String> {
    let trials = TrialCounts::of(state);
    let is_looking = state.num_to_inspect() > 0
        || state.groups.iter().any(|group| group.inspection.attempt.is_some());
    if num_to_run + trials.reused == 0 && !is_looking {
        return None;
    }
    let open = state.groups.iter().filter(|group| group.num_open > 0);
    let (num_groups, num_tasks) =
        open.fold((0, 0), |(groups, tasks), group| (groups + 1, tasks + group.num_open));
    let measured = (num_groups < num_tasks).then(|| {
        format!(
            "{} {} measured for all {num_tasks}: the others have the same model and data",
            count(num_groups, "task"),
            if num_groups == 1 { "is" } else { "are" },
        )
    });
    let text = match measured {
        Some(measured) if is_looking => measured,
        None if is_looking => format!("{} to be measured", count(num_groups, "task")),
        Some(measured) if num_to_run > 0 => {
            format!("{} to run: {measured}", count(num_to_run, "trial"))
        }
        _ => format!("{} to run", count(num_to_run, "trial")),
    };
    let reused = match trials.reused {
        0 => String::new(),
        number => format!("; {} known from an earlier search", count(number, "trial")),
    };
    Some(text + &reused)
}
