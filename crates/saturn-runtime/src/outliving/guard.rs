//! What an agent obeys whose driver is another person's process.
//!
//! The driver may start the agent's own person's tasks, on devices of its choice, for as many steps
//! as it likes. It must not have code run that this person has not submitted. So a task's directory
//! is within this person's own, into which nobody else can write, and techniques are taken by name
//! from this person's own list, never from the order.

use saturn_engine::{FailureKind, LaunchError, LaunchOrder, TechniqueRef, Work};

use crate::run_files::new_tasks::is_within;

/// Which orders an agent obeys.
#[derive(Debug, Clone)]
pub(super) struct Guard {
    /// The techniques that this person's tasks may run under.
    pub(super) techniques: Vec<TechniqueRef>,
}

impl Guard {
    /// The order as it may be obeyed, with this person's own techniques.
    pub(super) fn checked(&self, mut order: LaunchOrder) -> Result<LaunchOrder, LaunchError> {
        let refused = |error: String| LaunchError { kind: FailureKind::NotApplicable, error };
        if !is_within(&order.spec.dir) {
            let dir = &order.spec.dir;
            return Err(refused(format!("`{dir}` is not within this person's directory")));
        }
        let own = |asked: &TechniqueRef| {
            let found = self.techniques.iter().find(|one| one.name == asked.name);
            found.cloned()
        };
        order.work = match order.work {
            Work::Inspect { techniques, widths } => {
                Work::Inspect { techniques: techniques.iter().filter_map(own).collect(), widths }
            }
            Work::Run(technique) => Work::Run(own(&technique).ok_or_else(|| {
                let name = &technique.name;
                refused(format!("technique `{name}` is not in the library of this task's person"))
            })?),
        };
        Ok(order)
    }
}

#[cfg(test)]
mod tests {
    use saturn_engine::{AttemptId, Level};

    use super::*;
    use crate::cluster::launcher::tests::order;

    fn technique(name: &str, import: &str) -> TechniqueRef {
        let import = Some(import.to_owned());
        TechniqueRef { name: name.to_owned(), level: Level::Managed, import, pickle: None }
    }

    #[test]
    fn techniques_are_this_persons_own() {
        let guard = Guard { techniques: vec![technique("ddp", "saturn.techniques.ddp:DDP")] };
        let mut asked = order(AttemptId(1));
        asked.work = Work::Run(technique("ddp", "os:system"));
        let obeyed = guard.checked(asked.clone()).unwrap();
        assert_eq!(obeyed.work, Work::Run(guard.techniques[0].clone()));
        asked.work = Work::Run(technique("mine", "os:system"));
        assert!(guard.checked(asked.clone()).unwrap_err().error.contains("`mine`"));
        let techniques = vec![technique("ddp", "os:system"), technique("mine", "os:system")];
        asked.work = Work::Inspect { techniques, widths: Vec::new() };
        let obeyed = guard.checked(asked).unwrap();
        let techniques = guard.techniques.clone();
        assert_eq!(obeyed.work, Work::Inspect { techniques, widths: Vec::new() });
    }

    #[test]
    fn tasks_are_within_this_persons_directory() {
        let guard = Guard { techniques: vec![technique("ddp", "saturn.techniques.ddp:DDP")] };
        for dir in ["", "/etc", "tasks/../../other", "../x"] {
            let mut asked = order(AttemptId(1));
            asked.work = Work::Run(technique("ddp", ""));
            asked.spec.dir = dir.to_owned();
            assert!(guard.checked(asked).unwrap_err().error.contains("not within"), "{dir}");
        }
    }
}
