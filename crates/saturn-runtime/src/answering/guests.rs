//! The rights of guests in a shared pool. A guest is a person of the machine who does not drive the
//! pool.
//!
//! - A guest may submit tasks, and may command only tasks that this guest has submitted.
//! - A guest is told the name of each task, when and where the task trains, and why it waits. A guest is
//!   told losses, metrics and errors only of the guest's own tasks.
//!
//! Who asks is told by the kernel (`asking::door`).

use nix::unistd::geteuid;
use saturn_engine::{Command, NewTask, Owner, Refusal, RefusalCode, State, TaskId};
use saturn_view::{Code, Explanation, History, Status};

use crate::answering::reports;
use crate::asking::control::{Query, Reply};
use crate::asking::door::login;

/// Reasons whose sentences may have lines of a task's own errors.
const HIDDEN: [Code; 7] = [
    Code::Held,
    Code::WaitsRetry,
    Code::WaitsSpace,
    Code::FailedNoStrategy,
    Code::FailedOwnCode,
    Code::FailedTooOften,
    Code::Stopped,
];

/// Why a guest may not give a command; `None`: it may. Commands about tasks that are not there are
/// refused by the engine.
pub(crate) fn refusal(state: &State, command: &Command, guest: &Owner) -> Option<Refusal> {
    let of_pool = |what: &str| {
        let reason = format!("{what}: only the person who drives the pool may do that");
        Some(RefusalCode::NotYours.because(reason))
    };
    match command {
        Command::Submit { .. } => None,
        Command::Wish { task, .. }
        | Command::Cancel { task, .. }
        | Command::Pause { task }
        | Command::Unpause { task }
        | Command::Note { task: Some(task), .. } => not_own(state, task, guest),
        Command::Close => of_pool("the pool would take no more tasks"),
        Command::Stop { .. } => of_pool("everybody's tasks would stop"),
        Command::TakeBack { .. } => of_pool("everybody's tasks would use these devices"),
        Command::Judge { judgements } => {
            judgements.iter().find_map(|one| not_own(state, &one.task, guest))
        }
        Command::Note { task: None, .. } => of_pool("everybody's tasks would be meant"),
    }
}

/// Who ends another person's task by a command: nobody but the person who drives the pool may.
pub(crate) fn canceller(state: &State, task: &str, guest: Option<&Owner>) -> Option<String> {
    let is_others = |task: TaskId| state.task(task).spec.owner.is_some();
    let is_by_host = guest.is_none() && state.task_named(task).is_some_and(is_others);
    is_by_host.then(|| login(geteuid()))
}

/// Makes tasks that are submitted the guest's, or the run's own person's.
pub(crate) fn take_in(tasks: &mut [NewTask], guest: Option<&Owner>) {
    for task in tasks {
        task.spec.owner = guest.cloned();
        if guest.is_some() {
            // What the pool knows of other people's tasks must not come from this guest.
            task.spec.measured.clear();
        }
    }
}

fn not_own(state: &State, task: &str, guest: &Owner) -> Option<Refusal> {
    let id = state.task_named(task)?;
    if is_own(state, id, guest) {
        return None;
    }
    let whose = match &state.task(id).spec.owner {
        Some(owner) => format!("{}'s", owner.name),
        None => "the pool's own person's".to_owned(),
    };
    Some(RefusalCode::NotYours.because(format!("`{task}` is {whose}")))
}

fn is_own(state: &State, task: TaskId, guest: &Owner) -> bool {
    state.task(task).uid() == Some(guest.uid)
}

/// Answers a question of a guest.
pub(crate) fn answer(
    state: &State,
    history: &History,
    query: &Query,
    guest: &Owner,
    now_s: f64,
) -> Reply {
    let mut reply = reports::answer(state, history, query, now_s);
    if let Some(status) = reply.status.take() {
        let veiled = serde_json::from_value(status).map(|status| veil_status(status, state, guest));
        reply.status = veiled.and_then(serde_json::to_value).ok();
    }
    let task = match query {
        Query::Explain { task: Some(task) } => state.task_named(task),
        _ => None,
    };
    if let Some(explanation) = reply.explanation.take() {
        let is_veiled = task.is_some_and(|task| !is_own(state, task, guest));
        reply.explanation = if is_veiled {
            let veiled = serde_json::from_value(explanation).map(veil_explanation);
            veiled.and_then(serde_json::to_value).ok()
        } else {
            Some(explanation)
        };
    }
    reply
}

/// A status has all tasks of the state, in their order.
fn veil_status(mut status: Status, state: &State, guest: &Owner) -> Status {
    let tasks = status.tasks.iter_mut().zip(state.task_ids());
    for (task, _) in tasks.filter(|(_, id)| !is_own(state, *id, guest)) {
        (task.loss, task.value) = (None, None);
        (task.evaluation, task.best, task.goal) = (None, None, None);
        task.error = None;
        task.dir.clear();
    }
    status.waits_space = None;
    status
}

fn veil_explanation(mut explanation: Explanation) -> Explanation {
    (explanation.traceback, explanation.log) = (None, None);
    explanation.candidates.clear();
    explanation.moves.clear();
    for reason in explanation.reasons.iter_mut().filter(|one| HIDDEN.contains(&one.code)) {
        reason.sentence = format!("Another person's task: {}.", reason.code.meaning());
    }
    explanation
}

#[cfg(test)]
mod tests {
    use saturn_engine::Record;
    use serde_json::json;

    use super::*;
    use crate::keeping::shelf::tests::config;

    fn person(uid: u32, name: &str) -> Owner {
        Owner { uid, name: name.to_owned() }
    }

    /// A pool with a task of lena's, a task of tomas's and a task of its own person's.
    fn pool() -> State {
        let mut state = State::new(config());
        let owners = [Some(person(1001, "lena")), Some(person(1002, "tomas")), None];
        for (number, owner) in owners.into_iter().enumerate() {
            let name = owner.as_ref().map_or("own", |owner| &owner.name);
            let spec = serde_json::from_value(json!({
                "name": name, "dir": name, "steps": 9, "epochs": null, "gpu_range": [1],
                "profile_key": name, "owner": owner,
            }));
            let added = Record::TaskAdded { task: TaskId(number), spec: spec.unwrap() };
            state.apply(&added, 0.0);
        }
        state
    }

    fn command(of: &serde_json::Value) -> Command {
        serde_json::from_value(of.clone()).unwrap()
    }

    #[test]
    fn a_guest_commands_this_guests_tasks_alone() {
        let (state, lena) = (pool(), person(1001, "lena"));
        for verb in ["cancel", "pause", "unpause"] {
            let refused = |task: &str| {
                let command = command(&json!({"command": verb, "task": task}));
                refusal(&state, &command, &lena).map(|refusal| (refusal.code, refusal.reason))
            };
            assert_eq!(refused("lena"), None);
            assert_eq!(refused("nobody"), None, "the engine knows no such task, and says so");
            let (code, reason) = refused("tomas").unwrap();
            assert_eq!((code, &*reason), (RefusalCode::NotYours, "`tomas` is tomas's"));
            assert_eq!(refused("own").unwrap().0, RefusalCode::NotYours);
        }
        let wish = |task: &str, priority: i32| {
            let wish = json!({"command": "wish", "task": task, "priority": priority});
            refusal(&state, &command(&wish), &lena).is_some()
        };
        // A priority is among one's own tasks.
        assert_eq!([wish("lena", -1), wish("lena", 9), wish("tomas", -1)], [false, false, true]);
        let judge = |tasks: &[&str]| {
            let one =
                |task: &&str| json!({"task": task, "step": 3, "ruling": "stop", "reason": ""});
            let judgements: Vec<_> = tasks.iter().map(one).collect();
            let judge = json!({"command": "judge", "judgements": judgements});
            refusal(&state, &command(&judge), &lena).is_some()
        };
        assert_eq!(
            [judge(&["lena"]), judge(&["lena", "tomas"]), judge(&["own"])],
            [false, true, true]
        );
        let note = |task: &str| {
            let note = json!({"command": "note", "task": task, "text": "hello"});
            refusal(&state, &command(&note), &lena).is_some()
        };
        assert_eq!([note("lena"), note("tomas"), note("own")], [false, true, true]);
        // A name says nothing: two people may have had it.
        let other = person(1003, "lena");
        let cancel = command(&json!({"command": "cancel", "task": "lena"}));
        assert!(refusal(&state, &cancel, &other).is_some());
    }

    #[test]
    fn a_guests_task_that_the_pools_own_person_ends_says_who_ended_it() {
        let (state, lena) = (pool(), person(1001, "lena"));
        let host = Some(login(geteuid()));
        assert_eq!(canceller(&state, "lena", None), host);
        assert_eq!(canceller(&state, "lena", Some(&lena)), None);
        assert_eq!(canceller(&state, "own", None), None);
        assert_eq!(canceller(&state, "nobody", None), None);
    }

    #[test]
    fn what_concerns_everybody_is_for_the_person_who_drives_the_pool() {
        let (state, lena) = (pool(), person(1001, "lena"));
        for of in [
            json!({"command": "close"}),
            json!({"command": "stop", "at_once": false}),
            json!({"command": "take_back", "node": "n0", "devices": [0]}),
            json!({"command": "note", "text": "hello"}),
        ] {
            let refusal = refusal(&state, &command(&of), &lena).unwrap();
            assert_eq!(refusal.code, RefusalCode::NotYours, "{of}");
        }
    }

    #[test]
    fn a_submitted_task_is_the_guests_whatever_the_request_says() {
        let mut tasks: Vec<NewTask> = serde_json::from_value(json!([{
            "name": "x", "dir": "x", "steps": 9, "epochs": null, "gpu_range": null,
            "profile_key": "k", "owner": person(1002, "tomas"),
        }]))
        .unwrap();
        take_in(&mut tasks, Some(&person(1001, "lena")));
        assert_eq!(tasks[0].spec.owner, Some(person(1001, "lena")));
        take_in(&mut tasks, None);
        assert_eq!(tasks[0].spec.owner, None);
    }

    #[test]
    fn losses_and_errors_are_told_to_their_person_alone() {
        let (mut state, history) = (pool(), History::default());
        for task in &mut state.tasks {
            task.loss = Some(0.5);
        }
        let losses = |guest: &Owner| {
            let reply = answer(&state, &history, &Query::Status, guest, 0.0);
            let status: Status = serde_json::from_value(reply.status.unwrap()).unwrap();
            status.tasks.iter().map(|task| task.loss).collect::<Vec<_>>()
        };
        assert_eq!(losses(&person(1001, "lena")), [Some(0.5), None, None]);
        assert_eq!(losses(&person(1002, "tomas")), [None, Some(0.5), None]);
        assert_eq!(losses(&person(1003, "lena")), [None, None, None], "another person's name");
    }
}
